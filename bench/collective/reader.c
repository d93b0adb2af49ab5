/*
 * Reads the portions of a file on many processes, as the programs of Madhyastha, Gibson and Faloutsos, "Informed Prefetching of
 * Collective Input/Output Requests" (1999), do: barrier, read, wait for all, disclose the next portion, compute (figure 6).
 *
 *   reader --make FILE --blocks TOTAL
 *   mpiexec -n P reader --file FILE --blocks B --portions N --pattern NAME [options]
 *
 * Portions are N times B blocks of 8 KiB, under one file view that is tiled. Every byte is checked. Rank 0 prints JSON.
 * Processes share processors with the disks that they read from, so computing and barriers sleep.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 8192L
#define WORDS (BLOCK / 8)
#define HINTS_MAX 16

enum method {
    DEMAND,       /* each block by a call of its own */
    READ_ALL,     /* the MPI's collective call, or what a library makes of it */
    ADVISE,       /* each block by a call of its own, and the kernel is advised of the next ones */
    DISK_DIRECTED /* one more process for each disk reads its blocks in one sweep, and sends them */
};

static struct {
    const char *file, *pattern, *owners;
    enum method method;
    long blocks, portions, depth, disks;
    double compute_ms;
    int reads_ahead, is_make, hints;
    char *hint[HINTS_MAX];
} option = {.pattern = "interleaved", .portions = 1, .disks = 8, .reads_ahead = 1};

static int rank, ranks;
/* Those that read and compute. */
static MPI_Comm readers;
static long processors;

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "reader: %s%s%s\n", what, name ? ": " : "", name ? name : "");
    if (option.is_make)
        exit(1);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (error != MPI_SUCCESS) {
        MPI_Error_string(error, text, &length);
        fail(call, text);
    }
}

