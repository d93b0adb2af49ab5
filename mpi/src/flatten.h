/*
 * Flattens an MPI datatype: from the calls that made it (MPI_Type_get_envelope and _contents) to its list of parts.
 *
 * Understood: named types without holes, dup, contiguous, vector, hvector, indexed, hindexed, indexed_block,
 * hindexed_block, struct, subarray, darray and resized, nested up to FLATTEN_DEPTH_MAX deep. Anything else marks the list
 * as failed.
 */
#ifndef FORETELL_MPI_FLATTEN_H
#define FORETELL_MPI_FLATTEN_H

#include "abi.h"
#include "parts.h"

#define FLATTEN_DEPTH_MAX 32

/* The parts of a datatype, at most so many; to be freed. Costs O(parts), and what its inner types cost. */
struct parts flatten(word type, size_t parts_most);

#endif
