/*
 * Uses the C interface of stores: shared STORE FILE [READS]
 *
 * Prints the size and a sum of FILE's bytes, read in parts of odd lengths, hinted, from two threads. With "wait" as the
 * third argument, waits for a line on standard input and sums again with the same open file. EXPECTED_CACHE and
 * EXPECTED_CACHE_LATER, before and after that wait, are what foretell_store_cache must return.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foretell_ioctl.h>
#include <foretell_store.h>

#define PART 100003

static void fail(const char *what)
{
    fprintf(stderr, "%s: errno %d (%s): %s\n", what, errno, strerror(errno), foretell_store_error());
    exit(1);
}

static uint64_t sum_of(const foretell_store_file *file, uint64_t from, uint64_t step)
{
    static _Thread_local unsigned char buffer[PART];
    uint64_t sum = 0, size = foretell_store_size(file);
    for (uint64_t at = from * PART; at < size; at += step * PART) {
        ssize_t count = foretell_store_pread(file, buffer, PART, at);
        if (count != (ssize_t)(size - at < PART ? size - at : PART))
            fail("pread");
        for (ssize_t i = 0; i < count; i++)
            sum = sum + buffer[i] * ((at + (uint64_t)i) % 251 + 1);
    }
    return sum;
}

/* The cache is the one that a variable of the environment names, if it does. */
static void check_cache(foretell_store *store, const char *variable)
{
    const char *wanted = getenv(variable), *why = NULL;
    int cache = foretell_store_cache(store, &why);
    if (cache < 0 || why == NULL || foretell_store_cache(store, NULL) != cache)
        fail("cache");
    if (wanted != NULL && cache != atoi(wanted)) {
        fprintf(stderr, "the cache is %d: %s\n", cache, why);
        exit(1);
    }
}

static void *odd_parts(void *file)
{
    return (void *)(uintptr_t)sum_of(file, 1, 2);
}

static void print_sum(foretell_store_file *file)
{
    pthread_t other;
    void *odd;
    if (foretell_store_hint(file, NULL, 0, 0) != 0)
        fail("hint");
    if (pthread_create(&other, NULL, odd_parts, file) != 0)
        fail("pthread_create");
    uint64_t sum = sum_of(file, 0, 2);
    pthread_join(other, &odd);
    printf("%" PRIu64 " %" PRIu64 "\n", foretell_store_size(file), sum + (uint64_t)(uintptr_t)odd);
    fflush(stdout);
}

static void expect(int is_so, int wanted, const char *what)
{
    if (!is_so || errno != wanted || foretell_store_error()[0] == '\0')
        fail(what);
}

/* Each mistake has its errno and a line. */
static void mistakes(foretell_store *store, foretell_store_file *file)
{
    struct foretell_segment empty = {0, 0}, part = {0, 10};
    struct foretell_store_options options = FORETELL_STORE_OPTIONS_INIT;
    struct { /* Of a later version. */
        struct foretell_store_options known;
        uint64_t more;
    } later = {FORETELL_STORE_OPTIONS_INIT, 0};
    char byte;
    expect(foretell_store_open(NULL, NULL) == NULL, EINVAL, "no address");
    expect(foretell_store_open("/nowhere/at/all", NULL) == NULL, ENOENT, "no folder");
    expect(foretell_store_open("ftp://host/x", NULL) == NULL, EINVAL, "no such scheme");
    options.block_bytes = 5;
    expect(foretell_store_open("/", &options) == NULL, EINVAL, "an odd block");
    memset(&options, 0, sizeof options);
    expect(foretell_store_open("/", &options) == NULL, EINVAL, "no size");
    options.size = (size_t)-1;
    expect(foretell_store_open("/", &options) == NULL, EINVAL, "no such size");
    later.known.size = sizeof later;
    later.known.is_private = 1;
    foretell_store *known = foretell_store_open("/", &later.known);
    if (known == NULL)
        fail("options of a later version, with the default");
    foretell_store_close(known);
    later.more = 1;
    expect(foretell_store_open("/", &later.known) == NULL, EINVAL, "an unknown member");
    expect(foretell_store_file_open(store, "nothing") == NULL, ENOENT, "no file");
    expect(foretell_store_file_open(NULL, "x") == NULL, EINVAL, "no store");
    expect(foretell_store_cache(NULL, NULL) == -1, EINVAL, "no store");
    expect(foretell_store_pread(file, NULL, 1, 0) == -1, EINVAL, "no buffer");
    expect(foretell_store_hint(file, &empty, 1, 0) == -1, EINVAL, "an empty part");
    expect(foretell_store_hint(file, &part, 1, 77) == -1, EINVAL, "unknown flags");
    if (foretell_store_pread(file, &byte, 1, UINT64_MAX) != 0 || foretell_store_pread(file, NULL, 0, 0) != 0)
        fail("beyond the end");
    if (foretell_store_hint(file, &part, 1, FORETELL_ANY_ORDER) != 0 || foretell_store_cancel(file) != 0)
        fail("cancel");
    foretell_store_close(NULL);
    foretell_store_file_close(NULL);
}

/* A child uses the store, and opens its files again. */
static void child(foretell_store *store, foretell_store_file *file, const char *name)
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        char byte;
        expect(foretell_store_pread(file, &byte, 1, 0) == -1, EBADF, "a file of the parent");
        foretell_store_file *own = foretell_store_file_open(store, name);
        if (own == NULL)
            fail("open in a child");
        print_sum(own);
        foretell_store_file_close(own);
        foretell_store_file_close(file);
        foretell_store_close(store);
        exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("the child");
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct foretell_store_options options = FORETELL_STORE_OPTIONS_INIT;
    options.budget_bytes = 16 << 20;
    foretell_store *store = foretell_store_open(argv[1], &options);
    if (store == NULL)
        fail("store");
    foretell_store_file *file = foretell_store_file_open(store, argv[2]);
    if (file == NULL)
        fail("file");
    print_sum(file);
    check_cache(store, "EXPECTED_CACHE");
    mistakes(store, file);
    child(store, file, argv[2]);
    if (argc > 3) {
        (void)getchar();
        print_sum(file);
        foretell_store_file *again = foretell_store_file_open(store, argv[2]);
        if (again == NULL)
            fail("again");
        print_sum(again);
        check_cache(store, "EXPECTED_CACHE_LATER");
        foretell_store_file_close(again);
    }
    foretell_store_file_close(file);
    foretell_store_close(store);
    return 0;
}