static void *room(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (memory == NULL)
        fail("there is not enough memory", NULL);
    return memory;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sleep_s(double seconds)
{
    if (seconds <= 0)
        return;
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* Between two looks at what others do. */
static void nap(void)
{
    sleep_s(100e-6);
}

static void barrier(MPI_Comm comm)
{
    MPI_Request request;
    int is_done = 0;
    check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
    for (;;) {
        check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
        if (is_done)
            return;
        nap();
    }
}

/* The content of a file at a multiple of 8 bytes. */
static uint64_t word_at(uint64_t offset)
{
    uint64_t word = (offset / 8 + 1) * 0x9E3779B97F4A7C15u;
    return word ^ word >> 29;
}

static void fill(uint64_t *words, uint64_t offset)
{
    for (long i = 0; i < WORDS; i++)
        words[i] = word_at(offset + 8 * (uint64_t)i);
}

static int is_right(const uint64_t *words, uint64_t offset)
{
    uint64_t wrong = 0;
    for (long i = 0; i < WORDS; i++)
        wrong |= words[i] ^ word_at(offset + 8 * (uint64_t)i);
    return wrong == 0;
}

static int make(void)
{
    uint64_t words[WORDS];
    FILE *file = fopen(option.file, "w");
    if (file == NULL)
        fail("cannot be made", option.file);
    for (long block = 0; block < option.blocks; block++) {
        fill(words, (uint64_t)(block * BLOCK));
        if (fwrite(words, BLOCK, 1, file) != 1)
            fail("cannot be written", option.file);
    }
    if (fclose(file) != 0)
        fail("cannot be written", option.file);
    return 0;
}

/* Patterns, as in sim/src/collective/pattern.rs. */

static long cube_edge(long blocks)
{
    long edge = 1;
    while (edge * edge * edge < blocks)
        edge++;
    return edge;
}

/* The three most equal factors, the largest last; the file runs along the first edge. */
static void boxes(long of, long parts[3])
{
    long least = LONG_MAX;
    for (long a = 1; a * a * a <= of; a++) {
        for (long b = a; of % a == 0 && b * b <= of / a; b++) {
            long c = of / a / b;
            if (of / a % b == 0 && a + b + c < least) {
                least = a + b + c;
                parts[0] = a, parts[1] = b, parts[2] = c;
            }
        }
    }
}

static int is_pattern(const char *name)
{
    return strcmp(option.pattern, name) == 0;
}

/* The owner of each block of a portion. */
static int *all_owners(void)
{
    long blocks = option.blocks, parts[3] = {1, 1, 1}, edge = cube_edge(blocks);
    int *owners = room((size_t)blocks * sizeof *owners);
    FILE *file = NULL;
    boxes(processors, parts);
    if (is_pattern("owners") && (option.owners == NULL || (file = fopen(option.owners, "r")) == NULL))
        fail("no file of owners", option.owners);
    for (long block = 0; block < blocks; block++) {
        if (is_pattern("interleaved")) {
            owners[block] = (int)(block % processors);
        } else if (is_pattern("block-1d")) {
            owners[block] = (int)(block * processors / blocks);
        } else if (is_pattern("block-3d")) {
            long x = block % edge, y = block / edge % edge, z = block / edge / edge;
            long at = z * parts[2] / edge * parts[1] + y * parts[1] / edge;
            owners[block] = (int)(at * parts[0] + x * parts[0] / edge);
        } else if (file == NULL || fscanf(file, "%d", &owners[block]) != 1 || owners[block] < 0 ||
                   owners[block] >= processors) {
            fail("no such pattern, or a wrong file of owners", option.pattern);
        }
    }
    if (file != NULL)
        fclose(file);
    return owners;
}

/* The filetype of this process: its blocks of a portion, tiled by portions. */
static MPI_Datatype filetype(MPI_Datatype block, const long *own, long count)
{
    MPI_Datatype all, tiled;
    long parts[3] = {1, 1, 1}, edge = cube_edge(option.blocks);
    boxes(processors, parts);
    if (is_pattern("interleaved") && option.blocks % processors == 0) {
        check(MPI_Type_vector((int)count, 1, (int)processors, block, &all), "MPI_Type_vector");
    } else if (is_pattern("block-1d")) {
        check(MPI_Type_contiguous((int)count, block, &all), "MPI_Type_contiguous");
    } else if (is_pattern("block-3d") && edge * edge * edge == option.blocks && edge % parts[0] == 0 &&
               edge % parts[1] == 0 && edge % parts[2] == 0) {
        int sizes[3], of[3], from[3];
        long at[3] = {rank / parts[0] / parts[1], rank / parts[0] % parts[1], rank % parts[0]};
        for (int i = 0; i < 3; i++) {
            sizes[i] = (int)edge;
            of[i] = (int)(edge / parts[2 - i]);
            from[i] = (int)at[i] * of[i];
        }
        check(MPI_Type_create_subarray(3, sizes, of, from, MPI_ORDER_C, block, &all), "MPI_Type_create_subarray");
        check(MPI_Type_commit(&all), "MPI_Type_commit");
        return all; /* Its extent is the whole cube. */
    } else {
        int *places = room((size_t)count * sizeof *places);
        for (long i = 0; i < count; i++)
            places[i] = (int)own[i];
        check(MPI_Type_create_indexed_block((int)count, 1, places, block, &all), "MPI_Type_create_indexed_block");
        free(places);
    }
    check(MPI_Type_create_resized(all, 0, option.blocks * BLOCK, &tiled), "MPI_Type_create_resized");
    check(MPI_Type_commit(&tiled), "MPI_Type_commit");
    check(MPI_Type_free(&all), "MPI_Type_free");
    return tiled;
}

/* Where the first tile begins. Indexed blocks and subarrays have their places in the type. */
static MPI_Offset displacement(const long *own, long count)
{
    int is_relative = is_pattern("block-1d") || (is_pattern("interleaved") && option.blocks % processors == 0);
    return is_relative && count > 0 ? own[0] * BLOCK : 0;
}

/* Opens. */

static int open_plain(void)
{
    int fd = open(option.file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail("cannot be opened", option.file);
    return fd;
}

/* The descriptors that the MPI has for the file are not told, but /proc has them. */
static void stop_read_ahead(void)
{
    struct stat of_file, about;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL || stat(option.file, &of_file) != 0)
        fail("its descriptors cannot be found", option.file);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (fstat(fd, &about) == 0 && about.st_dev == of_file.st_dev && about.st_ino == of_file.st_ino)
            found += posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0;
    }
    closedir(folder);
    if (found == 0)
        fail("it has no descriptor", option.file);
}

static MPI_File open_view(MPI_Datatype block, MPI_Datatype type, MPI_Offset from)
{
    MPI_File file;
    MPI_Info info;
    check(MPI_Info_create(&info), "MPI_Info_create");
    for (int i = 0; i < option.hints; i++) {
        char *value = strchr(option.hint[i], '=');
        if (value == NULL)
            fail("not KEY=VALUE", option.hint[i]);
        *value = 0;
        check(MPI_Info_set(info, option.hint[i], value + 1), "MPI_Info_set");
        *value = '=';
    }
    check(MPI_File_open(readers, option.file, MPI_MODE_RDONLY, info, &file), "MPI_File_open");
    if (!option.reads_ahead)
        stop_read_ahead();
    check(MPI_File_set_view(file, from, block, type, "native", info), "MPI_File_set_view");
    check(MPI_Info_free(&info), "MPI_Info_free");
    return file;
}

/* Times of this process, in seconds: each barrier, and when it had its portion. */
static double *opened, *had;

static void verify(char *data, const long *own, long count, long portion)
{
    for (long i = 0; i < count; i++) {
        uint64_t offset = (uint64_t)((portion * option.blocks + own[i]) * BLOCK);
        if (!is_right((uint64_t *)(void *)(data + i * BLOCK), offset))
            fail("wrong bytes", option.file);
    }
    memset(data, 0, (size_t)(count * BLOCK));
}

static void compute(char *data, const long *own, long count, long portion)
{
    /* Those with more blocks compute longer. */
    double share = (double)(count * processors) / (double)option.blocks;
    double until = now_s() + 1e-3 * option.compute_ms * share;
    verify(data, own, count, portion);
    sleep_s(until - now_s());
}

static void advise(int fd, const long *own, long count, long from, long to)
{
    for (long i = from; i < to && i < count * option.portions; i++) {
        off_t offset = (i / count * option.blocks + own[i % count]) * BLOCK;
        int error = posix_fadvise(fd, offset, BLOCK, POSIX_FADV_WILLNEED);
        if (error != 0)
            fail("the kernel takes no advice", strerror(error));
    }
}

static void read_portion(MPI_File file, MPI_Datatype block, char *data, const long *own, long count, long portion)
{
    MPI_Status status;
    if (option.method == READ_ALL) {
        check(MPI_File_read_all(file, data, (int)count, block, &status), "MPI_File_read_all");
        return;
    }
    static int fd = -1;
    if (option.method == ADVISE && fd < 0)
        fd = open_plain();
    long read = portion * count, advised = portion == 0 ? read : read + option.depth;
    long end = (portion + 1) * count;
    for (long i = 0; i < count; i++) {
        if (option.method == ADVISE) {
            /* The block that is waited for counts. */
            long to = read + i + option.depth < end ? read + i + option.depth : end;
            advise(fd, own, count, advised, to);
            advised = advised < to ? to : advised;
        }
        check(MPI_File_read(file, data + i * BLOCK, 1, block, &status), "MPI_File_read");
    }
}

/* The next portion, once all have this one. */
static void disclose(const long *own, long count, long portion)
{
    static int fd = -1;
    if (option.method != ADVISE || option.depth == 0)
        return;
    if (fd < 0)
        fd = open_plain();
    long from = (portion + 1) * count;
    advise(fd, own, count, from, from + (option.depth < count ? option.depth : count));
}

static void receive(char *data, const long *own, long count, MPI_Request *requests, long portion)
{
    for (long i = 0; i < count; i++) {
        int disk = (int)(processors + own[i] % option.disks);
        check(MPI_Irecv(data + i * BLOCK, (int)BLOCK, MPI_BYTE, disk, (int)own[i], MPI_COMM_WORLD, &requests[i]), "MPI_Irecv");
    }
    barrier(MPI_COMM_WORLD);
    opened[portion] = now_s();
    for (int is_done = 0;;) {
        check(MPI_Testall((int)count, requests, &is_done, MPI_STATUSES_IGNORE), "MPI_Testall");
        if (is_done)
            return;
        nap();
    }
}

/* Whether all of a block is in memory. */
static int has_arrived(const unsigned char *pages, long block, long page)
{
    int is_there = 1;
    for (long i = block * BLOCK / page; i <= (block * BLOCK + BLOCK - 1) / page; i++)
        is_there &= pages[i] & 1;
    return is_there;
}

/*
 * The process of a disk. It asks for all its blocks at once, which the disk serves in one sweep (`--order c-look`), and sends each
 * when it is there.
 */
static void serve_disk(const int *owners)
{
    long disk = rank - processors, blocks = option.blocks, page = sysconf(_SC_PAGESIZE);
    size_t bytes = (size_t)(blocks * BLOCK), pages_max = (bytes + (size_t)page - 1) / (size_t)page;
    unsigned char *pages = room(pages_max);
    char *data = room(bytes / (size_t)option.disks + BLOCK);
    MPI_Request *sends = room((size_t)blocks * sizeof *sends);
    unsigned char *is_sent = room((size_t)blocks);
    int fd = open_plain();
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (long portion = 0; portion < option.portions; portion++) {
        off_t begin = portion * blocks * BLOCK;
        char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, begin);
        if (map == MAP_FAILED)
            fail("cannot be mapped", option.file);
        barrier(MPI_COMM_WORLD);
        opened[portion] = now_s();
        long left = 0, sent = 0;
        for (long block = disk; block < blocks; block += option.disks, left++) {
            is_sent[block] = 0;
            posix_fadvise(fd, begin + block * BLOCK, BLOCK, POSIX_FADV_WILLNEED);
        }
        while (left > sent) {
            if (mincore(map, bytes, pages) != 0)
                fail("its pages cannot be seen", option.file);
            for (long block = disk, i = 0; block < blocks; block += option.disks, i++) {
                if (is_sent[block] || !has_arrived(pages, block, page))
                    continue;
                is_sent[block] = 1;
                if (pread(fd, data + i * BLOCK, BLOCK, begin + block * BLOCK) != BLOCK)
                    fail("cannot be read", option.file);
                check(MPI_Isend(data + i * BLOCK, (int)BLOCK, MPI_BYTE, owners[block], (int)block, MPI_COMM_WORLD, &sends[sent++]),
                      "MPI_Isend");
            }
            int is_done;
            check(MPI_Testall((int)sent, sends, &is_done, MPI_STATUSES_IGNORE), "MPI_Testall");
            sleep_s(500e-6);
        }
        for (int is_done = 0; !is_done; nap())
            check(MPI_Testall((int)sent, sends, &is_done, MPI_STATUSES_IGNORE), "MPI_Testall");
        munmap(map, bytes);
        had[portion] = now_s();
    }
    close(fd);
    free(is_sent), free(sends), free(data), free(pages);
}

