/*
 * What is written after a call: counters always, records while the manager wants them.
 *
 * Nothing here locks, allocates or changes errno. A producer that dies between taking a ticket and
 * completing its slot leaves a hole; the manager skips it (protocol/src/ring.rs, case C).
 */
#include "state.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

void foretell_emit(struct foretell_ring_header *header, const struct foretell_record *record)
{
    uint64_t head = __atomic_load_n(&header->head, __ATOMIC_RELAXED);
    do {
        /* Acquire: the consumer has finished with the slot that it released by this tail. */
        uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
        if (head - tail >= FORETELL_RING_CAPACITY_RECORDS) {
            count(&header->dropped_records, 1);
            return;
        }
    } while (!__atomic_compare_exchange_n(&header->head, &head, head + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    struct foretell_record *slots =
        (struct foretell_record *)(void *)((char *)header + FORETELL_RING_HEADER_BYTES);
    struct foretell_record *slot = &slots[head % FORETELL_RING_CAPACITY_RECORDS];
    /* Relaxed atomics, not plain stores: after a skipped hole two writers may meet in a slot. */
    __atomic_store_n(&slot->kind, record->kind, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->flags, record->flags, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->device, record->device, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->inode, record->inode, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->offset_bytes, record->offset_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->length_bytes, record->length_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->end_ns, record->end_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->duration_ns, record->duration_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->sequence, head + 1, __ATOMIC_RELEASE);
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

/* Notes that the descriptor was opened. Returns its entry if it is to be watched as `state`. */
static struct descriptor *claim(int fd, int flags, enum descriptor_state state)
{
    bool reads_only =
        (flags & O_ACCMODE) == O_RDONLY && (flags & (O_DIRECTORY | O_PATH)) == 0;
    if (!reads_only) {
        /* Writes move the position unseen: adopted as SHARED if it is ever read. */
        foretell_forget(fd);
        return NULL;
    }
    struct descriptor *entry = foretell_entry_make(fd);
    if (entry != NULL) {
        __atomic_store_n(&entry->position_bytes, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&entry->tag, current_tag(state), __ATOMIC_RELEASE);
    }
    return entry;
}

void foretell_opened(int fd, int flags, uint64_t start_ns)
{
    uint64_t end_ns = now_ns();
    struct foretell_ring_header *header = ring();
    if (!wants_records(header) && !foretell_registration_pending()) {
        count_open(header, end_ns - start_ns);
        if (fd >= 0)
            claim(fd, flags, FRESH);
        return;
    }
    if (!foretell_is_own_process()) {
        foretell_forget(fd);
        return;
    }
    foretell_register_if_pending();
    header = ring();
    uint64_t duration_ns = end_ns - start_ns;
    bool stalled = count_open(header, duration_ns);
    struct descriptor *entry = fd >= 0 ? claim(fd, flags, OWNED) : NULL;
    if (!wants_records(header) || (fd < 0 && !stalled))
        return;
    struct foretell_record record = {.kind = FORETELL_RECORD_OPEN,
                                     .flags = fd < 0 ? FORETELL_FLAG_FAILED : 0,
                                     .end_ns = end_ns,
                                     .duration_ns = duration_ns};
    if (entry != NULL) {
        uint64_t tag = foretell_identify(fd, entry, tag_of(entry));
        if ((tag & TAG_IDENTITY) == 0 && !stalled)
            return; /* not a regular file */
        if ((tag & TAG_IDENTITY) != 0) {
            record.device = __atomic_load_n(&entry->device, __ATOMIC_RELAXED);
            record.inode = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED);
        }
    }
    foretell_emit(header, &record);
}

/* The offset at which a read of `bytes` that moved the position began; keeps the position. */
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

void foretell_read_done(int fd, struct descriptor *entry, uint64_t start_ns, ssize_t result,
                        uint64_t offset_bytes)
{
    uint64_t end_ns = now_ns();
    uint64_t duration_ns = end_ns - start_ns;
    struct foretell_ring_header *header = ring();
    uint64_t tag = tag_of(entry);
    uint64_t bytes = result > 0 ? (uint64_t)result : 0;
    bool wanted = wants_records(header);
    /* An opened descriptor is identified only when it matters: a fifo that is waited for must not
     * pass for a stall. */
    bool matters = wanted || has_stalled(duration_ns, bytes);
    if (matters) {
        tag = foretell_identify(fd, entry, tag);
        if (state_of(tag) == IGNORED) {
            count_other(result);
            return;
        }
    }
    count_read(header, bytes, duration_ns);
    if (!wanted) {
        /* Nobody follows the position now; it is asked again when somebody does. A load first, so
         * that the line stays clean. */
        if (offset_bytes == POSITION_UNKNOWN &&
            __atomic_load_n(&entry->position_bytes, __ATOMIC_RELAXED) != POSITION_UNKNOWN)
            __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
        return;
    }
    if (result < 0 || (tag & TAG_IDENTITY) == 0 || !foretell_is_own_process())
        return;
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
    foretell_emit(header, &record);
}
