/*
 * The method `auto`: both ways are measured in the first collective reads, and the faster one is kept.
 *
 * Of each three calls the first two are informed and the third is the MPI's own. The first is not measured: an informed
 * read finds disclosed what the one before has foreseen. Nor does the second foresee anything, so that the third finds no
 * help. After three calls one way may be CLEARLY faster; else the better of two counts after six. Times are for each byte,
 * of the slowest rank. What has been learned of a device by so many ranks serves their next files.
 *
 * All ranks make the same collective calls in the same order, so they are in the same phase without a message; they
 * compare phases when a file is opened, and times after each third call.
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

/* How much faster one way must be to be chosen after three calls. */
#define CLEARLY 1.5

/* Whether the next collective call is informed. */
bool trial_is_informed(const struct trial *trial);

/* Whether the call after the next one is, or might be. */
bool trial_foresees(const struct trial *trial);

/* A collective call has ended after `ns` with `bytes` read by this rank. All ranks of `comm` call it after the same call. */
void trial_ended(struct trial *trial, double ns, uint64_t bytes, word comm, int ranks);

#endif
