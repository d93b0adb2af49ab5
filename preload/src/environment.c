/*
 * The environment that a program hands on. What we do, by what the program's envp says of
 * FORETELL_SOCKET and LD_PRELOAD (a name in LD_PRELOAD counts as ours if it is this library's path):
 *
 *   case  FORETELL_SOCKET  LD_PRELOAD       meaning                           what we do
 *   A     present          names us         all is well                       nothing
 *   B     absent           absent, or       the program made an environment   add both; append to
 *                          names others     of its own, or emptied it         others
 *   C     present          names others     overwritten with another library  append ours
 *   D     present          absent or empty  removed on purpose                nothing
 *   E     absent           names us         switched off on purpose           nothing
 *
 * In case B FORETELL_INTEREST goes along. The table is of interest only in a program that is watched:
 * without FORETELL_SOCKET at its own start, a program hands everything on as it is.
 *
 * No heap: exec is called in vfork and signal-handler context. The new array lies on the caller's
 * stack or, when large, in mapped memory; in a vfork child that memory is lost to the parent if exec
 * succeeds (some KiB, and only for an environment that is both large and damaged).
 */
#include "environment.h"

#include "foretell_protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PRELOAD "LD_PRELOAD"

static char library[PATH_MAX];
/* "NAME=value", or empty. sun_path has room for 108 bytes. */
static char socket_entry[sizeof FORETELL_SOCKET_VARIABLE + 112];
static char interest_entry[sizeof FORETELL_INTEREST_VARIABLE + 4];

static void remember(char *entry, size_t room, const char *name)
{
    const char *value = getenv(name);
    if (value == NULL || strlen(name) + 1 + strlen(value) + 1 > room)
        return;
    (void)strcpy(entry, name);
    (void)strcat(entry, "=");
    (void)strcat(entry, value);
}

void foretell_environment_remember(const char *path)
{
    if (path == NULL || path[0] != '/' || strlen(path) >= sizeof library)
        return; /* without an absolute path nothing is ever put back */
    (void)strcpy(library, path);
    remember(socket_entry, sizeof socket_entry, FORETELL_SOCKET_VARIABLE);
    remember(interest_entry, sizeof interest_entry, FORETELL_INTEREST_VARIABLE);
}

/* The value if the entry is of this variable. */
static const char *value_of(const char *entry, const char *name)
{
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

/* ld.so takes both colons and spaces as separators. */
static bool names_us(const char *value)
{
    size_t ours = strlen(library);
    while (*value != '\0') {
        size_t length = strcspn(value, ": ");
        if (length == ours && memcmp(value, library, ours) == 0)
            return true;
        value += length + strspn(value + length, ": ");
    }
    return false;
}

/* What a program hands on, as far as it concerns us. */
struct survey {
    size_t count;
    const char *preload; /* the value, or NULL; the first counts, for ld.so as for getenv */
    bool others;         /* preload names other libraries */
    bool socket;
};

static struct survey survey(char *const envp[])
{
    struct survey seen = {0};
    for (; envp != NULL && envp[seen.count] != NULL; seen.count++) {
        const char *value = value_of(envp[seen.count], PRELOAD);
        if (seen.preload == NULL && value != NULL)
            seen.preload = value;
        if (value_of(envp[seen.count], FORETELL_SOCKET_VARIABLE) != NULL)
            seen.socket = true;
    }
    seen.others = seen.preload != NULL && seen.preload[0] != '\0';
    return seen;
}

/* At most three entries more, and the end. */
static size_t array_bytes(const struct survey *seen)
{
    return (seen->count + 4) * sizeof(char *);
}

size_t foretell_environment_bytes(char *const envp[])
{
    if (library[0] == '\0' || socket_entry[0] == '\0')
        return 0;
    struct survey seen = survey(envp);
    if (seen.others ? names_us(seen.preload) : seen.socket)
        return 0; /* A, E; D */
    size_t text = sizeof PRELOAD "=:" + strlen(library);
    return array_bytes(&seen) + text + (seen.others ? strlen(seen.preload) : 0);
}

struct environment foretell_environment_for_child(char *const envp[], size_t bytes, void *stack)
{
    struct environment result = {.variables = envp};
    if (bytes == 0)
        return result;
    char *memory = stack;
    if (bytes > ENVIRONMENT_ON_STACK_BYTES) {
        int saved = errno;
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        errno = saved;
        if (memory == MAP_FAILED)
            return result;
        result.mapped = memory;
        result.mapped_bytes = bytes;
    }
    struct survey seen = survey(envp); /* B, C */
    char **variables = (char **)(void *)memory;
    char *text = memory + array_bytes(&seen);
    (void)strcpy(text, PRELOAD "=");
    if (seen.others) {
        (void)strcat(text, seen.preload);
        (void)strcat(text, ":");
    }
    (void)strcat(text, library);
    size_t kept = 0;
    for (size_t i = 0; i < seen.count; i++)
        if (value_of(envp[i], PRELOAD) == NULL)
            variables[kept++] = envp[i];
    variables[kept++] = text;
    if (!seen.socket) {
        variables[kept++] = socket_entry;
        if (interest_entry[0] != '\0')
            variables[kept++] = interest_entry;
    }
    variables[kept] = NULL;
    result.variables = variables;
    return result;
}

void foretell_environment_release(const struct environment *environment)
{
    if (environment->mapped == NULL)
        return;
    int saved = errno;
    (void)munmap(environment->mapped, environment->mapped_bytes);
    errno = saved;
}
