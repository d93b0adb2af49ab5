/*
 * Whether all ranks of the job have this library. Only then may a collective call become an independent one: a rank
 * without the library would wait for the others for ever.
 *
 * The MPI cannot be asked, since to ask is a collective call, too. So each rank that initializes MPI through this library
 * enters itself into a table in memory that the job's ranks on this node share; a job is whole if its table is full.
 * The first rank that wants to know decides for all, so that they cannot decide differently. Ranks on other nodes are in
 * other tables: such a job is whole only if the environment says so (FORETELL_MPI_EVERYWHERE=1, set for all its ranks).
 *
 * The table has a name until all ranks have entered, and no longer than MPI_Finalize. It names the process that started
 * the ranks; names of processes that have ended are removed by later jobs.
 */
#ifndef FORETELL_MPI_JOB_H
#define FORETELL_MPI_JOB_H

#include "abi.h"

/* Before PMPI_Init. */
void job_enter(void);

/* After PMPI_Init. */
void job_initialized(void);

/* Whether all ranks of `comm` have the library. The same on all of them. */
bool job_is_whole(word comm);

/* Before PMPI_Finalize. */
void job_leave(void);

#endif
