/*
 * Calls every name that the interposing library exports, with arguments good and bad, and prints a
 * line for each call: what it returned, errno, or the signal that ended it. tests/preload_hooks.rs
 * compares what it prints with and without the library, and what it names with preload/symbols.txt.
 *
 *   every_hook names               the names, one a line
 *   every_hook calls FILE SITUATION…   a line for each call of each name in each situation
 *   every_hook depth FILE SITUATION…   the same, with the bytes of stack that the call took
 *
 * A situation says where the call is made and what went before:
 *   inherited  descriptors and streams were opened before the fork, and are read first by the child
 *   fresh      the child opens its own
 * and
 *   plain      on the usual stack
 *   thread     in a thread with the smallest stack that there is
 *   signal     in a signal handler, on a small alternate stack
 *   strict     after seccomp's strict mode by syscall(SYS_seccomp)
 *   prctl      the same by syscall(SYS_prctl)
 *   raw        the same by an instruction of the program's own
 *   filter     under a filter that ends the process for calls that it does not make itself
 *   rawfilter  the same by an instruction of the program's own
 *   clock      after reading the processor's clock has been forbidden
 */
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define BAD ((void *)1)
#define NOWHERE "/nonexistent/file"
/* Of a table's second page, of none, and beyond all. */
#define HIGH_FD 300
#define NO_FD 1000000

extern char **environ;
static const char *path;
static int file, copy, folder, out, ends[2];
static FILE *stream, *memory, *wide;
static DIR *listed;
static FTS *walked;
static char bytes[4096];
static bool over; /* the class has no such way */

static long none(void)
{
    over = true;
    return 0;
}

/* How a pointer result is compared. */
static long is(const void *pointer)
{
    return pointer != NULL;
}

/* A pattern for mkstemp, in the test's folder: a child may end between the call and the removal. */
static char temporary[4096];

static char words[] = "7 words\n";
/* Where streams keep their bytes: so that a first read does not allocate. */
static char room[3][512];

