/* Closes every descriptor, as daemons do, also by a raw system call that the library cannot see, and reads on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long count(const char *path)
{
    char buffer[777];
    long total = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY);
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        total += got;
    return total * 100 + fd; /* The descriptor's number must be the same with and without. */
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    long before = count(argv[1]);
    int out = dup(1);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != out)
            close(fd);
    long after_close = count(argv[1]);
    syscall(SYS_close_range, 3u, (unsigned)(out - 1), 0u);
    syscall(SYS_close_range, (unsigned)(out + 1), ~0u, 0u);
    long after_range = count(argv[1]);
    char text[200];
    int length = snprintf(text, sizeof text, "%ld %ld %ld\n", before, after_close, after_range);
    return write(out, text, (size_t)length) == length ? 0 : 1;
}
