/*
 * The environment: foretell's entries are hidden from the program (A), and added for the programs that it
 * executes (B).
 *
 * A. foretell's entries are LD_PRELOAD, the last of that name, and FORETELL_PRELOAD. ld.so obeys the
 * last LD_PRELOAD, so the program's own ones stay as they are. The constructor takes both out of the
 * array, before any code of the program runs: the program sees the environment that it was given, and
 * hands on no more. In /proc/PID/environ, which shows the memory, two entries are left behind. Their
 * names are changed, so that a copy of them preloads nothing.
 *
 * B. Every exec is decided anew, by the file that is executed (executable.h):
 *
 *   the program hands on                 the executed program gets
 *   FORETELL_PRELOAD                     the same: another `foretell run`, which has decided
 *   FORETELL_SOCKET with an empty value  the same, counted as left alone: the program asks for it
 *   LD_TRACE_LOADED_OBJECTS              the same: ld.so lists what it loads, as for ldd
 *   something unreadable                 the same: execve says EFAULT
 *   else, and the library does not fit   the same, counted as left alone
 *   else                                 the same and two entries at the end; the first also names the library
 *                                        for MPI-IO, if `foretell run` asks for it (FORETELL_INTEREST_MPI),
 *                                        or if mpiexec and the like are executed (…_MPI_LAUNCHED)
 *
 * While the manager asks for it (skips_repeated), a file that is executed again and again gets the library in one of
 * SKIPPED_OF times only: to follow a program costs some 0.3 ms, and the manager sees that programs hardly wait. The first
 * FOLLOWED_FIRST times are followed, so that a file that is executed once is. Different scripts of one interpreter that is
 * named as the program (python3 X.py) are one file.
 *
 * Once the manager has ended, the library does not go along, and FORETELL_SOCKET is removed if it is that
 * manager's.
 *
 * No heap and little stack: exec is called in vfork children and signal handlers.
 */
#include "environment.h"

#include "foretell_protocol.h"
#include "memory.h"
#include "state.h"

#include <elf.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRELOAD "LD_PRELOAD="
#define PRIVATE FORETELL_PRELOAD_VARIABLE "="
#define LISTING "LD_TRACE_LOADED_OBJECTS="
#define ADDRESS FORETELL_SOCKET_VARIABLE "="
/* sun_path has room for 108 bytes. */
#define ADDRESS_BYTES 108u
#define NUMBERS 6u
/* In the folder of this library. */
#define MPI_LIBRARY "libforetell_mpi.so"
#define PRIVATE_BYTES (sizeof PRIVATE + NUMBERS * 17u + ADDRESS_BYTES)

enum handing {
    NOTHING,   /* the program's own environment */
    ALONG,     /* the library too, if the decision says so */
    LOCKED_UP, /* the program's own environment, and no system call is made to decide */
    WITHDRAWN, /* the manager is gone: the same without its address */
};

static enum handing handing;
static char address[ADDRESS_BYTES];
static struct introduction introduction = {.address = address};
static struct library library = {
    .loaded = true, .locked = foretell_locked, .locked_count = &foretell_locked_count};

static bool begins(const char *entry, const char *name)
{
    return strncmp(entry, name, strlen(name)) == 0;
}

/* A hexadecimal number and the dot behind it; NULL if there is none. */
static const char *read_number(const char *text, uint64_t *value)
{
    *value = 0;
    for (; *text != '.'; text++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = *text != '\0' ? strchr(digits, *text) : NULL;
        if (digit == NULL)
            return NULL;
        *value = *value << 4 | (uint64_t)(digit - digits);
    }
    return text + 1;
}

