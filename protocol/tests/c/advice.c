/*
 * Gives advice about FILE in the way named by the first argument and prints what the calls returned, so that
 * runs with and without the interposing library can be compared. tests/preload_advice.rs asserts the records.
 */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static const char *path;
static char buffer[4096];

static void say(const char *what, long result)
{
    printf("%s %ld errno %d\n", what, result, errno);
    fflush(stdout);
    errno = 4242; /* which no call may change without an error */
}

static void do_file(void)
{
    int fd = open(path, O_RDONLY);
    say("needed", posix_fadvise(fd, 100, 200, POSIX_FADV_WILLNEED));
    say("rest", posix_fadvise64(fd, 4096, 0, POSIX_FADV_WILLNEED));
    say("sequential", posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    say("random", posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM));
    say("once", posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE));
    say("normal", posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
    say("done", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    say("readahead", readahead(fd, 8192, 4096));
    say("nothing", readahead(fd, 8192, 0));
    void *memory = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 4096);
    say("populated", memory != MAP_FAILED);
    say("mapped", mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 4096) != MAP_FAILED);
    say("position", lseek(fd, 0, SEEK_CUR));
    say("read", read(fd, buffer, 10));
    say("read on", read(fd, buffer, 10));
}

static void do_refused(void)
{
    int ends[2];
    int fd = open(path, O_RDONLY);
    say("pipe", pipe(ends));
    say("of pipe", posix_fadvise(ends[0], 0, 0, POSIX_FADV_WILLNEED));
    say("unknown", posix_fadvise(fd, 0, 0, 99));
    say("length", posix_fadvise(fd, 0, -1, POSIX_FADV_WILLNEED));
    say("closed", posix_fadvise(99, 0, 0, POSIX_FADV_WILLNEED));
    say("closed", readahead(99, 0, 10));
    say("folder", posix_fadvise(open("/", O_RDONLY | O_DIRECTORY), 0, 0, POSIX_FADV_WILLNEED));
    say("device", posix_fadvise(open("/dev/zero", O_RDONLY), 0, 0, POSIX_FADV_SEQUENTIAL));
    say("memory", madvise((void *)4096, 4096, MADV_WILLNEED));
    say("memory", posix_madvise((void *)1, 4096, POSIX_MADV_RANDOM));
    say("not mapped", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, 99, 0) == MAP_FAILED);
    say("anonymous", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) != MAP_FAILED);
}

static void do_memory(void)
{
    int fd = open(path, O_RDONLY);
    char *memory = mmap((void *)(UINT64_C(1) << 40), 8192, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    say("mapped", memory != MAP_FAILED);
    say("needed", madvise(memory, 8192, MADV_WILLNEED));
    say("populate", madvise(memory, 4096, MADV_POPULATE_READ));
    say("sequential", posix_madvise(memory + 4096, 4096, POSIX_MADV_SEQUENTIAL));
    say("random", madvise(memory, 8192, MADV_RANDOM));
    say("normal", madvise(memory, 8192, MADV_NORMAL));
    say("done", madvise(memory, 8192, MADV_DONTNEED));
    say("nothing", madvise(memory, 0, MADV_WILLNEED));
}

static void do_fork(void)
{
    int fd = open(path, O_RDONLY);
    say("parent", posix_fadvise(fd, 1, 2, POSIX_FADV_WILLNEED));
    pid_t child = fork();
    if (child == 0) {
        say("child", posix_fadvise(fd, 3, 4, POSIX_FADV_WILLNEED));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    child = vfork();
    if (child == 0) {
        (void)posix_fadvise(fd, 5, 6, POSIX_FADV_WILLNEED);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("parent", posix_fadvise(fd, 7, 8, POSIX_FADV_WILLNEED));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"file", do_file}, {"refused", do_refused}, {"memory", do_memory}, {"fork", do_fork},
    };
    if (argc != 3)
        return 2;
    path = argv[2];
    errno = 4242;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(argv[1], ways[i].name) == 0) {
            ways[i].run();
            return 0;
        }
    return 2;
}
