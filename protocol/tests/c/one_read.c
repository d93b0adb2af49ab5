/* Reads five bytes: one_read PATH|- close|exit|_exit|fork|duplicate. "-" is standard input. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char bytes[5];
    if (argc < 3)
        return 2;
    const char *end = argv[2];
    int fd = strcmp(argv[1], "-") == 0 ? STDIN_FILENO : open(argv[1], O_RDONLY);
    if (strcmp(end, "duplicate") == 0)
        fd = dup2(fd, 77);
    if (read(fd, bytes, sizeof bytes) != sizeof bytes)
        return 1;
    if (strcmp(end, "_exit") == 0)
        _exit(0);
    if (strcmp(end, "close") == 0 || strcmp(end, "duplicate") == 0)
        close(fd);
    if (strcmp(end, "fork") == 0) { /* the child must not count its parent's wait again */
        if (fork() == 0)
            exit(0);
        wait(NULL);
    }
    return 0;
}
