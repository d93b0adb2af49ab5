/*
 * The functions behind the hooks: one slot per exported name.
 *
 * Decides what a hook calls when it forwards. Each name forwards to the same name of the next object
 * (RTLD_NEXT), so fortified aliases keep their checks and other preloaded libraries keep their turn.
 *
 * How: a slot is filled at the first call of its name (look_up.h), for a program calls few of them. Before the constructor of
 * this library, when it is not known where to look: A. names of descriptor calls are raw system calls, without dlsym, which may
 * allocate, and an allocator may call these. B. For other names (stdio, folders, the process family) dlsym is asked: their
 * callers may allocate, too, so no allocator is entered twice. Where look_up.h does not suffice, the constructor has dlsym fill
 * all slots.
 * C. Names that the running libc lacks are raw system calls for good, or take the slot of their nearest equivalent.
 */
#ifndef FORETELL_PRELOAD_REAL_H
#define FORETELL_PRELOAD_REAL_H

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <wchar.h>

struct open_how;
struct aiocb;

#define OPEN_ARGS (const char *path, int flags, ...)
#define OPENAT_ARGS (int folder, const char *path, int flags, ...)
#define PREADV_ARGS (int fd, const struct iovec *parts, int count, off64_t offset)
#define PREADV2_ARGS (int fd, const struct iovec *parts, int count, off64_t offset, int flags)
#define COPY_ARGS (int in, off64_t * at, int out, off64_t * to, size_t bytes, unsigned flags)
#define STAT_ARGS (const char *path, struct stat *to)
#define STATAT_ARGS (int folder, const char *path, struct stat *to, int flags)
#define XSTAT_ARGS (int version, const char *path, struct stat *to)
#define XSTATAT_ARGS (int version, int folder, const char *path, struct stat *to, int flags)
#define STATX_ARGS (int folder, const char *path, int flags, unsigned mask, struct statx *to)
#define READLINKAT_ARGS (int folder, const char *path, char *to, size_t bytes)
#define READDIR_R_ARGS (DIR * folder, struct dirent *to, struct dirent **place)
#define SCANDIR_ARGS                                                                               \
    (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),                \
     int (*compare)(const struct dirent **, const struct dirent **))
#define SCANDIRAT_ARGS                                                                             \
    (int folder, const char *path, struct dirent ***list, int (*filter)(const struct dirent *),    \
     int (*compare)(const struct dirent **, const struct dirent **))
#define FTW_ARGS (const char *path, __ftw_func_t each, int descriptors)
#define NFTW_ARGS (const char *path, __nftw_func_t each, int descriptors, int flags)
#define FTS_OPEN_ARGS                                                                              \
    (char *const *paths, int options, int (*compare)(const FTSENT **, const FTSENT **))
#define FADVISE_ARGS (int fd, off64_t offset, off64_t bytes, int advice)
#define MADVISE_ARGS (void *at, size_t bytes, int advice)
#define MMAP_ARGS (void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
#define SYSCALL_ARGS (long number, long a, long b, long c, long d, long e, long f)
#define SPAWN_ARGS                                                                                 \
    (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,                     \
     const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])

/*
 * Versions. glibc keeps a function's old behaviour for programs that were linked to it, under an old
 * version. A name with several versions is exported with the same ones, and each forwards to its own.
 * Names without a version here serve references to any version.
 *
 * A version marked with one @ is found by programs that were linked to it, and not by dlsym. The same
 * holds for exported names that are missing in the C library with which this library was built: a
 * program that needs them runs with a newer C library only.
 */