static void process(const int *owners)
{
    long count = 0, *own = room((size_t)option.blocks * sizeof *own);
    for (long block = 0; block < option.blocks; block++)
        if (owners[block] == rank)
            own[count++] = block;
    char *data = room((size_t)(count * BLOCK));
    MPI_Request *requests = room((size_t)count * sizeof *requests);
    MPI_Datatype block, type;
    MPI_File file = MPI_FILE_NULL;
    check(MPI_Type_contiguous((int)BLOCK, MPI_BYTE, &block), "MPI_Type_contiguous");
    check(MPI_Type_commit(&block), "MPI_Type_commit");
    if (option.method != DISK_DIRECTED) {
        type = filetype(block, own, count);
        file = open_view(block, type, displacement(own, count));
        check(MPI_Type_free(&type), "MPI_Type_free");
    }
    for (long portion = 0; portion < option.portions; portion++) {
        if (option.method == DISK_DIRECTED) {
            receive(data, own, count, requests, portion);
        } else {
            barrier(readers);
            opened[portion] = now_s();
            read_portion(file, block, data, own, count, portion);
        }
        had[portion] = now_s();
        barrier(readers);
        disclose(own, count, portion);
        compute(data, own, count, portion);
    }
    if (file != MPI_FILE_NULL)
        check(MPI_File_close(&file), "MPI_File_close");
    check(MPI_Type_free(&block), "MPI_Type_free");
    free(requests), free(data), free(own);
}

