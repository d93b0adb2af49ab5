#include "settings.h"

#include "outlook.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VALUE_MOST 255

static bool take_method(enum method *method, const char *text)
{
    static const char *const NAMES[] = {"collective", "informed", "auto"};
    for (int i = 0; i < 3; i++) {
        if (strcasecmp(text, NAMES[i]) == 0) {
            *method = (enum method)i;
            return true;
        }
    }
    return false;
}

/* A number, or a size with the unit K, M or G (KiB, MiB and GiB are the same). */
static bool take_number(uint64_t *number, const char *text)
{
    static const char UNITS[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || !isdigit((unsigned char)*text))
        return false;
    const char *unit = *end != 0 ? strchr(UNITS, toupper((unsigned char)*end)) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - UNITS + 1) : 0;
    if (unit != NULL)
        end += strcasecmp(end + 1, "iB") == 0 ? 3 : 1;
    if (strcasecmp(end, "B") == 0)
        end++;
    if (*end != 0 || value > UINT64_MAX >> shift)
        return false;
    *number = (uint64_t)value << shift;
    return true;
}

static bool take_depth(uint64_t *depth_blocks, const char *text)
{
    uint64_t depth;
    bool is_taken = take_number(&depth, text) && depth != DEPTH_BY_MANAGER;
    if (is_taken)
        *depth_blocks = depth;
    return is_taken;
}

static bool take_budget(uint64_t *budget_bytes, const char *text)
{
    bool is_taken = take_number(budget_bytes, text);
    if (*budget_bytes < BUDGET_MIN_BYTES)
        *budget_bytes = BUDGET_MIN_BYTES;
    return is_taken;
}

/* Finds a text by the name of an environment variable, or the key of an info. */
typedef const char *find(const void *in, const char *key, char *room);

static void take(struct settings *settings, find *text_of, const void *in, const char *const keys[3], bool says)
{
    static const char *const FORMS[] = {"collective, informed or auto", "a number of blocks",
                                        "a size such as 16MiB"};
    char room[VALUE_MOST + 1];
    for (int i = 0; i < 3; i++) {
        const char *text = text_of(in, keys[i], room);
        if (text == NULL)
            continue;
        bool is_taken = i == 0   ? take_method(&settings->method, text)
                        : i == 1 ? take_depth(&settings->depth_blocks, text)
                                 : take_budget(&settings->budget_bytes, text);
        if (!is_taken && says)
            (void)fprintf(stderr, "foretell: %s: '%s' is not %s; ignored\n", keys[i], text, FORMS[i]);
    }
}

static const char *of_environment(const void *in, const char *key, char *room)
{
    (void)in;
    (void)room;
    return getenv(key);
}

struct settings settings_default(bool says)
{
    static const char *const KEYS[3] = {"FORETELL_MPI_METHOD", "FORETELL_MPI_DEPTH", "FORETELL_MPI_BUDGET"};
    static bool has_said;
    struct settings settings = {METHOD_AUTO, DEPTH_BY_MANAGER, BUDGET_DEFAULT_BYTES};
    take(&settings, of_environment, NULL, KEYS, says && !has_said);
    has_said |= says;
    return settings;
}

static const char *of_info(const void *info, const char *key, char *room)
{
    int is_there = 0;
    bool is_read = PMPI.Info_get(*(const word *)info, key, VALUE_MOST, room, &is_there) == 0;
    return is_read && is_there ? room : NULL;
}

void settings_apply(struct settings *settings, word info, bool says)
{
    static const char *const KEYS[3] = {"foretell_method", "foretell_depth", "foretell_budget"};
    if (PMPI.Info_get != NULL && handle(info) != mpi()->info_null)
        take(settings, of_info, &info, KEYS, says);
}