#if defined(__x86_64__)
#define LLSEEK_VERSION "GLIBC_2.2.5"
#define QUICK_EXIT_OLD_VERSION "GLIBC_2.10"
#define HAS_OLD_SPAWN 1
#define SPAWN_VERSION "GLIBC_2.15"
#define SPAWN_OLD_VERSION "GLIBC_2.2.5"
#define HAS_OLD_NAMES 1
#define NFTW_VERSION "GLIBC_2.3.3"
#define NFTW_OLD_VERSION "GLIBC_2.2.5"
#define REALPATH_VERSION "GLIBC_2.3"
#define REALPATH_OLD_VERSION "GLIBC_2.2.5"
#define AIO_OLD_VERSION "GLIBC_2.2.5"
#else
#define LLSEEK_VERSION "GLIBC_2.17"
#define QUICK_EXIT_OLD_VERSION "GLIBC_2.17"
#define HAS_OLD_SPAWN 0
#define SPAWN_VERSION NULL
#define SPAWN_OLD_VERSION NULL
#define HAS_OLD_NAMES 0
#define NFTW_VERSION NULL
#define NFTW_OLD_VERSION NULL
#define REALPATH_VERSION NULL
#define REALPATH_OLD_VERSION NULL
#define AIO_OLD_VERSION "GLIBC_2.17"
#endif
#define QUICK_EXIT_VERSION "GLIBC_2.24"
#define AIO_VERSION "GLIBC_2.34"
#if __GLIBC_PREREQ(2, 38)
#define SCANF_2023_VERSION "@@GLIBC_2.38"
#else
#define SCANF_2023_VERSION "@GLIBC_2.38"
#endif
#if __GLIBC_PREREQ(2, 43)
#define OPENAT2_VERSION "@@GLIBC_2.43"
#else
#define OPENAT2_VERSION "@GLIBC_2.43"
#endif

/* X(result, name, parameters, early): early is the raw system call (A), or NULL (B) */
#define REAL_OPEN(X)                                                                               \
    X(int, open, OPEN_ARGS, early_open)                                                            \
    X(int, open64, OPEN_ARGS, early_open)                                                          \
    X(int, __open, OPEN_ARGS, early_open)                                                          \
    X(int, __open64, OPEN_ARGS, early_open)                                                        \
    X(int, __open_2, (const char *path, int flags), early_open_2)                                  \
    X(int, __open64_2, (const char *path, int flags), early_open_2)                                \
    X(int, openat, OPENAT_ARGS, early_openat)                                                      \
    X(int, openat64, OPENAT_ARGS, early_openat)                                                    \
    X(int, __openat_2, (int folder, const char *path, int flags), early_openat_2)                  \
    X(int, __openat64_2, (int folder, const char *path, int flags), early_openat_2)                \
    X(int, openat2, (int folder, const char *path, struct open_how *how, size_t size),             \
      early_openat2)                                                                               \
    X(int, creat, (const char *path, mode_t mode), early_creat)                                    \
    X(int, creat64, (const char *path, mode_t mode), early_creat)                                  \
    X(int, open_by_handle_at, (int mount, struct file_handle *handle, int flags),                  \
      early_open_by_handle_at)                                                                     \
    X(int, mkstemp, (char *pattern), NULL)                                                         \
    X(int, mkstemp64, (char *pattern), NULL)                                                       \
    X(int, mkostemp, (char *pattern, int flags), NULL)                                             \
    X(int, mkostemp64, (char *pattern, int flags), NULL)                                           \
    X(int, mkstemps, (char *pattern, int suffix), NULL)                                            \
    X(int, mkstemps64, (char *pattern, int suffix), NULL)                                          \
    X(int, mkostemps, (char *pattern, int suffix, int flags), NULL)                                \
    X(int, mkostemps64, (char *pattern, int suffix, int flags), NULL)                              \
    X(FILE *, tmpfile, (void), NULL)                                                               \
    X(FILE *, tmpfile64, (void), NULL)

#define REAL_READ(X)                                                                               \
    X(ssize_t, read, (int fd, void *to, size_t bytes), early_read)                                 \
    X(ssize_t, __read, (int fd, void *to, size_t bytes), early_read)                               \
    X(ssize_t, __read_chk, (int fd, void *to, size_t bytes, size_t room), early_read_chk)          \
    X(ssize_t, pread, (int fd, void *to, size_t bytes, off64_t offset), early_pread)               \
    X(ssize_t, pread64, (int fd, void *to, size_t bytes, off64_t offset), early_pread)             \
    X(ssize_t, __pread64, (int fd, void *to, size_t bytes, off64_t offset), early_pread)           \
    X(ssize_t, __pread_chk, (int fd, void *to, size_t bytes, off64_t offset, size_t room),         \
      early_pread_chk)                                                                             \
    X(ssize_t, __pread64_chk, (int fd, void *to, size_t bytes, off64_t offset, size_t room),       \
      early_pread_chk)                                                                             \
    X(ssize_t, readv, (int fd, const struct iovec *parts, int count), early_readv)                 \
    X(ssize_t, preadv, PREADV_ARGS, early_preadv)                                                  \
    X(ssize_t, preadv64, PREADV_ARGS, early_preadv)                                                \
    X(ssize_t, preadv2, PREADV2_ARGS, early_preadv2)                                               \
    X(ssize_t, preadv64v2, PREADV2_ARGS, early_preadv2)

