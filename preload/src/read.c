/*
 * Hooks of the read family: forward, then count and record.
 *
 * errno after a failed call is the call's own: nothing in the bookkeeping changes it. The hooks hold
 * no lock and no resource across the forwarded call, so cancellation and longjmp out of a signal
 * handler leave nothing behind.
 */
#include "real.h"
#include "state.h"

/* `call` forwards; `offset` is the call's own, or POSITION_UNKNOWN if it moves the position. */
#define READ_BODY(fd, call, offset)                                                                \
    do {                                                                                           \
        enum activity now = activity();                                                            \
        if (UNLIKELY(now == OFF))                                                                  \
            return call;                                                                           \
        struct descriptor *entry = watched(fd);                                                    \
        if (entry == NULL) {                                                                       \
            ssize_t other = call;                                                                  \
            count_other(other);                                                                    \
            return other;                                                                          \
        }                                                                                          \
        uint64_t start_ns = read_begins(now);                                                      \
        ssize_t result = call;                                                                     \
        foretell_read_done(fd, entry, start_ns, result, offset);                                   \
        return result;                                                                             \
    } while (0)

#define READ(name)                                                                                 \
    HOOK(ssize_t, name, (int fd, void *to, size_t bytes))                                          \
    {                                                                                              \
        READ_BODY(fd, REAL(name)(fd, to, bytes), POSITION_UNKNOWN);                                \
    }
READ(read)
READ(__read)

HOOK(ssize_t, __read_chk, (int fd, void *to, size_t bytes, size_t room))
{
    READ_BODY(fd, REAL(__read_chk)(fd, to, bytes, room), POSITION_UNKNOWN);
}

#define PREAD(name)                                                                                \
    HOOK(ssize_t, name, (int fd, void *to, size_t bytes, off64_t offset))                          \
    {                                                                                              \
        READ_BODY(fd, REAL(name)(fd, to, bytes, offset), (uint64_t)offset);                        \
    }
PREAD(pread)
PREAD(pread64)
PREAD(__pread64)

#define PREAD_CHK(name)                                                                            \
    HOOK(ssize_t, name, (int fd, void *to, size_t bytes, off64_t offset, size_t room))             \
    {                                                                                              \
        READ_BODY(fd, REAL(name)(fd, to, bytes, offset, room), (uint64_t)offset);                  \
    }
PREAD_CHK(__pread_chk)
PREAD_CHK(__pread64_chk)

HOOK(ssize_t, readv, (int fd, const struct iovec *parts, int count))
{
    READ_BODY(fd, REAL(readv)(fd, parts, count), POSITION_UNKNOWN);
}

#define PREADV(name)                                                                               \
    HOOK(ssize_t, name, PREADV_ARGS)                                                               \
    {                                                                                              \
        READ_BODY(fd, REAL(name)(fd, parts, count, offset), (uint64_t)offset);                     \
    }
PREADV(preadv)
PREADV(preadv64)

/* An offset of -1 means the descriptor's position, and is POSITION_UNKNOWN when converted. */
#define PREADV2(name)                                                                              \
    HOOK(ssize_t, name, PREADV2_ARGS)                                                              \
    {                                                                                              \
        READ_BODY(fd, REAL(name)(fd, parts, count, offset, flags), (uint64_t)offset);              \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)
