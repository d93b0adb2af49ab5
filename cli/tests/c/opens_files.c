/* Opens files in several ways, by system calls that no library sees: built as a static program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ALARM_ROUNDS = 4000, STORM = 200 };

extern char **environ;

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    alarms = alarms + 1;
}

/* Lists a folder, and reads its files in sorted order. */
static int list(const char *folder)
{
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    int open_folder = open(folder, O_RDONLY | O_DIRECTORY);
    unsigned long sum = 0, bytes = 0;
    for (int at = 0; at < count; at++) {
        if (names[at]->d_name[0] == '.')
            continue;
        int file = openat(open_folder, names[at]->d_name, O_RDONLY);
        if (file < 0) {
            perror(names[at]->d_name);
            return 1;
        }
        unsigned char buffer[4096];
        for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0; bytes += (unsigned long)got)
            for (ssize_t byte = 0; byte < got; byte++)
                sum = sum * 31 + buffer[byte];
        close(file);
    }
    printf("%d entries, %lu bytes, %lu\n", count, bytes, sum);
    fflush(stdout);
    return count > 0 ? 7 : 1;
}

static void *open_all(void *folder)
{
    long opened = 0;
    for (int round = 0; round < 20; round++) {
        DIR *of = opendir(folder);
        for (struct dirent *entry; of != NULL && (entry = readdir(of)) != NULL;) {
            int file = openat(dirfd(of), entry->d_name, O_RDONLY);
            opened += file >= 0;
            close(file);
        }
        closedir(of);
    }
    return (void *)opened;
}

static int threads(char *folder)
{
    pthread_t thread[THREADS];
    long opened = 0;
    for (int at = 0; at < THREADS; at++)
        pthread_create(&thread[at], NULL, open_all, folder);
    for (int at = 0; at < THREADS; at++) {
        void *result;
        pthread_join(thread[at], &result);
        opened += (long)result;
    }
    printf("%ld opened\n", opened);
    return 0;
}

/* Opens while signals come, whose handler has calls begin again. */
static int interrupted(const char *folder)
{
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = { { 0, 300 }, { 0, 300 } };
    setitimer(ITIMER_REAL, &often, NULL);
    int failed = 0;
    for (int round = 0; round < ALARM_ROUNDS; round++) {
        int file = open(folder, O_RDONLY);
        failed += file < 0;
        close(file);
    }
    printf("%d failed, signals %s\n", failed, alarms > 0 ? "came" : "did not come");
    return 0;
}

/* Installs a filter of its own, under which getppid fails. */
static int filtered(const char *folder)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 42),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        return 1;
    printf("%ld %d\n", syscall(SYS_getppid), errno);
    return list(folder);
}

static int wait_for(pid_t child)
{
    int status = 1;
    waitpid(child, &status, 0);
    return status;
}

/* Starts itself in several ways, and many children that open. */
static int children(char *self, char *folder)
{
    char *line[] = { self, "list", folder, NULL };
    pid_t child = vfork();
    if (child == 0) {
        execv(self, line);
        _exit(99);
    }
    int status = wait_for(child);
    if (posix_spawn(&child, self, NULL, NULL, line, environ) != 0)
        return 1;
    status += wait_for(child);
    for (int at = 0; at < STORM; at++)
        if ((child = fork()) == 0) {
            int file = open(folder, O_RDONLY | O_DIRECTORY);
            _exit(file >= 0 ? 3 : errno);
        } else if (child < 0) {
            return 1;
        }
    for (int at = 0, one; at < STORM && wait(&one) > 0; at++)
        status += one;
    printf("%d\n", status);
    return 0;
}

/* Says that it has begun, waits until `gate` is there, and goes on. */
static int later(const char *gate, const char *folder)
{
    struct stat found;
    printf("begun\n");
    fflush(stdout);
    while (stat(gate, &found) != 0)
        usleep(1000);
    int result = list(folder);
    for (int round = 0; round < 1000; round++) {
        int file = open(folder, O_RDONLY);
        if (file < 0)
            return 1;
        close(file);
    }
    return result;
}

/* Stays after the list until `gate` is there. */
static int stays(const char *gate, const char *folder)
{
    struct stat found;
    int result = list(folder);
    while (stat(gate, &found) != 0)
        usleep(1000);
    return result;
}

/* Says how long an open takes, in us. */
static int timed(const char *file)
{
    enum { ROUNDS = 10000 };
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int round = 0; round < ROUNDS; round++)
        close(open(file, O_RDONLY));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    printf("%.2f\n", ns / 1e3 / ROUNDS);
    return 0;
}

int main(int count, char **words)
{
    const char *what = count > 2 ? words[1] : "";
    if (strcmp(what, "list") == 0)
        return list(words[2]);
    if (strcmp(what, "threads") == 0)
        return threads(words[2]);
    if (strcmp(what, "interrupted") == 0)
        return interrupted(words[2]);
    if (strcmp(what, "filtered") == 0)
        return filtered(words[2]);
    if (strcmp(what, "children") == 0)
        return children(words[0], words[2]);
    if (strcmp(what, "later") == 0)
        return later(words[2], words[3]);
    if (strcmp(what, "stays") == 0)
        return stays(words[2], words[3]);
    if (strcmp(what, "timed") == 0)
        return timed(words[2]);
    return 2;
}
