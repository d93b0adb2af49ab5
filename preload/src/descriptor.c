/*
 * Hooks of the position and descriptor families, which change what a descriptor number refers to.
 *
 * Entries are reset without asking whose process this is. In a vfork child that is harmless, since its
 * parent re-adopts the descriptor at the next read; everywhere else it is right (state.h). They are reset
 * *before* the forwarded call: after it another thread may already have been given the number.
 */
#include "real.h"
#include "state.h"

#define LSEEK_BODY(name)                                                                           \
    {                                                                                              \
        off64_t result = REAL(name)(fd, offset, whence);                                           \
        struct descriptor *entry = entry_of(fd);                                                   \
        if (result >= 0 && entry != NULL && tag_of(entry) != 0)                                    \
            __atomic_store_n(&entry->position_bytes, (uint64_t)result, __ATOMIC_RELAXED);          \
        return result;                                                                             \
    }
#define LSEEK(name) HOOK(off64_t, name, (int fd, off64_t offset, int whence)) LSEEK_BODY(name)
LSEEK(lseek)
LSEEK(lseek64)
LSEEK(__lseek)
/* Kept by glibc for old programs only. */
HOOK_VERSION(off64_t, llseek, "llseek@" LLSEEK_VERSION, (int fd, off64_t offset, int whence))
LSEEK_BODY(llseek)

#define CLOSE(name)                                                                                \
    HOOK(int, name, (int fd))                                                                      \
    {                                                                                              \
        foretell_forget(fd);                                                                       \
        return REAL(name)(fd);                                                                     \
    }
CLOSE(close)
CLOSE(__close)

HOOK(int, close_range, (unsigned first, unsigned last, int flags))
{
    foretell_forget_range(first, last);
    return REAL(close_range)(first, last, flags);
}

HOOK(void, closefrom, (int first))
{
    foretell_forget_range(first < 0 ? 0 : (unsigned)first, ~0u);
    REAL(closefrom)(first);
}

HOOK(int, dup, (int fd))
{
    foretell_share(fd);
    int copy = REAL(dup)(fd);
    foretell_forget(copy);
    foretell_copied(fd, copy);
    return copy;
}

#define DUP2(name)                                                                                 \
    HOOK(int, name, (int fd, int to))                                                              \
    {                                                                                              \
        if (fd != to) {                                                                            \
            foretell_share(fd);                                                                    \
            foretell_forget(to);                                                                   \
        }                                                                                          \
        int copy = REAL(name)(fd, to);                                                             \
        foretell_copied(fd, copy);                                                                 \
        return copy;                                                                               \
    }
DUP2(dup2)
DUP2(__dup2)

HOOK(int, dup3, (int fd, int to, int flags))
{
    foretell_share(fd);
    foretell_forget(to);
    int copy = REAL(dup3)(fd, to, flags);
    foretell_copied(fd, copy);
    return copy;
}

/* The third argument is an int or a pointer, or absent; read as a pointer it is passed on unchanged
 * in either case, as libc itself does. */
#define FCNTL(name)                                                                                \
    HOOK(int, name, (int fd, int command, ...))                                                    \
    {                                                                                              \
        va_list values;                                                                            \
        va_start(values, command);                                                                 \
        void *value = va_arg(values, void *);                                                      \
        va_end(values);                                                                            \
        if (UNLIKELY(command == F_SETLK || command == F_SETLKW)) {                                 \
            int result = REAL(name)(fd, command, value);                                           \
            if (result == 0 && foretell_active)                                                    \
                foretell_note_lock(fd);                                                            \
            return result;                                                                         \
        }                                                                                          \
        if (LIKELY(command != F_DUPFD && command != F_DUPFD_CLOEXEC))                              \
            return REAL(name)(fd, command, value);                                                 \
        foretell_share(fd);                                                                        \
        int copy = REAL(name)(fd, command, value);                                                 \
        foretell_forget(copy);                                                                     \
        foretell_copied(fd, copy);                                                                 \
        return copy;                                                                               \
    }
FCNTL(fcntl)
FCNTL(fcntl64)
FCNTL(__fcntl)
