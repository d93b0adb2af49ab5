#include "gather.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Ranges that are less than this apart are read at once: no whole page lies between them. */
#define GAP_BYTES 4096

static bool read_all(int fd, char *to, uint64_t bytes, int64_t offset_bytes)
{
    while (bytes > 0) {
        size_t most = bytes < (uint64_t)1 << 30 ? (size_t)bytes : (size_t)1 << 30;
        ssize_t done = pread(fd, to, most, offset_bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        to += done;
        bytes -= (uint64_t)done;
        offset_bytes += done;
    }
    return true;
}

static void scatter(struct gather *gather, struct cursor *at, const char *from, uint64_t bytes)
{
    while (bytes > 0) {
        struct range to = view_next(gather->memory, at, bytes);
        memcpy(gather->buffer + to.offset_bytes, from, to.length_bytes);
        from += to.length_bytes;
        bytes -= to.length_bytes;
    }
}

/* How far a window from `from` on may reach: over gaps of less than a page, while it fits. Returns the end of the last
 * range, and in `bytes` the data in it. */
static int64_t window(const struct gather *gather, struct cursor from, uint64_t most_bytes, uint64_t *bytes)
{
    struct range range = view_next(gather->file, &from, most_bytes);
    int64_t start = range.offset_bytes, end = start + (int64_t)range.length_bytes;
    *bytes = range.length_bytes;
    while (*bytes < most_bytes) {
        range = view_next(gather->file, &from, most_bytes - *bytes);
        if (range.offset_bytes - end >= GAP_BYTES ||
            range.offset_bytes + (int64_t)range.length_bytes - start > (int64_t)BOUNCE_BYTES)
            break;
        end = range.offset_bytes + (int64_t)range.length_bytes;
        *bytes += range.length_bytes;
    }
    return end;
}

bool gather_read(struct gather *gather, uint64_t position_bytes, uint64_t bytes)
{
    bool is_direct = parts_contiguous(&gather->memory->type);
    uint64_t most = gather->most_bytes < BOUNCE_BYTES || is_direct ? gather->most_bytes : BOUNCE_BYTES;
    struct cursor file = view_seek(gather->file, position_bytes);
    struct cursor memory = view_seek(gather->memory, 0);
    while (bytes > 0) {
        uint64_t now = bytes < most ? bytes : most, data;
        struct cursor start = file;
        struct range first = view_next(gather->file, &file, now);
        int64_t end = first.offset_bytes + (int64_t)first.length_bytes;
        if (first.length_bytes < now && first.length_bytes < BOUNCE_BYTES)
            end = window(gather, start, now, &data);
        else
            data = first.length_bytes;
        /* The depth is what is disclosed beyond the read that waits. */
        outlook_read(gather->outlook, data);
        if (data == first.length_bytes && is_direct) {
            char *to = gather->buffer + memory.position_bytes;
            if (!read_all(gather->fd, to, data, first.offset_bytes))
                return false;
            memory.position_bytes += data;
        } else {
            if (!read_all(gather->fd, gather->bounce, (uint64_t)(end - first.offset_bytes),
                          first.offset_bytes))
                return false;
            file = start;
            for (uint64_t left = data; left > 0;) {
                struct range range = view_next(gather->file, &file, left);
                scatter(gather, &memory, gather->bounce + (range.offset_bytes - first.offset_bytes),
                        range.length_bytes);
                left -= range.length_bytes;
            }
        }
        bytes -= data;
    }
    return true;
}
