/* Reads the files that a list names, one path a line, and prints how many bytes there were and a sum.
 * reads_list HOW LIST [PROGRAM...]: HOW is read, pread or map. Executes PROGRAM at the end. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static unsigned long sum, bytes;
static char buffer[8192];

static void take(const char *from, size_t count)
{
    /* As slow as a program that does something with the data. */
    struct timespec rest = {.tv_nsec = 500000};
    nanosleep(&rest, NULL);
    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + (unsigned char)from[i];
    bytes += count;
}

static int take_file(const char *how, const char *path)
{
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return 0;
    if (strcmp(how, "map") == 0) {
        char *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            return 0;
        for (off_t at = 0; at < status.st_size; at += sizeof buffer) {
            off_t left = status.st_size - at;
            take(map + at, left < (off_t)sizeof buffer ? (size_t)left : sizeof buffer);
        }
        munmap(map, (size_t)status.st_size);
    } else {
        ssize_t got;
        off_t at = 0;
        do {
            got = how[0] == 'p' ? pread(fd, buffer, sizeof buffer, at)
                                : read(fd, buffer, sizeof buffer);
            if (got > 0)
                take(buffer, (size_t)got);
            at += got;
        } while (got > 0);
    }
    return close(fd) == 0;
}

int main(int count, char **words)
{
    char path[4096];
    FILE *list = count > 2 ? fopen(words[2], "r") : NULL;
    if (list == NULL)
        return 2;
    while (fgets(path, sizeof path, list) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        if (!take_file(words[1], path))
            return 3;
    }
    printf("%lu %lu\n", bytes, sum);
    fflush(stdout);
    if (count > 3)
        execv(words[3], words + 3);
    return 7;
}
