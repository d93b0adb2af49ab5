/*
 * Hooks of calls that open, read and walk folders.
 *
 * A folder is recorded once, when it is opened. Reads of it are timed and counted. scandir, ftw, nftw and fts open
 * folders inside libc, past the hooks: of these, what can be known from outside is recorded. That is the folder
 * of scandir, the beginning of a walk by ftw or nftw, and each path that fts_read returns.
 *
 * While the manager has no interest in names, all of these only forward. Closing a folder forgets its number.
 */
#include "real.h"
#include "state.h"

static __attribute__((noinline)) void opened_folder(uint64_t start_ns, const char *path, DIR *folder)
{
    int fd = folder != NULL ? dirfd(folder) : -1;
    foretell_forget(fd);
    foretell_named(start_ns, FORETELL_TOUCH_FOLDER, AT_FDCWD, path, fd);
}

HOOK(DIR *, opendir, (const char *path))
{
    NAMING_BODY(DIR *, REAL(opendir)(path), opened_folder(start_ns, path, result));
}

/* A descriptor that was opened without O_DIRECTORY is known to be a folder's only now. */
static __attribute__((noinline)) void opened_descriptor(uint64_t start_ns, int fd, const DIR *folder)
{
    const char *path = foretell_folder_number(fd) == 0 ? "." : NULL;
    foretell_named(start_ns, FORETELL_TOUCH_FOLDER, fd, path, folder != NULL ? fd : -1);
}

HOOK(DIR *, fdopendir, (int fd))
{
    NAMING_BODY(DIR *, REAL(fdopendir)(fd), opened_descriptor(start_ns, fd, result));
}

HOOK(int, closedir, (DIR * folder))
{
    if (folder != NULL)
        foretell_forget(dirfd(folder));
    return REAL(closedir)(folder);
}

/* Counted only. */
static void read_folder(uint64_t start_ns)
{
    foretell_named(start_ns, 0, AT_FDCWD, NULL, 0);
}

#define READDIR(name)                                                                              \
    HOOK(struct dirent *, name, (DIR * folder))                                                    \
    {                                                                                              \
        NAMING_BODY(struct dirent *, REAL(name)(folder), read_folder(start_ns));              \
    }
READDIR(readdir)
READDIR(readdir64)

#define READDIR_R(name)                                                                            \
    HOOK(int, name, READDIR_R_ARGS)                                                                \
    {                                                                                              \
        NAMING_BODY(int, REAL(name)(folder, to, place), read_folder(start_ns));              \
    }
READDIR_R(readdir_r)
READDIR_R(readdir64_r)

HOOK(ssize_t, getdents64, (int fd, void *to, size_t bytes))
{
    NAMING_BODY(ssize_t, REAL(getdents64)(fd, to, bytes), read_folder(start_ns));
}

static void scanned(uint64_t start_ns, int folder, const char *path, int result)
{
    foretell_named(start_ns, FORETELL_TOUCH_FOLDER, folder, path,
                   result < 0 ? -1 : WITHOUT_DESCRIPTOR);
}

#define SCANDIR(name)                                                                              \
    HOOK(int, name, SCANDIR_ARGS)                                                                  \
    {                                                                                              \
        NAMING_BODY(int, REAL(name)(path, list, filter, compare),                             \
                    scanned(start_ns, AT_FDCWD, path, result));                                    \
    }
SCANDIR(scandir)
SCANDIR(scandir64)

#define SCANDIRAT(name)                                                                            \
    HOOK(int, name, SCANDIRAT_ARGS)                                                                \
    {                                                                                              \
        NAMING_BODY(int, REAL(name)(folder, path, list, filter, compare),                     \
                    scanned(start_ns, folder, path, result));                                      \
    }
SCANDIRAT(scandirat)
SCANDIRAT(scandirat64)

/* A path that is not touched by a call of its own, so the duration is not known. */
static __attribute__((noinline)) void touch_untimed(uint32_t what, const char *path, uint64_t at_ns)
{
    struct foretell_touch touch = {.flags = what, .end_ns = at_ns};
    if (foretell_is_own_call())
        foretell_touch(&touch, AT_FDCWD, path, WITHOUT_DESCRIPTOR);
}

