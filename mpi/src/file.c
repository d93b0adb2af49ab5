#include "file.h"

#include "flatten.h"
#include "gather.h"
#include "job.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct file *files;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* ROMIO takes a prefix for the name of a file system ("nfs:/data/x"); those that the kernel knows are opened without it. */
static const char *name_of_file(const char *path)
{
    static const char *const PREFIXES[] = {"ufs:", "nfs:", "lustre:", "gpfs:", "panfs:", "xfs:"};
    for (size_t i = 0; mpi()->takes_prefixes && i < sizeof PREFIXES / sizeof *PREFIXES; i++)
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

/* A quarter of the descriptors that the process may have are for this library; a file takes two. */
static bool is_affordable(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 4;
}

/* This rank's part: its own descriptor, and its way to the manager. */
static enum why prepare_alone(struct file *file, const char *path)
{
    struct stat about;
    file->fd = open(name_of_file(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &about) != 0 || !S_ISREG(about.st_mode))
        return WHY_NOT_OPENED;
    if (!is_affordable(file->fd))
        return WHY_DESCRIPTORS;
    file->device = about.st_dev;
    file->inode = about.st_ino;
    file->outlook.stream = foretell_stream_open();
    if (file->outlook.stream == NULL)
        return WHY_NO_MANAGER;
    file->bounce = malloc(BOUNCE_BYTES);
    file->outlook.path = path_of(file->fd);
    return file->bounce != NULL && file->outlook.path != NULL ? WHY_NOTHING : WHY_NOT_OPENED;
}

/* A communicator for the measurements of `auto`, which must not meet the program's messages. It has none of the program's
 * attributes, whose callbacks a duplicate would call. False on all ranks if one has none. */
static bool copy_of(word comm, struct file *file)
{
    int64_t own = PMPI.Comm_split(comm, 0, file->rank, &file->comm) == 0, least = 0;
    if (PMPI.Allreduce(&own, &least, 1, mpi()->int64, mpi()->min, comm) == 0 && least != 0)
        return true;
    if (own != 0)
        (void)PMPI.Comm_free(&file->comm);
    file->comm = mpi()->comm_null;
    return false;
}

/* All ranks must choose alike between a collective and an independent call. Those of a whole job agree on what they can
 * do, on the method, and on how far the trial is; others leave collective calls alone. Why they do, if they do. */
static enum why agree(struct file *file, bool can, word comm)
{
    file->trial = trial_recall(file->device, file->ranks);
    int64_t own[5] = {can, file->settings.method, -(int64_t)file->settings.method, file->trial.calls,
                      -file->trial.calls};
    int64_t least[5];
    memcpy(least, own, sizeof least);
    if (file->ranks > 1 && !job_is_whole(comm))
        return WHY_NOT_ALL_RANKS;
    if (file->ranks > 1 && PMPI.Allreduce(own, least, 5, mpi()->int64, mpi()->min, comm) != 0)
        return WHY_NOT_ALL_RANKS;
    if (least[3] != -least[4])
        file->trial = (struct trial){0};
    if (least[1] != -least[2]) /* a hint that is not the same everywhere */
        return WHY_METHOD;
    if (least[0] == 0)
        return can ? WHY_ANOTHER_RANK : WHY_NOTHING;
    bool measures = file->settings.method == METHOD_AUTO && file->trial.calls != TRIAL_INFORMED;
    file->replaces_collectives = !measures || file->ranks == 1 || copy_of(comm, file);
    return WHY_NOTHING;
}

struct file *file_prepare(word comm, const char *path, int mode, word info)
{
    const struct abi *abi = mpi();
    int is_inter = 1;
    if (!abi->is_known || handle(comm) == abi->comm_null || PMPI.Comm_test_inter(comm, &is_inter) != 0 ||
        is_inter)
        return NULL;
    struct file *file = calloc(1, sizeof *file);
    struct file none = {0}; /* without memory the agreement is still joined */
    struct file *own = file != NULL ? file : &none;
    own->fd = -1;
    own->comm = abi->comm_null;
    if (PMPI.Comm_rank(comm, &own->rank) != 0 || PMPI.Comm_size(comm, &own->ranks) != 0) {
        free(file);
        return NULL;
    }
    own->settings = settings_default(own->rank == 0);
    settings_apply(&own->settings, info, own->rank == 0);
    own->is_node_leader = is_first_on_node(own->rank);
    enum why why = WHY_NOTHING;
    if (file == NULL || path == NULL)
        why = WHY_NOT_OPENED;
    else if ((mode & abi->mode_read_only) == 0 || (mode & abi->modes_passed) != 0)
        why = WHY_MODE;
    else if (own->settings.method == METHOD_COLLECTIVE)
        why = WHY_METHOD;
    else
        why = prepare_alone(own, path);
    bool can = why == WHY_NOTHING;
    enum why agreed = agree(own, can, comm);
    report_why(can ? agreed : why);
    if (can)
        return file;
    if (file != NULL)
        file_free(file);
    return NULL;
}

void file_enter(struct file *file, word mpi_file)
{
    pthread_mutexattr_t recursive;
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&file->busy, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
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

void file_unlock(struct file *file, word mpi_file)
{
    if (file_find(mpi_file) == file)
        (void)pthread_mutex_unlock(&file->busy);
}

void file_forget(word mpi_file)
{
    struct file *file = file_leave(mpi_file);
    if (file == NULL)
        return;
    file->comm = mpi()->comm_null; /* to free it would be collective, and other ranks may not be here */
    file_free(file);
}

void file_end_trial(struct file *file)
{
    if (file->comm != mpi()->comm_null)
        (void)PMPI.Comm_free(&file->comm);
    file->comm = mpi()->comm_null;
}

void file_free(struct file *file)
{
    file_end_trial(file);
    if (file->split.is_open)
        (void)PMPI.Type_free(&file->split.type);
    foretell_stream_close(file->outlook.stream);
    if (file->fd >= 0)
        (void)close(file->fd);
    parts_free(&file->view.type);
    free(file->outlook.path);
    free(file->bounce);
    free(file);
}

/* Whether the MPI has its units of data where the flattened view has them, as far as a few show: the first ones, those in
 * the middle and at the end of the type, and those of its second copy. MPICH 4.0 adds a lower bound to them. */
static bool is_like_the_mpi(const struct file *file)
{
    const struct view *view = &file->view;
    int64_t units = (int64_t)(view->type.data_bytes / view->unit_bytes);
    int64_t places[] = {0, 1, units / 2, units - 1, units, units + 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int64_t offset;
        uint64_t position = (uint64_t)places[i] * view->unit_bytes;
        if (PMPI.File_get_byte_offset(file->mpi_file, places[i], &offset) != 0 ||
            offset != view_end(view, position + 1) - 1)
            return false;
    }
    return true;
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
        file->view.type = flatten(type, PARTS_MAX);
        file->view.displacement_bytes = at;
        file->view.unit_bytes = (uint64_t)bytes;
        file->passes = !parts_rising(&file->view.type) ||
                       (!parts_contiguous(&file->view.type) && !is_like_the_mpi(file));
    }
    (void)pthread_mutex_unlock(&file->busy);
}

void file_sync(struct file *file)
{
    struct stat about;
    int fd = open(file->outlook.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    (void)pthread_mutex_lock(&file->busy);
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_dev == file->device && about.st_ino == file->inode)
        (void)dup3(fd, file->fd, O_CLOEXEC);
    (void)pthread_mutex_unlock(&file->busy);
    if (fd >= 0)
        (void)close(fd);
}

void file_set_hints(struct file *file, word info)
{
    struct settings settings = file->settings;
    settings_apply(&settings, info, file->rank == 0);
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
