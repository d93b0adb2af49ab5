/* Loads a seccomp filter by an instruction of its own, and then opens and reads a file: confines_itself WHAT HOW FILE.
 * WHAT: the filter kills for `some` calls that foretell makes when a process announces itself, or for `most`: for all but what
 * this program needs itself.
 * HOW: the file is opened by `open`, `fopen`, or `stat` and open; or by open in a `fork`ed child of a parent that has opened
 * it, or in a `thread` whose filter is its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

static const int some[] = {SYS_socket,     SYS_connect, SYS_sendmsg, SYS_memfd_create, SYS_ftruncate,
                           SYS_getsockopt, SYS_prctl,   SYS_getpid,  SYS_statx,        SYS_geteuid};
static const int needed[] = {SYS_read, SYS_write, SYS_openat, SYS_close, SYS_fstat, SYS_newfstatat,
                             SYS_brk,  SYS_mmap,  SYS_munmap, SYS_getrandom, SYS_exit_group};

static const char *what, *how, *file;

static int confine(void)
{
    static struct sock_filter filter[64];
    int allows = strcmp(what, "most") == 0;
    const int *list = allows ? needed : some;
    size_t count = allows ? sizeof needed / sizeof needed[0] : sizeof some / sizeof some[0];
    unsigned listed = allows ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS;
    unsigned others = allows ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW;
    unsigned short length = 0;
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)list[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    struct sock_fprog program = {.len = length, .filter = filter};
    return raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0 &&
           raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program) == 0;
}

static int read_file(void)
{
    char bytes[2000];
    struct stat status = {.st_size = -1};
    ssize_t got;
    if (strcmp(how, "fopen") == 0) {
        FILE *stream = fopen(file, "r");
        got = stream != NULL ? (ssize_t)fread(bytes, 1, sizeof bytes, stream) : -1;
        if (stream != NULL)
            fclose(stream);
    } else {
        if (strcmp(how, "stat") == 0 && stat(file, &status) != 0)
            return 3;
        int fd = open(file, O_RDONLY);
        got = read(fd, bytes, sizeof bytes);
        close(fd);
        fd = open(file, O_RDWR);
        close(fd);
    }
    return got > 0 && write(1, bytes, (size_t)got) == got ? 7 : 4;
}

static void *in_thread(void *result)
{
    *(int *)result = confine() ? read_file() : 126;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    what = argv[1];
    how = argv[2];
    file = argv[3];
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        int result = 5;
        pthread_create(&thread, NULL, in_thread, &result);
        pthread_join(thread, NULL);
        return result;
    }
    if (strcmp(how, "fork") == 0) {
        int status = 0;
        close(open(file, O_RDONLY));
        if (fork() == 0)
            _exit(confine() ? read_file() : 126);
        wait(&status);
        printf("exit %d, signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
               WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        return 0;
    }
    return confine() ? read_file() : 126;
}
