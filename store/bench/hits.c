/*
 * What a hit costs: nanoseconds of a read of a file that is in the cache, at random places, beside a copy of as many bytes
 * from private memory.
 *
 *     cc -O2 -I /usr/local/include -o hits hits.c -lforetell_store
 *     ./hits FOLDER FILE
 *
 * With `foretell daemon --cache 1GiB`, the bytes are in the daemon's memory. FILE should have 64 MiB or more.
 */
#include <foretell_store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 5

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_value(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static const foretell_store_file *file;
static const char *copy;

static int read_at(char *buffer, size_t length, uint64_t offset)
{
    return foretell_store_pread(file, buffer, length, offset) == (ssize_t)length ? 0 : -1;
}

static int copy_at(char *buffer, size_t length, uint64_t offset)
{
    memcpy(buffer, copy + offset, length);
    __asm__ volatile("" : : "r"(buffer) : "memory");
    return 0;
}

/* The median of some rounds. */
static double cost_ns(int (*read)(char *, size_t, uint64_t), char *buffer, size_t length, uint64_t places)
{
    double rounds[ROUNDS];
    int calls = length > 65536 ? 20000 : 200000;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t random = 88172645463325252u + (uint64_t)round;
        double begun = now_ns();
        for (int call = 0; call < calls; call++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            if (read(buffer, length, random % places) != 0) {
                fprintf(stderr, "%s\n", foretell_store_error());
                exit(1);
            }
        }
        rounds[round] = (now_ns() - begun) / calls;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_value);
    return rounds[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    static const size_t lengths[] = {128, 4096, 131072};
    if (argc != 3) {
        fprintf(stderr, "usage: hits STORE FILE\n");
        return 2;
    }
    struct foretell_store_options options = FORETELL_STORE_OPTIONS_INIT;
    options.budget_bytes = (uint64_t)1 << 30;
    foretell_store *store = foretell_store_open(argv[1], &options);
    foretell_store_file *opened = store != NULL ? foretell_store_file_open(store, argv[2]) : NULL;
    if (opened == NULL) {
        fprintf(stderr, "%s\n", foretell_store_error());
        return 1;
    }
    file = opened;
    uint64_t size = foretell_store_size(file);
    char *whole = malloc(size);
    if (size <= 131072 || whole == NULL || foretell_store_pread(file, whole, size, 0) != (ssize_t)size) {
        fprintf(stderr, "the file is too small, or cannot be read: %s\n", foretell_store_error());
        return 1;
    }
    copy = whole;
    static char buffer[131072];
    printf("| bytes | hit, ns | copy, ns |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        double hit = cost_ns(read_at, buffer, lengths[i], size - lengths[i]);
        double plain = cost_ns(copy_at, buffer, lengths[i], size - lengths[i]);
        printf("| %zu | %.0f | %.0f |\n", lengths[i], hit, plain);
    }
    foretell_store_file_close(opened);
    foretell_store_close(store);
    free(whole);
    return 0;
}
