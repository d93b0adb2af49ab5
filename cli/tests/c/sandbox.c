/* Executes a program under a seccomp filter: sandbox HOW WHAT PROGRAM ARGUMENTS...
 * HOW: the filter is loaded by `prctl`, by libc's `syscall`, or by a `raw` system call.
 * WHAT: it allows `all`; forbids `sockets` and memfds; or allows what `cat` needs and nothing else. What
 * is forbidden kills. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

static const int of_cat[] = {
    SYS_read, SYS_write, SYS_openat, SYS_close, SYS_fstat, SYS_newfstatat, SYS_mmap, SYS_munmap,
    SYS_mprotect, SYS_brk, SYS_pread64, SYS_faccessat, SYS_set_tid_address, SYS_set_robust_list,
    SYS_prlimit64, SYS_getrandom, SYS_execve, SYS_exit_group, SYS_exit, SYS_fadvise64, SYS_lseek,
    SYS_futex, SYS_copy_file_range, SYS_ioctl, SYS_fcntl,
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_access
    SYS_access,
#endif
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
};
static const int of_sockets[] = {SYS_socket, SYS_memfd_create};

static struct sock_filter filter[128];

/* Listed system calls get one answer, all others the other. */
static struct sock_fprog program(const int *list, size_t count, unsigned listed, unsigned others)
{
    unsigned short length = 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                    offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)list[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    return (struct sock_fprog){.len = length, .filter = filter};
}

static long load(const char *how, struct sock_fprog *fprog)
{
    if (strcmp(how, "prctl") == 0)
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                   ? -1
                   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog);
    if (strcmp(how, "syscall") == 0)
        return syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                   ? -1
                   : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, fprog);
    return raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) != 0
               ? -1
               : raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)fprog);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct sock_fprog fprog = program(NULL, 0, 0, SECCOMP_RET_ALLOW);
    if (strcmp(argv[2], "cat") == 0)
        fprog = program(of_cat, sizeof of_cat / sizeof of_cat[0], SECCOMP_RET_ALLOW,
                        SECCOMP_RET_KILL_PROCESS);
    else if (strcmp(argv[2], "sockets") == 0)
        fprog = program(of_sockets, sizeof of_sockets / sizeof of_sockets[0],
                        SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    pid_t pid = fork();
    if (pid == 0) {
        if (load(argv[1], &fprog) == 0)
            execv(argv[3], argv + 3);
        _exit(126);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("exit %d, signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}
