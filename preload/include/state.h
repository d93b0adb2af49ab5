/*
 * The library's state: the ring, the registration and the descriptor table.
 *
 * Decides which descriptors are watched and which counters and records a call writes. All state is
 * atomics in static memory, so every hook may run in a signal handler, at any moment, in any thread.
 *
 * Descriptor states (entry.tag = epoch << 8 | identity known << 7 | numbered folder << 6 | state):
 *   UNKNOWN  nothing is known. Identified at the first read that is recorded.
 *   IGNORED  not a regular file: pipes, terminals, sockets, devices, folders. A folder whose TOUCH record was
 *            written has a number, by which later records name it. Any other folder is named by its descriptor.
 *   OWNED    opened read-only by this process and never shared: the position is tracked here. In an
 *            entry of an old epoch it means SHARED.
 *   SHARED   adopted or inherited: another reader may move the position, so the kernel is asked for it.
 *   FRESH    opened read-only, or duplicated, while no records were wanted. Counted as a regular file,
 *            and adopted as soon as records are wanted. Its stalls are owed until its kind is known.
 *
 * A read that is not recorded makes only the program's own system call: the program may have forbidden
 * itself all others (strict seccomp). So a kind is looked up when a descriptor is opened for reading and
 * writing, at the program's start (standard input), before the first recorded read, and when the program gives advice. Stalls
 * of a FRESH descriptor are owed: when it is closed or the process ends, they are counted if it is a regular file.
 *
 * Invariants: resetting an entry to UNKNOWN or FRESH is always right, in any process. So a vfork child
 * that closes or duplicates a descriptor resets its parent's entry without harm. Claiming another state
 * is right only in the process that the table belongs to, hence the pid check (foretell_is_own_call).
 *
 * What may fail: the ring may be full (the record is dropped and counted); memory for a table page may
 * be refused (its descriptors go unwatched); two threads may race on one descriptor (a record may then
 * name a wrong offset, which costs at most a wrong prefetch).
 */
#ifndef FORETELL_PRELOAD_STATE_H
#define FORETELL_PRELOAD_STATE_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>

#include "executable.h"
#include "foretell_protocol.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum descriptor_state { UNKNOWN = 0, IGNORED = 1, OWNED = 2, SHARED = 3, FRESH = 4 };
#define TAG_STATE UINT64_C(0x3f)
#define TAG_FOLDER UINT64_C(0x40)
#define TAG_IDENTITY UINT64_C(0x80)

/* The position must be asked from the kernel. */
#define POSITION_UNKNOWN UINT64_MAX

struct descriptor {
    uint64_t tag;
    uint64_t position_bytes;
    uint64_t device;
    uint64_t inode; /* with TAG_FOLDER: the folder's number */
    uint64_t owed_stall_ns; /* of reads that stalled before the descriptor's kind was known */
    uint64_t owed_stalls;
};

/* What a process touches first costs a page fault, up to 3 µs, which short programs would feel. So the large pieces that few
 * need lie behind the small ones that all need: the Makefile has the linker sort sections by name. */
#define BEHIND_IN_BSS(place) __attribute__((section(".bss.zz_behind_" place)))
#define BEHIND_IN_DATA __attribute__((section(".data.zz_behind")))

#define TABLE_PAGE_ENTRIES 256u
#define TABLE_PAGES 4096u

/* The process's ring. While there is none, a private header, so hooks need no test for NULL. */
extern struct foretell_ring_header *foretell_ring;
/* Raised whenever another process comes to share our descriptors' positions. */
extern uint32_t foretell_epoch;
extern struct descriptor *foretell_table[TABLE_PAGES];

/* What the hooks do besides forwarding. */
enum activity {
    OFF = 0,
    /* A process that has not announced itself: counts in a private header, or a forked child in its parent's ring, and reads
     * no clock. */
    UNANNOUNCED = 1,
    ANNOUNCED = 2
};

#if defined(__x86_64__)
#define LARGEST_PAGE_BYTES 4096u
#else
#define LARGEST_PAGE_BYTES 65536u
#endif
/* On pages of its own, which the kernel clears in a forked child (MADV_WIPEONFORK): the child of a
 * fork that libc does not know of is OFF without a system call to find out. */
extern union foretell_wiped {
    uint8_t activity; /* enum activity */
    char pages[LARGEST_PAGE_BYTES];
} foretell_wiped;
#define foretell_active (foretell_wiped.activity)

