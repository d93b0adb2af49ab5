/* Executes a program when no descriptor is left, and when one is. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void execute(int left)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit few = {.rlim_cur = 20, .rlim_max = 20};
        int last = -1;
        setrlimit(RLIMIT_NOFILE, &few);
        for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;)
            last = fd;
        while (left-- > 0)
            close(last--);
        execlp("cat", "cat", "/dev/null", (char *)NULL);
        _exit(42);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    fflush(stdout);
}

int main(void)
{
    for (int left = 0; left < 5; left++)
        execute(left);
    return 0;
}