/* A walk by ftw or nftw is about to begin. libc reads the path before anything else, so it is read here too. */
static __attribute__((noinline)) void walk_begins(const char *path)
{
    uint64_t start_ns = foretell_name_begins();
    if (start_ns != 0)
        touch_untimed(FORETELL_TOUCH_FOLDER, path, start_ns);
}

#define WALK_BODY(call)                                                                            \
    {                                                                                              \
        if (UNLIKELY(wants_names(ring())))                                                         \
            walk_begins(path);                                                                     \
        return call;                                                                               \
    }
HOOK(int, ftw, FTW_ARGS) WALK_BODY(REAL(ftw)(path, each, descriptors))
HOOK(int, ftw64, FTW_ARGS) WALK_BODY(REAL(ftw64)(path, each, descriptors))

#define NFTW_BODY(name) WALK_BODY(REAL(name)(path, each, descriptors, flags))
#if HAS_OLD_NAMES
HOOK_VERSION(int, nftw, "nftw@@" NFTW_VERSION, NFTW_ARGS) NFTW_BODY(nftw)
HOOK_VERSION(int, nftw_old, "nftw@" NFTW_OLD_VERSION, NFTW_ARGS) NFTW_BODY(nftw_old)
HOOK_VERSION(int, nftw64, "nftw64@@" NFTW_VERSION, NFTW_ARGS) NFTW_BODY(nftw64)
HOOK_VERSION(int, nftw64_old, "nftw64@" NFTW_OLD_VERSION, NFTW_ARGS) NFTW_BODY(nftw64_old)
#else
HOOK(int, nftw, NFTW_ARGS) NFTW_BODY(nftw)
HOOK(int, nftw64, NFTW_ARGS) NFTW_BODY(nftw64)
#endif

static __attribute__((noinline)) void walk_began(uint64_t start_ns, char *const *paths, const FTS *walk)
{
    read_folder(start_ns);
    for (; walk != NULL && *paths != NULL; paths++)
        touch_untimed(FORETELL_TOUCH_STAT, *paths, start_ns);
}

#define FTS_OPEN(name)                                                                             \
    HOOK(FTS *, name, FTS_OPEN_ARGS)                                                               \
    {                                                                                              \
        NAMING_BODY(FTS *, REAL(name)(paths, options, compare),                               \
                    walk_began(start_ns, paths, result));                                          \
    }
FTS_OPEN(fts_open)
FTS_OPEN(fts64_open)

/* The folder of a result FTS_D is opened by the next call. A relative path is not recorded where fts changes the
 * working folder. */
static __attribute__((noinline)) void walked(uint64_t start_ns, const FTS *walk, const FTSENT *entry)
{
    uint32_t what = 0;
    switch (entry != NULL ? entry->fts_info : FTS_DP) {
    case FTS_D: what = FORETELL_TOUCH_STAT | FORETELL_TOUCH_FOLDER; break;
    case FTS_NS: what = FORETELL_TOUCH_STAT | FORETELL_TOUCH_FAILED; break;
    case FTS_DEFAULT:
    case FTS_F:
    case FTS_SL:
    case FTS_SLNONE: what = FORETELL_TOUCH_STAT; break;
    default: break; /* seen before, or not looked at */
    }
    bool known = what != 0 && ((walk->fts_options & FTS_NOCHDIR) != 0 || entry->fts_path[0] == '/');
    foretell_named(start_ns, what, AT_FDCWD, known ? entry->fts_path : NULL, WITHOUT_DESCRIPTOR);
}

#define FTS_READ(name)                                                                             \
    HOOK(FTSENT *, name, (FTS * walk))                                                             \
    {                                                                                              \
        NAMING_BODY(FTSENT *, REAL(name)(walk), walked(start_ns, walk, result));              \
    }
FTS_READ(fts_read)
FTS_READ(fts64_read)

#define FTS_CHILDREN(name)                                                                         \
    HOOK(FTSENT *, name, (FTS * walk, int options))                                                \
    {                                                                                              \
        NAMING_BODY(FTSENT *, REAL(name)(walk, options), read_folder(start_ns));              \
    }
FTS_CHILDREN(fts_children)
FTS_CHILDREN(fts64_children)
