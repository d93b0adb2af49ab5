/*
 * The method `auto`: begins with informed reads, and goes over to the MPI's collective ones only while they are faster.
 *
 * A round is two informed calls and then collective ones: 1, then 16, 32 and so on. The first informed call is not measured:
 * an informed read finds disclosed what the one before has foreseen. Nor does the second foresee anything, so that the
 * collective calls find no help. At the end of a round the informed way is kept for good if it took no more time for a byte
 * than all collective calls of the round: the slowest rank's time, and the bytes of all. A round of fewer bytes than
 * MEASURED_MIN_BYTES decides nothing, and is made again. So a collective call that was fast by chance, because the
 * kernel had read ahead, costs 16 calls. What has been learned of a device by so many ranks serves their next files.
 *
 * All ranks make the same collective calls in the same order, so they are at the same call without a message; they
 * compare that when a file is opened, and times at the end of a round.
 */
#ifndef FORETELL_MPI_TRIAL_H
#define FORETELL_MPI_TRIAL_H

#include "abi.h"

#include <sys/types.h>

/* In place of a number of calls: informed for good. */
#define TRIAL_INFORMED INT64_MAX

/* Less says nothing of the storage. */
#define MEASURED_MIN_BYTES ((int64_t)256 << 10)

struct trial {
    int64_t calls; /* made so far */
    /* Of this round and rank. */
    int64_t informed_ns, collective_ns;
    int64_t informed_bytes, collective_bytes;
};

/* What is known of this device and number of ranks. */
struct trial trial_recall(dev_t device, int ranks);

void trial_remember(dev_t device, int ranks, const struct trial *trial);

/* Whether the next collective call is informed. */
bool trial_is_informed(const struct trial *trial);

/* Whether the one after that is. */
bool trial_foresees(const struct trial *trial);

/* A collective call has ended after `ns` with `bytes` read by this rank. All ranks of `comm` call it after the same call. True
 * if that was the last one of the trial. */
bool trial_ended(struct trial *trial, int64_t ns, uint64_t bytes, word comm, int ranks);

#endif
