/*
 * Hooks of calls that ask about a name: the stat family, access, readlink, realpath; and chdir.
 *
 * While the manager has no interest in names, a hook is a load, a test and a jump. With interest the call is
 * timed, counted and recorded (touch.c). What libc does inside other functions passes through no hook.
 */
#include "real.h"
#include "state.h"

/* `call` forwards. what: FORETELL_TOUCH_… base, name: the path, which is NULL if it is not to be recorded. */
#define NAME_BODY(type, what, base, name, call)                                                    \
    NAMING_BODY(type, call, foretell_named(start_ns, what, base, name, result < 0 ? -1 : 0))

#define STAT(name)                                                                                 \
    HOOK(int, name, STAT_ARGS)                                                                     \
    {                                                                                              \
        NAME_BODY(int, FORETELL_TOUCH_STAT, AT_FDCWD, path, REAL(name)(path, to));                 \
    }
STAT(stat)
STAT(stat64)
STAT(lstat)
STAT(lstat64)

#define STATAT(name)                                                                               \
    HOOK(int, name, STATAT_ARGS)                                                                   \
    {                                                                                              \
        NAME_BODY(int, FORETELL_TOUCH_STAT, folder, path, REAL(name)(folder, path, to, flags));    \
    }
STATAT(fstatat)
STATAT(fstatat64)

/* What programs that were built with glibc before 2.33 call. */
#define XSTAT(name)                                                                                \
    HOOK(int, name, XSTAT_ARGS)                                                                    \
    {                                                                                              \
        NAME_BODY(int, FORETELL_TOUCH_STAT, AT_FDCWD, path, REAL(name)(version, path, to));        \
    }
XSTAT(__xstat)
XSTAT(__xstat64)
XSTAT(__lxstat)
XSTAT(__lxstat64)

#define XSTATAT(name)                                                                              \
    HOOK(int, name, XSTATAT_ARGS)                                                                  \
    {                                                                                              \
        NAME_BODY(int, FORETELL_TOUCH_STAT, folder, path,                                          \
                  REAL(name)(version, folder, path, to, flags));                                   \
    }
XSTATAT(__fxstatat)
XSTATAT(__fxstatat64)

HOOK(int, statx, STATX_ARGS)
{
    NAME_BODY(int, FORETELL_TOUCH_STAT, folder, path, REAL(statx)(folder, path, flags, mask, to));
}

HOOK(int, access, (const char *path, int mode))
{
    NAME_BODY(int, FORETELL_TOUCH_STAT, AT_FDCWD, path, REAL(access)(path, mode));
}

HOOK(int, faccessat, (int folder, const char *path, int mode, int flags))
{
    NAME_BODY(int, FORETELL_TOUCH_STAT, folder, path, REAL(faccessat)(folder, path, mode, flags));
}

#define EFFECTIVE_ACCESS(name)                                                                     \
    HOOK(int, name, (const char *path, int mode))                                                  \
    {                                                                                              \
        NAME_BODY(int, FORETELL_TOUCH_STAT, AT_FDCWD, path, REAL(name)(path, mode));          \
    }
EFFECTIVE_ACCESS(euidaccess)
EFFECTIVE_ACCESS(eaccess)

/* A path that is no link is refused with EINVAL. So is a buffer of no size, before the path is read. */
static __attribute__((noinline)) void read_link(uint64_t start_ns, int folder, const char *path,
                                                size_t bytes, ssize_t result)
{
    bool no_link = result < 0 && errno == EINVAL && bytes > 0 && bytes <= INT_MAX;
    int known = result < 0 && !no_link ? -1 : 0;
    uint32_t failed = no_link ? FORETELL_TOUCH_FAILED : 0;
    foretell_named(start_ns, FORETELL_TOUCH_LINK | failed, folder, path, known);
}

#define READLINK_BODY(folder, call)                                                                \
    NAMING_BODY(ssize_t, call, read_link(start_ns, folder, path, bytes, result))

HOOK(ssize_t, readlink, (const char *path, char *to, size_t bytes))
{
    READLINK_BODY(AT_FDCWD, REAL(readlink)(path, to, bytes));
}

HOOK(ssize_t, __readlink_chk, (const char *path, char *to, size_t bytes, size_t room))
{
    READLINK_BODY(AT_FDCWD, REAL(__readlink_chk)(path, to, bytes, room));
}

HOOK(ssize_t, readlinkat, READLINKAT_ARGS)
{
    READLINK_BODY(folder, REAL(readlinkat)(folder, path, to, bytes));
}

HOOK(ssize_t, __readlinkat_chk,
     (int folder, const char *path, char *to, size_t bytes, size_t room))
{
    READLINK_BODY(folder, REAL(__readlinkat_chk)(folder, path, to, bytes, room));
}

#define REALPATH_BODY(call)                                                                        \
    NAMING_BODY(char *, call,                                                                      \
                foretell_named(start_ns, FORETELL_TOUCH_STAT, AT_FDCWD, path,                      \
                               result != NULL ? 0 : -1))

#if HAS_OLD_NAMES
HOOK_VERSION(char *, realpath, "realpath@@" REALPATH_VERSION, (const char *path, char *to))
{
    REALPATH_BODY(REAL(realpath)(path, to));
}

HOOK_VERSION(char *, realpath_old, "realpath@" REALPATH_OLD_VERSION, (const char *path, char *to))
{
    REALPATH_BODY(REAL(realpath_old)(path, to));
}
#else
HOOK(char *, realpath, (const char *path, char *to))
{
    REALPATH_BODY(REAL(realpath)(path, to));
}
#endif

HOOK(char *, __realpath_chk, (const char *path, char *to, size_t room))
{
    REALPATH_BODY(REAL(__realpath_chk)(path, to, room));
}

HOOK(char *, canonicalize_file_name, (const char *path))
{
    REALPATH_BODY(REAL(canonicalize_file_name)(path));
}

HOOK(int, chdir, (const char *path))
{
    NAME_BODY(int, FORETELL_TOUCH_MOVED, AT_FDCWD, path, REAL(chdir)(path));
}

HOOK(int, fchdir, (int fd))
{
    NAME_BODY(int, FORETELL_TOUCH_MOVED, fd, ".", REAL(fchdir)(fd));
}
