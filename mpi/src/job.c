#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ranks of one node, at most. */
#define RANKS_MAX 65536
#define SHARED "/dev/shm"
#define PREFIX "foretell-mpi-"

enum { UNDECIDED, WHOLE, NOT_WHOLE };

struct table {
    uint32_t decision;
    uint32_t entered; /* of `ranks` */
    uint32_t ranks[RANKS_MAX]; /* pages that are not written take no memory */
};

static struct table *table;
static char name[128];
static ino_t inode;
static bool is_initialized; /* by this library's call */

static int number(const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = getenv(names[i]);
        char *end;
        long value = text != NULL ? strtol(text, &end, 10) : -1;
        if (text != NULL && *text != 0 && *end == 0 && value >= 0 && value < RANKS_MAX)
            return (int)value;
    }
    return -1;
}

/* When a process began, in ticks since the machine did; 0 if there is none. */
static unsigned long long began(long pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    char *at = strrchr(text, ')'); /* behind the name, which may hold anything */
    unsigned long long ticks = 0;
    for (int field = 3; at != NULL && field <= 22; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        ticks = strtoull(at, NULL, 10);
    return ticks;
}

/* The process that has started this rank: Hydra's proxy, which is at the other end of PMI_FD, or the parent. */
static long launcher(void)
{
    const char *text = getenv("PMI_FD");
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    if (text != NULL && getsockopt(atoi(text), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0)
        return peer.pid;
    return getppid();
}

#define HASH_START UINT64_C(0xcbf29ce484222325) /* FNV-1a */
static uint64_t hash(uint64_t value, const char *text)
{
    for (; text != NULL && *text != 0; text++)
        value = (value ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return value;
}

/* Removes the names of this user's tables whose launcher has ended. */
static void remove_stale(void)
{
    char own[64];
    int length = snprintf(own, sizeof own, PREFIX "%u-", (unsigned)geteuid());
    DIR *folder = opendir(SHARED);
    if (folder == NULL)
        return;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        long pid;
        unsigned long long ticks;
        if (strncmp(entry->d_name, own, (size_t)length) == 0 &&
            sscanf(entry->d_name + length, "%ld-%llu-", &pid, &ticks) == 2 && began(pid) != ticks)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
}

/* A rank's place has memory, so that a full file system is noticed here and not when the place is written. */
static bool has_place(int fd, int rank)
{
    return posix_fallocate(fd, 0, offsetof(struct table, ranks)) == 0 &&
           posix_fallocate(fd, (off_t)(offsetof(struct table, ranks) + (size_t)rank * sizeof(uint32_t)),
                           sizeof(uint32_t)) == 0;
}

/* NULL: it cannot be made, or another user's file has its name. */
static struct table *map(int rank)
{
    struct stat about = {0};
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return NULL;
    void *at = MAP_FAILED;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
        about.st_nlink <= 1 && about.st_size <= (off_t)sizeof(struct table) &&
        ftruncate(fd, sizeof(struct table)) == 0 && has_place(fd, rank))
        at = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    inode = about.st_ino;
    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Decides, unless another rank has; returns whether the job is whole. */
static bool decide(uint32_t own)
{
    uint32_t decision = UNDECIDED;
    if (__atomic_compare_exchange_n(&table->decision, &decision, own, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        decision = own;
    return decision == WHOLE;
}

/* The name may be that of the launcher's next program by now. */
static void remove_name(void)
{
    struct stat about;
    if (stat(name, &about) == 0 && about.st_ino == inode)
        (void)unlink(name);
}

/* Tells the jobs of one launcher apart. */
static uint64_t job(void)
{
    static const char *const NAMES[] = {"PMIX_NAMESPACE", "PMI_JOBID", "PMI_SIZE", "PMI_SPAWNED"};
    uint64_t value = HASH_START;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        value = hash(hash(value, getenv(NAMES[i])), " ");
    return value;
}

void job_enter(void)
{
    static const char *const RANKS[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    int saved = errno;
    int rank = number(RANKS, sizeof RANKS / sizeof *RANKS);
    long pid = launcher();
    unsigned long long ticks = began(pid);
    if (rank >= 0 && table == NULL && ticks > 0) {
        (void)snprintf(name, sizeof name, SHARED "/" PREFIX "%u-%ld-%llu-%" PRIx64, (unsigned)geteuid(), pid,
                       ticks, job());
        if (rank == 0)
            remove_stale();
        table = map(rank);
        uint32_t none = 0;
        if (table != NULL && __atomic_compare_exchange_n(&table->ranks[rank], &none, (uint32_t)getpid(),
                                                         false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            (void)__atomic_fetch_add(&table->entered, 1, __ATOMIC_ACQ_REL);
        else if (table != NULL)
            (void)decide(NOT_WHOLE); /* an earlier rank of this number has ended without MPI_Finalize */
    }
    errno = saved;
}

/* How many ranks the job has; -1 if it cannot be told. */
static int size_of_world(void)
{
    int ranks;
    return PMPI.Comm_size(mpi()->comm_world, &ranks) == 0 ? ranks : -1;
}

static bool is_full(void)
{
    return __atomic_load_n(&table->entered, __ATOMIC_ACQUIRE) == (uint32_t)size_of_world();
}

void job_initialized(void)
{
    int saved = errno;
    is_initialized = true;
    if (table != NULL && mpi()->is_known && is_full())
        remove_name(); /* all ranks have mapped it, and a killed job leaves nothing behind */
    errno = saved;
}

void job_leave(void)
{
    int saved = errno;
    if (table != NULL)
        remove_name();
    errno = saved;
}

/* Whether all ranks of `comm` are ranks of this job, and none of one that was spawned or connected. */
static bool is_within(word comm, word world)
{
    enum { CHUNK = 256 }; /* on the stack: without memory a rank would choose otherwise than the rest */
    int own[CHUNK], others[CHUNK], count = 0;
    word all, some;
    bool is_inside = false;
    if (PMPI.Comm_group(world, &all) != 0)
        return false;
    if (PMPI.Comm_group(comm, &some) == 0) {
        is_inside = PMPI.Group_size(some, &count) == 0 && count > 0;
        for (int first = 0; is_inside && first < count; first += CHUNK) {
            int some_ranks = count - first < CHUNK ? count - first : CHUNK;
            for (int i = 0; i < some_ranks; i++)
                own[i] = first + i;
            is_inside = PMPI.Group_translate_ranks(some, some_ranks, own, all, others) == 0;
            for (int i = 0; is_inside && i < some_ranks; i++)
                is_inside = others[i] != mpi()->undefined;
        }
        (void)PMPI.Group_free(&some);
    }
    (void)PMPI.Group_free(&all);
    return is_inside;
}

bool job_is_whole(word comm)
{
    const char *everywhere = getenv("FORETELL_MPI_EVERYWHERE");
    /* Unless MPI was initialized by this library's call, there may be no world to ask for. */
    if (everywhere != NULL && strcmp(everywhere, "1") == 0)
        return !is_initialized || is_within(comm, mpi()->comm_world);
    return is_initialized && table != NULL && is_within(comm, mpi()->comm_world) && decide(is_full() ? WHOLE : NOT_WHOLE);
}
