/*
 * Theme `handles`: errors, hints, and what a program may ask about an open file.
 */
#include "steps.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void cannot_open(const char *name, const char *path, int mode) {
    MPI_File file = MPI_FILE_NULL;
    int code = MPI_File_open(MPI_COMM_WORLD, (char *)path, mode, MPI_INFO_NULL, &file);
    /* Ranks of MPICH 5.0 say sometimes which error it was, and sometimes that it was an error. */
    int class = is_mpich && code != MPI_SUCCESS ? -1 : class_of(code);
    say("open %s: error %d, the handle is %s", name, class, file == MPI_FILE_NULL ? "null" : "there");
    if (code == MPI_SUCCESS)
        MPI_File_close(&file);
}

static void errors(void) {
    MPI_Status status;
    struct place to = place(100, MPI_BYTE);
    cannot_open("what is not there", scratch("not there"), MPI_MODE_RDONLY);
    cannot_open("below what is not there", scratch("no/such/folder"), MPI_MODE_CREATE | MPI_MODE_RDWR);
    cannot_open("for nothing", run.data, 0);
    cannot_open("for two things", run.data, MPI_MODE_RDONLY | MPI_MODE_RDWR);
    cannot_open("exclusively what is there", run.data, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY);
    cannot_open("to create, read only", run.data, MPI_MODE_CREATE | MPI_MODE_RDONLY);
    cannot_open("a folder", run.scratch, MPI_MODE_RDONLY);
    cannot_open("an empty name", "", MPI_MODE_RDONLY);

    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    int code = MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "nonsense", MPI_INFO_NULL);
    say("view of a wrong representation: error %d", class_of(code));
    code = MPI_File_set_view(file, -5, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    say("view of a negative displacement: error %d", class_of(code));
    need(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
    code = MPI_File_set_view(file, 0, MPI_DATATYPE_NULL, MPI_BYTE, "native", MPI_INFO_NULL);
    say("view without an etype: error %d", class_of(code));
    tell("read_at before the start", MPI_File_read_at(file, -1, to.buffer, 100, MPI_BYTE, &status), NULL, &to, file);
    if (is_mpich) { /* Open MPI hangs. */
        code = MPI_File_read_at_all(file, -1, to.buffer, 100, MPI_BYTE, &status);
        tell("read_at_all before the start", code, NULL, &to, file);
    }
    tell("read_all of less than nothing", MPI_File_read_all(file, to.buffer, -1, MPI_BYTE, &status), NULL, &to, file);
    tell("read_all of no type", MPI_File_read_all(file, to.buffer, 1, MPI_DATATYPE_NULL, &status), NULL, &to, file);
    tell("read_all after errors", MPI_File_read_all(file, to.buffer, 100, MPI_BYTE, &status), &status, &to, file);
    tell("write_all", MPI_File_write_all(file, to.buffer, 100, MPI_BYTE, &status), NULL, &to, file);
    closed(MPI_COMM_WORLD, &file);
    say("closed: the handle is %s", file == MPI_FILE_NULL ? "null" : "there");

    file = opened(MPI_COMM_WORLD, scratch("write only"), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    tell("read_all of a file to write", MPI_File_read_all(file, to.buffer, 100, MPI_BYTE, &status), NULL, &to, file);
    tell("read_at of a file to write", MPI_File_read_at(file, 0, to.buffer, 100, MPI_BYTE, &status), NULL, &to, file);
    closed(MPI_COMM_WORLD, &file);

    /* A file read in order only has no explicit offsets. */
    code = MPI_File_open(MPI_COMM_WORLD, (char *)run.data, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file);
    say("open sequential: error %d", class_of(code));
    if (code == MPI_SUCCESS) {
        MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
        tell("read_at, sequential", MPI_File_read_at(file, 0, to.buffer, 100, MPI_BYTE, &status), NULL, &to, MPI_FILE_NULL);
        code = MPI_File_read_at_all(file, 0, to.buffer, 100, MPI_BYTE, &status);
        tell("read_at_all, sequential", code, NULL, &to, MPI_FILE_NULL);
        code = MPI_File_read_ordered(file, to.buffer, 100, MPI_BYTE, &status);
        tell("read_ordered, sequential", code, &status, &to, MPI_FILE_NULL);
        closed(MPI_COMM_WORLD, &file);
    }
    discard(&to);
}

static int calls_of_handler;

/* A handler may use the file. */
static void count_error(MPI_File *file, int *code, ...) {
    calls_of_handler += class_of(*code) != MPI_SUCCESS;
    MPI_File_seek(*file, 10 * calls_of_handler, MPI_SEEK_SET);
}

/* A handler of the program's own is called as often as without the library. */
static void handlers(void) {
    MPI_Status status;
    MPI_Errhandler own, now;
    struct place to = place(100, MPI_BYTE);
    MPI_File_create_errhandler((MPI_File_errhandler_function *)count_error, &own);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_errhandler(file, own), "set_errhandler");
    MPI_File_get_errhandler(file, &now);
    say("the handler is %s", now == own ? "the same" : "another");
    tell("read_all, no error", MPI_File_read_all(file, to.buffer, 100, MPI_BYTE, &status), &status, &to, file);
    tell("read_at before the start", MPI_File_read_at(file, -1, to.buffer, 100, MPI_BYTE, &status), NULL, &to, file);
    tell("read_all of less than nothing", MPI_File_read_all(file, to.buffer, -1, MPI_BYTE, &status), NULL, &to, file);
    say("the handler was called %d times", calls_of_handler);
    MPI_Errhandler_free(&now);
    MPI_Errhandler_free(&own);
    closed(MPI_COMM_WORLD, &file);
    discard(&to);
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void say_hints(const char *when, MPI_File file) {
    enum { MOST = 100 };
    MPI_Info used = MPI_INFO_NULL;
    char *lines[MOST], key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    int keys = 0, is_there;
    int code = MPI_File_get_info(file, &used);
    if (code != MPI_SUCCESS) {
        say("hints %s: error %d", when, class_of(code));
        return;
    }
    MPI_Info_get_nkeys(used, &keys);
    if (keys > MOST)
        keys = MOST;
    for (int i = 0; i < keys; i++) {
        MPI_Info_get_nthkey(used, i, key);
        MPI_Info_get(used, key, MPI_MAX_INFO_VAL, value, &is_there);
        lines[i] = malloc(strlen(key) + strlen(value) + 2);
        sprintf(lines[i], "%s=%s", key, value);
    }
    qsort(lines, (size_t)keys, sizeof *lines, by_text);
    for (int i = 0; i < keys; i++) {
        say("hint %s: %s", when, lines[i]);
        free(lines[i]);
    }
    MPI_Info_free(&used);
}

/* Hints of the MPI and of foretell: those which the program asks for afterwards, and reads with each method. */
static void hints(void) {
    static const char *const methods[] = {"collective", "informed", "auto", "nonsense"};
    MPI_Status status;
    for (int i = 0; i < 4; i++) {
        char step[64];
        MPI_Info info;
        MPI_Datatype type;
        MPI_Info_create(&info);
        MPI_Info_set(info, "foretell_method", methods[i]);
        MPI_Info_set(info, "foretell_depth", i == 3 ? "many" : "12");
        MPI_Info_set(info, "foretell_budget", i == 3 ? "-1" : "100000");
        MPI_Info_set(info, "cb_buffer_size", "65536");
        MPI_Info_set(info, "romio_ds_read", "disable");
        MPI_Info_set(info, "collective_buffering", "true");
        MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, info);
        say_hints(methods[i], file);
        MPI_Type_vector(30, 500, 500 * run.ranks, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        need(MPI_File_set_view(file, 500 * run.rank, MPI_BYTE, type, "native", info), "set_view");
        struct place to = place(12000, MPI_BYTE);
        for (int turn = 0; turn < 4; turn++) {
            int code = MPI_File_read_all(file, to.buffer, to.count, to.type, &status);
            snprintf(step, sizeof step, "read_all, %s", methods[i]);
            tell(step, code, &status, &to, file);
            if (turn == 1) {
                MPI_Info_set(info, "foretell_method", methods[(i + 1) % 3]);
                say("set_info: error %d", class_of(MPI_File_set_info(file, info)));
            }
        }
        say_hints("afterwards", file);
        discard(&to);
        MPI_Type_free(&type);
        MPI_Info_free(&info);
        closed(MPI_COMM_WORLD, &file);
    }
}

/* What a program asks, and the Fortran handle. */
static void questions(void) {
    MPI_Datatype type, etype, filetype;
    MPI_Offset displacement = -1, size = -1;
    MPI_Group group;
    MPI_Aint extent = -1;
    char representation[MPI_MAX_DATAREP_STRING] = "";
    int mode = -1, members = -1, bytes = -1;
    MPI_Status status;
    MPI_Type_vector(3, 50, 90, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(file, 12, MPI_INT, type, "native", MPI_INFO_NULL), "set_view");
    need(MPI_File_get_view(file, &displacement, &etype, &filetype, representation), "get_view");
    MPI_Type_size(filetype, &bytes);
    say("view: displacement %lld, %s, %d bytes", (long long)displacement, representation, bytes);
    need(MPI_File_get_amode(file, &mode), "get_amode");
    need(MPI_File_get_group(file, &group), "get_group");
    MPI_Group_size(group, &members);
    MPI_Group_free(&group);
    need(MPI_File_get_size(file, &size), "get_size");
    int code = MPI_File_get_type_extent(file, type, &extent);
    say("read only %d, members %d, size %lld, extent %lld, error %d", mode == MPI_MODE_RDONLY, members, (long long)size,
        (long long)extent, class_of(code));
    struct place to = place(400, MPI_INT);
    MPI_File same = MPI_File_f2c(MPI_File_c2f(file));
    tell("by the Fortran handle", MPI_File_read_all(same, to.buffer, to.count, to.type, &status), &status, &to, file);
    discard(&to);
    closed(MPI_COMM_WORLD, &file);
    MPI_Type_free(&type);
}

/* Data in the common representation: the bytes of an int are the other way round. */
static void representations(void) {
    static const char *const names[] = {"native", "internal", "external32"};
    MPI_Status status;
    for (int i = 0; i < 3; i++) {
        char step[64];
        MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
        int code = MPI_File_set_view(file, 400 * run.rank, MPI_INT, MPI_INT, (char *)names[i], MPI_INFO_NULL);
        say("view of %s: error %d", names[i], class_of(code));
        if (code == MPI_SUCCESS) {
            struct place to = place(500, MPI_INT);
            snprintf(step, sizeof step, "read_all of %s", names[i]);
            tell(step, MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to, file);
            tell(step, MPI_File_read_at(file, 100, to.buffer, to.count, to.type, &status), &status, &to, file);
            discard(&to);
        }
        closed(MPI_COMM_WORLD, &file);
    }
}

/* Calls that the library does not see, as those of Open MPI's Fortran: they have only the profiling names. */
static void unseen(void) {
    MPI_Status status;
    MPI_Datatype type;
    struct place to = place(3000, MPI_BYTE);
    const char *name = scratch("unseen");
    if (run.rank == 0) {
        FILE *other = fopen(name, "w");
        for (int i = 0; i < 100000; i++)
            fputc(i % 199, other);
        fclose(other);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_vector(200, 50, 50 * run.ranks, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    tell("read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to, file);
    need(PMPI_File_set_view(file, 50 * run.rank, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    for (int turn = 0; turn < 2; turn++) {
        int code = MPI_File_read_all(file, to.buffer, to.count, to.type, &status);
        tell("read_all, a view that was not seen", code, &status, &to, file);
    }
    tell("read, a view that was not seen", MPI_File_read(file, to.buffer, to.count, to.type, &status), &status, &to, file);
    MPI_Barrier(MPI_COMM_WORLD);
    need(PMPI_File_close(&file), "close");
    /* The MPI may give out the same handle. */
    file = opened(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL);
    tell("read_all, another file", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to, file);
    tell("read, another file", MPI_File_read(file, to.buffer, to.count, to.type, &status), &status, &to, file);
    closed(MPI_COMM_WORLD, &file);
    MPI_Type_free(&type);
    discard(&to);
}

void handles(void) {
    errors();
    handlers();
    hints();
    questions();
    representations();
    unseen();
}
