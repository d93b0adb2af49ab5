/* Stands in for libgpfs: writes down what it is asked, by the published layout of headers and hints. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct { int totalLength, fcntlVersion, errorOffset, fcntlReserved; } header;
typedef struct { int structLen, structType; long long start, length; int isWrite; char padding[4]; } access_range;
typedef struct { int structLen, structType; long long start, length; } free_range;
typedef struct { long long blockNumber; int start, length, isWrite; char padding[4]; } range_entry;
typedef struct {
    int structLen, structType, accRangeCnt, relRangeCnt;
    range_entry accRangeArray[8], relRangeArray[8];
} multiple_access_range;
typedef struct { int structLen, structType; } clear_file_cache;
_Static_assert(sizeof(header) == 16 && sizeof(access_range) == 32 && sizeof(free_range) == 24, "multiples of 8");
_Static_assert(sizeof(multiple_access_range) == 16 + 16 * 24 && sizeof(clear_file_cache) == 8, "multiples of 8");

static char log_text[8192];
static int refusal, most_taken = 8;

const char *stand_in_log(void) { return log_text; }
void stand_in_refuse(int error) { refusal = error; }
void stand_in_take(int most) { most_taken = most; }

static void note(const char *format, ...)
{
    size_t length = strlen(log_text);
    va_list values;
    va_start(values, format);
    vsnprintf(log_text + length, sizeof log_text - length, format, values);
    va_end(values);
}

static void note_entries(const char *name, const range_entry *entries, int count)
{
    for (int i = 0; i < count && i < 8; i++)
        note(" %s %lld:%d+%d%s", name, entries[i].blockNumber, entries[i].start, entries[i].length,
             entries[i].isWrite ? " write" : "");
}

int gpfs_fcntl(int fd, void *argument)
{
    header *head = argument;
    void *hint = head + 1;
    int bytes = ((clear_file_cache *)hint)->structLen, kind = ((clear_file_cache *)hint)->structType;
    note("fd %d total %d version %d reserved %d bytes %d kind %d", fd > 2, head->totalLength, head->fcntlVersion,
         head->fcntlReserved, bytes, kind);
    if (kind == 1001) {
        access_range *access = hint;
        note(" start %lld length %lld write %d", access->start, access->length, access->isWrite);
    } else if (kind == 1002) {
        free_range *range = hint;
        note(" start %lld length %lld", range->start, range->length);
    } else if (kind == 1003) {
        multiple_access_range *ranges = hint;
        note_entries("wants", ranges->accRangeArray, ranges->accRangeCnt);
        note_entries("releases", ranges->relRangeArray, ranges->relRangeCnt);
        if (ranges->accRangeCnt > most_taken)
            ranges->accRangeCnt = most_taken;
    }
    note("\n");
    if (refusal) {
        head->errorOffset = sizeof *head;
        errno = refusal;
        return -1;
    }
    return 0;
}
