#include "parts.h"

#include <stdlib.h>

void parts_add(struct parts *parts, int64_t offset_bytes, uint64_t length_bytes)
{
    if (length_bytes == 0 || parts->has_failed)
        return;
    if (length_bytes > INT64_MAX - parts->data_bytes ||
        offset_bytes > INT64_MAX - (int64_t)length_bytes) {
        parts->has_failed = true;
        return;
    }
    if (parts->count > 0) {
        struct part *last = &parts->list[parts->count - 1];
        if (last->offset_bytes + (int64_t)last->length_bytes == offset_bytes) {
            last->length_bytes += length_bytes;
            parts->data_bytes += length_bytes;
            return;
        }
    }
    if (parts->count == parts->room) {
        size_t room = parts->room == 0 ? 16 : 2 * parts->room;
        size_t most = parts->most != 0 ? parts->most : PARTS_MAX;
        struct part *list = parts->count < most ? realloc(parts->list, room * sizeof *list) : NULL;
        if (list == NULL) {
            parts->has_failed = true;
            return;
        }
        parts->list = list;
        parts->room = room;
    }
    parts->list[parts->count++] = (struct part){offset_bytes, length_bytes, parts->data_bytes};
    parts->data_bytes += length_bytes;
}

/* Whether one copy is a single range as long as the extent, wherever it lies. */
static bool is_gapless(const struct parts *type)
{
    return type->count == 1 && type->extent_bytes >= 0 &&
           type->list[0].length_bytes == (uint64_t)type->extent_bytes;
}

void parts_repeat(struct parts *parts, const struct parts *type, int64_t offset_bytes, uint64_t copies)
{
    uint64_t all_bytes;
    parts->has_failed |= type->has_failed;
    if (copies > 0 && is_gapless(type)) {
        if (__builtin_mul_overflow(type->list[0].length_bytes, copies, &all_bytes))
            parts->has_failed = true;
        else
            parts_add(parts, offset_bytes + type->list[0].offset_bytes, all_bytes);
        return;
    }
    if (type->count == 0)
        return;
    for (uint64_t copy = 0; copy < copies && !parts->has_failed; copy++) {
        int64_t origin, offset;
        if (__builtin_mul_overflow(type->extent_bytes, (int64_t)copy, &origin) ||
            __builtin_add_overflow(origin, offset_bytes, &origin)) {
            parts->has_failed = true;
            return;
        }
        for (size_t i = 0; i < type->count; i++) {
            if (__builtin_add_overflow(origin, type->list[i].offset_bytes, &offset)) {
                parts->has_failed = true;
                return;
            }
            parts_add(parts, offset, type->list[i].length_bytes);
        }
    }
}

bool parts_contiguous(const struct parts *parts)
{
    return !parts->has_failed && is_gapless(parts) && parts->list[0].offset_bytes == 0;
}

bool parts_rising(const struct parts *parts)
{
    if (parts->has_failed || parts->count == 0)
        return false;
    int64_t end = 0;
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->list[i].offset_bytes < end)
            return false;
        end = parts->list[i].offset_bytes + (int64_t)parts->list[i].length_bytes;
    }
    return parts->extent_bytes > 0 && end - parts->list[0].offset_bytes <= parts->extent_bytes;
}

void parts_free(struct parts *parts)
{
    free(parts->list);
    *parts = (struct parts){0};
}
