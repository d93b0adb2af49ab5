/*
 * Hooks of asynchronous reads: a read is counted and recorded when the program asks for its result.
 *
 * libc reads in threads of its own, past the hooks. So the hook of aio_return reports the read, whose offset and
 * descriptor are in the control block. How long the program has waited for it is not known: the read counts
 * as untimed. aio_read and lio_listio need no hook, since each result is asked for by aio_return. A program that
 * does not ask is not seen to read.
 *
 * libc notes the operation in the control block's public field, also for aio_read. It has two versions of the
 * name, of which the older one was in librt; both do the same.
 */
#include "real.h"
#include "state.h"

#include <aio.h>

/* LIO_READ with this bit is a read by aio_read64, in some versions of glibc. */
#define LARGE_FILE 128

static __attribute__((noinline)) void finished(const struct aiocb *control, ssize_t result)
{
    if ((control->aio_lio_opcode & ~LARGE_FILE) != LIO_READ || activity() == OFF)
        return;
    int fd = control->aio_fildes;
    struct descriptor *entry = watched(fd);
    if (entry == NULL)
        count_other(result);
    else
        foretell_read_done(fd, entry, 0, result, (uint64_t)control->aio_offset);
}

#define AIO_RETURN_BODY(name)                                                                      \
    {                                                                                              \
        ssize_t result = REAL(name)(control);                                                 \
        finished(control, result);                                                                 \
        return result;                                                                             \
    }
HOOK_VERSION(ssize_t, aio_return, "aio_return@@" AIO_VERSION, (struct aiocb * control))
AIO_RETURN_BODY(aio_return)
HOOK_VERSION(ssize_t, aio_return_old, "aio_return@" AIO_OLD_VERSION, (struct aiocb * control))
AIO_RETURN_BODY(aio_return_old)
HOOK_VERSION(ssize_t, aio_return64, "aio_return64@@" AIO_VERSION, (struct aiocb * control))
AIO_RETURN_BODY(aio_return64)
HOOK_VERSION(ssize_t, aio_return64_old, "aio_return64@" AIO_OLD_VERSION, (struct aiocb * control))
AIO_RETURN_BODY(aio_return64_old)
