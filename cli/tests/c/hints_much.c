/* Discloses FILE very often and reads nothing of it, while a child discloses it ten times. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foretell.h>

static int hint(const char *path, int times)
{
    foretell_stream *stream = foretell_stream_open();
    int tries = 0;
    while (times > 0 && tries < 2000) {
        if (foretell_stream_sequential(stream, path) == FORETELL_SENT) {
            times--;
            continue;
        }
        tries++;
        usleep(1000);
    }
    usleep(200000); /* A stream ends with its process. */
    return times == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    if (hint(argv[1], atoi(argv[2])) != 0)
        return 3;
    pid_t child = fork();
    if (child == 0)
        _exit(hint(argv[1], 10));
    int status = 1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}
