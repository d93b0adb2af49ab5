/*
 * Resolution of the functions behind the hooks; raw system calls until then. See real.h.
 */
#include "look_up.h"
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Raw system calls in place of libc's functions. They set errno as libc does. They are no cancellation
 * points, which makes no difference before the constructors have run. */

static mode_t optional_mode(int flags, va_list values)
{
    int wanted = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    return wanted ? va_arg(values, mode_t) : 0;
}

static int early_open(const char *path, int flags, ...)
{
    va_list values;
    va_start(values, flags);
    mode_t mode = optional_mode(flags, values);
    va_end(values);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int early_openat(int folder, const char *path, int flags, ...)
{
    va_list values;
    va_start(values, flags);
    mode_t mode = optional_mode(flags, values);
    va_end(values);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

static int early_open_2(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

static int early_openat_2(int folder, const char *path, int flags)
{
    return (int)syscall(SYS_openat, folder, path, flags, 0);
}

static int early_openat2(int folder, const char *path, struct open_how *how, size_t size)
{
    return (int)syscall(SYS_openat2, folder, path, how, size);
}

static int early_creat(const char *path, mode_t mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

static int early_open_by_handle_at(int mount, struct file_handle *handle, int flags)
{
    return (int)syscall(SYS_open_by_handle_at, mount, handle, flags);
}

static ssize_t early_read(int fd, void *to, size_t bytes)
{
    return syscall(SYS_read, fd, to, bytes);
}

static ssize_t early_read_chk(int fd, void *to, size_t bytes, size_t room)
{
    if (bytes > room)
        __builtin_trap(); /* the program overflows its buffer: libc would abort it here too */
    return syscall(SYS_read, fd, to, bytes);
}

static ssize_t early_pread(int fd, void *to, size_t bytes, off64_t offset)
{
    return syscall(SYS_pread64, fd, to, bytes, offset);
}

static ssize_t early_pread_chk(int fd, void *to, size_t bytes, off64_t offset, size_t room)
{
    if (bytes > room)
        __builtin_trap();
    return syscall(SYS_pread64, fd, to, bytes, offset);
}

static ssize_t early_readv(int fd, const struct iovec *parts, int count)
{
    return syscall(SYS_readv, fd, parts, count);
}

static ssize_t early_preadv(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return syscall(SYS_preadv, fd, parts, count, offset, 0L);
}

static ssize_t early_preadv2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    return syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags);
}

static int early_fstatat STATAT_ARGS
{
    return (int)syscall(SYS_newfstatat, folder, path, to, flags);
}

static int early_stat STAT_ARGS
{
    return early_fstatat(AT_FDCWD, path, to, 0);
}

static int early_lstat STAT_ARGS
{
    return early_fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}

/* Versions of the structure: on 64-bit machines all are the kernel's. */
static int early_fxstatat XSTATAT_ARGS
{
    (void)version;
    return early_fstatat(folder, path, to, flags);
}

static int early_xstat XSTAT_ARGS
{
    return early_fxstatat(version, AT_FDCWD, path, to, 0);
}

static int early_lxstat XSTAT_ARGS
{
    return early_fxstatat(version, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}

static int early_statx STATX_ARGS
{
    return (int)syscall(SYS_statx, folder, path, flags, mask, to);
}

static int early_access(const char *path, int mode)
{
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static int early_faccessat(int folder, const char *path, int mode, int flags)
{
    return (int)(flags == 0 ? syscall(SYS_faccessat, folder, path, mode)
                            : syscall(SYS_faccessat2, folder, path, mode, flags));
}

static ssize_t early_readlinkat READLINKAT_ARGS
{
    return syscall(SYS_readlinkat, folder, path, to, bytes);
}

static ssize_t early_readlinkat_chk(int folder, const char *path, char *to, size_t bytes, size_t room)
{
    if (bytes > room)
        __builtin_trap();
    return early_readlinkat(folder, path, to, bytes);
}

static ssize_t early_readlink(const char *path, char *to, size_t bytes)
{
    return early_readlinkat(AT_FDCWD, path, to, bytes);
}

static ssize_t early_readlink_chk(const char *path, char *to, size_t bytes, size_t room)
{
    return early_readlinkat_chk(AT_FDCWD, path, to, bytes, room);
}

static int early_chdir(const char *path)
{
    return (int)syscall(SYS_chdir, path);
}

static int early_fchdir(int fd)
{
    return (int)syscall(SYS_fchdir, fd);
}

static ssize_t early_getdents64(int fd, void *to, size_t bytes)
{
    return syscall(SYS_getdents64, fd, to, bytes);
}

/* The result of a call that returns an error number and leaves errno alone. */
static int error_number(long result, int saved)
{
    int error = result < 0 ? errno : 0;
    errno = saved;
    return error;
}

static int early_fadvise FADVISE_ARGS
{
    int saved = errno;
    return error_number(syscall(SYS_fadvise64, fd, offset, bytes, advice), saved);
}

static ssize_t early_readahead(int fd, off64_t offset, size_t bytes)
{
    return syscall(SYS_readahead, fd, offset, bytes);
}

static int early_madvise MADVISE_ARGS
{
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

static int early_posix_madvise MADVISE_ARGS
{
    int saved = errno;
    if (advice == POSIX_MADV_DONTNEED) /* to the kernel it means to drop what is there; libc does nothing */
        return 0;
    return error_number(syscall(SYS_madvise, at, bytes, advice), saved);
}

static void *early_mmap MMAP_ARGS
{
    /* The kernel's result is an address, or -1 with errno set. */
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

static ssize_t early_sendfile(int out, int in, off64_t *at, size_t bytes)
{
    return syscall(SYS_sendfile, out, in, at, bytes);
}

static ssize_t early_copy_file_range COPY_ARGS
{
    return syscall(SYS_copy_file_range, in, at, out, to, bytes, flags);
}

static ssize_t early_splice COPY_ARGS
{
    return syscall(SYS_splice, in, at, out, to, bytes, flags);
}

static off64_t early_lseek(int fd, off64_t offset, int whence)
{
    return syscall(SYS_lseek, fd, offset, whence);
}

static int early_close(int fd)
{
    return (int)syscall(SYS_close, fd);
}

static int early_close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

static void early_closefrom(int first)
{
    (void)syscall(SYS_close_range, first < 0 ? 0 : first, ~0u, 0);
}

static int early_dup(int fd)
{
    return (int)syscall(SYS_dup, fd);
}

static int early_dup2(int fd, int to)
{
    if (fd == to) /* dup3 refuses equal descriptors, dup2 returns a valid one */
        return syscall(SYS_fcntl, fd, F_GETFD) < 0 ? -1 : fd;
    return (int)syscall(SYS_dup3, fd, to, 0);
}

static int early_dup3(int fd, int to, int flags)
{
    return (int)syscall(SYS_dup3, fd, to, flags);
}

static int early_fcntl(int fd, int command, ...)
{
    va_list values;
    va_start(values, command);
    void *value = va_arg(values, void *);
    va_end(values);
    return (int)syscall(SYS_fcntl, fd, command, value);
}

static int early_execve(const char *path, char *const argv[], char *const envp[])
{
    return (int)syscall(SYS_execve, path, argv, envp);
}

static int early_execveat(int folder, const char *path, char *const argv[], char *const envp[],
                          int flags)
{
    return (int)syscall(SYS_execveat, folder, path, argv, envp, flags);
}

static void early_exit(int status)
{
    for (;;)
        (void)syscall(SYS_exit_group, status);
}

/* Not by dlsym, which may allocate: jemalloc calls syscall before any constructor. */
#if defined(__x86_64__)
static long early_syscall SYSCALL_ARGS
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    /* The kernel's convention: it takes these registers, and changes rax, rcx, r11 and memory. */
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if ((unsigned long)result > -4096UL) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
#elif defined(__aarch64__)
static long early_syscall SYSCALL_ARGS
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    /* The kernel's convention: it takes these registers, and changes x0 and memory. */
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    if ((unsigned long)x0 > -4096UL) {
        errno = (int)-x0;
        return -1;
    }
    return x0;
}
#else
#define early_syscall NULL /* not hooked */
#endif

/* Not empty, for it is called before the constructor and must not have a frame (lockup.c). */
struct foretell_real foretell_real = {.syscall = early_syscall};

/* The names in one text, without pointers: ld.so would have to write each of those. */
#define NAME_TEXT(result, name, ...) char name[sizeof #name];
#define NAME(result, name, ...) #name,
static const struct texts {
    REAL_ALL(NAME_TEXT)
} texts = {REAL_ALL(NAME)};

typedef void function(void);
#define EARLY(result, name, parameters, early, ...) (function *)early,
#define TEXT_AT(result, name, ...) offsetof(struct texts, name),
/* Of each slot, in the order of struct foretell_real. Those of names with a version follow the others. */
static function *const raw_calls[] = {REAL_ALL(EARLY) REAL_VERSIONED(EARLY)};
static const uint16_t texts_at[] = {REAL_ALL(TEXT_AT)};
#define VERSION(result, slot, parameters, early, name, version) {name, version},
static const struct {
    const char *name;
    const char *version; /* NULL: the one that is found without */
} versions[] = {REAL_VERSIONED(VERSION)};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SLOTS (sizeof foretell_real / sizeof(function *))
_Static_assert(COUNT(raw_calls) == SLOTS && COUNT(texts_at) + COUNT(versions) == SLOTS, "one each");
#define SLOT_OF(name) (offsetof(struct foretell_real, name) / sizeof(function *))

/* Whether the constructor has looked around. */
static bool has_looked;

/* Every member of the structure is one function pointer, which POSIX lets a void * hold. */
static void **slot_at(size_t slot)
{
    return (void **)(void *)&foretell_real + slot;
}

static const char *name_of(size_t slot)
{
    size_t named = COUNT(texts_at);
    return slot < named ? (const char *)&texts + texts_at[slot] : versions[slot - named].name;
}

static const char *version_of(size_t slot)
{
    size_t named = COUNT(texts_at);
    return slot < named ? NULL : versions[slot - named].version;
}

/* Asked for a name of several versions, dlsym finds the oldest before glibc 2.36 (sourceware bug 14932). dlvsym by
 * its name, since not every C library has it. */
static void *ask_linker(const char *name, const char *version)
{
    void *(*find_version)(void *, const char *, const char *);
    void *found = NULL;
    *(void **)&find_version = version != NULL ? dlsym(RTLD_DEFAULT, "dlvsym") : NULL;
    if (find_version != NULL)
        found = find_version(RTLD_NEXT, name, version);
    if (found == NULL)
        found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        (void)dlerror(); /* that it was not found is no error that the program should see */
    return found;
}

static void *look_up(const char *name, const char *version)
{
    void *found = NULL;
    if (!foretell_next(name, version, &found))
        return ask_linker(name, version);
    if (found == NULL && version != NULL)
        (void)foretell_next(name, NULL, &found);
    return found;
}

/* C: for names that glibc 2.34 to 2.37 lack. */
static void *nearest_equivalent(size_t slot)
{
    if (slot == SLOT_OF(__isoc23_vfscanf))
        return look_up("__isoc99_vfscanf", NULL);
    if (slot == SLOT_OF(__isoc23_vfwscanf))
        return look_up("__isoc99_vfwscanf", NULL);
    return *(void **)(void *)&raw_calls[slot];
}

static void *resolve(size_t slot)
{
    void *found = look_up(name_of(slot), version_of(slot));
    if (found == NULL)
        found = nearest_equivalent(slot);
    __atomic_store_n(slot_at(slot), found, __ATOMIC_RELAXED);
    return found;
}

void *foretell_resolve_slot(size_t offset)
{
    size_t slot = offset / sizeof(function *);
    if (!has_looked && raw_calls[slot] != NULL)
        return *(void **)(void *)&raw_calls[slot];
    int saved = errno;
    void *found = resolve(slot);
    errno = saved;
    return found;
}

void foretell_resolve(bool suffices)
{
    has_looked = true;
    (void)resolve(SLOT_OF(syscall));
    /* Looking up takes stack, of which the hooks of execl and execlp already take the most. */
    (void)resolve(SLOT_OF(execve));
    (void)resolve(SLOT_OF(execvpe));
    for (size_t slot = 0; !suffices && slot < SLOTS; slot++)
        (void)resolve(slot);
}
