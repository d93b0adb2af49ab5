#include "file.h"

#include "flatten.h"
#include "gather.h"
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct file *files;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* ROMIO takes a prefix for the name of a file system ("nfs:/data/x"); those that the kernel knows are opened without it. */
static const char *without_prefix(const char *path)
{
    static const char *const PREFIXES[] = {"ufs:", "nfs:", "lustre:", "gpfs:", "panfs:", "xfs:"};
    for (size_t i = 0; i < sizeof PREFIXES / sizeof *PREFIXES; i++)
        if (strncmp(path, PREFIXES[i], strlen(PREFIXES[i])) == 0)
            return path + strlen(PREFIXES[i]);
    return path;
}

/* A file on FUSE that several processes open at once may be called deleted: one of them has dropped the name's entry that
 * another one uses. */
static void without_mark(char *path, int fd)
{
    static const char MARK[] = " (deleted)";
    struct stat named, opened;
    size_t bytes = strlen(path);
    if (bytes < sizeof MARK || strcmp(path + bytes - (sizeof MARK - 1), MARK) != 0)
        return;
    path[bytes - (sizeof MARK - 1)] = 0;
    if (stat(path, &named) != 0 || fstat(fd, &opened) != 0 || named.st_dev != opened.st_dev ||
        named.st_ino != opened.st_ino)
        path[bytes - (sizeof MARK - 1)] = MARK[0];
}

/* The absolute path of a descriptor's file; NULL if it has none. */
static char *path_of(int fd)
{
    char link[64], path[PATH_MAX];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes <= 0 || path[0] != '/')
        return NULL;
    path[bytes] = 0;
    without_mark(path, fd);
    return strdup(path);
}

/* The launchers' variables for a rank's number on its node. */
static bool is_first_on_node(int rank)
{
    static const char *const NAMES[] = {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "PMI_LOCAL_RANK", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *text = getenv(NAMES[i]);
        if (text != NULL && *text != 0)
            return strcmp(text, "0") == 0;
    }
    return rank == 0;
}

