#include "informed.h"

#include "flatten.h"
#include "gather.h"
#include "report.h"

#include <sys/stat.h>

/* Portions of a call's size, as a power of two, that are disclosed behind it when all before were foreseen. */
#define STEPS_MAX 6

/* Parts of a memory type, at most; buffers with more are filled by the MPI, which keeps what it knows of a type. */
#define MEMORY_PARTS_MAX 10000

/* How many calls of all ranks are disclosed ahead of the shared pointer. */
#define SHARED_CALLS 4

/* Where a call reads, in bytes of the view's data. */
struct portion {
    uint64_t start_bytes, end_bytes;
};

uint64_t informed_bytes(const struct call *call)
{
    int bytes;
    int64_t large;
    uint64_t all;
    if (call->count <= 0 || handle(call->type) == mpi()->type_null)
        return 0;
    if (PMPI.Type_size_x != NULL) {
        if (PMPI.Type_size_x(call->type, &large) != 0)
            return 0;
    } else {
        if (PMPI.Type_size(call->type, &bytes) != 0)
            return 0;
        large = bytes;
    }
    return large > 0 && !__builtin_mul_overflow((uint64_t)large, (uint64_t)call->count, &all) &&
                   all <= INT64_MAX
               ? all
               : 0;
}

/* Whether the MPI reads a portion's first and last byte from where the view has them. It does not if the program has set a
 * view by a call that was not seen (Open MPI's Fortran calls PMPI_File_set_view). */
static bool has_view(const struct file *file, int64_t at, const struct portion *portion)
{
    const struct view *view = &file->view;
    int64_t units = (int64_t)((portion->end_bytes - portion->start_bytes) / view->unit_bytes), offset;
    if (PMPI.File_get_byte_offset(file->mpi_file, at, &offset) != 0 ||
        offset != view_end(view, portion->start_bytes + 1) - 1)
        return false;
    return units == 1 || (PMPI.File_get_byte_offset(file->mpi_file, at + units - 1, &offset) == 0 &&
                          offset == view_end(view, portion->end_bytes - view->unit_bytes + 1) - 1);
}

/* False if the call reads nothing, or cannot be served from here. Needs `busy`. */
static bool locate(struct file *file, const struct call *call, struct portion *portion)
{
    int64_t at = call->at;
    uint64_t bytes = informed_bytes(call);
    if (file->passes || bytes == 0 || bytes % file->view.unit_bytes != 0)
        return false;
    if (!call->is_explicit && PMPI.File_get_position(call->file, &at) != 0)
        return false;
    if (at < 0 || __builtin_mul_overflow((uint64_t)at, file->view.unit_bytes, &portion->start_bytes) ||
        portion->start_bytes > INT64_MAX - bytes)
        return false;
    portion->end_bytes = portion->start_bytes + bytes;
    struct stat about;
    if (fstat(file->fd, &about) != 0 || about.st_dev != file->device || about.st_ino != file->inode)
        return false; /* the program has closed descriptors that it does not know */
    file->outlook.file_bytes = about.st_size;
    return has_view(file, at, portion);
}

static bool is_within_file(const struct file *file, const struct portion *portion)
{
    int64_t end = view_end(&file->view, portion->end_bytes);
    return end >= 0 && end <= file->outlook.file_bytes;
}

/* Discloses what comes next: behind a call by pointer the next portion of its size, and twice as much each time that this
 * was right; behind explicit offsets in equal steps the next step. */
static void foresee(struct file *file, const struct call *call, const struct portion *portion)
{
    uint64_t bytes = portion->end_bytes - portion->start_bytes;
    int64_t step = call->is_explicit ? (int64_t)(portion->start_bytes - file->last_start_bytes)
                                     : (int64_t)bytes;
    bool is_foreseen = step == file->last_step_bytes;
    file->steps = !is_foreseen ? 0 : file->steps < STEPS_MAX ? file->steps + 1 : STEPS_MAX;
    file->last_step_bytes = step;
    file->last_start_bytes = portion->start_bytes;
    if (call->is_explicit && (!is_foreseen || step <= 0))
        return;
    uint64_t start = portion->start_bytes + (uint64_t)step, most;
    if (__builtin_mul_overflow(bytes, UINT64_C(1) << file->steps, &most) || most > INT64_MAX - start)
        most = bytes;
    if (start == portion->end_bytes)
        outlook_extend(&file->outlook, start + most);
    else
        outlook_begin(&file->outlook, start, start + bytes);
}