/* registration.c */
/* Whether this is the process that the state belongs to, not a vfork or raw clone child. A system call. */
bool foretell_is_own_process(void);
/* The same for a call that claims something: a descriptor, a folder, a file's advice. If this is a child, foretell_asks is
 * set. */
bool foretell_is_own_call(void);
/*
 * Whether to find out before each record of a read, or of a name, whose process this is. Normally not, for that is a system
 * call for each record, a third of what these cost. Then a child that runs in this process's memory writes such records in its
 * parent's name:
 *   - A child with a copy of the memory writes none: foretell_active is OFF there. Where the kernel does not see to that, all
 *     is asked.
 *   - A descriptor that a read is recorded of was claimed by the parent. The child has it from the parent, and reads the same
 *     file and moves the same position. If it has closed the descriptor, or put another in its place, the entry was reset, and
 *     is not claimed again without asking.
 *   - A name is absolute, or relative to a folder that the parent has opened (as for reads), or to the working folder, which is
 *     the parent's until the child changes it. That is a call that asks, while names are of interest. A descriptor without a
 *     number is asked about.
 * The first child that is found by such a question, at an open, a chdir, or the first read of a descriptor, sets this for good.
 * So a child that lives on beside its parent, with descriptors and a folder of its own, is told apart.
 * What is left: a child and another thread of its parent that give the same number to different descriptors meanwhile. A record
 * then names a wrong file, which costs at most a wrong prefetch.
 */
extern bool foretell_asks;
/* A process announces itself at its first open, recorded read or recorded name rather than at its start: many end or exec
 * before. */
void foretell_register_if_pending(void);
/* At the end of a program: announces it if it has counted something that would be lost. */
void foretell_register_if_counted(void);
/* Whether no manager listens at the address any more. Needed if the manager dropped this process's ring
 * before its own end, and so could not report the end in it. errno may change. */
bool foretell_manager_is_gone(void);

/* Whether the run is over, as far as can be told without much ado. For a process that executes a program. */
bool foretell_run_is_over(void);
/* From here on everything is forwarded, in this process and in its children. */
void foretell_switch_off(void);
/* Tells the manager that this process tells no more, if it has announced itself. Returns whether the manager was told. */
bool foretell_fall_silent(void);
/* Takes that back. */
void foretell_speak_again(void);
/* Whether this option of prctl may forbid the process what the hooks do. */
static inline bool foretell_locks_up(int option)
{
    return option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS || option == PR_SET_TSC;
}

/* filter.c */
/* Whether this thread is under more seccomp filters than known_filters. True if that cannot be found out. By one thread at a
 * time. errno is kept. */
bool foretell_is_filtered(uint32_t known_filters);

/* descriptor_table.c */
/* The entry for writing; makes its table page. NULL if fd is negative, too large, or memory is
 * refused. */
struct descriptor *foretell_entry_make(int fd);
/* Looks up what a descriptor is. Returns the new tag: IGNORED if it is not a regular file. */
uint64_t foretell_adopt(int fd, struct descriptor *entry);
/* The same for a caller that has found out that this is its own process. */
uint64_t foretell_adopt_own(int fd, struct descriptor *entry);
/* A regular file, as it was when it was looked at. */
struct known_file {
    struct file_identity is;
    bool has_version; /* whether the next two are known */
    uint64_t size_bytes;
    int64_t modified_ns; /* since 1970 */
};
/* Looks up what a descriptor is that this process has just opened. False if it is no regular file. */
bool foretell_identify(int fd, struct descriptor *entry, struct known_file *file);
/* Before a recorded read of a descriptor that is UNKNOWN or FRESH: its entry if it is a regular
 * file, else NULL. */
struct descriptor *foretell_watch(int fd);
/* Whether fd is a regular file. May make a system call. */
bool foretell_is_regular_file(int fd);
void foretell_forget(int fd);
void foretell_forget_range(unsigned first, unsigned last);
/* This process has locked a part of fd's file by fcntl. errno is kept. */
void foretell_note_lock(int fd);
/* fd is about to be duplicated. */
void foretell_share(int fd);
/* fd has been duplicated as copy; a negative copy means that this failed. */
void foretell_copied(int fd, int copy);
/* A read of a FRESH descriptor stalled. */
void foretell_owe(struct descriptor *entry, uint64_t stall_ns);
/* Files that this process has locked, and their number; SIZE_MAX: too many to keep. */
extern struct file_identity foretell_locked[];
extern size_t foretell_locked_count;
/* At the end of the process: looks up the descriptors that owe stalls, and counts these; announces a program that has counted
 * something. */
