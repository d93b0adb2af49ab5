/*
 * The calls of MPI-IO that are taken: each does its work through the MPI's profiling interface (PMPI_…).
 *
 * A. A file that is left alone: the call goes on as it came.
 * B. An informed read: the portion is disclosed and read from here. If that cannot be done, the MPI's *independent* read
 *    does it, since the other ranks may not have called the collective one. A collective read need not wait for other
 *    ranks (MPI 4.1, section 2.4), so a program cannot tell.
 * C. A read that is the MPI's (nonblocking, by shared pointer): its portion is disclosed, and the call goes on.
 *
 * Errors are the MPI's: nothing here reports one.
 */
#include "abi.h"
#include "file.h"
#include "informed.h"
#include "job.h"
#include "report.h"

#include <time.h>

#define PUBLIC __attribute__((visibility("default")))

typedef int way(const struct call *call);

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* NULL if the file is left alone. */
static struct file *taken(word mpi_file)
{
    struct file *file = file_find(mpi_file);
    return file == NULL || file->is_foreign || file->is_atomic ? NULL : file;
}

/* Whether reads that are not measured are informed: independent ones, split ones, and what the MPI reads. They are unless
 * the MPI's collective reads have been found faster. */
static bool is_informed(const struct file *file)
{
    return file->settings.method == METHOD_INFORMED || !file->replaces_collectives ||
           file->trial.phase != TRIAL_COLLECTIVE;
}

/* C: for calls whose portion the MPI reads. */
static void announce(struct file *file, const struct call *call)
{
    if (file != NULL && is_informed(file))
        informed_announce(file, call);
}

static void announce_shared(const struct call *call)
{
    struct file *file = taken(call->file);
    if (file != NULL && is_informed(file))
        informed_announce_shared(file, call);
}

static int informed_or(struct file *file, const struct call *call, way *independent)
{
    bool is_read = informed_read(file, call);
    report_call(is_read ? CALL_INFORMED : CALL_PASSED);
    return is_read ? 0 : independent(call);
}

static int read_independently(const struct call *call, way *original)
{
    struct file *file = taken(call->file);
    return file != NULL && is_informed(file) ? informed_or(file, call, original) : original(call);
}

static int by_collective(struct file *file, const struct call *call, way *original)
{
    (void)pthread_mutex_lock(&file->busy);
    outlook_cancel(&file->outlook);
    (void)pthread_mutex_unlock(&file->busy);
    report_call(CALL_COLLECTIVE);
    return original(call);
}

static int read_collectively(const struct call *call, way *original, way *independent)
{
    struct file *file = taken(call->file);
    if (file == NULL)
        return original(call);
    if (!file->replaces_collectives) {
        announce(file, call);
        return original(call);
    }
    if (file->settings.method == METHOD_INFORMED)
        return informed_or(file, call, independent);
    double start_ns = now_ns();
    int result = trial_is_informed(&file->trial) ? informed_or(file, call, independent)
                                                 : by_collective(file, call, original);
    if (file->trial.phase < TRIAL_PHASES) {
        trial_ended(&file->trial, now_ns() - start_ns, informed_bytes(call), file->comm, file->ranks);
        trial_remember(file->device, file->ranks, &file->trial);
    }
    return result;
}

/* A split read is one of the MPI's unless its beginning was taken. */
static int split_begin(const struct call *call, way *original)
{
    struct file *file = taken(call->file);
    if (file != NULL && is_informed(file) && file->replaces_collectives && informed_begin(file, call))
        return 0;
    announce(file, call);
    return original(call);
}

static int split_end(word mpi_file, void *to, word status, int (*original)(word, void *, word))
{
    struct file *file = file_find(mpi_file);
    if (file == NULL || !file->split.is_open)
        return original(mpi_file, to, status);
    struct split split = file->split;
    file->split.is_open = false;
    struct call call = {.file = mpi_file,
                        .is_explicit = true,
                        .at = split.at,
                        .to = to,
                        .count = split.count,
                        .type = split.type,
                        .status = status};
    bool is_read = informed_read(file, &call);
    report_call(is_read ? CALL_INFORMED : CALL_PASSED);
    if (is_read)
        return 0;
    return PMPI.File_read_at_c != NULL
               ? PMPI.File_read_at_c(mpi_file, split.at, to, split.count, split.type, status)
               : PMPI.File_read_at(mpi_file, split.at, to, (int)split.count, split.type, status);
}

