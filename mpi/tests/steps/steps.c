/*
 * The test program of MPI-IO: `steps DATA SCRATCH LINES THEME...`. Rank R writes the lines of its steps to LINES.R.
 * DATA is only read; SCRATCH is a folder for other files. Exits with 1 if a theme cannot be set up.
 */
#include "steps.h"

#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct run run;

static const struct {
    const char *name;
    void (*steps)(void);
} themes[] = {
    {"patterns", patterns}, {"views", views},     {"calls", calls}, {"ends", ends},       {"files", files},
    {"handles", handles},   {"threads", threads}, {"slow", slow},   {"failing", failing}, {"truncated", truncated},
    {"failing-together", failing_together},
};

/* Bytes before and after a buffer, to see whether a read writes there. */
enum { MARGIN = 64 };

void say(const char *format, ...) {
    va_list arguments;
    fprintf(run.lines, "%s ", run.theme);
    va_start(arguments, format);
    vfprintf(run.lines, format, arguments);
    va_end(arguments);
    fputc('\n', run.lines);
    fflush(run.lines);
}

int class_of(int code) {
    int class = 0;
    MPI_Error_class(code, &class);
    return class;
}

void need(int code, const char *what) {
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "steps: rank %d: %s: %s: %s\n", run.rank, run.theme, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void refill(struct place *place) {
    for (size_t i = 0; i < place->size; i++)
        place->bytes[i] = (unsigned char)(0xA5 ^ i ^ (i >> 8));
}

struct place place(int count, MPI_Datatype type) {
    MPI_Aint lower, extent, true_lower, true_extent;
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    size_t span = count > 0 ? (size_t)(count - 1) * (size_t)extent + (size_t)true_extent : 0;
    struct place made = {.size = span + 2 * MARGIN, .count = count, .type = type};
    made.bytes = malloc(made.size);
    made.buffer = made.bytes + MARGIN - true_lower;
    refill(&made);
    return made;
}

void discard(struct place *place) {
    free(place->bytes);
    place->bytes = NULL;
}

unsigned long long checksum(const void *bytes, size_t size) {
    const unsigned char *byte = bytes;
    unsigned long long sum = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ byte[i]) * 0x100000001b3ULL;
    return sum;
}

/* A count as text; MPI_UNDEFINED differs between the implementations. */
static const char *counted(long long count, char *text) {
    if (count == MPI_UNDEFINED)
        return "undefined";
    sprintf(text, "%lld", count);
    return text;
}

void tell(const char *step, int code, MPI_Status *status, const struct place *place, MPI_File file) {
    char line[640], text[4][24];
    int length = snprintf(line, sizeof line, "%s: error %d", step, class_of(code));
    if (code == MPI_SUCCESS && status) {
        int count = 0, elements = 0, bytes = 0;
        MPI_Count many = 0;
        MPI_Get_count(status, place->type, &count);
        MPI_Get_elements(status, place->type, &elements);
        MPI_Get_elements_x(status, place->type, &many);
        MPI_Get_count(status, MPI_BYTE, &bytes);
        length += snprintf(line + length, sizeof line - (size_t)length, " count %s elements %s %s bytes %s",
            counted(count, text[0]), counted(elements, text[1]), counted(many, text[2]), counted(bytes, text[3]));
    }
    length += snprintf(line + length, sizeof line - (size_t)length, " sum %016llx", checksum(place->bytes, place->size));
    if (file != MPI_FILE_NULL) {
        MPI_Offset position = -1, offset = -1;
        int code = MPI_File_get_position(file, &position);
        if (code == MPI_SUCCESS)
            code = MPI_File_get_byte_offset(file, position, &offset);
        if (code == MPI_SUCCESS)
            snprintf(line + length, sizeof line - (size_t)length, " at %lld byte %lld", (long long)position, (long long)offset);
        else
            snprintf(line + length, sizeof line - (size_t)length, " at error %d", class_of(code));
    }
    say("%s", line);
}

/* How many of `bytes` bytes of the view from `at` are in the file. Its etype is a byte. */
static int there(MPI_File file, MPI_Offset at, int bytes) {
    MPI_Offset size;
    int least = 0, most = bytes;
    need(MPI_File_get_size(file, &size), "get_size");
    while (least < most) {
        int middle = least + (most - least) / 2;
        MPI_Offset offset;
        need(MPI_File_get_byte_offset(file, at + middle, &offset), "get_byte_offset");
        if (offset < size)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

void tell_at_end(const char *step, int code, MPI_Status *status, struct place *place, MPI_File file, MPI_Offset at,
    int is_collective) {
    char line[320];
    int packed_bytes = 0, room, counted_bytes = 0, asked_for;
    MPI_Offset position = -1;
    MPI_Type_size(place->type, &asked_for);
    asked_for *= place->count;
    int bytes = there(file, at, asked_for);
    MPI_Pack_size(place->count, place->type, MPI_COMM_SELF, &room);
    unsigned char *packed = malloc((size_t)room + 1);
    need(MPI_Pack(place->buffer, place->count, place->type, packed, room, &packed_bytes, MPI_COMM_SELF), "pack");
    snprintf(line, sizeof line, "%s: %d of %d bytes, sum %016llx", step, bytes, asked_for, checksum(packed, (size_t)bytes));
    free(packed);
    MPI_Get_count(status, MPI_BYTE, &counted_bytes);
    need(MPI_File_get_position(file, &position), "get_position");
    if (is_collective && code == MPI_SUCCESS && (counted_bytes == bytes || counted_bytes == asked_for) &&
        (position == at || position == at + bytes || position == at + asked_for)) {
        say("%s: counted", line);
        return;
    }
    struct place none = {.bytes = place->bytes, .type = place->type};
    tell(line, code, status, &none, file);
}

MPI_File opened(MPI_Comm comm, const char *path, int mode, MPI_Info info) {
    MPI_File file = MPI_FILE_NULL;
    need(MPI_File_open(comm, (char *)path, mode, info, &file), path);
    MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
    return file;
}

void closed(MPI_Comm comm, MPI_File *file) {
    need(MPI_File_close(file), "close");
    MPI_Barrier(comm);
}

const char *scratch(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", run.scratch, name);
    return path;
}

unsigned drawn(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

int main(int count, char **arguments) {
    int level = 0, is_threaded = 0;
    if (count < 5) {
        fprintf(stderr, "steps DATA SCRATCH LINES THEME...\n");
        return 2;
    }
    for (int i = 4; i < count; i++)
        is_threaded |= strcmp(arguments[i], "threads") == 0;
    if (is_threaded)
        MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
    run.data = arguments[1];
    run.scratch = arguments[2];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.%d", arguments[3], run.rank);
    run.lines = fopen(path, "w");
    if (!run.lines) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 4; i < count; i++) {
        int is_known = 0;
        for (size_t t = 0; t < sizeof themes / sizeof *themes; t++) {
            if (strcmp(themes[t].name, arguments[i]))
                continue;
            is_known = 1;
            snprintf(run.theme, sizeof run.theme, "%s", arguments[i]);
            if (is_threaded && level < MPI_THREAD_MULTIPLE)
                say("skipped: no MPI_THREAD_MULTIPLE");
            else
                themes[t].steps();
        }
        if (!is_known) {
            fprintf(stderr, "steps: no theme %s\n", arguments[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    say("done");
    fclose(run.lines);
    MPI_Finalize();
    return 0;
}