/* This rank's part: its own descriptor, and its way to the manager. */
static bool prepare_alone(struct file *file, const char *path)
{
    struct stat about;
    file->fd = open(without_prefix(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    file->device = about.st_dev;
    file->bounce = malloc(BOUNCE_BYTES);
    file->outlook.path = path_of(file->fd);
    file->outlook.stream = foretell_stream_open();
    return file->bounce != NULL && file->outlook.path != NULL && file->outlook.stream != NULL;
}

/* All ranks must choose alike between a collective and an independent call. Those of a whole job agree on what they can
 * do, on the method, and on how far the trial is; others leave collective calls alone. */
static void agree(struct file *file, bool can, word comm)
{
    file->trial = trial_recall(file->device, file->ranks);
    int64_t own[5] = {can, file->settings.method, -(int64_t)file->settings.method, file->trial.phase,
                      -file->trial.phase};
    int64_t least[5];
    memcpy(least, own, sizeof least);
    if (file->ranks > 1 && (!job_is_whole(comm) ||
                            PMPI.Allreduce(own, least, 5, mpi()->int64, mpi()->min, comm) != 0))
        return;
    if (least[1] != -least[2]) /* a hint that is not the same everywhere */
        return;
    if (least[3] != -least[4])
        file->trial = (struct trial){0};
    if (least[0] == 0 || file->settings.method == METHOD_COLLECTIVE)
        return;
    file->replaces_collectives = file->ranks == 1 || PMPI.Comm_dup(comm, &file->comm) == 0;
}

struct file *file_prepare(word comm, const char *path, int mode, word info)
{
    const struct abi *abi = mpi();
    int is_inter = 1;
    if (!abi->is_known || path == NULL || handle(comm) == abi->comm_null ||
        (mode & abi->mode_read_only) == 0 || (mode & abi->modes_passed) != 0 ||
        PMPI.Comm_test_inter(comm, &is_inter) != 0 || is_inter)
        return NULL;
    struct file *file = calloc(1, sizeof *file);
    struct file none = {0}; /* without memory the agreement is still joined */
    struct file *own = file != NULL ? file : &none;
    own->fd = -1;
    own->comm = abi->comm_null;
    own->settings = settings_default();
    settings_apply(&own->settings, info);
    bool can = false;
    if (PMPI.Comm_rank(comm, &own->rank) == 0 && PMPI.Comm_size(comm, &own->ranks) == 0) {
        own->is_node_leader = is_first_on_node(own->rank);
        can = file != NULL && own->settings.method != METHOD_COLLECTIVE && prepare_alone(own, path);
        agree(own, can, comm);
    }
    if (can)
        return file;
    if (file != NULL)
        file_free(file);
    return NULL;
}

void file_enter(struct file *file, word mpi_file)
{
    (void)pthread_mutex_init(&file->busy, NULL);
    file->mpi_file = mpi_file;
    file->outlook.view = &file->view;
    outlook_bound(&file->outlook, file->settings.depth_blocks, file->settings.budget_bytes);
    file_set_view(file, 0, mpi()->byte, mpi()->byte, "native");
    (void)pthread_rwlock_wrlock(&lock);
    file->next = files;
    files = file;
    (void)pthread_rwlock_unlock(&lock);
}

struct file *file_find(word mpi_file)
{
    if (__atomic_load_n(&files, __ATOMIC_RELAXED) == NULL)
        return NULL;
    (void)pthread_rwlock_rdlock(&lock);
    struct file *file = files;
    while (file != NULL && file->mpi_file != mpi_file)
        file = file->next;
    (void)pthread_rwlock_unlock(&lock);
    return file;
}

struct file *file_leave(word mpi_file)
{
    (void)pthread_rwlock_wrlock(&lock);
    struct file **place = &files;
    while (*place != NULL && (*place)->mpi_file != mpi_file)
        place = &(*place)->next;
    struct file *file = *place;
    if (file != NULL)
        *place = file->next;
    (void)pthread_rwlock_unlock(&lock);
    return file;
}

void file_free(struct file *file)
{
    if (file->comm != mpi()->comm_null)
        (void)PMPI.Comm_free(&file->comm);
    foretell_stream_close(file->outlook.stream);
    if (file->fd >= 0)
        (void)close(file->fd);
    parts_free(&file->view.type);
    free(file->outlook.path);
    free(file->bounce);
    free(file);
}

void file_set_view(struct file *file, int64_t at, word unit, word type, const char *representation)
{
    int bytes = 0;
    (void)pthread_mutex_lock(&file->busy);
    outlook_cancel(&file->outlook);
    parts_free(&file->view.type);
    file->steps = 0;
    file->last_step_bytes = 0;
    file->is_foreign = strcmp(representation, "native") != 0;
    file->passes = true;
    if (PMPI.Type_size(unit, &bytes) == 0 && bytes > 0 && at >= 0) {
        file->view.type = flatten(type);
        file->view.displacement_bytes = at;
        file->view.unit_bytes = (uint64_t)bytes;
        file->passes = !parts_rising(&file->view.type);
    }
    (void)pthread_mutex_unlock(&file->busy);
}

void file_set_hints(struct file *file, word info)
{
    struct settings settings = file->settings;
    settings_apply(&settings, info);
    (void)pthread_mutex_lock(&file->busy);
    outlook_bound(&file->outlook, settings.depth_blocks, settings.budget_bytes);
    file->settings.depth_blocks = settings.depth_blocks;
    file->settings.budget_bytes = settings.budget_bytes;
    (void)pthread_mutex_unlock(&file->busy);
}

void file_each(void (*each)(const struct file *))
{
    (void)pthread_rwlock_rdlock(&lock);
    for (struct file *file = files; file != NULL; file = file->next)
        each(file);
    (void)pthread_rwlock_unlock(&lock);
}
