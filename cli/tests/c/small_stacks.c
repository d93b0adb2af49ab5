/* Starts programs, with a large environment, from a thread with the smallest stack, and counts the
 * mappings that stay. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char *variables[1401];
static char *arguments[] = {"/bin/true", NULL};

static void finish(const char *what, pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    if (status != 0)
        printf("%s: %d\n", what, status);
}

static void start_once(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execve(arguments[0], arguments, variables);
        _exit(1);
    }
    finish("vfork, execve", pid);
    pid = vfork();
    if (pid == 0) {
        execvpe("true", arguments, variables);
        _exit(1);
    }
    finish("vfork, execvpe", pid);
    if (posix_spawn(&pid, arguments[0], NULL, NULL, arguments, variables) == 0)
        finish("posix_spawn", pid);
    if (posix_spawnp(&pid, "true", NULL, NULL, arguments, variables) == 0)
        finish("posix_spawnp", pid);
    pid = vfork();
    if (pid == 0) {
        execve("/nonexistent", arguments, variables);
        _exit(0);
    }
    finish("vfork, exec failing", pid);
}

static int mappings(void)
{
    int lines = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;)
        lines += c == '\n';
    fclose(maps);
    return lines;
}

static void *start(void *unused)
{
    start_once();
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    for (int i = 0; i < 1400; i++)
        if (asprintf(&variables[i], "VARIABLE_%d=value %d", i, i) < 0)
            return 1;
    pthread_t thread;
    if (pthread_create(&thread, &attributes, start, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    start_once();
    int before = mappings();
    for (int i = 0; i < 100; i++)
        start_once();
    printf("more mappings: %d\n", mappings() - before > 3);
    return 0;
}