static char *write_number(char *to, uint64_t value)
{
    int shift = 60;
    while (shift > 0 && value >> shift == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[value >> shift & 15];
    *to++ = '.';
    return to;
}

static bool read_private(const char *text)
{
    uint64_t numbers[NUMBERS];
    for (size_t i = 0; i < NUMBERS && text != NULL; i++)
        text = read_number(text, &numbers[i]);
    if (text == NULL || text[0] == '\0' || strlen(text) >= sizeof address)
        return false;
    (void)strcpy(address, text);
    introduction.interest = (uint32_t)numbers[0];
    introduction.filters = (uint32_t)numbers[1];
    library.file = (struct file_identity){.device = numbers[2], .inode = numbers[3]};
    library.loader = (struct file_identity){.device = numbers[4], .inode = numbers[5]};
    return true;
}

/* A: the library's path is the value's last part. */
static bool names_library(const char *value)
{
    size_t length = strlen(value);
    size_t ours = strlen(library.path);
    return length >= ours && strcmp(value + length - ours, library.path) == 0 &&
           (length == ours || value[length - ours - 1] == ':');
}

/* Takes two entries out of an array. */
static void take_out(char **block, const char *one, const char *other, bool initial)
{
    unsigned found = 0;
    for (char **entry = block; *entry != NULL; entry++)
        found += *entry == one || *entry == other;
    if (initial && found != 2)
        return; /* another library has changed it */
    char **to = block;
    for (char **from = block; *from != NULL; from++)
        if (*from != one && *from != other)
            *to++ = *from;
    to[0] = NULL;
    /* The auxiliary vector lies behind the kernel's array, and some programs walk from one to the other.
     * So the free place between them becomes an entry of it that is ignored. */
    if (initial) {
        to[1] = (char *)(uintptr_t)AT_IGNORE;
        to[2] = NULL;
    }
}

const struct introduction *foretell_environment_take(char **initial, const char *file)
{
    if (environ == NULL || file[0] != '/' || strlen(file) >= PATH_MAX)
        return NULL;
    library.path = file;
    char *preload = NULL;
    char *private = NULL;
    for (char **entry = environ; *entry != NULL; entry++) {
        if (begins(*entry, PRELOAD))
            preload = *entry;
        else if (begins(*entry, PRIVATE))
            private = *entry;
    }
    if (preload == NULL || private == NULL || !names_library(preload + strlen(PRELOAD)) ||
        !read_private(private + strlen(PRIVATE)))
        return NULL;
    take_out(environ, preload, private, environ == initial);
    if (environ != initial)
        take_out(initial, preload, private, true);
    memcpy(preload, "FORETELL_L", strlen("LD_PRELOAD"));
    memcpy(private, "FORETELL_PRIVATE", strlen(FORETELL_PRELOAD_VARIABLE));
    return &introduction;
}

void foretell_environment_hand_on(void)
{
    __atomic_store_n(&handing, ALONG, __ATOMIC_RELEASE);
}

void foretell_environment_stop(bool gone)
{
    __atomic_store_n(&handing, gone ? WITHDRAWN : NOTHING, __ATOMIC_RELEASE);
}

void foretell_environment_lock_up(void)
{
    /* A vfork child sets it for its parent, too: to tell the two apart later would take a system call that
     * may be forbidden by then. */
    if (__atomic_load_n(&handing, __ATOMIC_RELAXED) == ALONG)
        __atomic_store_n(&handing, LOCKED_UP, __ATOMIC_RELEASE);
}

/* The entries of the program's envp that matter here. */
struct survey {
    struct known_pages known;
    size_t count;
    const char *preload; /* the value of the last of that name */
    size_t preload_bytes;
    const char *address;
    size_t address_bytes;
    bool decided; /* to be handed on as it is */
    bool bad;     /* a part cannot be read */
};

/* The beginning of an exec's memory. It also holds the name that is found in PATH. The new environment
 * follows it. */
struct work {
    struct survey seen;
    struct file_identity loader;
    uint32_t interest;
    struct look_room room;
    struct stat status;
    uint64_t numbers[NUMBERS];
    char found[FOUND_BYTES];
};

/* The least that the kernel takes for arguments and environment, whatever the limit of the stack is. */
#define ARG_MAX_BYTES ((size_t)131072)
#define STRING_MAX_BYTES ((size_t)131072) /* MAX_ARG_STRLEN of 4 KiB pages, with the NUL */

/* Enough for some thousand variables. Only written pages take memory. */
#define WORK_BYTES 65536u

/* Whether a string, of which a part is readable, begins so. */
static bool given_begins(struct survey *seen, const char *entry, const char *name)
{
    for (; *name != '\0'; entry++, name++) {
        if (!foretell_readable(&seen->known, entry)) {
            seen->bad = true;
            return false;
        }
        if (*entry != *name)
            return false;
    }
    return true;
}

static const char *given_value(struct survey *seen, const char *value, size_t *bytes)
{
    *bytes = foretell_readable_length(&seen->known, value);
    if (*bytes == SIZE_MAX)
        seen->bad = true;
    return value;
}

/* B */
/* The program's array need not be aligned, so an element of it may lie in two pages. */
static bool pointer_readable(struct known_pages *known, char *const *at)
{
    return foretell_readable(known, at) &&
           foretell_readable(known, (const char *)at + sizeof *at - 1);
}

static void look_at(char *const envp[], struct survey *seen)
{
    memset(seen, 0, sizeof *seen); /* of a piece that is used again */
    for (; envp != NULL && !seen->bad; seen->count++) { /* NULL is as good as an empty one */
        if (!pointer_readable(&seen->known, &envp[seen->count])) {
            seen->bad = true;
            return;
        }
        const char *entry = envp[seen->count];
        if (entry == NULL)
            return;
        if (given_begins(seen, entry, PRELOAD))
            seen->preload = given_value(seen, entry + strlen(PRELOAD), &seen->preload_bytes);
        else if (seen->address == NULL && given_begins(seen, entry, ADDRESS))
            seen->address = given_value(seen, entry + strlen(ADDRESS), &seen->address_bytes);
        else if (given_begins(seen, entry, PRIVATE) || given_begins(seen, entry, LISTING))
            seen->decided = true;
    }
}

static bool is_ours(const struct survey *seen)
{
    return seen->address != NULL && seen->address_bytes == strlen(address) &&
           memcmp(seen->address, address, seen->address_bytes) == 0;
}

/* FORETELL_PRELOAD for a program with this dynamic linker. */
static void write_private(char *to, struct work *work)
{
    const struct survey *seen = &work->seen;
    work->numbers[0] = work->interest;
    work->numbers[1] = introduction.filters;
    work->numbers[2] = library.file.device;
    work->numbers[3] = library.file.inode;
    work->numbers[4] = work->loader.device;
    work->numbers[5] = work->loader.inode;
    to = stpcpy(to, PRIVATE);
    for (size_t i = 0; i < NUMBERS; i++)
        to = write_number(to, work->numbers[i]);
    /* Another manager, if the program names one. */
    bool other = seen->address != NULL && seen->address_bytes < sizeof address;
    size_t bytes = other ? seen->address_bytes : strlen(address);
    memcpy(to, other ? seen->address : address, bytes);
    to[bytes] = '\0';
}

/* Both entries at the end. */
static void add(struct environment *environment, char *const envp[])
{
    struct work *work = environment->memory;
    const struct survey *seen = &work->seen;
    char **variables = (char **)(void *)(work + 1);
    char *private = (char *)(variables + seen->count + 3);
    char *preload = private + PRIVATE_BYTES;
    write_private(private, work);
    char *to = stpcpy(preload, PRELOAD);
    if (seen->preload_bytes > 0) {
        memcpy(to, seen->preload, seen->preload_bytes);
        to += seen->preload_bytes;
        *to++ = ':';
    }
    if ((work->interest & FORETELL_INTEREST_MPI) != 0) {
        const char *slash = strrchr(library.path, '/');
        to = mempcpy(to, library.path, (size_t)(slash + 1 - library.path));
        to = stpcpy(to, MPI_LIBRARY ":");
    }
    (void)strcpy(to, library.path);
    if (seen->count > 0)
        memcpy(variables, envp, seen->count * sizeof *variables);
    variables[seen->count] = preload;
    variables[seen->count + 1] = private;
    variables[seen->count + 2] = NULL;
    environment->variables = variables;
}

/* The program's environment without the address of a manager that is gone. */
static void leave_out(struct environment *environment, char *const envp[])
{
    struct work *work = environment->memory;
    if (!is_ours(&work->seen))
        return;
    char **variables = (char **)(void *)(work + 1);
    environment->variables = variables;
    for (size_t i = 0; i < work->seen.count; i++)
        if (envp[i] + strlen(ADDRESS) != work->seen.address)
            *variables++ = envp[i];
    *variables = NULL;
}

static void count_alone(struct environment *environment)
{
    environment->alone = true;
    count(&ring()->programs_left_alone, 1);
}

static void count_skipped(struct environment *environment)
{
    count_alone(environment);
    environment->skipped = true;
    count(&ring()->programs_skipped, 1);
}

/* See skips_repeated. */
#define FOLLOWED_FIRST 4u
#define SKIPPED_OF 8u

static uint64_t hash_of(const struct stat *status)
{
    return (status->st_dev * 31 + status->st_ino) * 0x9e3779b97f4a7c15u;
}

/* A file that the library does not fit is not one that is skipped. */
__attribute__((noinline)) static void forget(const struct stat *status)
{
    struct foretell_ring_header *header = ring();
    if (__atomic_load_n(&header->skips_repeated, __ATOMIC_RELAXED) != 0)
        __atomic_store_n(&header->executed[hash_of(status) >> 60].file, 0, __ATOMIC_RELAXED);
}

/* Whether this execution of a file is to be skipped. Counts it. Processes with one ring may count at the same time, and may
 * then lose a count. Not inlined: the caller's frame lies below deeper calls. */
__attribute__((noinline)) static bool skips(const struct executed *executed, struct stat *status)
{
    struct foretell_ring_header *header = ring();
    if (LIKELY(__atomic_load_n(&header->skips_repeated, __ATOMIC_RELAXED) == 0) ||
        syscall(SYS_newfstatat, executed->folder, executed->path, status, executed->flags) != 0)
        return false;
    uint64_t file = hash_of(status);
    struct foretell_executed *place = &header->executed[file >> 60];
    uint64_t times = 1;
    if (__atomic_exchange_n(&place->file, file, __ATOMIC_RELAXED) == file)
        times += __atomic_load_n(&place->times, __ATOMIC_RELAXED);
    __atomic_store_n(&place->times, times, __ATOMIC_RELAXED);
    return times > FOLLOWED_FIRST && times % SKIPPED_OF != 0;
}

static void give_back(struct environment *environment)
{
    if (environment->memory != NULL)
        foretell_exec_memory_release(environment->memory, environment->bytes);
    environment->memory = NULL;
}

/* Memory of at least `bytes`. */
static bool take_memory(struct environment *environment, size_t bytes)
{
    if (bytes <= environment->bytes)
        return true;
    give_back(environment);
    environment->memory = foretell_exec_memory(bytes);
    environment->bytes = bytes;
    return environment->memory != NULL;
}

static size_t work_bytes(const struct survey *seen)
{
    return sizeof(struct work) + (seen->count + 3) * sizeof(char *) + PRIVATE_BYTES +
           sizeof PRELOAD + seen->preload_bytes + 1 + 2 * strlen(library.path) + sizeof MPI_LIBRARY;
}

/* B, where the library may go along. */
static void decide(struct environment *environment, char *const envp[], struct executed *executed,
                   bool search)
{
    struct work *work = environment->memory;
    if (search) {
        executed->path =
            foretell_search(executed->path, getenv("PATH"), work->found, &work->room);
        if (executed->path == NULL)
            return; /* nothing will be executed */
    }
    bool is_there =
        !executed->elsewhere ||
        (foretell_readable(&work->seen.known, executed->path) && executed->path[0] == '/');
    /* A rank without the library for MPI-IO would deprive the others of it. */
    bool may_skip = (introduction.interest & FORETELL_INTEREST_MPI) == 0;
    if (is_there && may_skip && skips(executed, &work->status)) {
        count_skipped(environment);
    } else if (is_there && foretell_goes_along(&library, executed, &work->loader, &work->room)) {
        work->interest = introduction.interest;
        if ((work->interest & FORETELL_INTEREST_MPI_LAUNCHED) != 0 &&
            foretell_is_mpi_launcher(executed->path))
            work->interest |= FORETELL_INTEREST_MPI;
        add(environment, envp);
        environment->followed = true;
        count(&ring()->programs_followed, 1);
    } else {
        forget(&work->status);
        count_alone(environment);
    }
}

/* Surveys envp, and takes as much memory as the new environment will need. */
static bool survey(struct environment *environment, char *const envp[])
{
    if (!take_memory(environment, WORK_BYTES))
        return false;
    struct work *work = environment->memory;
    look_at(envp, &work->seen);
    size_t bytes = work->seen.bad ? 0 : work_bytes(&work->seen);
    if (bytes <= environment->bytes)
        return true;
    if (!take_memory(environment, bytes))
        return false;
    work = environment->memory;
    look_at(envp, &work->seen);
    return true;
}

void foretell_environment_for(struct environment *environment, char *const envp[],
                              struct executed *executed, bool search)
{
    *environment = (struct environment){.variables = envp};
    enum handing now = __atomic_load_n(&handing, __ATOMIC_ACQUIRE);
    if (now == NOTHING)
        return;
    if (now == LOCKED_UP) {
        environment->locked_up = true;
        count_alone(environment);
        return;
    }
    int saved = errno;
    if (foretell_run_is_over())
        now = WITHDRAWN;
    if (!survey(environment, envp)) {
        count_alone(environment);
        errno = saved;
        return;
    }
    const struct survey *seen = &((struct work *)environment->memory)->seen;
    if (!seen->bad && !seen->decided) {
        if (now == ALONG && seen->address != NULL && seen->address_bytes == 0)
            count_alone(environment);
        else if (now == ALONG)
            decide(environment, envp, executed, search);
        if (now == WITHDRAWN || (environment->alone && !environment->skipped && foretell_manager_is_gone()))
            leave_out(environment, envp);
    }
    if (environment->variables == envp)
        give_back(environment);
    errno = saved;
}

static void take_back_followed(struct environment *environment)
{
    if (environment->followed)
        (void)__atomic_fetch_sub(&ring()->programs_followed, 1, __ATOMIC_RELAXED);
    environment->followed = false;
}

bool foretell_environment_shorten(struct environment *environment, char *const envp[])
{
    if (environment->memory == NULL)
        return false;
    give_back(environment);
    environment->variables = envp;
    take_back_followed(environment);
    if (!environment->alone)
        count_alone(environment);
    return true;
}

/* Room for the strings that the kernel adds: the file's name, and the names and words of up to five levels
 * of scripts. */
#define SCRIPT_WORDS_BYTES (6u * PATH_MAX)

/* Most bytes that the kernel accepts: a quarter of the stack, within bounds (fs/exec.c, bprm_stack_limits). */
static size_t exec_limit_bytes(void)
{
    struct rlimit stack;
    size_t most = (size_t)6 << 20;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur / 4 < most)
        most = (size_t)stack.rlim_cur / 4;
    return most > ARG_MAX_BYTES ? most : ARG_MAX_BYTES;
}