void foretell_at_end(void);
/* In a forked child: drops the stalls that the parent owes, and the lookups of its other threads. */
void foretell_table_forked(void);

/* record.c */
/* After an open that began at start_ns; fd is its result. path: what it opened, or NULL if that is not to be
 * recorded. folder: the base of a relative path, or AT_FDCWD. errno is kept. */
void foretell_opened(int fd, int flags, int folder, const char *path, uint64_t start_ns);
/* After a successful or failed read of result bytes. start_ns: 0 if the call was not timed. offset:
 * POSITION_UNKNOWN if the call moved the descriptor's position. */
void foretell_read_done(int fd, struct descriptor *entry, uint64_t start_ns, ssize_t result,
                        uint64_t offset_bytes);
/* Writes the record of a read. It is dropped unless this process has announced itself. header: the ring that
 * said that records are wanted. */
void foretell_emit_read(struct foretell_ring_header *header, const struct foretell_record *record);
/* Writes a record of any kind, for a caller that has found out that this is its own process (foretell_is_own_process). */
void foretell_emit_own(struct foretell_ring_header *header, const void *record);
/* Takes so many slots in a row, for such a caller. Returns the ticket of the first one; NO_TICKET if the ring is
 * full, or this process has not announced itself. */
uint64_t foretell_reserve(struct foretell_ring_header *header, uint64_t slots);
#define NO_TICKET UINT64_MAX
/* Fills the slot of a ticket. */
void foretell_store(struct foretell_ring_header *header, uint64_t ticket, const void *record);
/* The kernel's position of fd, or POSITION_UNKNOWN. errno is kept. */
uint64_t foretell_kernel_position(int fd);

/* touch.c */
/* The time at which a call that names a path begins, while there is interest in names; 0 if it is only to be
 * forwarded. A forked child announces itself here, as before a recorded read. errno is kept. */
uint64_t foretell_name_begins(void);
/* After such a call: counts it, and records its path unless that is NULL. what: FORETELL_TOUCH_… folder: as for
 * foretell_opened. result: negative if the call failed; else, for FORETELL_TOUCH_FOLDER, the folder's descriptor
 * or WITHOUT_DESCRIPTOR. errno is kept. */
void foretell_named(uint64_t start_ns, uint32_t what, int folder, const char *path, int result);
#define WITHOUT_DESCRIPTOR INT_MAX
/* What an open with these flags does with its path: FORETELL_TOUCH_…; 0 if it is not to be recorded. */
uint32_t foretell_touch_of_open(int flags);
/* The number of the folder that a descriptor stands for, if it has one; else 0. */
uint32_t foretell_folder_number(int fd);
/* Records a path. The caller has found out that this may be recorded (may_record), and for a folder that is opened, that this
 * is the process's own call. The call's duration counts elsewhere. touch: what is known of the call, to be completed here. */
void foretell_touch(struct foretell_touch *touch, int folder, const char *path, int result);
/* fd has been duplicated as copy: which then stands for the same numbered folder. */
void foretell_copied_folder(const struct descriptor *from, int copy);
/* In a forked child: the manager knows none of its parent's numbers from its own ring. */
void foretell_folders_forked(void);

/* Whether the kernel has read the path of a call: only then do the hooks read it too. Other errors may come
 * from a look at the other arguments, or from a path that cannot be read. */
