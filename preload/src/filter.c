/*
 * Whether a program was started under a seccomp filter that `foretell run` was not under.
 *
 * Such a filter may kill for calls that the library makes (socket, memfd_create), so the constructor
 * asks before it makes any. It asks by opening, reading and closing a file, which every dynamically
 * linked program does at its start: a filter that forbids these would not let the program start.
 * Containers put everything under a filter, hence the comparison. Without /proc, and on kernels before
 * 5.9 under any filter, the answer is not known and counts as yes.
 */
#include "state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODE "\nSeccomp:\t"
#define FILTERS "\nSeccomp_filters:\t"
/* A line that is always there, behind those two. */
#define BEHIND "\nCpus_allowed:"

static bool exceeds(const char *mode, const char *filters, uint32_t known_filters)
{
    if (filters == NULL)
        return *mode != '0';
    uint64_t value = 0;
    for (; *filters >= '0' && *filters <= '9' && value <= UINT32_MAX; filters++)
        value = value * 10 + (uint64_t)(*filters - '0');
    return value > known_filters;
}

bool foretell_is_filtered(uint32_t known_filters)
{
    static char text[4096]; /* the lines that count are some hundred bytes */
    bool filtered = true;
    size_t kept = 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return true;
    for (;;) {
        long bytes = syscall(SYS_read, fd, text + kept, sizeof text - 1 - kept);
        if (bytes <= 0)
            break;
        kept += (size_t)bytes;
        text[kept] = '\0';
        const char *mode = strstr(text, MODE);
        if (mode != NULL && strstr(mode, BEHIND) != NULL) {
            const char *filters = strstr(mode, FILTERS);
            filtered = exceeds(mode + strlen(MODE),
                               filters != NULL ? filters + strlen(FILTERS) : NULL, known_filters);
            break;
        }
        if (kept == sizeof text - 1) { /* a user of very many groups */
            kept /= 2;
            memmove(text, text + sizeof text - 1 - kept, kept);
        }
    }
    (void)syscall(SYS_close, fd);
    return filtered;
}
