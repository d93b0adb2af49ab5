#include "trial.h"

#include <pthread.h>

/* Devices and numbers of ranks that are remembered; further ones are measured anew. */
#define REMEMBERED 32

static struct {
    dev_t device;
    int ranks;
    struct trial trial;
} remembered[REMEMBERED];
static int remembered_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* -1: not yet known, and no room. */
static int place(dev_t device, int ranks)
{
    for (int i = 0; i < remembered_count; i++)
        if (remembered[i].device == device && remembered[i].ranks == ranks)
            return i;
    if (remembered_count == REMEMBERED)
        return -1;
    remembered[remembered_count].device = device;
    remembered[remembered_count].ranks = ranks;
    return remembered_count++;
}

struct trial trial_recall(dev_t device, int ranks)
{
    (void)pthread_mutex_lock(&lock);
    int index = place(device, ranks);
    struct trial trial = index < 0 ? (struct trial){0} : remembered[index].trial;
    (void)pthread_mutex_unlock(&lock);
    return trial;
}

void trial_remember(dev_t device, int ranks, const struct trial *trial)
{
    (void)pthread_mutex_lock(&lock);
    int index = place(device, ranks);
    if (index >= 0)
        remembered[index].trial = *trial;
    (void)pthread_mutex_unlock(&lock);
}

/* Informed calls of a round. */
#define INFORMED_CALLS 2

/* Collective calls of the second round, and of any round at most. */
#define COLLECTIVE_CALLS 16
#define COLLECTIVE_CALLS_MAX 1024

/* The place of a call in its round, and how many calls the round has. */
static int64_t place_in_round(int64_t call, int64_t *round_calls)
{
    int64_t collective = 1;
    while (call >= INFORMED_CALLS + collective) {
        call -= INFORMED_CALLS + collective;
        collective = collective == 1 ? COLLECTIVE_CALLS : 2 * collective;
        if (collective > COLLECTIVE_CALLS_MAX) {
            collective = COLLECTIVE_CALLS_MAX;
            call %= INFORMED_CALLS + collective;
        }
    }
    *round_calls = INFORMED_CALLS + collective;
    return call;
}

static bool is_informed(int64_t call)
{
    int64_t round_calls;
    return call == TRIAL_INFORMED || place_in_round(call, &round_calls) < INFORMED_CALLS;
}

bool trial_is_informed(const struct trial *trial)
{
    return is_informed(trial->calls);
}

bool trial_foresees(const struct trial *trial)
{
    return trial->calls == TRIAL_INFORMED || is_informed(trial->calls + 1);
}

enum verdict { UNKNOWN, INFORMED, COLLECTIVE };

/* From the times of the slowest rank, and the bytes of all: integers, so that all ranks get the same. */
static enum verdict judge(const struct trial *trial, word comm, int ranks)
{
    int64_t ns[2] = {trial->informed_ns, trial->collective_ns}, slowest[2] = {ns[0], ns[1]};
    int64_t bytes[2] = {trial->informed_bytes, trial->collective_bytes}, all[2] = {bytes[0], bytes[1]};
    if (ranks > 1 && (PMPI.Allreduce(ns, slowest, 2, mpi()->int64, mpi()->max, comm) != 0 ||
                      PMPI.Allreduce(bytes, all, 2, mpi()->int64, mpi()->sum, comm) != 0))
        return UNKNOWN;
    if (all[0] < MEASURED_MIN_BYTES || all[1] < MEASURED_MIN_BYTES)
        return UNKNOWN;
    return (double)slowest[0] * (double)all[1] <= (double)slowest[1] * (double)all[0] ? INFORMED : COLLECTIVE;
}

bool trial_ended(struct trial *trial, int64_t ns, uint64_t bytes, word comm, int ranks)
{
    int64_t round_calls;
    if (trial->calls == TRIAL_INFORMED)
        return false;
    int64_t place = place_in_round(trial->calls, &round_calls);
    if (place == INFORMED_CALLS - 1) {
        trial->informed_ns = ns;
        trial->informed_bytes = (int64_t)bytes;
    } else if (place >= INFORMED_CALLS) {
        trial->collective_ns += ns;
        trial->collective_bytes += (int64_t)bytes;
    }
    trial->calls++;
    if (place + 1 < round_calls)
        return false;
    enum verdict verdict = judge(trial, comm, ranks);
    int64_t calls = verdict == INFORMED  ? TRIAL_INFORMED
                    : verdict == UNKNOWN ? trial->calls - round_calls
                                         : trial->calls;
    *trial = (struct trial){.calls = calls};
    return calls == TRIAL_INFORMED;
}
