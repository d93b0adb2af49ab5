/* Forks in a signal handler that interrupts reads; the child returns from the handler into whatever was
 * interrupted, and reads on. Prints how many children ended wrongly. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int children, bad;
static volatile pid_t parent;

static void on_alarm(int number)
{
    (void)number;
    pid_t pid = fork();
    if (pid == 0)
        return;
    int status = 0;
    waitpid(pid, &status, 0);
    children++;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 5)
        bad++;
}

int main(int argc, char **argv)
{
    char bytes[64];
    int fd = open(argv[argc - 1], O_RDONLY);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    parent = getpid();
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    while (children < 500) {
        if (pread(fd, bytes, sizeof bytes, 0) < 0)
            return 3;
        if (getpid() != parent) {
            for (int i = 0; i < 50; i++)
                if (pread(fd, bytes, sizeof bytes, 0) < 0)
                    _exit(4);
            _exit(5);
        }
    }
    setitimer(ITIMER_REAL, &never, NULL);
    if (getpid() != parent)
        _exit(5); /* forked after the last round */
    printf("bad: %d\n", bad);
    return 0;
}