/* Each way takes its arguments from the call again. */
#define WAY_BY_POINTER(name, counting)                                                             \
    static int name##_way(const struct call *call)                                                 \
    {                                                                                              \
        return PMPI.name(call->file, call->to, (counting)call->count, call->type, call->status);   \
    }
#define WAY_AT(name, counting)                                                                     \
    static int name##_way(const struct call *call)                                                 \
    {                                                                                              \
        return PMPI.name(call->file, call->at, call->to, (counting)call->count, call->type,        \
                         call->status);                                                            \
    }
#define BY_POINTER(name, counting)                                                                 \
    PUBLIC int MPI_##name(word file, void *to, counting count, word type, word status)
#define AT(name, counting)                                                                         \
    PUBLIC int MPI_##name(word file, int64_t at, void *to, counting count, word type, word status)
#define CALL_BY_POINTER                                                                            \
    (void)mpi();                                                                                   \
    struct call call = {                                                                           \
        .file = file, .to = to, .count = count, .type = type, .status = status}
#define CALL_AT                                                                                    \
    (void)mpi();                                                                                   \
    struct call call = {.file = file,                                                              \
                        .is_explicit = true,                                                       \
                        .at = at,                                                                  \
                        .to = to,                                                                  \
                        .count = count,                                                            \
                        .type = type,                                                              \
                        .status = status}

