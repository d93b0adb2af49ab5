/*
 * Prints what one call costs, in ns, as JSON: run it with and without the interposing library and
 * compare. The best of several rounds, since only interruptions can make a round slower.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>
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

int main(int argc, char **argv)
{
    path = argc > 1 ? argv[1] : argv[0];
    descriptor = open("/dev/null", O_RDWR);
    double untracked = cost_ns(read_one);
    close(descriptor);
    descriptor = open(path, O_RDONLY);
    double at_end = cost_ns(read_one);
    double tracked = cost_ns(pread_one);
    stream = fopen(path, "r");
    double getc_ns = cost_ns(getc_one);
    double opened = cost_ns(open_close);
    printf("{\"untracked_read_ns\": %.1f, \"tracked_read_ns\": %.1f, \"tracked_pread_ns\": %.1f, "
           "\"getc_ns\": %.2f, \"open_close_ns\": %.1f}\n",
           untracked, at_end, tracked, getc_ns, opened);
    return 0;
}