static void open_all(void)
{
    file = open(path, O_RDONLY);
    copy = fcntl(file, F_DUPFD, HIGH_FD);
    folder = open("/", O_RDONLY | O_DIRECTORY);
    out = open("/dev/null", O_WRONLY);
    stream = fopen(path, "r");
    wide = fopen(path, "r");
    memory = fmemopen(words, strlen(words), "r");
    setvbuf(stream, room[0], _IOFBF, sizeof room[0]);
    setvbuf(wide, room[1], _IOFBF, sizeof room[1]);
    setvbuf(stdin, room[2], _IOFBF, sizeof room[2]);
    (void)getc(stream);
    (void)fgetwc(wide);
    listed = opendir("/proc/self/task");
    walked = fts_open((char *[]){"/proc/self/fdinfo", NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    /* A child may find that another has taken what was in it. */
    if (pipe2(ends, O_NONBLOCK) != 0 || write(ends[1], "piped", 5) != 5)
        abort();
}

/* The classes: one function for each prototype. `way` counts what is tried. */
#define CLASS(name) static long name(void *f, int way)
#define AS(type, ...) ((type(*)(__VA_ARGS__))f)

#include "every_hook_descriptors.h"
#include "every_hook_names.h"
#include "every_hook_streams.h"
#include "every_hook_processes.h"

/* Names of the same prototype. */
static const struct {
    long (*call)(void *, int);
    const char *names;
} classes[] = {
    {of_read, "read __read"},
    {of_read_chk, "__read_chk"},
    {of_pread, "pread pread64 __pread64"},
    {of_pread_chk, "__pread_chk __pread64_chk"},
    {of_readv, "readv"},
    {of_preadv, "preadv preadv64"},
    {of_preadv2, "preadv2 preadv64v2"},
    {of_sendfile, "sendfile sendfile64"},
    {of_copy, "copy_file_range splice"},
    {of_open, "open open64 __open __open64"},
    {of_open_2, "__open_2 __open64_2"},
    {of_openat, "openat openat64"},
    {of_openat_2, "__openat_2 __openat64_2"},
    {of_openat2, "openat2"},
    {of_creat, "creat creat64"},
    {of_open_by_handle_at, "open_by_handle_at"},
    {of_mkstemp, "mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64"},
    {of_tmpfile, "tmpfile tmpfile64"},
    {of_stat, "stat stat64 lstat lstat64"},
    {of_statat, "fstatat fstatat64"},
    {of_xstat, "__xstat __xstat64 __lxstat __lxstat64"},
    {of_xstatat, "__fxstatat __fxstatat64"},
    {of_statx, "statx"},
    {of_access, "access euidaccess eaccess"},
    {of_faccessat, "faccessat"},
    {of_readlink, "readlink"},
    {of_readlink_chk, "__readlink_chk"},
    {of_readlinkat, "readlinkat"},
    {of_readlinkat_chk, "__readlinkat_chk"},
    {of_realpath, "realpath __realpath_chk canonicalize_file_name"},
    {of_chdir, "chdir"},
    {of_fchdir, "fchdir"},
    {of_opendir, "opendir"},
    {of_fdopendir, "fdopendir"},
    {of_closedir, "closedir"},
    {of_readdir, "readdir readdir64"},
    {of_readdir_r, "readdir_r readdir64_r"},
    {of_getdents64, "getdents64"},
    {of_scandir, "scandir scandir64"},
    {of_scandirat, "scandirat scandirat64"},
    {of_ftw, "ftw ftw64 nftw nftw64"},
    {of_fts_open, "fts_open fts64_open"},
    {of_fts_read, "fts_read fts64_read"},
    {of_fts_children, "fts_children fts64_children"},
    {of_fadvise, "posix_fadvise posix_fadvise64"},
    {of_readahead, "readahead"},
    {of_aio_return, "aio_return aio_return64"},
    {of_madvise, "madvise posix_madvise"},
    {of_mmap, "mmap mmap64"},
    {of_fopen, "fopen fopen64 _IO_fopen"},
    {of_freopen, "freopen freopen64"},
    {of_fclose, "fclose _IO_fclose"},
    {of_fcloseall, "fcloseall"},
    {of_fread, "fread _IO_fread fread_unlocked"},
    {of_fread_chk, "__fread_chk __fread_unlocked_chk"},
    {of_fgets, "fgets _IO_fgets fgets_unlocked"},
    {of_fgets_chk, "__fgets_chk __fgets_unlocked_chk"},
    {of_getc, "fgetc getc _IO_getc fgetc_unlocked getc_unlocked __uflow __underflow getw"},
    {of_getchar, "getchar getchar_unlocked"},
    {of_gets, "gets _IO_gets __gets_chk"},
    {of_getline, "getline"},
    {of_getdelim, "getdelim __getdelim"},
    {of_fscanf, "fscanf __isoc99_fscanf __isoc23_fscanf"},
    {of_scanf, "scanf __isoc99_scanf __isoc23_scanf"},
    {of_vfscanf, "vfscanf __isoc99_vfscanf __isoc23_vfscanf"},
    {of_vscanf, "vscanf __isoc99_vscanf __isoc23_vscanf"},
    {of_fwscanf, "fwscanf __isoc99_fwscanf __isoc23_fwscanf"},
    {of_wscanf, "wscanf __isoc99_wscanf __isoc23_wscanf"},
    {of_vfwscanf, "vfwscanf __isoc99_vfwscanf __isoc23_vfwscanf"},
    {of_vwscanf, "vwscanf __isoc99_vwscanf __isoc23_vwscanf"},
    {of_getwc, "fgetwc getwc fgetwc_unlocked getwc_unlocked"},
    {of_getchar, "getwchar getwchar_unlocked"},
    {of_fgetws, "fgetws fgetws_unlocked"},
    {of_fgetws_chk, "__fgetws_chk __fgetws_unlocked_chk"},
    {of_fseek, "fseek fseeko fseeko64"},
    {of_fsetpos, "fsetpos fsetpos64"},
    {of_rewind, "rewind"},
    {of_lseek, "lseek lseek64 __lseek llseek"},
    {of_close, "close __close"},
    {of_close_range, "close_range"},
    {of_closefrom, "closefrom"},
    {of_dup, "dup"},
    {of_dup2, "dup2 __dup2 dup3"},
    {of_fcntl, "fcntl fcntl64 __fcntl"},
    {of_spawn, "posix_spawn posix_spawnp"},
    {of_add_folder_by_name, "posix_spawn_file_actions_addchdir_np"},
    {of_add_folder, "posix_spawn_file_actions_addfchdir_np"},
    {of_execve, "execve execvpe execv execvp"},
    {of_execl, "execl execlp execle"},
    {of_execveat, "execveat"},
    {of_fexecve, "fexecve"},
    {of_system, "system"},
    {of_popen, "popen"},
    {of_pclose, "pclose"},
    {of_exit, "_exit _Exit quick_exit"},
    {of_prctl, "prctl"},
    {of_syscall, "syscall"},
};

/* The one call of this child. */
static struct {
    long (*call)(void *, int);
    void *function;
    int way;
    long result;
    int error;
} shot;

static void fire(void)
{
    errno = 0;
    shot.result = shot.call(shot.function, shot.way);
    shot.error = errno;
}

static void *in_thread(void *unused)
{
    fire();
    return unused;
}

static void in_handler(int signal)
{
    (void)signal;
    fire();
}

static void on_small_stack(char *stack, size_t size)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        abort();
    raise(SIGUSR1);
}

static void in_small_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attributes, in_thread, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
}

