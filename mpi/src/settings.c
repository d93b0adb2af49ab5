#include "settings.h"

#include "outlook.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VALUE_MOST 255

static void take_method(enum method *method, const char *text)
{
    static const char *const NAMES[] = {"collective", "informed", "auto"};
    for (int i = 0; i < 3; i++)
        if (strcasecmp(text, NAMES[i]) == 0)
            *method = (enum method)i;
}

/* A number, or a size with the unit K, M or G (KiB, MiB and GiB are the same). */
static void take_number(uint64_t *number, const char *text)
{
    static const char UNITS[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || !isdigit((unsigned char)*text))
        return;
    const char *unit = *end != 0 ? strchr(UNITS, toupper((unsigned char)*end)) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - UNITS + 1) : 0;
    if (unit != NULL)
        end += strcasecmp(end + 1, "iB") == 0 ? 3 : 1;
    if (strcasecmp(end, "B") == 0)
        end++;
    if (*end == 0 && value <= UINT64_MAX >> shift)
        *number = (uint64_t)value << shift;
}

static void take_depth(uint64_t *depth_blocks, const char *text)
{
    uint64_t depth = DEPTH_BY_MANAGER;
    take_number(&depth, text);
    if (depth != DEPTH_BY_MANAGER)
        *depth_blocks = depth;
}

struct settings settings_default(void)
{
    struct settings settings = {METHOD_AUTO, DEPTH_BY_MANAGER, BUDGET_DEFAULT_BYTES};
    const char *text;
    if ((text = getenv("FORETELL_MPI_METHOD")) != NULL)
        take_method(&settings.method, text);
    if ((text = getenv("FORETELL_MPI_DEPTH")) != NULL)
        take_depth(&settings.depth_blocks, text);
    if ((text = getenv("FORETELL_MPI_BUDGET")) != NULL)
        take_number(&settings.budget_bytes, text);
    return settings;
}

static bool get(word info, const char *key, char value[VALUE_MOST + 1])
{
    int is_there = 0;
    return PMPI.Info_get(info, key, VALUE_MOST, value, &is_there) == 0 && is_there != 0;
}

void settings_apply(struct settings *settings, word info)
{
    char value[VALUE_MOST + 1];
    if (PMPI.Info_get == NULL || handle(info) == mpi()->info_null)
        return;
    if (get(info, "foretell_method", value))
        take_method(&settings->method, value);
    if (get(info, "foretell_depth", value))
        take_depth(&settings->depth_blocks, value);
    if (get(info, "foretell_budget", value))
        take_number(&settings->budget_bytes, value);
}
