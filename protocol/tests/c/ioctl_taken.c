/*
 * Hints by ioctl, some of which are refused.
 *
 * ioctl_taken SEGMENTS REFUSED: the ioctl after the first REFUSED ones fails. Prints the result, the segments taken, and
 * those of each ioctl.
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>

static int fake_ioctl(int fd, unsigned long command, ...);
#define ioctl fake_ioctl
#include <foretell_ioctl.h>

static int calls, refused;
static unsigned long long next_offset;

static int fake_ioctl(int fd, unsigned long command, ...)
{
    struct foretell_ioctl_hint head;
    struct foretell_segment first;
    const unsigned char *message;
    va_list more;

    (void)fd;
    va_start(more, command);
    message = va_arg(more, const unsigned char *);
    va_end(more);
    memcpy(&head, message, sizeof head);
    if (calls++ == refused) {
        errno = EAGAIN;
        return -1;
    }
    if (head.segment_count) {
        memcpy(&first, message + sizeof head, sizeof first);
        if (first.offset_bytes != next_offset)
            printf("told twice, or left out: %llu\n", (unsigned long long)first.offset_bytes);
    }
    next_offset += head.segment_count;
    printf("%u ", head.segment_count);
    return 0;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, taken = 99, more = 99;
    struct foretell_segment *segments = calloc(count + 1, sizeof *segments);
    int result, error;

    refused = argc > 2 ? atoi(argv[2]) : -1;
    for (size_t i = 0; i < count; i++) {
        segments[i].offset_bytes = i;
        segments[i].length_bytes = 1;
    }
    result = foretell_ioctl_segments_taken(3, NULL, segments, count, 0, &taken);
    error = result ? errno : 0;
    printf("= %d %s %zu\n", result, error == EAGAIN ? "EAGAIN" : "-", taken);
    if (result) {
        result = foretell_ioctl_segments_taken(3, NULL, segments + taken, count - taken, 0, &more);
        printf("= %d - %zu\n", result, taken + more);
    }
    free(segments);
    return 0;
}