static void print_array(const char *name, const double *values, double from)
{
    printf("\"%s\": [", name);
    for (long i = 0; i < option.portions; i++)
        printf("%s%.6f", i ? ", " : "", values[i] - from);
    printf("]");
}

/* The last process counts, at each barrier and with each portion. */
static void report(void)
{
    double *last_opened = room((size_t)option.portions * sizeof(double));
    double *last_had = room((size_t)option.portions * sizeof(double));
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    check(MPI_Reduce(opened, last_opened, (int)option.portions, MPI_DOUBLE, MPI_MAX, 0, readers), "MPI_Reduce");
    check(MPI_Reduce(had, last_had, (int)option.portions, MPI_DOUBLE, MPI_MAX, 0, readers), "MPI_Reduce");
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    if (rank == 0) {
        printf("{\"mpi\": \"");
        for (char *c = version; *c; c++)
            putchar(*c == '"' || *c == '\\' || *c < ' ' ? ' ' : *c);
        printf("\", \"processes\": %d, ", ranks);
        print_array("opened_s", last_opened, last_opened[0]);
        printf(", ");
        print_array("had_s", last_had, last_opened[0]);
        printf("}\n");
    }
    free(last_opened), free(last_had);
}

static enum method method_of(const char *name)
{
    static const char *names[] = {"demand", "read-all", "advise", "disk-directed"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum method)i;
    fail("no such method", name);
    return DEMAND;
}

