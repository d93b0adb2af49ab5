/*
 * Hooks of copies within the kernel: reads of a descriptor whose bytes do not pass through the program.
 *
 * A copy waits for its source and for its destination. Its time counts as a wait for the source only if
 * the destination is a regular file: the reader of a pipe or a socket may take any time. Looking up the
 * destination's kind takes a system call, once for each descriptor.
 */
#include "real.h"
#include "state.h"

/* The offset at which a copy of `result` bytes began. `at` is the call's own offset, which the kernel has
 * moved, or NULL if the kernel moved the descriptor's position. It is read only if bytes were copied: else
 * the kernel may not have read it either. */
static uint64_t copy_began(const off64_t *at, ssize_t result)
{
    return at != NULL && result > 0 ? (uint64_t)(*at - result) : POSITION_UNKNOWN;
}

/* `call` forwards; `unwatched` counts the bytes of a source that is no regular file. */
#define COPY_BODY(in, at, out, call, unwatched)                                                    \
    do {                                                                                           \
        if (UNLIKELY(!foretell_active))                                                            \
            return call;                                                                           \
        struct descriptor *entry = watched(in);                                                    \
        if (entry == NULL) {                                                                       \
            ssize_t other = call;                                                                  \
            unwatched(other);                                                                      \
            return other;                                                                          \
        }                                                                                          \
        bool timed = activity() == ANNOUNCED && foretell_is_regular_file(out);                     \
        uint64_t start_ns = timed ? now_ns() : 0;                                                  \
        ssize_t result = call;                                                                     \
        foretell_read_done(in, entry, start_ns, result, copy_began(at, result));                   \
        return result;                                                                             \
    } while (0)

#define SENDFILE(name)                                                                             \
    HOOK(ssize_t, name, (int out, int in, off64_t *at, size_t bytes))                              \
    {                                                                                              \
        COPY_BODY(in, at, out, REAL(name)(out, in, at, bytes), count_other);                       \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

HOOK(ssize_t, copy_file_range, COPY_ARGS)
{
    COPY_BODY(in, at, out, REAL(copy_file_range)(in, at, out, to, bytes, flags), count_other);
}

/* The kernel does not count what goes through pipes as read. */
static void count_nothing(ssize_t bytes)
{
    (void)bytes;
}

HOOK(ssize_t, splice, COPY_ARGS)
{
    COPY_BODY(in, at, out, REAL(splice)(in, at, out, to, bytes, flags), count_nothing);
}
