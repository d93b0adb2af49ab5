/*
 * What a rank discloses of one file: the ranges that it will read next, a bounded way ahead of its reads.
 *
 * The bound is a depth in blocks, counted where the ranges touch them, and a budget in bytes. The depth is that of
 * Madhyastha, Gibson and Faloutsos, 1999, section 4.1: a rank has at most so many blocks disclosed beyond the read in
 * progress.
 */
#ifndef FORETELL_MPI_OUTLOOK_H
#define FORETELL_MPI_OUTLOOK_H

#include "foretell.h"
#include "view.h"

/* Bytes of a block of the manager. */
#define BLOCK_BYTES UINT64_C(8192)

/* As deep as the manager decides: only the budget bounds what is disclosed. */
#define DEPTH_BY_MANAGER UINT64_MAX

/* A place in the view, and how many blocks have been touched on the way to it. */
struct front {
    struct cursor cursor;
    uint64_t blocks;
    int64_t last_block; /* -1: none */
};

struct outlook {
    foretell_stream *stream; /* NULL: there is no manager */
    char *path;
    const struct view *view;
    uint64_t depth_blocks, budget_bytes;
    uint64_t request_bytes; /* what the manager has been asked for; 0: nothing */
    bool must_cancel;     /* what was disclosed is void, and the manager has not been told yet */
    bool is_open;         /* `ahead` and `read` are places of one sequence of reads */
    struct front ahead;   /* all before it is disclosed */
    struct front read;    /* all before it has been read */
    uint64_t end_bytes;   /* nothing at or beyond this place of the data is disclosed */
    int64_t file_bytes;   /* the file's length: nor is anything beyond it */
    uint64_t disclosed_bytes;
};

/* Bounds what is disclosed. */
void outlook_bound(struct outlook *outlook, uint64_t depth_blocks, uint64_t budget_bytes);

/* Bytes of one read or fetch: of a bounded depth a small part, since either ends with its last block. */
uint64_t outlook_step_bytes(const struct outlook *outlook);

/* The data from `start_bytes` to `end_bytes` will be read. Continues if the last reads ended at `start_bytes`; else all
 * that is disclosed and not read is cancelled. */
void outlook_begin(struct outlook *outlook, uint64_t start_bytes, uint64_t end_bytes);

/* More will be read, up to `end_bytes`. */
void outlook_extend(struct outlook *outlook, uint64_t end_bytes);

/* The next range of the data has been read. */
void outlook_read(struct outlook *outlook, uint64_t bytes);

/* Nothing that is disclosed will be read. */
void outlook_cancel(struct outlook *outlook);

#endif
