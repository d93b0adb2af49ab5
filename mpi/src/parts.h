/*
 * Lists of parts: what one copy of an MPI datatype covers, as byte ranges in the order of its type map.
 *
 * A part that begins where the one before ends is merged with it. Without memory, or beyond PARTS_MAX, a list is marked
 * as failed, and nothing more is added: its user passes the call through.
 */
#ifndef FORETELL_MPI_PARTS_H
#define FORETELL_MPI_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most parts of a datatype: 4 Mi, 96 MiB. A rank whose type has more is served by the MPI itself. */
#define PARTS_MAX ((size_t)4 << 20)

struct part {
    int64_t offset_bytes; /* from the type's origin; memory types may have negative ones */
    uint64_t length_bytes;
    uint64_t before_bytes; /* data bytes of all parts before this one */
};

struct parts {
    struct part *list;
    size_t count, room;
    size_t most; /* 0: PARTS_MAX */
    uint64_t data_bytes;  /* the type's size */
    int64_t extent_bytes; /* how far apart two copies begin */
    bool has_failed;
};

void parts_add(struct parts *parts, int64_t offset_bytes, uint64_t length_bytes);

/* Adds `copies` copies of `type`, its extent apart, the first one at `offset_bytes`. */
void parts_repeat(struct parts *parts, const struct parts *type, int64_t offset_bytes, uint64_t copies);

/* Whether copies of the type form one range, without holes, from its origin on. */
bool parts_contiguous(const struct parts *parts);

/* Whether a file can be read through it: rising offsets from 0, no overlap, also from one copy to the next. */
bool parts_rising(const struct parts *parts);

void parts_free(struct parts *parts);

#endif