/* Adds the bytes of the strings and of the array to *bytes, up to `most`. False where the kernel could not
 * read them. */
static bool add_bytes(struct known_pages *known, char *const strings[], size_t most, size_t *bytes)
{
    for (; strings != NULL && *bytes <= most; strings++) {
        if (!pointer_readable(known, strings))
            return false;
        *bytes += sizeof *strings;
        if (*strings == NULL)
            return true;
        size_t length = foretell_readable_length(known, *strings);
        if (length == SIZE_MAX)
            return false;
        /* The kernel takes no longer string, however few there are. */
        *bytes += length < STRING_MAX_BYTES ? length + 1 : most + 1;
    }
    return true;
}

void foretell_environment_fit(struct environment *environment, char *const envp[],
                              char *const argv[])
{
    struct work *work = environment->memory;
    if (work == NULL)
        return;
    int saved = errno;
    size_t most = exec_limit_bytes() - SCRIPT_WORDS_BYTES;
    size_t bytes = 0;
    /* An array that cannot be read fails with EFAULT in any case. */
    if (add_bytes(&work->seen.known, environment->variables, most, &bytes) &&
        add_bytes(&work->seen.known, argv, most, &bytes) && bytes > most)
        (void)foretell_environment_shorten(environment, envp);
    errno = saved;
}

void foretell_environment_release(struct environment *environment, bool failed)
{
    give_back(environment);
    if (failed)
        take_back_followed(environment);
    if (failed && environment->alone)
        (void)__atomic_fetch_sub(&ring()->programs_left_alone, 1, __ATOMIC_RELAXED);
    if (failed && environment->skipped)
        (void)__atomic_fetch_sub(&ring()->programs_skipped, 1, __ATOMIC_RELAXED);
}
