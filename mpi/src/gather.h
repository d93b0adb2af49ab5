/*
 * Reads a portion of a view with pread(2), range by range.
 *
 * Ranges that are less than a page apart are read with the gap between them: they share pages, so a gap costs a copy and
 * no request of storage.
 */
#ifndef FORETELL_MPI_GATHER_H
#define FORETELL_MPI_GATHER_H

#include "outlook.h"

/* Bytes of the buffer for ranges with gaps, and for memory with holes. */
#define BOUNCE_BYTES ((size_t)256 << 10)

struct gather {
    int fd;
    const struct view *file;
    const struct view *memory; /* displacement 0: offsets from `buffer` */
    char *buffer;
    char *bounce; /* BOUNCE_BYTES */
    uint64_t most_bytes; /* of one read */
    struct outlook *outlook;
};

/* Reads `bytes` of data from `position_bytes` on. False: an error, or the end of the file; the buffer may have been
 * written in part, and the caller has the MPI read it all. */
bool gather_read(struct gather *gather, uint64_t position_bytes, uint64_t bytes);

#endif