/* Calls that name a path without opening it for reading bytes, and reads of folders. */
#define REAL_TOUCH(X)                                                                              \
    X(int, stat, STAT_ARGS, early_stat)                                                            \
    X(int, stat64, STAT_ARGS, early_stat)                                                          \
    X(int, lstat, STAT_ARGS, early_lstat)                                                          \
    X(int, lstat64, STAT_ARGS, early_lstat)                                                        \
    X(int, fstatat, STATAT_ARGS, early_fstatat)                                                    \
    X(int, fstatat64, STATAT_ARGS, early_fstatat)                                                  \
    X(int, __xstat, XSTAT_ARGS, early_xstat)                                                       \
    X(int, __xstat64, XSTAT_ARGS, early_xstat)                                                     \
    X(int, __lxstat, XSTAT_ARGS, early_lxstat)                                                     \
    X(int, __lxstat64, XSTAT_ARGS, early_lxstat)                                                   \
    X(int, __fxstatat, XSTATAT_ARGS, early_fxstatat)                                               \
    X(int, __fxstatat64, XSTATAT_ARGS, early_fxstatat)                                             \
    X(int, statx, STATX_ARGS, early_statx)                                                         \
    X(int, access, (const char *path, int mode), early_access)                                     \
    X(int, faccessat, (int folder, const char *path, int mode, int flags), early_faccessat)        \
    X(int, euidaccess, (const char *path, int mode), NULL)                                         \
    X(int, eaccess, (const char *path, int mode), NULL)                                            \
    X(ssize_t, readlink, (const char *path, char *to, size_t bytes), early_readlink)               \
    X(ssize_t, __readlink_chk, (const char *path, char *to, size_t bytes, size_t room),            \
      early_readlink_chk)                                                                          \
    X(ssize_t, readlinkat, READLINKAT_ARGS, early_readlinkat)                                      \
    X(ssize_t, __readlinkat_chk,                                                                   \
      (int folder, const char *path, char *to, size_t bytes, size_t room), early_readlinkat_chk)   \
    X(char *, __realpath_chk, (const char *path, char *to, size_t room), NULL)                     \
    X(char *, canonicalize_file_name, (const char *path), NULL)                                    \
    X(int, chdir, (const char *path), early_chdir)                                                 \
    X(int, fchdir, (int fd), early_fchdir)                                                         \
    X(DIR *, opendir, (const char *path), NULL)                                                    \
    X(DIR *, fdopendir, (int fd), NULL)                                                            \
    X(int, closedir, (DIR * folder), NULL)                                                         \
    X(struct dirent *, readdir, (DIR * folder), NULL)                                              \
    X(struct dirent *, readdir64, (DIR * folder), NULL)                                            \
    X(int, readdir_r, READDIR_R_ARGS, NULL)                                                        \
    X(int, readdir64_r, READDIR_R_ARGS, NULL)                                                      \
    X(ssize_t, getdents64, (int fd, void *to, size_t bytes), early_getdents64)                     \
    X(int, scandir, SCANDIR_ARGS, NULL)                                                            \
    X(int, scandir64, SCANDIR_ARGS, NULL)                                                          \
    X(int, scandirat, SCANDIRAT_ARGS, NULL)                                                        \
    X(int, scandirat64, SCANDIRAT_ARGS, NULL)                                                      \
    X(int, ftw, FTW_ARGS, NULL)                                                                    \
    X(int, ftw64, FTW_ARGS, NULL)                                                                  \
    X(FTS *, fts_open, FTS_OPEN_ARGS, NULL)                                                        \
    X(FTS *, fts64_open, FTS_OPEN_ARGS, NULL)                                                      \
    X(FTSENT *, fts_read, (FTS * walk), NULL)                                                      \
    X(FTSENT *, fts64_read, (FTS * walk), NULL)                                                    \
    X(FTSENT *, fts_children, (FTS * walk, int options), NULL)                                     \
    X(FTSENT *, fts64_children, (FTS * walk, int options), NULL)

