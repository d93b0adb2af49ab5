#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t opened, calls[CALLS], read_bytes, disclosed_bytes;

static void add(uint64_t *counter, uint64_t value)
{
    (void)__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

static enum why last_why;

void report_why(enum why why)
{
    if (why != WHY_NOTHING)
        __atomic_store_n(&last_why, why, __ATOMIC_RELAXED);
}

void report_opened(void)
{
    add(&opened, 1);
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

static const char *words(enum why why)
{
    static const char *const WORDS[] = {
        [WHY_NOTHING] = "null",
        [WHY_METHOD] = "\"the method is collective, or not the same on all ranks\"",
        [WHY_MODE] = "\"a file is not opened with MPI_MODE_RDONLY alone\"",
        [WHY_NOT_OPENED] = "\"a file cannot be opened by its name, or is no regular file\"",
        [WHY_DESCRIPTORS] = "\"a quarter of the descriptors that a process may have are in use\"",
        [WHY_NO_MANAGER] = "\"there is no manager: start the program by foretell run\"",
        [WHY_NOT_ALL_RANKS] = "\"not all ranks of the job have this library\"",
        [WHY_ANOTHER_RANK] = "\"another rank has no manager, or cannot open the file\"",
    };
    return WORDS[why];
}

void report_write(void)
{
    const char *path = getenv("FORETELL_MPI_REPORT");
    int rank = -1;
    if (path == NULL || *path == 0)
        return;
    (void)PMPI.Comm_rank(mpi()->comm_world, &rank);
    file_each(report_closed);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) {
        /* `foretell run` names its own descriptor, and may have ended. */
        if (rank == 0 && strncmp(path, "/proc/", strlen("/proc/")) != 0)
            (void)fprintf(stderr, "foretell: FORETELL_MPI_REPORT: %s: %s\n", path, strerror(errno));
        return;
    }
    char line[768];
    int bytes = snprintf(line, sizeof line,
                         "{\"pid\": %d, \"rank\": %d, \"files\": %" PRIu64 ", \"collective_calls\": %" PRIu64
                         ", \"informed_calls\": %" PRIu64 ", \"passed_calls\": %" PRIu64
                         ", \"disclosed_bytes\": %" PRIu64 ", \"read_bytes\": %" PRIu64
                         ", \"why_collective\": %s}\n",
                         (int)getpid(), rank, opened, calls[CALL_COLLECTIVE], calls[CALL_INFORMED],
                         calls[CALL_PASSED], disclosed_bytes, read_bytes, words(last_why));
    (void)!write(fd, line, (size_t)bytes);
    (void)close(fd);
}
