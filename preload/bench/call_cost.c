/*
 * Prints what one call costs, in ns, as JSON: run it with and without the interposing library and
 * compare. The best of several rounds, since only interruptions can make a round slower.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define CALLS 20000

static char byte[16];
static int descriptor;
static const char *path;
static FILE *stream;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void read_one(void)
{
    if (read(descriptor, byte, 1) < 0)
        _exit(2);
}

static void pread_one(void)
{
    if (pread(descriptor, byte, 1, 0) < 0)
        _exit(2);
}

static void open_close(void)
{
    close(open(path, O_RDONLY));
}

static void getc_one(void)
{
    if (getc(stream) == EOF)
        rewind(stream);
}

static double cost_ns(void (*call)(void))
{
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (int i = 0; i < CALLS; i++)
            call();
        double each = (now_ns() - start) / CALLS;
        best = each < best ? each : best;
    }
    return best;
}

static ssize_t (*libc_read)(int, void *, size_t);

static void libc_read_one(void)
{
    if (libc_read(descriptor, byte, 1) < 0)
        _exit(2);
}

static struct stat found;

static void stat_one(void)
{
    if (stat(path, &found) != 0)
        _exit(2);
}

static int (*libc_stat)(const char *, struct stat *);

static void libc_stat_one(void)
{
    if (libc_stat(path, &found) != 0)
        _exit(2);
}

/* libc's own function, past the hook. */
static void *of_libc(const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *function = libc != NULL ? dlsym(libc, name) : NULL;
    if (function == NULL)
        _exit(3);
    return function;
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* The cost that a hook adds: the median difference of neighbouring batches, one through the hook and one past
 * it, so that a change of the machine's speed affects both. */
static double extra_ns(void (*hooked)(void), void (*unhooked)(void))
{
    enum { BATCHES = 401, BATCH = 2000 };
    static double extra[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        for (int i = 0; i < BATCH; i++)
            hooked();
        double middle = now_ns();
        for (int i = 0; i < BATCH; i++)
            unhooked();
        extra[batch] = ((middle - start) - (now_ns() - middle)) / BATCH;
    }
    qsort(extra, BATCHES, sizeof extra[0], by_size);
    return extra[BATCHES / 2];
}

int main(int argc, char **argv)
{
    path = argc > 1 ? argv[1] : argv[0];
    *(void **)&libc_read = of_libc("read");
    *(void **)&libc_stat = of_libc("stat");
    descriptor = open("/dev/null", O_RDWR);
    double untracked = cost_ns(read_one);
    double untracked_extra = extra_ns(read_one, libc_read_one);
    close(descriptor);
    descriptor = open(path, O_RDONLY);
    double at_end = cost_ns(read_one);
    double tracked_extra = extra_ns(read_one, libc_read_one);
    double tracked = cost_ns(pread_one);
    stream = fopen(path, "r");
    double getc_ns = cost_ns(getc_one);
    double opened = cost_ns(open_close);
    double asked = cost_ns(stat_one);
    double asked_extra = extra_ns(stat_one, libc_stat_one);
    printf("{\"untracked_read_ns\": %.1f, \"untracked_read_extra_ns\": %.1f, "
           "\"tracked_read_ns\": %.1f, \"tracked_read_extra_ns\": %.1f, "
           "\"tracked_pread_ns\": %.1f, \"getc_ns\": %.2f, \"open_close_ns\": %.1f, "
           "\"stat_ns\": %.1f, \"stat_extra_ns\": %.1f}\n",
           untracked, untracked_extra, at_end, tracked_extra, tracked, getc_ns, opened, asked,
           asked_extra);
    return 0;
}