#define REAL_ADVICE(X)                                                                             \
    X(int, posix_fadvise, FADVISE_ARGS, early_fadvise)                                             \
    X(int, posix_fadvise64, FADVISE_ARGS, early_fadvise)                                           \
    X(ssize_t, readahead, (int fd, off64_t offset, size_t bytes), early_readahead)                 \
    X(int, madvise, MADVISE_ARGS, early_madvise)                                                   \
    X(int, posix_madvise, MADVISE_ARGS, early_posix_madvise)                                       \
    X(void *, mmap, MMAP_ARGS, early_mmap)                                                         \
    X(void *, mmap64, MMAP_ARGS, early_mmap)

#define REAL_COPY(X)                                                                               \
    X(ssize_t, sendfile, (int out, int in, off64_t *at, size_t bytes), early_sendfile)             \
    X(ssize_t, sendfile64, (int out, int in, off64_t *at, size_t bytes), early_sendfile)           \
    X(ssize_t, copy_file_range, COPY_ARGS, early_copy_file_range)                                  \
    X(ssize_t, splice, COPY_ARGS, early_splice)

#define REAL_STDIO(X)                                                                              \
    X(FILE *, fopen, (const char *path, const char *mode), NULL)                                   \
    X(FILE *, fopen64, (const char *path, const char *mode), NULL)                                 \
    X(FILE *, _IO_fopen, (const char *path, const char *mode), NULL)                               \
    X(FILE *, freopen, (const char *path, const char *mode, FILE *stream), NULL)                   \
    X(FILE *, freopen64, (const char *path, const char *mode, FILE *stream), NULL)                 \
    X(int, fclose, (FILE * stream), NULL)                                                          \
    X(int, _IO_fclose, (FILE * stream), NULL)                                                      \
    X(int, fcloseall, (void), NULL)                                                                \
    X(size_t, fread, (void *to, size_t size, size_t count, FILE *stream), NULL)                    \
    X(size_t, _IO_fread, (void *to, size_t size, size_t count, FILE *stream), NULL)                \
    X(size_t, fread_unlocked, (void *to, size_t size, size_t count, FILE *stream), NULL)           \
    X(size_t, __fread_chk, (void *to, size_t room, size_t size, size_t count, FILE *stream), NULL) \
    X(size_t, __fread_unlocked_chk,                                                                \
      (void *to, size_t room, size_t size, size_t count, FILE *stream), NULL)                      \
    X(char *, fgets, (char *to, int room, FILE *stream), NULL)                                     \
    X(char *, _IO_fgets, (char *to, int room, FILE *stream), NULL)                                 \
    X(char *, fgets_unlocked, (char *to, int room, FILE *stream), NULL)                            \
    X(char *, __fgets_chk, (char *to, size_t size, int room, FILE *stream), NULL)                  \
    X(char *, __fgets_unlocked_chk, (char *to, size_t size, int room, FILE *stream), NULL)         \
    X(int, fgetc, (FILE * stream), NULL)                                                           \
    X(int, getc, (FILE * stream), NULL)                                                            \
    X(int, _IO_getc, (FILE * stream), NULL)                                                        \
    X(int, fgetc_unlocked, (FILE * stream), NULL)                                                  \
    X(int, getc_unlocked, (FILE * stream), NULL)                                                   \
    X(int, getchar, (void), NULL)                                                                  \
    X(int, getchar_unlocked, (void), NULL)                                                         \
    X(int, __uflow, (FILE * stream), NULL)                                                         \
    X(int, __underflow, (FILE * stream), NULL)                                                     \
    X(char *, gets, (char *to), NULL)                                                              \
    X(char *, _IO_gets, (char *to), NULL)                                                          \
    X(char *, __gets_chk, (char *to, size_t size), NULL)                                           \
    X(int, getw, (FILE * stream), NULL)                                                            \
    X(ssize_t, getline, (char **line, size_t *room, FILE *stream), NULL)                           \
    X(ssize_t, getdelim, (char **line, size_t *room, int end, FILE *stream), NULL)                 \
    X(ssize_t, __getdelim, (char **line, size_t *room, int end, FILE *stream), NULL)               \
    X(int, vfscanf, (FILE * stream, const char *format, va_list values), NULL)                     \
    X(int, __isoc99_vfscanf, (FILE * stream, const char *format, va_list values), NULL)            \
    X(int, __isoc23_vfscanf, (FILE * stream, const char *format, va_list values), NULL)            \
    X(wint_t, fgetwc, (FILE * stream), NULL)                                                       \
    X(wint_t, getwc, (FILE * stream), NULL)                                                        \
    X(wint_t, fgetwc_unlocked, (FILE * stream), NULL)                                              \
    X(wint_t, getwc_unlocked, (FILE * stream), NULL)                                               \
    X(wint_t, getwchar, (void), NULL)                                                              \
    X(wint_t, getwchar_unlocked, (void), NULL)                                                     \
    X(wchar_t *, fgetws, (wchar_t * to, int room, FILE *stream), NULL)                             \
    X(wchar_t *, fgetws_unlocked, (wchar_t * to, int room, FILE *stream), NULL)                    \
    X(wchar_t *, __fgetws_chk, (wchar_t * to, size_t size, int room, FILE *stream), NULL)          \
    X(wchar_t *, __fgetws_unlocked_chk, (wchar_t * to, size_t size, int room, FILE *stream), NULL) \
    X(int, vfwscanf, (FILE * stream, const wchar_t *format, va_list values), NULL)                 \
    X(int, __isoc99_vfwscanf, (FILE * stream, const wchar_t *format, va_list values), NULL)        \
    X(int, __isoc23_vfwscanf, (FILE * stream, const wchar_t *format, va_list values), NULL)        \
    X(int, fseek, (FILE * stream, long offset, int whence), NULL)                                  \
    X(int, fseeko, (FILE * stream, off64_t offset, int whence), NULL)                              \
    X(int, fseeko64, (FILE * stream, off64_t offset, int whence), NULL)                            \
    X(int, fsetpos, (FILE * stream, const void *position), NULL)                                   \
    X(int, fsetpos64, (FILE * stream, const void *position), NULL)                                 \
    X(void, rewind, (FILE * stream), NULL)