static inline bool looked_up(int result)
{
    return result >= 0 || errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP;
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    /* Answered in user space (vDSO), about 27 ns; cannot fail for this clock. Where the kernel has no
     * clock that user space may read (hpet, acpi_pm), this is a system call. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline enum activity activity(void)
{
    return (enum activity)__atomic_load_n(&foretell_active, __ATOMIC_RELAXED);
}

/* The time at which a read begins; 0 if it is not to be timed. A process that has only read since its fork
 * may be in strict seccomp mode, which forbids the processor's clock too: then reading it is a fault. */
static inline uint64_t read_begins(enum activity now)
{
    return LIKELY(now == ANNOUNCED) ? now_ns() : 0;
}

/* The time at which an open begins. A process that is not announced announces itself here, so that help comes in time. */
static inline uint64_t open_begins(void)
{
    if (UNLIKELY(activity() == UNANNOUNCED))
        foretell_register_if_pending();
    return now_ns();
}

/* Whether a read or a name may be recorded (foretell_asks). */
static inline bool may_record(void)
{
    return LIKELY(!__atomic_load_n(&foretell_asks, __ATOMIC_RELAXED)) || foretell_is_own_call();
}

static inline void count(uint64_t *counter, uint64_t value)
{
    (void)__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

static inline struct foretell_ring_header *ring(void)
{
    return __atomic_load_n(&foretell_ring, __ATOMIC_ACQUIRE);
}

static inline bool wants_records(const struct foretell_ring_header *header)
{
    return (__atomic_load_n(&header->interest, __ATOMIC_RELAXED) & FORETELL_INTEREST_READS) != 0;
}

static inline bool wants_names(const struct foretell_ring_header *header)
{
    return (__atomic_load_n(&header->interest, __ATOMIC_RELAXED) & FORETELL_INTEREST_NAMES) != 0;
}

static inline bool wants_any(const struct foretell_ring_header *header)
{
    return __atomic_load_n(&header->interest, __ATOMIC_RELAXED) != 0;
}

static inline uint64_t current_tag(enum descriptor_state state)
{
    return (uint64_t)__atomic_load_n(&foretell_epoch, __ATOMIC_RELAXED) << 8 | (uint64_t)state;
}

static inline enum descriptor_state state_of(uint64_t tag)
{
    enum descriptor_state state = (enum descriptor_state)(tag & TAG_STATE);
    return state == OWNED && (tag ^ current_tag(UNKNOWN)) >> 8 != 0 ? SHARED : state;
}

/* The entry if its page exists: one array load, one bounds check. */
static inline struct descriptor *entry_of(int fd)
{
    unsigned page = (unsigned)fd / TABLE_PAGE_ENTRIES; /* a negative fd is far out of bounds */
    if (UNLIKELY(page >= TABLE_PAGES))
        return NULL;
    struct descriptor *entries = __atomic_load_n(&foretell_table[page], __ATOMIC_ACQUIRE);
    return LIKELY(entries != NULL) ? &entries[(unsigned)fd % TABLE_PAGE_ENTRIES] : NULL;
}

static inline uint64_t tag_of(const struct descriptor *entry)
{
    return __atomic_load_n(&entry->tag, __ATOMIC_ACQUIRE);
}

/* The entry if fd is watched; NULL if the call is to be forwarded and its bytes counted as other. */
static inline struct descriptor *watched(int fd)
{
    struct descriptor *entry = entry_of(fd);
    enum descriptor_state state = UNKNOWN;
    if (LIKELY(entry != NULL))
        state = (enum descriptor_state)(tag_of(entry) & TAG_STATE);
    if (LIKELY(state == IGNORED))
        return NULL;
    if (LIKELY(!wants_records(ring())))
        return state != UNKNOWN ? entry : NULL;
    return LIKELY(state != UNKNOWN && state != FRESH && activity() == ANNOUNCED)
               ? entry
               : foretell_watch(fd);
}

static inline void count_other(ssize_t bytes)
{
    if (LIKELY(bytes > 0))
        count(&ring()->other_read_bytes, (uint64_t)bytes);
}

/* Whether a call that returned `bytes` bytes must have waited for I/O. */
static inline bool has_stalled(uint64_t duration_ns, uint64_t bytes)
{
    return UNLIKELY(duration_ns >
                    FORETELL_STALL_THRESHOLD_NS + bytes / FORETELL_COPY_BYTES_PER_NS);
}

/* Adds one read to the counters. */
static inline void count_read(struct foretell_ring_header *header, struct descriptor *entry,
                              uint64_t bytes, uint64_t duration_ns)
{
    count(&header->read_calls, 1);
    count(&header->read_bytes, bytes);
    if (!has_stalled(duration_ns, bytes))
        return;
    if ((tag_of(entry) & TAG_IDENTITY) == 0) {
        foretell_owe(entry, duration_ns);
        return;
    }
    count(&header->read_stall_ns, duration_ns);
    count(&header->read_stalls, 1);
}

/* The body of a hook of a call that names something. `call` forwards; `then` records it, given start_ns and `result`. */
#define NAMING_BODY(type, call, then)                                                              \
    do {                                                                                           \
        if (LIKELY(!wants_names(ring())))                                                          \
            return call;                                                                           \
        uint64_t start_ns = foretell_name_begins();                                                \
        if (start_ns == 0)                                                                         \
            return call;                                                                           \
        type result = call;                                                                        \
        then;                                                                                      \
        return result;                                                                             \
    } while (0)

#endif
