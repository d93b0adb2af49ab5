/*
 * Hooks of a program's own advice about what it will read: forward, then record what the kernel has taken. POPULATE_READ
 * and MAP_POPULATE read everything before they return, so they are recorded first; the manager then reads ahead of them.
 *
 * Decides which advice says something about reads to come: WILLNEED and its kin (readahead, MADV_POPULATE_READ,
 * MAP_POPULATE), SEQUENTIAL, RANDOM, NORMAL, and for descriptors NOREUSE. All other advice is only forwarded. So is
 * advice about a descriptor of anything but a regular file. Memory is named by its address: what lies there, the
 * manager finds out. process_madvise is about another process and is not hooked.
 *
 * Advice that data is needed, and advice about memory, is recorded whether or not there is interest: such calls are rare. Other
 * advice about descriptors is recorded only while there is some: programs like cat give it for each file. Each record takes a
 * system call (getpid), and another one (statx) where the descriptor's kind is not known. Allocators advise often, and by other
 * values, for which a hook costs a comparison. So does mmap without MAP_POPULATE.
 *
 * Results and errno are the call's own.
 */
#include "real.h"
#include "state.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* Whether advice is to be recorded, always or with interest only. A process that is not announced announces
 * itself. */
static bool listens(bool always)
{
    if (activity() == OFF || (!always && !wants_any(ring())))
        return false;
    foretell_register_if_pending();
    return activity() == ANNOUNCED && foretell_is_own_call();
}

static void emit_advice(struct foretell_advice *advice)
{
    advice->kind = FORETELL_RECORD_ADVICE;
    foretell_emit_own(ring(), advice);
}

/* length_bytes: 0 stands for the rest of the file. */
static __attribute__((noinline)) void advised_file(uint32_t kind, int fd, off64_t offset_bytes,
                                                   uint64_t length_bytes)
{
    bool always = kind == FORETELL_ADVICE_NEEDED;
    struct descriptor *entry = offset_bytes >= 0 && listens(always) ? foretell_entry_make(fd) : NULL;
    if (entry == NULL)
        return;
    uint64_t tag = tag_of(entry);
    if ((tag & TAG_STATE) == UNKNOWN || (tag & TAG_STATE) == FRESH)
        tag = foretell_adopt_own(fd, entry);
    if ((tag & TAG_IDENTITY) == 0)
        return; /* not a regular file */
    struct foretell_advice advice = {
        .advice = kind,
        .device = __atomic_load_n(&entry->device, __ATOMIC_RELAXED),
        .inode = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED),
        .offset_bytes = (uint64_t)offset_bytes,
        .length_bytes = length_bytes,
        .descriptor = (uint64_t)fd,
    };
    emit_advice(&advice);
}

static __attribute__((noinline)) void advised_memory(uint32_t kind, const void *at, size_t bytes)
{
    if (bytes == 0 || !listens(true))
        return;
    struct foretell_advice advice = {
        .advice = kind,
        .offset_bytes = (uint64_t)(uintptr_t)at,
        .length_bytes = bytes,
        .descriptor = FORETELL_NO_DESCRIPTOR,
    };
    emit_advice(&advice);
}

/* FORETELL_ADVICE_… of an advice about a descriptor; 0 if it says nothing about reads to come. */
static uint32_t of_descriptor(int advice)
{
    switch (advice) {
    case POSIX_FADV_WILLNEED: return FORETELL_ADVICE_NEEDED;
    case POSIX_FADV_SEQUENTIAL: return FORETELL_ADVICE_SEQUENTIAL;
    case POSIX_FADV_RANDOM: return FORETELL_ADVICE_RANDOM;
    case POSIX_FADV_NOREUSE: return FORETELL_ADVICE_ONCE;
    case POSIX_FADV_NORMAL: return FORETELL_ADVICE_NORMAL;
    default: return 0;
    }
}

/* The same of an advice about memory; the values of POSIX_MADV_… are those of MADV_…. */
static inline uint32_t of_memory(int advice)
{
    switch (advice) {
    case MADV_WILLNEED:
    case MADV_POPULATE_READ: return FORETELL_ADVICE_NEEDED;
    case MADV_SEQUENTIAL: return FORETELL_ADVICE_SEQUENTIAL;
    case MADV_RANDOM: return FORETELL_ADVICE_RANDOM;
    case MADV_NORMAL: return FORETELL_ADVICE_NORMAL;
    default: return 0;
    }
}

#define FADVISE(name)                                                                              \
    HOOK(int, name, FADVISE_ARGS)                                                                  \
    {                                                                                              \
        int error = REAL(name)(fd, offset, bytes, advice);                                         \
        uint32_t kind = of_descriptor(advice);                                                     \
        if (kind != 0 && error == 0)                                                               \
            advised_file(kind, fd, offset, (uint64_t)bytes);                                       \
        return error;                                                                              \
    }
FADVISE(posix_fadvise)
FADVISE(posix_fadvise64)

HOOK(ssize_t, readahead, (int fd, off64_t offset, size_t bytes))
{
    ssize_t result = REAL(readahead)(fd, offset, bytes);
    if (result == 0 && bytes > 0)
        advised_file(FORETELL_ADVICE_NEEDED, fd, offset, bytes);
    return result;
}

/* Both return 0 if the kernel has taken the advice. */
#define MADVISE(name)                                                                              \
    HOOK(int, name, MADVISE_ARGS)                                                                  \
    {                                                                                              \
        uint32_t kind = of_memory(advice);                                                         \
        if (LIKELY(kind == 0))                                                                     \
            return REAL(name)(at, bytes, advice);                                                  \
        if (advice == MADV_POPULATE_READ)                                                          \
            advised_memory(kind, at, bytes);                                                       \
        int result = REAL(name)(at, bytes, advice);                                                \
        if (result == 0 && advice != MADV_POPULATE_READ)                                           \
            advised_memory(kind, at, bytes);                                                       \
        return result;                                                                             \
    }
MADVISE(madvise)
MADVISE(posix_madvise)

/* libc refuses other offsets of a mapping without a system call; then the hook makes none either. */
#define LEAST_PAGE_BYTES 4096u

#define MMAP(name)                                                                                 \
    HOOK(void *, name, MMAP_ARGS)                                                                  \
    {                                                                                              \
        if (LIKELY((flags & (MAP_POPULATE | MAP_ANONYMOUS)) != MAP_POPULATE))                      \
            return REAL(name)(at, bytes, protection, flags, fd, offset);                           \
        if (bytes > 0 && (uint64_t)offset % LEAST_PAGE_BYTES == 0)                                 \
            advised_file(FORETELL_ADVICE_NEEDED, fd, offset, bytes);                               \
        return REAL(name)(at, bytes, protection, flags, fd, offset);                               \
    }
MMAP(mmap)
MMAP(mmap64)
