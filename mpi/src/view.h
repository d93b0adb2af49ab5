/*
 * Views: which bytes of a file (or of a buffer) the data bytes 0, 1, 2, … of a rank are.
 *
 * A view is a datatype repeated from a displacement on, its extent apart (MPI 4.1, section 14.3). A cursor is a place in
 * it; it goes from one contiguous range to the next, across parts and copies that touch.
 */
#ifndef FORETELL_MPI_VIEW_H
#define FORETELL_MPI_VIEW_H

#include "parts.h"

struct view {
    int64_t displacement_bytes;
    uint64_t unit_bytes; /* of the etype: positions and offsets of MPI count these */
    struct parts type;
};

struct range {
    int64_t offset_bytes;
    uint64_t length_bytes;
};

struct cursor {
    uint64_t position_bytes; /* in the rank's data */
    uint64_t copy;           /* of the type */
    size_t part;             /* of that copy */
};

/* A place in the data. O(log parts). */
struct cursor view_seek(const struct view *view, uint64_t position_bytes);

/* The next contiguous range, of at most `most_bytes` (at least 1), and the cursor behind it. */
struct range view_next(const struct view *view, struct cursor *cursor, uint64_t most_bytes);

/* The end of the byte at `position_bytes` - 1 of the data: how long the file must be for it; -1 if beyond any file. */
int64_t view_end(const struct view *view, uint64_t position_bytes);

#endif
