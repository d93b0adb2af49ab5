/*
 * The method `auto`: both ways are measured in the first collective reads, and the faster one is kept.
 *
 * Of six calls the first and the fourth are the MPI's own, the others informed; the second and the fifth are not
 * measured, since an informed read finds the portion disclosed that the one before has announced. The better of two
 * counts, in time for each byte, of the slowest rank. What has been learned of a device by so many ranks serves their
 * next files.
 *
 * All ranks make the same collective calls in the same order, so they are in the same phase without a message; they
 * compare phases when a file is opened, and times when the last phase has ended.
 */
#ifndef FORETELL_MPI_TRIAL_H
#define FORETELL_MPI_TRIAL_H

#include "abi.h"

#include <sys/types.h>

enum { TRIAL_PHASES = 6, TRIAL_COLLECTIVE = TRIAL_PHASES, TRIAL_INFORMED };

struct trial {
    int64_t phase; /* below TRIAL_PHASES: the next call's; else the decision */
    double collective_ns_per_byte, informed_ns_per_byte; /* the least so far of this rank; 0: none */
};

/* What is known of this device and number of ranks. */
struct trial trial_recall(dev_t device, int ranks);

void trial_remember(dev_t device, int ranks, const struct trial *trial);

/* Whether the next collective call is informed. */
bool trial_is_informed(const struct trial *trial);

/* A collective call has ended after `ns` with `bytes` read by this rank. All ranks of `comm` call it after the same call. */
void trial_ended(struct trial *trial, double ns, uint64_t bytes, word comm, int ranks);

#endif
