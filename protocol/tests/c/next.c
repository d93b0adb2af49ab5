/*
 * A library that compares, for every name that foretell's library hooks, the function that look_up.c finds with the one that
 * the dynamic linker finds. It writes into the file NEXT_RESULT how many it has compared and which differ.
 */
#include "look_up.h"
#include "real.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Only its names are used. */
struct foretell_real foretell_real;

#define NAME(result, name, ...) {#name, NULL},
#define VERSION(result, slot, parameters, early, name, version) {name, version},
static const struct {
    const char *name;
    const char *version;
} names[] = {REAL_ALL(NAME) REAL_VERSIONED(VERSION)};

static void *ask_linker(const char *name, const char *version)
{
    return version != NULL ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
}

static void compare(FILE *to)
{
    size_t count = sizeof names / sizeof names[0];
    for (size_t i = 0; i < count; i++) {
        void *found = NULL;
        bool decided = foretell_next(names[i].name, names[i].version, &found);
        if (!decided || found != ask_linker(names[i].name, names[i].version))
            (void)fprintf(to, "%s differs\n", names[i].name);
    }
    (void)fprintf(to, "%zu compared\n", count);
}

__attribute__((constructor)) static void begin(void)
{
    const char *result = getenv("NEXT_RESULT");
    FILE *to = result != NULL ? fopen(result, "w") : NULL;
    if (to == NULL)
        return;
    bool suffices = false;
    const char *path = foretell_look_around(&suffices);
    (void)fprintf(to, "%s\n", path != NULL ? path : "no path");
    if (suffices)
        compare(to);
    else
        (void)fprintf(to, "does not suffice\n");
    (void)fclose(to);
}
