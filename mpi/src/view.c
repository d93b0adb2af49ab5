#include "view.h"

struct cursor view_seek(const struct view *view, uint64_t position_bytes)
{
    const struct parts *type = &view->type;
    uint64_t copy = position_bytes / type->data_bytes;
    uint64_t within = position_bytes % type->data_bytes;
    size_t low = 0, high = type->count; /* list[low].before_bytes <= within < list[high].before_bytes */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (type->list[middle].before_bytes <= within)
            low = middle;
        else
            high = middle;
    }
    return (struct cursor){position_bytes, copy, low};
}

/* The rest of the part at the cursor. */
static struct range rest(const struct view *view, const struct cursor *cursor)
{
    const struct part *part = &view->type.list[cursor->part];
    uint64_t done = cursor->position_bytes - cursor->copy * view->type.data_bytes - part->before_bytes;
    int64_t origin = view->displacement_bytes + (int64_t)cursor->copy * view->type.extent_bytes;
    return (struct range){origin + part->offset_bytes + (int64_t)done, part->length_bytes - done};
}

static void advance(const struct view *view, struct cursor *cursor, uint64_t bytes)
{
    bool is_at_end = bytes == rest(view, cursor).length_bytes;
    cursor->position_bytes += bytes;
    if (is_at_end && ++cursor->part == view->type.count) {
        cursor->part = 0;
        cursor->copy++;
    }
}

struct range view_next(const struct view *view, struct cursor *cursor, uint64_t most_bytes)
{
    struct range all = rest(view, cursor);
    if (parts_contiguous(&view->type)) {
        all.length_bytes = most_bytes;
        *cursor = view_seek(view, cursor->position_bytes + most_bytes);
        return all;
    }
    if (all.length_bytes >= most_bytes) {
        all.length_bytes = most_bytes;
        advance(view, cursor, most_bytes);
        return all;
    }
    advance(view, cursor, all.length_bytes);
    while (all.length_bytes < most_bytes) {
        struct range next = rest(view, cursor);
        if (next.offset_bytes != all.offset_bytes + (int64_t)all.length_bytes)
            break;
        uint64_t room = most_bytes - all.length_bytes;
        uint64_t bytes = next.length_bytes < room ? next.length_bytes : room;
        all.length_bytes += bytes;
        advance(view, cursor, bytes);
    }
    return all;
}

int64_t view_end(const struct view *view, uint64_t position_bytes)
{
    if (position_bytes == 0)
        return 0;
    struct cursor last = view_seek(view, position_bytes - 1);
    int64_t origin, end;
    if (__builtin_mul_overflow((int64_t)last.copy, view->type.extent_bytes, &origin) ||
        __builtin_add_overflow(origin, view->displacement_bytes, &origin))
        return -1;
    const struct part *part = &view->type.list[last.part];
    uint64_t within = position_bytes - last.copy * view->type.data_bytes - part->before_bytes;
    if (__builtin_add_overflow(origin, part->offset_bytes, &end) ||
        __builtin_add_overflow(end, (int64_t)within, &end))
        return -1;
    return end;
}