/* All reads with counts of one width; `c` is what their names end in. */
#define READS(c, counting)                                                                         \
    WAY_BY_POINTER(File_read##c, counting)                                                         \
    WAY_BY_POINTER(File_read_all##c, counting)                                                     \
    WAY_AT(File_read_at##c, counting)                                                              \
    WAY_AT(File_read_at_all##c, counting)                                                          \
    static int File_read_all_begin##c##_way(const struct call *call)                               \
    {                                                                                              \
        return PMPI.File_read_all_begin##c(call->file, call->to, (counting)call->count,            \
                                           call->type);                                            \
    }                                                                                              \
    static int File_read_at_all_begin##c##_way(const struct call *call)                            \
    {                                                                                              \
        return PMPI.File_read_at_all_begin##c(call->file, call->at, call->to,                      \
                                              (counting)call->count, call->type);                  \
    }                                                                                              \
    BY_POINTER(File_read##c, counting)                                                             \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        return read_independently(&call, File_read##c##_way);                                      \
    }                                                                                              \
    AT(File_read_at##c, counting)                                                                  \
    {                                                                                              \
        CALL_AT;                                                                                   \
        return read_independently(&call, File_read_at##c##_way);                                   \
    }                                                                                              \
    BY_POINTER(File_read_all##c, counting)                                                         \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        return read_collectively(&call, File_read_all##c##_way, File_read##c##_way);               \
    }                                                                                              \
    AT(File_read_at_all##c, counting)                                                              \
    {                                                                                              \
        CALL_AT;                                                                                   \
        return read_collectively(&call, File_read_at_all##c##_way, File_read_at##c##_way);         \
    }                                                                                              \
    PUBLIC int MPI_File_read_all_begin##c(word file, void *to, counting count, word type)          \
    {                                                                                              \
        word status = 0;                                                                           \
        CALL_BY_POINTER;                                                                           \
        return split_begin(&call, File_read_all_begin##c##_way);                                   \
    }                                                                                              \
    PUBLIC int MPI_File_read_at_all_begin##c(word file, int64_t at, void *to, counting count,      \
                                             word type)                                            \
    {                                                                                              \
        word status = 0;                                                                           \
        CALL_AT;                                                                                   \
        return split_begin(&call, File_read_at_all_begin##c##_way);                                \
    }                                                                                              \
    BY_POINTER(File_iread##c, counting)                                                            \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce(taken(file), &call);                                                              \
        return PMPI.File_iread##c(file, to, count, type, status);                                  \
    }                                                                                              \
    BY_POINTER(File_iread_all##c, counting)                                                        \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce(taken(file), &call);                                                              \
        return PMPI.File_iread_all##c(file, to, count, type, status);                              \
    }                                                                                              \
    AT(File_iread_at##c, counting)                                                                 \
    {                                                                                              \
        CALL_AT;                                                                                   \
        announce(taken(file), &call);                                                              \
        return PMPI.File_iread_at##c(file, at, to, count, type, status);                           \
    }                                                                                              \
    AT(File_iread_at_all##c, counting)                                                             \
    {                                                                                              \
        CALL_AT;                                                                                   \
        announce(taken(file), &call);                                                              \
        return PMPI.File_iread_at_all##c(file, at, to, count, type, status);                       \
    }                                                                                              \
    BY_POINTER(File_read_shared##c, counting)                                                      \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return PMPI.File_read_shared##c(file, to, count, type, status);                            \
    }                                                                                              \
    BY_POINTER(File_read_ordered##c, counting)                                                     \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return PMPI.File_read_ordered##c(file, to, count, type, status);                           \
    }                                                                                              \
    BY_POINTER(File_iread_shared##c, counting)                                                     \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return PMPI.File_iread_shared##c(file, to, count, type, status);                           \
    }

READS(, int)
READS(_c, int64_t)

PUBLIC int MPI_File_read_all_end(word file, void *to, word status)
{
    (void)mpi();
    return split_end(file, to, status, PMPI.File_read_all_end);
}

PUBLIC int MPI_File_read_at_all_end(word file, void *to, word status)
{
    (void)mpi();
    return split_end(file, to, status, PMPI.File_read_at_all_end);
}

PUBLIC int MPI_File_open(word comm, const char *path, int mode, word info, word *mpi_file)
{
    (void)mpi();
    struct file *file = file_prepare(comm, path, mode, info);
    int result = PMPI.File_open(comm, path, mode, info, mpi_file);
    if (file != NULL && result == 0) {
        file_enter(file, *mpi_file);
        report_opened(file);
    } else if (file != NULL) {
        file_free(file);
    }
    return result;
}

PUBLIC int MPI_File_close(word *mpi_file)
{
    (void)mpi();
    struct file *file = mpi_file != NULL ? file_leave(*mpi_file) : NULL;
    if (file != NULL) {
        report_closed(file);
        file_free(file);
    }
    return PMPI.File_close(mpi_file);
}

PUBLIC int MPI_File_set_view(word mpi_file, int64_t at, word unit, word type,
                             const char *representation, word info)
{
    (void)mpi();
    int result = PMPI.File_set_view(mpi_file, at, unit, type, representation, info);
    struct file *file = result == 0 ? file_find(mpi_file) : NULL;
    if (file != NULL) {
        file_set_hints(file, info);
        file_set_view(file, at, unit, type, representation);
        if (taken(mpi_file) != NULL && is_informed(file))
            informed_announce_view(file);
    }
    return result;
}

PUBLIC int MPI_File_set_info(word mpi_file, word info)
{
    (void)mpi();
    int result = PMPI.File_set_info(mpi_file, info);
    struct file *file = result == 0 ? file_find(mpi_file) : NULL;
    if (file != NULL)
        file_set_hints(file, info);
    return result;
}

PUBLIC int MPI_File_set_atomicity(word mpi_file, int flag)
{
    (void)mpi();
    int result = PMPI.File_set_atomicity(mpi_file, flag);
    struct file *file = result == 0 ? file_find(mpi_file) : NULL;
    if (file != NULL)
        file->is_atomic = flag != 0;
    return result;
}

PUBLIC int MPI_Init(int *count, char ***words)
{
    (void)mpi();
    job_enter();
    return PMPI.Init(count, words);
}

PUBLIC int MPI_Init_thread(int *count, char ***words, int required, int *provided)
{
    (void)mpi();
    job_enter();
    return PMPI.Init_thread(count, words, required, provided);
}

PUBLIC int MPI_Finalize(void)
{
    (void)mpi();
    job_leave();
    report_write();
    return PMPI.Finalize();
}