static void parse(int argc, char **argv)
{
    const char *method = "read-all";
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i];
        char *value = argv[i + 1];
        if (value == NULL)
            fail("needs a value", name);
        if (strcmp(name, "--make") == 0)
            option.file = value, option.is_make = 1;
        else if (strcmp(name, "--file") == 0)
            option.file = value;
        else if (strcmp(name, "--blocks") == 0)
            option.blocks = atol(value);
        else if (strcmp(name, "--portions") == 0)
            option.portions = atol(value);
        else if (strcmp(name, "--pattern") == 0)
            option.pattern = value;
        else if (strcmp(name, "--owners") == 0)
            option.owners = value;
        else if (strcmp(name, "--method") == 0)
            method = value;
        else if (strcmp(name, "--depth") == 0)
            option.depth = atol(value);
        else if (strcmp(name, "--disks") == 0)
            option.disks = atol(value);
        else if (strcmp(name, "--compute-ms") == 0)
            option.compute_ms = atof(value);
        else if (strcmp(name, "--read-ahead") == 0)
            option.reads_ahead = strcmp(value, "off") != 0;
        else if (strcmp(name, "--hint") == 0 && option.hints < HINTS_MAX)
            option.hint[option.hints++] = value;
        else
            fail("no such option", name);
    }
    if (option.file == NULL || option.blocks < 1 || option.portions < 1 || option.disks < 1)
        fail("--file, --blocks, --portions and --disks are needed", NULL);
    option.method = method_of(method);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--make") == 0) {
        parse(argc, argv);
        return make();
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parse(argc, argv);
    prctl(PR_SET_TIMERSLACK, 1L, 0L, 0L, 0L);
    processors = ranks - (option.method == DISK_DIRECTED ? option.disks : 0);
    if (processors < 1)
        fail("disk-directed needs more processes than disks", NULL);
    int is_reader = rank < processors;
    check(MPI_Comm_split(MPI_COMM_WORLD, is_reader, rank, &readers), "MPI_Comm_split");
    int *owners = all_owners();
    opened = room((size_t)option.portions * sizeof *opened);
    had = room((size_t)option.portions * sizeof *had);
    if (is_reader) {
        process(owners);
        report();
    } else {
        serve_disk(owners);
    }
    free(owners), free(opened), free(had);
    MPI_Comm_free(&readers);
    MPI_Finalize();
    return 0;
}
