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

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* NULL if the file is left alone. */
static struct file *taken(word mpi_file)
{
    struct file *file = file_find(mpi_file);
    return file == NULL || file->is_foreign || file->is_atomic ? NULL : file;
}

/* Independent reads, split reads and announcements are not measured. They are informed while collective reads are. */
static bool is_informed(const struct file *file)
{
    return file->settings.method == METHOD_INFORMED || !file->replaces_collectives ||
           trial_is_informed(&file->trial);
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

static int read_independently(const struct call *call, way *original)
{
    struct file *file = taken(call->file);
    if (file == NULL || !is_informed(file) || informed_is_small(file, call))
        return informed_pass(file, call, original);
    return informed_read(file, call, original);
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
    if (file == NULL || !file->replaces_collectives) {
        announce(file, call);
        report_call(CALL_COLLECTIVE);
        return original(call);
    }
    struct call informed = *call;
    informed.is_collective = true;
    if (file->settings.method == METHOD_INFORMED || file->trial.calls == TRIAL_INFORMED)
        return informed_read(file, &informed, independent);
    int64_t start_ns = now_ns();
    int result = trial_is_informed(&file->trial) ? informed_read(file, &informed, independent)
                                                 : by_collective(file, call, original);
    uint64_t bytes = informed_bytes(call);
    bool is_over = trial_ended(&file->trial, now_ns() - start_ns, bytes, file->comm, file->ranks);
    trial_remember(file->device, file->ranks, &file->trial);
    if (is_over)
        file_end_trial(file);
    return result;
}

/* The MPI's own functions, with counts of either width. Open MPI and older MPIs have none with large counts, and programs
 * that look for such a function (mpi4py) find this library's. */
#define MPI_ERR_COUNT 2 /* in all ABIs */
#define MPI_ERR_OTHER 15
#define PASS(name, parameters, ...)                                                                \
    static int pass_##name(PARAMETERS_##parameters(int))                                           \
    {                                                                                              \
        return PMPI.name(__VA_ARGS__);                                                             \
    }                                                                                              \
    static int pass_##name##_c(PARAMETERS_##parameters(int64_t))                                   \
    {                                                                                              \
        if (PMPI.name##_c != NULL)                                                                 \
            return PMPI.name##_c(__VA_ARGS__);                                                     \
        if (count < INT32_MIN || count > INT32_MAX)                                                \
            return MPI_ERR_COUNT;                                                                  \
        return pass_##name(PASSED_##parameters);                                                   \
    }
#define PARAMETERS_POINTER(counting) word file, void *to, counting count, word type, word last
#define PARAMETERS_AT(counting) word file, int64_t at, void *to, counting count, word type, word last
#define PARAMETERS_BEGIN(counting) word file, void *to, counting count, word type
#define PARAMETERS_BEGIN_AT(counting) word file, int64_t at, void *to, counting count, word type
#define PASSED_POINTER file, to, (int)count, type, last
#define PASSED_AT file, at, to, (int)count, type, last
#define PASSED_BEGIN file, to, (int)count, type
#define PASSED_BEGIN_AT file, at, to, (int)count, type
PASS(File_read, POINTER, file, to, count, type, last)
PASS(File_read_all, POINTER, file, to, count, type, last)
PASS(File_iread, POINTER, file, to, count, type, last)
PASS(File_iread_all, POINTER, file, to, count, type, last)
PASS(File_read_shared, POINTER, file, to, count, type, last)
PASS(File_read_ordered, POINTER, file, to, count, type, last)
PASS(File_iread_shared, POINTER, file, to, count, type, last)
PASS(File_read_at, AT, file, at, to, count, type, last)
PASS(File_read_at_all, AT, file, at, to, count, type, last)
PASS(File_iread_at, AT, file, at, to, count, type, last)
PASS(File_iread_at_all, AT, file, at, to, count, type, last)
PASS(File_read_all_begin, BEGIN, file, to, count, type)
PASS(File_read_at_all_begin, BEGIN_AT, file, at, to, count, type)

/* A split read is one of the MPI's unless its beginning was taken. */
static int split_begin(const struct call *call, way *original)
{
    struct file *file = taken(call->file);
    int result;
    if (file != NULL && is_informed(file) && file->replaces_collectives &&
        informed_begin(file, call, &result))
        return result;
    announce(file, call);
    return original(call);
}

static int read_at(const struct call *call)
{
    return pass_File_read_at_c(call->file, call->at, call->to, call->count, call->type, call->status);
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
                        .is_collective = true,
                        .at = split.at,
                        .to = to,
                        .count = split.count,
                        .type = split.type,
                        .status = status};
    int result = informed_read(file, &call, read_at);
    (void)PMPI.Type_free(&split.type);
    return result;
}

/* Each way takes its arguments from the call again. */
#define WAY_BY_POINTER(name, counting)                                                             \
    static int name##_way(const struct call *call)                                                 \
    {                                                                                              \
        return pass_##name(call->file, call->to, (counting)call->count, call->type, call->status);   \
    }
#define WAY_AT(name, counting)                                                                     \
    static int name##_way(const struct call *call)                                                 \
    {                                                                                              \
        return pass_##name(call->file, call->at, call->to, (counting)call->count, call->type,        \
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

/* C: a nonblocking read. */
static int begin_read(const struct call *call, way *original)
{
    struct file *file = taken(call->file);
    announce(file, call);
    return informed_pass(file, call, original);
}

/* All reads with counts of one width; `c` is what their names end in. */
#define READS(c, counting)                                                                         \
    WAY_BY_POINTER(File_read##c, counting)                                                         \
    WAY_BY_POINTER(File_read_all##c, counting)                                                     \
    WAY_AT(File_read_at##c, counting)                                                              \
    WAY_BY_POINTER(File_iread##c, counting)                                                        \
    WAY_BY_POINTER(File_iread_all##c, counting)                                                    \
    WAY_AT(File_iread_at##c, counting)                                                             \
    WAY_AT(File_iread_at_all##c, counting)                                                         \
    WAY_AT(File_read_at_all##c, counting)                                                          \
    static int File_read_all_begin##c##_way(const struct call *call)                               \
    {                                                                                              \
        return pass_File_read_all_begin##c(call->file, call->to, (counting)call->count,            \
                                           call->type);                                            \
    }                                                                                              \
    static int File_read_at_all_begin##c##_way(const struct call *call)                            \
    {                                                                                              \
        return pass_File_read_at_all_begin##c(call->file, call->at, call->to,                      \
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
        return begin_read(&call, File_iread##c##_way);                                             \
    }                                                                                              \
    BY_POINTER(File_iread_all##c, counting)                                                        \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        return begin_read(&call, File_iread_all##c##_way);                                         \
    }                                                                                              \
    AT(File_iread_at##c, counting)                                                                 \
    {                                                                                              \
        CALL_AT;                                                                                   \
        return begin_read(&call, File_iread_at##c##_way);                                          \
    }                                                                                              \
    AT(File_iread_at_all##c, counting)                                                             \
    {                                                                                              \
        CALL_AT;                                                                                   \
        return begin_read(&call, File_iread_at_all##c##_way);                                      \
    }                                                                                              \
    BY_POINTER(File_read_shared##c, counting)                                                      \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return pass_File_read_shared##c(file, to, count, type, status);                            \
    }                                                                                              \
    BY_POINTER(File_read_ordered##c, counting)                                                     \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return pass_File_read_ordered##c(file, to, count, type, status);                           \
    }                                                                                              \
    BY_POINTER(File_iread_shared##c, counting)                                                     \
    {                                                                                              \
        CALL_BY_POINTER;                                                                           \
        announce_shared(&call);                                                                    \
        return pass_File_iread_shared##c(file, to, count, type, status);                           \
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
    if (result == 0)
        file_forget(*mpi_file);
    if (file != NULL && result == 0) {
        file_enter(file, *mpi_file);
        report_opened();
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

PUBLIC int MPI_File_seek(word mpi_file, int64_t offset, int whence)
{
    (void)mpi();
    struct file *file = file_find(mpi_file);
    if (file != NULL)
        (void)pthread_mutex_lock(&file->busy);
    int result = PMPI.File_seek(mpi_file, offset, whence);
    if (file != NULL)
        file_unlock(file, mpi_file);
    return result;
}

PUBLIC int MPI_File_sync(word mpi_file)
{
    (void)mpi();
    int result = PMPI.File_sync(mpi_file);
    struct file *file = file_find(mpi_file);
    if (file != NULL)
        file_sync(file);
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
    if (PMPI.Init == NULL)
        return MPI_ERR_OTHER; /* there is no MPI */
    job_enter();
    int result = PMPI.Init(count, words);
    if (result == 0)
        job_initialized();
    return result;
}

PUBLIC int MPI_Init_thread(int *count, char ***words, int required, int *provided)
{
    (void)mpi();
    if (PMPI.Init_thread == NULL)
        return MPI_ERR_OTHER; /* there is no MPI */
    job_enter();
    int result = PMPI.Init_thread(count, words, required, provided);
    if (result == 0)
        job_initialized();
    return result;
}

PUBLIC int MPI_Finalize(void)
{
    (void)mpi();
    if (PMPI.Finalize == NULL)
        return MPI_ERR_OTHER;
    job_leave();
    report_write();
    return PMPI.Finalize();
}
