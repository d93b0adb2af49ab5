#include "report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t opened, calls[CALLS], read_bytes, disclosed_bytes;
static int rank = -1;

static void add(uint64_t *counter, uint64_t value)
{
    (void)__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

void report_opened(const struct file *file)
{
    add(&opened, 1);
    if (rank < 0)
        rank = file->rank;
}

void report_call(enum counted kind)
{
    add(&calls[kind], 1);
}

void report_read(uint64_t bytes)
{
    add(&read_bytes, bytes);
}

void report_closed(const struct file *file)
{
    add(&disclosed_bytes, file->outlook.disclosed_bytes);
}

void report_write(void)
{
    const char *path = getenv("FORETELL_MPI_REPORT");
    if (path == NULL || *path == 0)
        return;
    file_each(report_closed);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    char line[512];
    int bytes = snprintf(line, sizeof line,
                         "{\"rank\": %d, \"files\": %" PRIu64 ", \"collective_calls\": %" PRIu64
                         ", \"informed_calls\": %" PRIu64 ", \"passed_calls\": %" PRIu64
                         ", \"disclosed_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64 "}\n",
                         rank, opened, calls[CALL_COLLECTIVE], calls[CALL_INFORMED],
                         calls[CALL_PASSED], disclosed_bytes, read_bytes);
    (void)!write(fd, line, (size_t)bytes);
    (void)close(fd);
}
