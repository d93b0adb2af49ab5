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

static bool is_informed(int64_t phase)
{
    return phase == TRIAL_INFORMED || (phase < TRIAL_PHASES && phase % 3 != 2);
}

bool trial_is_informed(const struct trial *trial)
{
    return is_informed(trial->phase);
}

bool trial_foresees(const struct trial *trial)
{
    return trial->phase >= TRIAL_PHASES ? trial->phase == TRIAL_INFORMED : is_informed(trial->phase + 1);
}

static void take(double *least, double now)
{
    if (*least == 0 || now < *least)
        *least = now;
}

/* The slowest rank's times, in picoseconds for each byte: a reduction of integers is the same on all ranks. */
static void decide(struct trial *trial, word comm, int ranks)
{
    int64_t own[2] = {(int64_t)(trial->collective_ns_per_byte * 1000),
                      (int64_t)(trial->informed_ns_per_byte * 1000)};
    int64_t slowest[2] = {own[0], own[1]};
    if (ranks > 1 && PMPI.Allreduce(own, slowest, 2, mpi()->int64, mpi()->max, comm) != 0)
        trial->phase = TRIAL_COLLECTIVE;
    else if ((double)slowest[1] * CLEARLY < (double)slowest[0])
        trial->phase = TRIAL_INFORMED;
    else if ((double)slowest[0] * CLEARLY < (double)slowest[1])
        trial->phase = TRIAL_COLLECTIVE;
    else if (trial->phase == TRIAL_PHASES)
        trial->phase = slowest[1] < slowest[0] ? TRIAL_INFORMED : TRIAL_COLLECTIVE;
}

void trial_ended(struct trial *trial, double ns, uint64_t bytes, word comm, int ranks)
{
    int64_t place = trial->phase % 3;
    if (trial->phase >= TRIAL_PHASES)
        return;
    if (bytes > 0 && place == 1)
        take(&trial->informed_ns_per_byte, ns / (double)bytes);
    if (bytes > 0 && place == 2)
        take(&trial->collective_ns_per_byte, ns / (double)bytes);
    trial->phase++;
    if (place == 2)
        decide(trial, comm, ranks);
}
