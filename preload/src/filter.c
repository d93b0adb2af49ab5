/*
 * Whether this thread is under more seccomp filters than `foretell run` was.
 *
 * Such a filter may kill for calls that the library makes (socket, memfd_create), so this is asked before a process announces
 * itself, since a program may load a filter by an instruction of its own, which no hook sees. It is not asked in the
 * constructor: the process that has executed this program was under no filter that a hook saw, and had made more calls to
 * decide that the library goes along (executable.c) than the constructor makes. It is asked by opening, reading and closing a
 * file, which every dynamically linked program does at its start, and which a program that is about to open a file may do.
 * PR_GET_SECCOMP would be cheaper, but a filter that lets a program read files may kill for it.
 *
 * Containers put everything under a filter, hence the comparison. Without /proc, without a free descriptor, and on kernels
 * before 5.9 under any filter, the answer is not known and counts as yes.
 *
 * Cost: some 15 µs.
 */
#include "state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The thread's own: a filter may be one thread's. */
#define STATUS "/proc/thread-self/status"
#define MODE "\nSeccomp:\t"
#define FILTERS "\nSeccomp_filters:\t"
/* A line that is always there, behind those two. */
#define BEHIND "\nCpus_allowed:"

/* What follows `line` in the text; NULL if that is not there. Not strstr, which may take much stack. */
static const char *behind(const char *text, const char *line)
{
    size_t bytes = strlen(line);
    for (; *text != '\0'; text++)
        if (*text == *line && strncmp(text, line, bytes) == 0)
            return text + bytes;
    return NULL;
}

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
    BEHIND_IN_BSS("2") static char text[4096]; /* the lines that count are some hundred bytes */
    bool filtered = true;
    size_t kept = 0;
    int saved = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, STATUS, O_RDONLY | O_CLOEXEC, 0);
    while (fd >= 0) {
        long bytes = syscall(SYS_read, fd, text + kept, sizeof text - 1 - kept);
        if (bytes <= 0)
            break;
        kept += (size_t)bytes;
        text[kept] = '\0';
        const char *mode = behind(text, MODE);
        if (mode != NULL && behind(mode, BEHIND) != NULL) {
            filtered = exceeds(mode, behind(mode, FILTERS), known_filters);
            break;
        }
        if (kept == sizeof text - 1) { /* a user of very many groups */
            kept /= 2;
            memmove(text, text + sizeof text - 1 - kept, kept);
        }
    }
    if (fd >= 0)
        (void)syscall(SYS_close, fd);
    errno = saved;
    return filtered;
}
