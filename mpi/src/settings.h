/*
 * The hints of a file: keys of its MPI_Info, in ROMIO's manner, or else environment variables, or else defaults.
 *
 *   foretell_method  FORETELL_MPI_METHOD  collective, informed or auto
 *   foretell_depth   FORETELL_MPI_DEPTH   blocks of 8 KiB that each rank has disclosed and not read; 0: none
 *   foretell_budget  FORETELL_MPI_BUDGET  the same in bytes; 65536, 64KiB, 1GiB, …
 *
 * A value that is not understood counts as absent, since a hint of MPI_Info is never an error; one rank says so on standard
 * error.
 */
#ifndef FORETELL_MPI_SETTINGS_H
#define FORETELL_MPI_SETTINGS_H

#include "abi.h"

enum method { METHOD_COLLECTIVE, METHOD_INFORMED, METHOD_AUTO };

/* Bytes that a rank discloses ahead of its reads, unless told otherwise. */
#define BUDGET_DEFAULT_BYTES (UINT64_C(64) << 20)

struct settings {
    enum method method;
    uint64_t depth_blocks; /* DEPTH_BY_MANAGER: no bound of its own */
    uint64_t budget_bytes;
};

/* The least budget: eight blocks. */
#define BUDGET_MIN_BYTES (UINT64_C(64) << 10)

/* The environment's, and the defaults. `says`: this rank tells of values that are not understood. */
struct settings settings_default(bool says);

/* What the info says in place of `settings`. */
void settings_apply(struct settings *settings, word info, bool says);

#endif