#define REAL_DESCRIPTOR(X)                                                                         \
    X(off64_t, lseek, (int fd, off64_t offset, int whence), early_lseek)                           \
    X(off64_t, lseek64, (int fd, off64_t offset, int whence), early_lseek)                         \
    X(off64_t, __lseek, (int fd, off64_t offset, int whence), early_lseek)                         \
    X(int, close, (int fd), early_close)                                                           \
    X(int, __close, (int fd), early_close)                                                         \
    X(int, close_range, (unsigned first, unsigned last, int flags), early_close_range)             \
    X(void, closefrom, (int first), early_closefrom)                                               \
    X(int, dup, (int fd), early_dup)                                                               \
    X(int, dup2, (int fd, int to), early_dup2)                                                     \
    X(int, __dup2, (int fd, int to), early_dup2)                                                   \
    X(int, dup3, (int fd, int to, int flags), early_dup3)                                          \
    X(int, fcntl, (int fd, int command, ...), early_fcntl)                                         \
    X(int, fcntl64, (int fd, int command, ...), early_fcntl)                                       \
    X(int, __fcntl, (int fd, int command, ...), early_fcntl)

#define REAL_PROCESS(X)                                                                            \
    X(int, posix_spawn_file_actions_addchdir_np,                                                   \
      (posix_spawn_file_actions_t * actions, const char *path), NULL)                              \
    X(int, posix_spawn_file_actions_addfchdir_np,                                                  \
      (posix_spawn_file_actions_t * actions, int fd), NULL)                                        \
    X(int, execve, (const char *path, char *const argv[], char *const envp[]), early_execve)       \
    X(int, execvpe, (const char *file, char *const argv[], char *const envp[]), NULL)              \
    X(int, execveat,                                                                               \
      (int folder, const char *path, char *const argv[], char *const envp[], int flags),           \
      early_execveat)                                                                              \
    X(int, fexecve, (int fd, char *const argv[], char *const envp[]), NULL)                        \
    X(int, system, (const char *command), NULL)                                                    \
    X(FILE *, popen, (const char *command, const char *mode), NULL)                                \
    X(int, pclose, (FILE * stream), NULL)                                                          \
    X(void, _exit, (int status), early_exit)                                                       \
    X(void, _Exit, (int status), early_exit)                                                       \
    X(long, syscall, SYSCALL_ARGS, early_syscall)                                                  \
    X(int, prctl, (int option, ...), NULL)

