/*
 * Hooks of the open family: forward, then take note of the new descriptor and of the time it took.
 *
 * The mode is read from the variable arguments only where the kernel reads it (O_CREAT, O_TMPFILE):
 * elsewhere a caller may have passed none.
 */
#include "real.h"
#include "state.h"

#include <linux/openat2.h>

/* `call` forwards and yields a descriptor. name: the path, or NULL; base: of a relative path. */
#define OPEN_BODY(flags, base, name, call)                                                         \
    do {                                                                                           \
        if (UNLIKELY(!foretell_active))                                                            \
            return call;                                                                           \
        uint64_t start_ns = open_begins();                                                         \
        int fd = call;                                                                             \
        foretell_opened(fd, flags, base, name, start_ns);                                          \
        return fd;                                                                                 \
    } while (0)

#define READ_MODE(mode, flags)                                                                     \
    mode_t mode = 0;                                                                               \
    if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) {                          \
        va_list values;                                                                            \
        va_start(values, flags);                                                                   \
        mode = va_arg(values, mode_t);                                                             \
        va_end(values);                                                                            \
    }

#define OPEN(name)                                                                                 \
    HOOK(int, name, OPEN_ARGS)                                                                     \
    {                                                                                              \
        READ_MODE(mode, flags)                                                                     \
        OPEN_BODY(flags, AT_FDCWD, path, REAL(name)(path, flags, mode));                           \
    }
OPEN(open)
OPEN(open64)
OPEN(__open)
OPEN(__open64)

#define OPEN_2(name)                                                                               \
    HOOK(int, name, (const char *path, int flags))                                                 \
    {                                                                                              \
        OPEN_BODY(flags, AT_FDCWD, path, REAL(name)(path, flags));                                 \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT(name)                                                                               \
    HOOK(int, name, OPENAT_ARGS)                                                                   \
    {                                                                                              \
        READ_MODE(mode, flags)                                                                     \
        OPEN_BODY(flags, folder, path, REAL(name)(folder, path, flags, mode));                     \
    }
OPENAT(openat)
OPENAT(openat64)

#define OPENAT_2(name)                                                                             \
    HOOK(int, name, (int folder, const char *path, int flags))                                     \
    {                                                                                              \
        OPEN_BODY(flags, folder, path, REAL(name)(folder, path, flags));                           \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

HOOK_VERSION(int, openat2, "openat2" OPENAT2_VERSION,
             (int folder, const char *path, struct open_how *how, size_t size))
{
    if (!foretell_active)
        return REAL(openat2)(folder, path, how, size);
    uint64_t start_ns = open_begins();
    int fd = REAL(openat2)(folder, path, how, size);
    /* `how` is looked at only after the kernel has accepted it. Under RESOLVE_IN_ROOT an absolute path means
     * another file than elsewhere. */
    bool taken = looked_up(fd);
    bool named = taken && (how->resolve & RESOLVE_IN_ROOT) == 0;
    foretell_opened(fd, taken ? (int)how->flags : O_RDWR, folder, named ? path : NULL, start_ns);
    return fd;
}

#define CREAT(name)                                                                                \
    HOOK(int, name, (const char *path, mode_t mode))                                               \
    {                                                                                              \
        OPEN_BODY(O_WRONLY, AT_FDCWD, NULL, REAL(name)(path, mode));                               \
    }
CREAT(creat)
CREAT(creat64)

HOOK(int, open_by_handle_at, (int mount, struct file_handle *handle, int flags))
{
    OPEN_BODY(flags, AT_FDCWD, NULL, REAL(open_by_handle_at)(mount, handle, flags));
}

/* Temporary files are opened for reading and writing. */
#define MKSTEMP(name, parameters, ...)                                                             \
    HOOK(int, name, parameters)                                                                    \
    {                                                                                              \
        OPEN_BODY(O_RDWR, AT_FDCWD, NULL, REAL(name)(__VA_ARGS__));                           \
    }
MKSTEMP(mkstemp, (char *pattern), pattern)
MKSTEMP(mkstemp64, (char *pattern), pattern)
MKSTEMP(mkostemp, (char *pattern, int flags), pattern, flags)
MKSTEMP(mkostemp64, (char *pattern, int flags), pattern, flags)
MKSTEMP(mkstemps, (char *pattern, int suffix), pattern, suffix)
MKSTEMP(mkstemps64, (char *pattern, int suffix), pattern, suffix)
MKSTEMP(mkostemps, (char *pattern, int suffix, int flags), pattern, suffix, flags)
MKSTEMP(mkostemps64, (char *pattern, int suffix, int flags), pattern, suffix, flags)

#define TMPFILE(name)                                                                              \
    HOOK(FILE *, name, (void))                                                                     \
    {                                                                                              \
        if (UNLIKELY(!foretell_active))                                                            \
            return REAL(name)();                                                              \
        uint64_t start_ns = open_begins();                                                         \
        FILE *stream = REAL(name)();                                                          \
        foretell_opened(stream != NULL ? stream->_fileno : -1, O_RDWR, AT_FDCWD, NULL, start_ns);  \
        return stream;                                                                             \
    }
TMPFILE(tmpfile)
TMPFILE(tmpfile64)
