/* Stands in for liblustreapi: writes down what it is asked, by the published layout of an advice. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct llapi_lu_ladvise {
    uint16_t lla_advice;
    uint16_t lla_value1;
    uint32_t lla_value2;
    uint64_t lla_start;
    uint64_t lla_end;
    uint32_t lla_value3;
    uint32_t lla_value4;
};
_Static_assert(sizeof(struct llapi_lu_ladvise) == 32, "as on the wire");

static char log_text[4096];
static int refusal;

const char *stand_in_log(void) { return log_text; }
void stand_in_refuse(int error) { refusal = error; }

static void note(const char *line) { strncat(log_text, line, sizeof log_text - strlen(log_text) - 1); }

void llapi_msg_set_level(int level)
{
    char line[64];
    snprintf(line, sizeof line, "level %d\n", level);
    note(line);
}

int llapi_ladvise(int fd, unsigned long long flags, int count, struct llapi_lu_ladvise *advice)
{
    char line[256];
    snprintf(line, sizeof line, "fd %d flags %llu count %d advice %u values %u %u %u %u start %llu end %llu\n", fd > 2, flags,
             count, advice->lla_advice, advice->lla_value1, advice->lla_value2, advice->lla_value3, advice->lla_value4,
             (unsigned long long)advice->lla_start, (unsigned long long)advice->lla_end);
    note(line);
    if (refusal) {
        errno = refusal;
        return -1;
    }
    return 0;
}
