/*
 * Informed reads: a call's portion of the view is disclosed, read range by range, and followed by what will be read next.
 */
#ifndef FORETELL_MPI_INFORMED_H
#define FORETELL_MPI_INFORMED_H

#include "file.h"

/* The arguments of a read, as they came. */
struct call {
    word file;
    bool is_explicit; /* an offset is given; else the individual pointer counts, and moves */
    bool is_collective;
    int64_t at;       /* the offset, in etypes */
    void *to;
    int64_t count;
    word type, status;
};

/* The MPI's own way of doing a call. */
typedef int way(const struct call *call);

/* Reads the call's portion; what cannot be served from here, the MPI's `independent` call reads. Returns its result, or 0. */
int informed_read(struct file *file, const struct call *call, way *independent);

/* Has the MPI do an independent call, in turn with informed reads by the individual pointer. */
int informed_pass(struct file *file, const struct call *call, way *independent);

/* Whether a read is so small, and in a view without holes, that the MPI's own is quicker. */
bool informed_is_small(const struct file *file, const struct call *call);

/* Discloses the call's portion, which the MPI reads, and takes it as read. */
void informed_announce(struct file *file, const struct call *call);

/* Discloses what a call by the shared pointer and the next ones will read, if this rank tells for its node. */
void informed_announce_shared(struct file *file, const struct call *call);

/* Discloses the first copy of a new view. */
void informed_announce_view(struct file *file);

/* The beginning of a split read: discloses its portion, moves the individual pointer behind it, and says what the MPI has
 * said. False: the program is in error, and the MPI says so; on any other rank of a correct program it is true, also on one
 * that reads nothing. */
bool informed_begin(struct file *file, const struct call *call, int *result);

/* Bytes of the call's data; 0 if they cannot be told. */
uint64_t informed_bytes(const struct call *call);

#endif
