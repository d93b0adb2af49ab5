/*
 * TOUCH records: what a call did with a path, and the numbers of folders.
 *
 * Decides which paths are recorded, and how the base of a relative path is named. A path is recorded if the
 * kernel has looked it up (looked_up in state.h), if it is not empty, and if it has at most
 * FORETELL_TOUCHED_PATH_MAX_BYTES bytes.
 *
 * A folder gets a number when the record of its opening is written, and never otherwise: a number that the
 * manager does not know would be of no use. Relative to any other folder, the record names the descriptor, and
 * the manager looks at /proc/PID/fd. The number lies in the descriptor's entry (state.h) and goes with it:
 * duplicates have it too, and closing forgets it.
 *
 * Invariants: nothing here locks, allocates or changes errno. A number is stored only by the process whose ring
 * has the record, so a vfork child stores none: every caller that may open a folder asks first. Numbers below
 * `first_number` are a parent's.
 *
 * Cost, while there is interest in names: two readings of the clock, one slot of the ring and one more per 48 bytes of path
 * beyond the first 20; for folders, and in programs with children in their memory (foretell_asks), a system call (getpid).
 * Without interest none of this runs.
 */
#include "state.h"

#include <fcntl.h>
#include <string.h>

/* The next folder's number, and the first one of this process. Never 0. */
static uint64_t next_number = 1;
static uint64_t first_number = 1;

void foretell_folders_forked(void)
{
    first_number = next_number;
}

/* The number of the folder that a descriptor stands for; 0 if there is none. */
static uint32_t number_of(const struct descriptor *entry)
{
    if (entry == NULL || (tag_of(entry) & TAG_FOLDER) == 0)
        return 0;
    uint64_t number = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED);
    return number >= first_number ? (uint32_t)number : 0;
}

uint32_t foretell_folder_number(int fd)
{
    return number_of(entry_of(fd));
}

static void set_number(struct descriptor *entry, uint64_t number)
{
    __atomic_store_n(&entry->inode, number, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->tag, current_tag(IGNORED) | TAG_FOLDER, __ATOMIC_RELEASE);
}

void foretell_copied_folder(const struct descriptor *from, int copy)
{
    uint32_t number = number_of(from);
    /* Without interest nothing is claimed, and so nothing is asked. */
    if (number == 0 || activity() != ANNOUNCED || !wants_names(ring()) || !foretell_is_own_call())
        return;
    struct descriptor *to = foretell_entry_make(copy);
    if (to != NULL)
        set_number(to, number);
}

uint32_t foretell_touch_of_open(int flags)
{
    bool makes = (flags & O_TMPFILE) == O_TMPFILE || (flags & O_TRUNC) != 0 ||
                 (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    int access = flags & O_ACCMODE;
    if ((flags & O_PATH) == 0 && (makes || (access != O_RDONLY && access != O_RDWR)))
        return 0; /* it writes, or makes a file: nothing that is there is read */
    if ((flags & O_DIRECTORY) != 0)
        return FORETELL_TOUCH_FOLDER;
    return (flags & O_PATH) != 0 ? FORETELL_TOUCH_STAT : FORETELL_TOUCH_OPEN;
}

/* Writes the record with its path. False if it is dropped. */
static bool write_touch(struct foretell_touch *touch, const char *path, size_t bytes)
{
    struct foretell_ring_header *header = ring();
    size_t first = bytes < FORETELL_TOUCH_PATH_BYTES ? bytes : FORETELL_TOUCH_PATH_BYTES;
    size_t rest = bytes - first;
    uint32_t parts = (uint32_t)((rest + FORETELL_PART_PATH_BYTES - 1) / FORETELL_PART_PATH_BYTES);
    uint64_t ticket = foretell_reserve(header, 1 + parts);
    if (ticket == NO_TICKET)
        return false;
    touch->kind = FORETELL_RECORD_TOUCH;
    touch->path_bytes = (uint32_t)bytes;
    memcpy(touch->path, path, first);
    foretell_store(header, ticket, touch);
    path += first;
    for (uint32_t part = 1; part <= parts; part++) {
        size_t length = rest < FORETELL_PART_PATH_BYTES ? rest : FORETELL_PART_PATH_BYTES;
        struct foretell_path_part record = {.kind = FORETELL_RECORD_PATH, .part = part};
        memcpy(record.path, path, length);
        foretell_store(header, ticket + part, &record);
        path += length;
        rest -= length;
    }
    return true;
}

/* Names the base of the path. */
static void set_base(struct foretell_touch *touch, int folder, const char *path)
{
    touch->base = FORETELL_BASE_WORKING_FOLDER;
    if (path[0] == '/' || folder == AT_FDCWD)
        return;
    touch->base = foretell_folder_number(folder);
    if (touch->base != 0)
        return;
    touch->base = (uint32_t)folder;
    touch->flags |= FORETELL_TOUCH_DESCRIPTOR;
}

void foretell_touch(struct foretell_touch *touch, int folder, const char *path, int result)
{
    if (path == NULL || !looked_up(result))
        return;
    size_t bytes = strnlen(path, FORETELL_TOUCHED_PATH_MAX_BYTES + 1);
    if (bytes == 0 || bytes > FORETELL_TOUCHED_PATH_MAX_BYTES)
        return;
    set_base(touch, folder, path);
    struct descriptor *opened = NULL;
    if (result < 0)
        touch->flags |= FORETELL_TOUCH_FAILED;
    else if ((touch->flags & FORETELL_TOUCH_FOLDER) != 0)
        opened = foretell_entry_make(result);
    uint64_t number = opened != NULL ? __atomic_fetch_add(&next_number, 1, __ATOMIC_RELAXED) : 0;
    if (number > UINT32_MAX)
        number = 0; /* more folders than there are numbers */
    touch->opened = (uint32_t)number;
    if (write_touch(touch, path, bytes) && number != 0)
        set_number(opened, number);
}

uint64_t foretell_name_begins(void)
{
    if (activity() == OFF)
        return 0;
    foretell_register_if_pending();
    return activity() == ANNOUNCED ? now_ns() : 0;
}

/* Whether the touch may be recorded (foretell_asks). */
static bool may_touch(uint32_t what, int folder, const char *path)
{
    bool claims = (what & (FORETELL_TOUCH_FOLDER | FORETELL_TOUCH_MOVED)) != 0;
    bool based = path[0] == '/' || folder == AT_FDCWD || foretell_folder_number(folder) != 0;
    return claims || !based ? foretell_is_own_call() : may_record();
}

void foretell_named(uint64_t start_ns, uint32_t what, int folder, const char *path, int result)
{
    uint64_t end_ns = now_ns();
    struct foretell_ring_header *header = ring();
    count(&header->name_calls, 1);
    if (has_stalled(end_ns - start_ns, 0)) {
        count(&header->name_stall_ns, end_ns - start_ns);
        count(&header->name_stalls, 1);
    }
    if (path == NULL || !looked_up(result) || !may_touch(what, folder, path))
        return;
    struct foretell_touch touch = {.flags = what, .end_ns = end_ns, .duration_ns = end_ns - start_ns};
    foretell_touch(&touch, folder, path, result);
}