/* A system call by an instruction of the program's own. */
static long raw(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result = number;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                     : "memory");
    return x0;
#endif
}

/* Calls that none of the functions tried makes by itself. */
static struct sock_filter instructions[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog filter = {sizeof instructions / sizeof instructions[0], instructions};

static void lock_up(const char *how)
{
    bool failed = false;
    if (strcmp(how, "strict") == 0)
        failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0L, NULL) != 0;
    else if (strcmp(how, "prctl") == 0)
        failed = syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0L, 0L, 0L) != 0;
    else if (strcmp(how, "raw") == 0)
        failed = raw(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0) != 0;
    else if (strcmp(how, "filter") == 0)
        failed = syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) != 0 ||
                 syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0L, &filter) != 0;
    else if (strcmp(how, "rawfilter") == 0)
        failed = raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) != 0 ||
                 raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) != 0;
    else if (strcmp(how, "clock") == 0)
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0L, 0L, 0L); /* refused where there is none */
    if (failed)
        abort();
}

#define DEEP (256 * 1024)
#define PAINT 0x5a
/* Room beside the hook's own stack: the signal's frame, with all vector registers, and libc's. */
static char painted[DEEP];

static long depth(void)
{
    long untouched = 0;
    while (untouched < DEEP && painted[untouched] == PAINT)
        untouched++;
    return DEEP - untouched;
}

static char line[256];

static void child(const char *situation, bool measures, const char *name)
{
    char *last = strrchr(situation, '-');
    const char *where = last + 1;
    alarm(60);
    if (strncmp(situation, "fresh", 5) == 0)
        open_all();
    if (measures) {
        memset(painted, PAINT, sizeof painted);
        on_small_stack(painted, sizeof painted);
    } else if (strcmp(where, "thread") == 0) {
        in_small_thread();
    } else if (strcmp(where, "signal") == 0) {
        on_small_stack(painted, (size_t)sysconf(_SC_MINSIGSTKSZ) + 512);
    } else {
        lock_up(where);
        fire();
    }
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    int length = over ? 0
                      : snprintf(line, sizeof line, "%s %s %d: %ld errno %d bytes %08x", situation, name,
                                 shot.way, shot.result, shot.error, sum);
    if (!over && measures)
        length = snprintf(line, sizeof line, "%s %s %d: depth %ld", situation, name, shot.way, depth());
    if (length > 0) {
        line[length++] = '\n';
        (void)!write(STDOUT_FILENO, line, (size_t)length);
    }
    syscall(SYS_exit, over ? 9 : 0); /* the only way to end in strict mode */
}

/* False if there is no such way. */
static bool try(const char *situation, bool measures, const char *name)
{
    pid_t pid = fork();
    if (pid == 0)
        child(situation, measures, name);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
        return false;
    if (!measures && WIFSIGNALED(status))
        dprintf(STDOUT_FILENO, "%s %s %d: signal %d\n", situation, name, shot.way, WTERMSIG(status));
    else if (!measures && WEXITSTATUS(status) != 0)
        dprintf(STDOUT_FILENO, "%s %s %d: exit %d\n", situation, name, shot.way, WEXITSTATUS(status));
    return true;
}

static void each(const char *situation, bool measures, bool only_names)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char names[256];
        char *rest = names;
        strcpy(names, classes[i].names);
        for (char *name; (name = strsep(&rest, " ")) != NULL;) {
            if (only_names) {
                puts(name);
                continue;
            }
            shot.call = classes[i].call;
            shot.function = dlsym(RTLD_DEFAULT, name);
            if (shot.function == NULL) {
                dprintf(STDOUT_FILENO, "%s is not there\n", name);
                continue;
            }
            shot.way = 0;
            while (try(situation, measures, name))
                shot.way++;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "names") == 0) {
        each("", false, true);
        return 0;
    }
    if (argc < 4)
        return 2;
    path = argv[2];
    snprintf(temporary, sizeof temporary, "%s-XXXXXX", path);
    bool measures = strcmp(argv[1], "depth") == 0;
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "inherited", 9) == 0)
            open_all();
        each(argv[i], measures, false);
    }
    return 0;
}
