/*
 * What the library has done in this process, for FORETELL_MPI_REPORT=FILE: a line of JSON of each rank, added to FILE at
 * MPI_Finalize.
 */
#ifndef FORETELL_MPI_REPORT_H
#define FORETELL_MPI_REPORT_H

#include "file.h"

#include <stdbool.h>

enum counted { CALL_COLLECTIVE, CALL_INFORMED, CALL_PASSED, CALLS };

/* Why collective reads of a file stay with the MPI. */
enum why {
    WHY_NOTHING, /* they do not */
    WHY_METHOD,
    WHY_MODE,
    WHY_NOT_OPENED,
    WHY_DESCRIPTORS,
    WHY_NO_MANAGER,
    WHY_NOT_ALL_RANKS,
    WHY_ANOTHER_RANK,
};

/* The last one is kept. */
void report_why(enum why why);

/* A file has been opened that is not left alone. */
void report_opened(void);

/* One read has been done: by the MPI's collective, from here, or by the MPI since it was not understood. */
void report_call(enum counted kind);

void report_read(uint64_t bytes);

void report_closed(const struct file *file);

/* Writes the line. */
void report_write(void);

#endif
