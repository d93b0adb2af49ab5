/*
 * A program with odd arguments. What it does is its first one:
 *   overwrite FILE OTHER  writes OTHER over FILE in its own arguments, and has a child without another program read FILE
 *   none FILE             executes itself without arguments, even argv[0]
 *   chroot FOLDER FILE    changes its root to FOLDER, and reads FILE there
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int copy(const char *name)
{
    static char buffer[65536];
    int fd = open(name, O_RDONLY);
    ssize_t bytes;
    if (fd < 0)
        return 2;
    while ((bytes = read(fd, buffer, sizeof buffer)) > 0)
        if (write(STDOUT_FILENO, buffer, (size_t)bytes) != bytes)
            return 3;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argv[0][0] == '\0') {
        puts("no arguments");
        return 0;
    }
    if (strcmp(argv[1], "overwrite") == 0) {
        char name[4096];
        int status = 0;
        snprintf(name, sizeof name, "%s", argv[2]);
        if (strlen(argv[2]) != strlen(argv[3]))
            return 4;
        memcpy(argv[2], argv[3], strlen(argv[3]));
        if (fork() == 0) {
            usleep(50000);
            _exit(copy(name));
        }
        wait(&status);
        return WEXITSTATUS(status);
    }
    if (strcmp(argv[1], "chroot") == 0)
        return chroot(argv[2]) != 0 ? 5 : copy(argv[3]);
    char *nothing[] = {NULL};
    execv("/proc/self/exe", nothing);
    return 6;
}
