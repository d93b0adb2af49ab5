/*
 * Whether the library goes along with an executed program.
 *
 * Decides for one exec, by looking at the file, whether LD_PRELOAD works there without a visible effect.
 * It does for a dynamically linked program of this machine and this C library. It does not for:
 *
 *   A. static programs (no PT_INTERP): they load nothing, but hand the variables on
 *   B. other machines and word sizes, which includes 32-bit programs: ld.so prints a line
 *   C. other C libraries (musl) and glibc before 2.34: the program would not start
 *   D. programs with a shared sanitizer runtime, which must come first: the program would not start
 *   E. set-user-ID, set-group-ID and file capabilities, and processes whose real and effective users
 *      or groups differ: ld.so ignores the library, and the program would see our variable
 *   F. a library that ld.so could not open here (chroot, another user, no free descriptor): it prints
 *      a line
 *   G. a file that this process has locked (fcntl): opening and closing it would release the lock
 *
 * Scripts are decided by their interpreter. A file that cannot be read is left alone.
 *
 * Invariants: async-signal-safe and fit for a vfork child: no heap, no static memory written, some
 * 300 bytes of stack, no descriptor left open, errno kept. Only files that execve would open are
 * opened: pipes and devices are recognised by stat. The system calls are those that ld.so makes in any
 * program, those that ask for users and groups, and fgetxattr.
 *
 * The code is independent of the rest of the library: `foretell run` is linked with it, too.
 */
#ifndef FORETELL_PRELOAD_EXECUTABLE_H
#define FORETELL_PRELOAD_EXECUTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file, independent of its name. All zero: not known. */
struct file_identity {
    uint64_t device;
    uint64_t inode;
};

struct library {
    const char *path;           /* absolute */
    struct file_identity file;  /* the file that must be found there; if not known, any file */
    struct file_identity loader; /* a program's dynamic linker that is known to fit */
    bool loaded;                 /* whether this code is part of the library */
    /* Files that this process has locked (fcntl), and their number: SIZE_MAX if it is not known. They are
     * not looked at, since closing a file releases the process's locks on it. */
    const struct file_identity *locked;
    const size_t *locked_count; /* NULL: none */
};

/* The file to be executed, as execveat takes it. */
struct executed {
    int folder;
    const char *path;
    int flags;  /* AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW */
    bool shell; /* a file that is neither a program nor a script goes to /bin/sh */
    bool elsewhere; /* it may be executed in another folder: a relative path is left alone */
};

/* Working memory in the caller's hands, since there may be little stack. */
struct look_room {
    uint64_t words[384];
};

/* Whether the library goes along. If so, *loader is the program's dynamic linker. executed->path may be
 * any value: only the kernel reads it. */
bool foretell_goes_along(const struct library *library, const struct executed *executed,
                         struct file_identity *loader, struct look_room *room);

/* Whether a program of this name starts the ranks of an MPI program on this machine: mpiexec, mpirun.openmpi, … */
bool foretell_is_mpi_launcher(const char *path);

/* Room for the name that foretell_search finds. */
#define FOUND_BYTES (4096u + 256u)

/* The file that execvp runs for `file`: the first of the folders in `path_variable` (NULL: the
 * C library's default) that has such a program. NULL if there is none. */
const char *foretell_search(const char *file, const char *path_variable, char found[FOUND_BYTES],
                            struct look_room *room);

#endif