static bool read_portion(struct file *file, const struct call *call, const struct portion *portion)
{
    uint64_t bytes = portion->end_bytes - portion->start_bytes;
    struct view memory = {.unit_bytes = 1, .type = flatten(call->type, MEMORY_PARTS_MAX)};
    bool is_read = false;
    if (!memory.type.has_failed && memory.type.count > 0) {
        struct gather gather = {
            .fd = file->fd,
            .file = &file->view,
            .memory = &memory,
            .buffer = call->to,
            .bounce = file->bounce,
            .most_bytes = outlook_step_bytes(&file->outlook),
            .outlook = &file->outlook,
        };
        outlook_begin(&file->outlook, portion->start_bytes, portion->end_bytes);
        is_read = gather_read(&gather, portion->start_bytes, bytes);
    }
    parts_free(&memory.type);
    return is_read;
}

/* Where the next call by pointer reads. */
static bool move_pointer(struct file *file, const struct call *call, uint64_t position_bytes)
{
    int64_t units = (int64_t)(position_bytes / file->view.unit_bytes);
    return PMPI.File_seek(call->file, units, mpi()->seek_set) == 0;
}

/* Bytes of a portion that lie before the file's end. */
static int64_t bytes_there(const struct file *file, const struct portion *portion)
{
    uint64_t low = portion->start_bytes, high = portion->end_bytes; /* what is before `low` is there */
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;
        int64_t end = view_end(&file->view, middle);
        if (end >= 0 && end <= file->outlook.file_bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return (int64_t)(low - portion->start_bytes);
}

/* Counts only what is there, of a collective call that the MPI's independent one serves at the end of the file: in MPICH
 * that one counts what was asked for, and a program that reads until less comes would go on for ever. */
static void count_there(const struct call *call, int64_t bytes)
{
    if (bytes >= 0 && call->is_collective && call->status != mpi()->status_ignore)
        (void)PMPI.Status_set_elements_x(call->status, mpi()->byte, bytes);
}

/* False if the MPI is to read; `there_bytes` is how much, where the file ends before the portion does. */
static bool read_locked(struct file *file, const struct call *call, int64_t *there_bytes)
{
    struct portion portion;
    *there_bytes = -1;
    bool is_located = locate(file, call, &portion);
    bool is_within = is_located && is_within_file(file, &portion);
    if (is_located && !is_within)
        *there_bytes = bytes_there(file, &portion);
    if (!is_within || !read_portion(file, call, &portion) ||
        (!call->is_explicit && !move_pointer(file, call, portion.end_bytes))) {
        outlook_cancel(&file->outlook);
        return false;
    }
    int64_t bytes = (int64_t)(portion.end_bytes - portion.start_bytes);
    if (call->status != mpi()->status_ignore)
        (void)PMPI.Status_set_elements_x(call->status, mpi()->byte, bytes);
    if (file->settings.method == METHOD_INFORMED || !file->replaces_collectives ||
        trial_foresees(&file->trial))
        foresee(file, call, &portion);
    report_read((uint64_t)bytes);
    return true;
}

int informed_read(struct file *file, const struct call *call, way *independent)
{
    if (!call->is_explicit)
        (void)pthread_mutex_lock(&file->busy);
    else if (pthread_mutex_trylock(&file->busy) != 0)
        return report_call(CALL_PASSED), independent(call);
    int64_t there_bytes;
    bool is_read = read_locked(file, call, &there_bytes);
    /* By the pointer, the MPI reads before another thread finds the pointer where it is. */
    int result = is_read || call->is_explicit ? 0 : independent(call);
    file_unlock(file, call->file);
    report_call(is_read ? CALL_INFORMED : CALL_PASSED);
    if (!is_read && call->is_explicit)
        result = independent(call);
    if (!is_read && result == 0)
        count_there(call, there_bytes);
    return result;
}

int informed_pass(struct file *file, const struct call *call, way *independent)
{
    if (file == NULL || call->is_explicit)
        return independent(call);
    (void)pthread_mutex_lock(&file->busy);
    int result = independent(call);
    file_unlock(file, call->file);
    return result;
}

bool informed_is_small(const struct file *file, const struct call *call)
{
    return !file->passes && parts_contiguous(&file->view.type) && informed_bytes(call) < BLOCK_BYTES;
}

void informed_announce(struct file *file, const struct call *call)
{
    struct portion portion;
    if (pthread_mutex_trylock(&file->busy) != 0)
        return;
    if (locate(file, call, &portion) && is_within_file(file, &portion)) {
        outlook_begin(&file->outlook, portion.start_bytes, portion.end_bytes);
        outlook_read(&file->outlook, portion.end_bytes - portion.start_bytes);
        foresee(file, call, &portion);
    }
    (void)pthread_mutex_unlock(&file->busy);
}

void informed_announce_shared(struct file *file, const struct call *call)
{
    struct portion portion;
    struct call now = *call;
    uint64_t calls = SHARED_CALLS * (uint64_t)file->ranks, bytes;
    if (!file->is_node_leader || PMPI.File_get_position_shared(call->file, &now.at) != 0 ||
        pthread_mutex_trylock(&file->busy) != 0)
        return;
    now.is_explicit = true;
    if (locate(file, &now, &portion) &&
        !__builtin_mul_overflow(portion.end_bytes - portion.start_bytes, calls, &bytes) &&
        bytes <= INT64_MAX - portion.start_bytes) {
        struct outlook *outlook = &file->outlook;
        uint64_t read = outlook->read.cursor.position_bytes;
        if (outlook->is_open && portion.start_bytes > read &&
            portion.start_bytes <= outlook->ahead.cursor.position_bytes)
            outlook_read(outlook, portion.start_bytes - read);
        outlook_begin(outlook, portion.start_bytes, portion.start_bytes + bytes);
    }
    (void)pthread_mutex_unlock(&file->busy);
}

void informed_announce_view(struct file *file)
{
    struct stat about;
    (void)pthread_mutex_lock(&file->busy);
    uint64_t bytes = file->view.type.data_bytes;
    if (!file->passes && bytes > file->view.unit_bytes && fstat(file->fd, &about) == 0) {
        file->outlook.file_bytes = about.st_size;
        outlook_begin(&file->outlook, 0, bytes);
    }
    (void)pthread_mutex_unlock(&file->busy);
}

bool informed_begin(struct file *file, const struct call *call, int *result)
{
    struct call now = *call;
    struct portion portion;
    struct split split = {.is_open = true, .count = call->count};
    uint64_t bytes = informed_bytes(call);
    now.is_explicit = true;
    (void)pthread_mutex_lock(&file->busy);
    bool is_correct = !file->split.is_open && call->count >= 0 && file->view.unit_bytes > 0 &&
                      handle(call->type) != mpi()->type_null;
    /* From here on this rank cannot call the MPI's collective one: the others do not. */
    *result = is_correct && !call->is_explicit ? PMPI.File_get_position(call->file, &now.at) : 0;
    if (is_correct && *result == 0)
        *result = PMPI.Type_dup(call->type, &split.type);
    if (is_correct && *result == 0) {
        if (locate(file, &now, &portion) && is_within_file(file, &portion))
            outlook_begin(&file->outlook, portion.start_bytes, portion.end_bytes);
        if (!call->is_explicit)
            (void)move_pointer(file, call, (uint64_t)now.at * file->view.unit_bytes + bytes);
        split.at = now.at;
        file->split = split;
    }
    file_unlock(file, call->file);
    return is_correct;
}
