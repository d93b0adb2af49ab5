/*
 * Writes after each call: counters always, records while the manager wants them.
 *
 * Nothing here locks, allocates or changes errno. A producer that dies between taking a ticket and
 * completing its slot leaves a hole; the manager skips it (protocol/src/ring.rs, case C).
 */
#include "state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t foretell_reserve(struct foretell_ring_header *header, uint64_t slots)
{
    if (activity() != ANNOUNCED) { /* another thread is announcing the process */
        count(&header->dropped_records, 1);
        return NO_TICKET;
    }
    uint64_t head = __atomic_load_n(&header->head, __ATOMIC_RELAXED);
    do {
        /* Acquire: the consumer has finished with the slots that it released by this tail. */
        uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
        if (head - tail + slots > FORETELL_RING_CAPACITY_RECORDS) {
            count(&header->dropped_records, 1);
            return NO_TICKET;
        }
    } while (!__atomic_compare_exchange_n(&header->head, &head, head + slots, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    return head;
}

void foretell_store(struct foretell_ring_header *header, uint64_t ticket, const void *record)
{
    const char *from = record;
    char *slots = (char *)header + FORETELL_RING_HEADER_BYTES;
    uint64_t *slot = (uint64_t *)(void *)(slots + ticket % FORETELL_RING_CAPACITY_RECORDS *
                                                      FORETELL_RECORD_BYTES);
    /* Relaxed atomics, not plain stores: after a skipped hole two writers may meet in a slot. */
    for (unsigned i = 1; i < FORETELL_RECORD_BYTES / sizeof(uint64_t); i++) {
        uint64_t word;
        memcpy(&word, from + i * sizeof word, sizeof word);
        __atomic_store_n(&slot[i], word, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&slot[0], ticket + 1, __ATOMIC_RELEASE); /* the sequence */
}

void foretell_emit_own(struct foretell_ring_header *header, const void *record)
{
    uint64_t ticket = foretell_reserve(header, 1);
    if (ticket != NO_TICKET)
        foretell_store(header, ticket, record);
}

void foretell_emit_read(struct foretell_ring_header *header, const struct foretell_record *record)
{
    if (activity() != OFF && may_record())
        foretell_emit_own(header, record);
}

uint64_t foretell_kernel_position(int fd)
{
    int saved = errno;
    long position = syscall(SYS_lseek, fd, 0L, SEEK_CUR);
    errno = saved;
    return position < 0 ? POSITION_UNKNOWN : (uint64_t)position;
}

/* Adds one open to the counters; says whether it stalled. */
static bool count_open(struct foretell_ring_header *header, uint64_t duration_ns)
{
    bool stalled = has_stalled(duration_ns, 0);
    count(&header->open_calls, 1);
    if (UNLIKELY(stalled)) {
        count(&header->open_stall_ns, duration_ns);
        count(&header->open_stalls, 1);
    }
    return stalled;
}

/* Notes that the descriptor was opened. A read-only one is watched as `state`, and its entry returned;
 * for others the result is NULL. */
static struct descriptor *claim(int fd, int flags, enum descriptor_state state)
{
    int access = flags & O_ACCMODE;
    bool readable = access == O_RDONLY || access == O_RDWR;
    if (!readable || (flags & (O_DIRECTORY | O_PATH)) != 0) {
        foretell_forget(fd);
        return NULL;
    }
    struct descriptor *entry = foretell_entry_make(fd);
    if (entry == NULL)
        return NULL;
    if (access == O_RDWR) {
        /* Writes move the position unseen. */
        foretell_forget(fd);
        (void)foretell_adopt(fd, entry);
        return NULL;
    }
    __atomic_store_n(&entry->position_bytes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->tag, current_tag(state), __ATOMIC_RELEASE);
    return entry;
}

/* An open that has returned. */
struct opening {
    int fd;
    int flags;
    int folder;
    const char *path;
    uint64_t end_ns;
    uint64_t duration_ns;
};

/* The record of an open. file: what it opened, or NULL if that is not known. */
static __attribute__((noinline)) void record_open(struct foretell_ring_header *header,
                                                  const struct opening *open,
                                                  const struct known_file *file)
{
    struct foretell_record record = {.kind = FORETELL_RECORD_OPEN,
                                     .flags = open->fd < 0 ? FORETELL_FLAG_FAILED : 0,
                                     .end_ns = open->end_ns,
                                     .duration_ns = open->duration_ns};
    if (file != NULL) {
        record.device = file->is.device;
        record.inode = file->is.inode;
    }
    if (file != NULL && file->has_version) {
        record.flags |= FORETELL_FLAG_SIZED;
        record.offset_bytes = (uint64_t)file->modified_ns;
        record.length_bytes = file->size_bytes;
    }
    foretell_emit_own(header, &record);
}

/* Takes in an open for the OPEN record. */
static void opened_as_file(struct foretell_ring_header *header, const struct opening *open)
{
    bool wanted = wants_records(header);
    bool stalled = count_open(header, open->duration_ns);
    struct descriptor *entry =
        open->fd >= 0 ? claim(open->fd, open->flags, wanted ? OWNED : FRESH) : NULL;
    if (!wanted || (open->fd < 0 && !stalled))
        return;
    struct known_file file;
    bool named = entry != NULL && foretell_identify(open->fd, entry, &file);
    if (entry != NULL && !named && !stalled)
        return; /* not a regular file */
    record_open(header, open, named ? &file : NULL);
}

static __attribute__((noinline)) void touched_by_open(const struct opening *open)
{
    uint32_t what = foretell_touch_of_open(open->flags);
    struct foretell_touch touch = {
        .flags = what, .end_ns = open->end_ns, .duration_ns = open->duration_ns};
    if (what != 0)
        foretell_touch(&touch, open->folder, open->path, open->fd);
}

/* Takes in an open while records of any kind are wanted, or by a child that has to announce itself. */
static __attribute__((noinline)) void opened_recorded(const struct opening *open)
{
    if (!foretell_is_own_call()) {
        foretell_forget(open->fd);
        return;
    }
    foretell_register_if_pending();
    struct foretell_ring_header *header = ring();
    opened_as_file(header, open);
    if (wants_names(header))
        touched_by_open(open);
}

void foretell_opened(int fd, int flags, int folder, const char *path, uint64_t start_ns)
{
    if (UNLIKELY(activity() == OFF))
        return; /* since the call began: no call must be added to the program's own */
    uint64_t end_ns = now_ns();
    struct foretell_ring_header *header = ring();
    if (UNLIKELY(wants_records(header) || wants_names(header) || activity() == UNANNOUNCED)) {
        struct opening open = {fd, flags, folder, path, end_ns, end_ns - start_ns};
        opened_recorded(&open);
        return;
    }
    (void)count_open(header, end_ns - start_ns);
    if (fd >= 0)
        (void)claim(fd, flags, FRESH);
}

/* The offset at which a read of `bytes` from the descriptor's own position began. Records the position after it in `entry`. */
static uint64_t began_at(int fd, struct descriptor *entry, uint64_t tag, uint64_t bytes)
{
    uint64_t known = __atomic_load_n(&entry->position_bytes, __ATOMIC_RELAXED);
    if (state_of(tag) == OWNED && known != POSITION_UNKNOWN)
        return __atomic_fetch_add(&entry->position_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t after = foretell_kernel_position(fd);
    if (after == POSITION_UNKNOWN || after < bytes)
        return POSITION_UNKNOWN;
    __atomic_store_n(&entry->position_bytes, after, __ATOMIC_RELAXED);
    return after - bytes;
}

static __attribute__((noinline)) void record_read(int fd, struct descriptor *entry, uint64_t bytes,
                                                  uint64_t offset_bytes, uint64_t end_ns,
                                                  uint64_t duration_ns)
{
    uint64_t tag = tag_of(entry);
    if ((tag & TAG_IDENTITY) == 0)
        return; /* records have been wanted only since the call began */
    uint32_t flags = state_of(tag) == SHARED ? FORETELL_FLAG_SHARED : 0;
    if (offset_bytes != POSITION_UNKNOWN)
        flags = FORETELL_FLAG_POSITIONED;
    else
        offset_bytes = began_at(fd, entry, tag, bytes);
    if (offset_bytes == POSITION_UNKNOWN)
        return;
    struct foretell_record record = {.kind = FORETELL_RECORD_READ,
                                     .flags = flags,
                                     .device = __atomic_load_n(&entry->device, __ATOMIC_RELAXED),
                                     .inode = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED),
                                     .offset_bytes = offset_bytes,
                                     .length_bytes = bytes,
                                     .end_ns = end_ns,
                                     .duration_ns = duration_ns};
    foretell_emit_read(ring(), &record);
}

void foretell_read_done(int fd, struct descriptor *entry, uint64_t start_ns, ssize_t result,
                        uint64_t offset_bytes)
{
    uint64_t end_ns = start_ns != 0 ? now_ns() : 0;
    uint64_t bytes = result > 0 ? (uint64_t)result : 0;
    struct foretell_ring_header *header = ring();
    count_read(header, entry, bytes, end_ns - start_ns);
    if (UNLIKELY(wants_records(header))) {
        if (result >= 0)
            record_read(fd, entry, bytes, offset_bytes, end_ns, end_ns - start_ns);
    } else if (offset_bytes == POSITION_UNKNOWN &&
               __atomic_load_n(&entry->position_bytes, __ATOMIC_RELAXED) != POSITION_UNKNOWN) {
        /* The position is not tracked now; it is asked from the kernel when records are wanted again. A load
         * first, so that the cache line stays clean. */
        __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
    }
}
