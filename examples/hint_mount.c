/*
 * Reads parts of a file on a foretell mount, in an order that only this program knows, after giving hints for them.
 *
 *   cc -I /usr/local/include -o hint_mount hint_mount.c
 *   ./hint_mount /mnt/data/big 100 131072
 *
 * On other file systems it does the same, without hints.
 */
#include <fcntl.h>
#include <foretell_ioctl.h>
#include <stdio.h>
#include <unistd.h>

/* Gives hints for parts. Returns how many the mount accepted; it accepts fewer while it has enough. */
static size_t hint(int fd, const struct foretell_segment *parts, size_t count)
{
    size_t taken;

    if (foretell_ioctl_segments_taken(fd, NULL, parts, count, 0, &taken) == 0 || errno == EAGAIN)
        return taken;
    if (errno != ENOTTY)
        perror("hint"); /* A hint is a wish: go on without. */
    return count;
}

int main(int argc, char **argv)
{
    size_t hinted = 0;
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    size_t length = argc > 3 ? strtoul(argv[3], NULL, 10) : 131072;
    struct foretell_segment *parts;
    unsigned long long sum = 0;
    unsigned char *buffer;
    off_t size;
    int fd;

    if (argc < 2) {
        fprintf(stderr, "usage: hint_mount FILE [PARTS [BYTES]]\n");
        return 2;
    }
    fd = open(argv[1], O_RDONLY);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    size = lseek(fd, 0, SEEK_END);
    parts = calloc(count, sizeof *parts);
    buffer = malloc(length);
    if (!parts || !buffer || size <= (off_t)length) {
        fprintf(stderr, "%s: too small, or no memory\n", argv[1]);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        parts[i].offset_bytes = (uint64_t)random() * 4096 % (uint64_t)(size - (off_t)length);
        parts[i].length_bytes = length;
    }
    for (size_t i = 0; i < count; i++) {
        /* At the start, and again when all accepted parts have been read. */
        if (i >= hinted)
            hinted = i + hint(fd, parts + i, count - i);
        ssize_t got = pread(fd, buffer, length, (off_t)parts[i].offset_bytes);
        if (got < 0) {
            perror(argv[1]);
            return 1;
        }
        for (ssize_t k = 0; k < got; k++)
            sum += buffer[k];
    }
    printf("%zu parts, sum %llu\n", count, sum);
    free(parts);
    free(buffer);
    close(fd);
    return 0;
}
