/* Reads a file in the parent, in a forked child, in a vforked and executed one and in a spawned one,
 * and prints what came of it in a fixed order. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static unsigned long sum(const char *path)
{
    unsigned char buffer[1000];
    unsigned long total = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        exit(9);
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t i = 0; i < got; i++)
            total = total * 31 + buffer[i];
    close(fd);
    return total;
}

static void finish(const char *what, pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s: %d\n", what, WEXITSTATUS(status));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    printf("parent: %lu\n", sum(argv[1]));
    fflush(stdout);

    pid_t pid = fork();
    if (pid == 0) {
        printf("child: %lu\n", sum(argv[1]));
        fflush(stdout);
        _exit(3);
    }
    finish("fork", pid);

    pid = vfork();
    if (pid == 0) {
        execlp("cksum", "cksum", argv[1], (char *)NULL);
        _exit(127);
    }
    finish("vfork", pid);

    pid = vfork();
    if (pid == 0) {
        execl("/nonexistent/program", "program", (char *)NULL);
        _exit(42);
    }
    finish("vfork, exec failing", pid);

    char *arguments[] = {"wc", "-c", argv[1], NULL};
    char *empty[] = {NULL};
    if (posix_spawnp(&pid, "wc", NULL, NULL, arguments, empty) != 0)
        return 1;
    finish("spawn", pid);
    printf("parent again: %lu\n", sum(argv[1]));
    return 7;
}