/* X(result, slot, parameters, early, name, version) */
#define REAL_VERSIONED(X)                                                                          \
    X(off64_t, llseek, (int fd, off64_t offset, int whence), early_lseek, "llseek",                \
      LLSEEK_VERSION)                                                                              \
    X(int, posix_spawn, SPAWN_ARGS, NULL, "posix_spawn", SPAWN_VERSION)                            \
    X(int, posix_spawnp, SPAWN_ARGS, NULL, "posix_spawnp", SPAWN_VERSION)                          \
    X(int, posix_spawn_old, SPAWN_ARGS, NULL, "posix_spawn", SPAWN_OLD_VERSION)                    \
    X(int, posix_spawnp_old, SPAWN_ARGS, NULL, "posix_spawnp", SPAWN_OLD_VERSION)                  \
    X(int, nftw, NFTW_ARGS, NULL, "nftw", NFTW_VERSION)                                            \
    X(int, nftw_old, NFTW_ARGS, NULL, "nftw", NFTW_OLD_VERSION)                                    \
    X(int, nftw64, NFTW_ARGS, NULL, "nftw64", NFTW_VERSION)                                        \
    X(int, nftw64_old, NFTW_ARGS, NULL, "nftw64", NFTW_OLD_VERSION)                                \
    X(char *, realpath, (const char *path, char *to), NULL, "realpath", REALPATH_VERSION)          \
    X(char *, realpath_old, (const char *path, char *to), NULL, "realpath", REALPATH_OLD_VERSION)  \
    X(ssize_t, aio_return, (struct aiocb * control), NULL, "aio_return", AIO_VERSION)              \
    X(ssize_t, aio_return_old, (struct aiocb * control), NULL, "aio_return", AIO_OLD_VERSION)      \
    X(ssize_t, aio_return64, (struct aiocb * control), NULL, "aio_return64", AIO_VERSION)          \
    X(ssize_t, aio_return64_old, (struct aiocb * control), NULL, "aio_return64", AIO_OLD_VERSION)  \
    X(void, quick_exit, (int status), NULL, "quick_exit", QUICK_EXIT_VERSION)                      \
    X(void, quick_exit_old, (int status), NULL, "quick_exit", QUICK_EXIT_OLD_VERSION)

#define REAL_ALL(X)                                                                                \
    REAL_OPEN(X) REAL_READ(X) REAL_TOUCH(X) REAL_ADVICE(X) REAL_COPY(X) REAL_STDIO(X)              \
    REAL_DESCRIPTOR(X) REAL_PROCESS(X)

#define REAL_SLOT(result, name, parameters, ...) result(*name) parameters;
struct foretell_real {
    REAL_ALL(REAL_SLOT) REAL_VERSIONED(REAL_SLOT)
};
#undef REAL_SLOT

extern struct foretell_real foretell_real;

/* By the constructor. suffices: whether look_up.h does; if not, every slot is filled. */
void foretell_resolve(bool suffices);

/* The function for an empty slot, by its offset in struct foretell_real. From the constructor on it fills the slot, and reads
 * memory only, but for a function that is chosen at run time (STT_GNU_IFUNC), which dlsym is asked for. Safe to race, since all
 * store the same value. */
void *foretell_resolve_slot(size_t offset);

/* The function behind a hook. */
#define REAL(name)                                                                                 \
    (__builtin_expect(foretell_real.name != NULL, 1)                                               \
         ? foretell_real.name                                                                      \
         : (__typeof__(foretell_real.name))foretell_resolve_slot(                                  \
               offsetof(struct foretell_real, name)))

/*
 * Defines an exported hook under a C name of its own, so that attributes and macros of the system's
 * headers (nonnull, noreturn, inline versions) do not apply to it.
 */
#define HOOK(result, name, parameters)                                                             \
    result foretell_hook_##name parameters __asm__(#name)                                          \
        __attribute__((visibility("default")));                                                    \
    result foretell_hook_##name parameters

/* The same for one version of a name: "name@VERSION", or "name@@VERSION" for the one that is found
 * without a version. */
#define HOOK_VERSION(result, name, version, parameters)                                            \
    __asm__(".symver foretell_version_" #name ", " version);                                       \
    result foretell_hook_##name parameters __asm__("foretell_version_" #name)                      \
        __attribute__((visibility("default"), used));                                              \
    result foretell_hook_##name parameters

#endif
