/*
 * Theme `files`: several files at once, communicators of some ranks, views set anew, files that are written and read.
 */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

static void read_all(const char *step, MPI_File file, int bytes) {
    MPI_Status status;
    struct place to = place(bytes, MPI_BYTE);
    int code = MPI_File_read_all(file, to.buffer, bytes, MPI_BYTE, &status);
    tell(step, code, &status, &to, file);
    discard(&to);
}

static MPI_Datatype every_other(int bytes, int parts) {
    MPI_Datatype made;
    MPI_Type_vector(parts, bytes, 2 * bytes, MPI_BYTE, &made);
    MPI_Type_commit(&made);
    return made;
}

/* Three handles, two of them of one file, read in turn with views of their own. */
static void at_once(void) {
    MPI_Datatype coarse = every_other(5000, 4), fine = every_other(30, 100);
    MPI_File one = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    MPI_File same = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(one, 700 * run.rank, MPI_BYTE, coarse, "native", MPI_INFO_NULL), "set_view");
    need(MPI_File_set_view(same, 11 * run.rank, MPI_BYTE, fine, "native", MPI_INFO_NULL), "set_view");
    MPI_Comm own;
    MPI_Comm_dup(MPI_COMM_SELF, &own);
    MPI_File alone = opened(own, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    MPI_Comm_free(&own); /* The communicator of an open file may be freed. */
    for (int turn = 0; turn < 4; turn++) {
        read_all("one of three", one, 9000);
        read_all("the same file", same, 2500);
        read_all("by itself", alone, 7000 + run.rank);
    }
    closed(MPI_COMM_WORLD, &one);
    read_all("the other one is closed", same, 2500);
    closed(MPI_COMM_SELF, &alone);
    closed(MPI_COMM_WORLD, &same);
    MPI_Type_free(&coarse);
    MPI_Type_free(&fine);
}

/* Halves of the ranks read files of their own, and numbers of calls of their own. */
static void halves(void) {
    MPI_Comm half;
    MPI_Datatype type = every_other(1000, 10);
    MPI_Comm_split(MPI_COMM_WORLD, run.rank % 2, -run.rank, &half);
    MPI_File file = opened(half, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(file, 100 * run.rank, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    for (int turn = 0; turn < 3 + run.rank % 2 * 4; turn++)
        read_all("half of the ranks", file, 6000);
    closed(half, &file);
    MPI_Comm_free(&half);
    /* Some ranks only: the others wait. */
    MPI_Comm few;
    MPI_Comm_split(MPI_COMM_WORLD, run.rank < 2 ? 0 : MPI_UNDEFINED, 0, &few);
    if (few != MPI_COMM_NULL) {
        file = opened(few, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
        for (int turn = 0; turn < 5; turn++)
            read_all("two ranks", file, 12000);
        closed(few, &file);
        MPI_Comm_free(&few);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&type);
}

/* Views set anew between reads, the same again too: the pointers begin again. */
static void views_anew(void) {
    MPI_Datatype type = every_other(600, 7);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    for (int turn = 0; turn < 6; turn++) {
        char step[64];
        MPI_Offset displacement = turn == 3 ? 600 * run.rank : 5000 * turn;
        need(MPI_File_set_view(file, displacement, MPI_BYTE, turn % 3 ? type : MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
        snprintf(step, sizeof step, "view %d", turn);
        read_all(step, file, 10000);
        read_all(step, file, 3000);
    }
    /* A read in flight, and a view after it. */
    MPI_Request request;
    MPI_Status status;
    struct place to = place(20000, MPI_BYTE);
    need(MPI_File_iread(file, to.buffer, to.count, to.type, &request), "iread");
    int code = MPI_Wait(&request, &status);
    tell("before the last view", code, &status, &to, file);
    discard(&to);
    need(MPI_File_set_view(file, 9, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    read_all("the last view", file, 4000);
    closed(MPI_COMM_WORLD, &file);
    MPI_Type_free(&type);
}

/* Reads and writes of one handle, in turn, with each rank's data in its place. */
static void written_and_read(int is_atomic) {
    enum { PART = 4000, PARTS = 12 };
    const char *name = is_atomic ? "atomic" : "written";
    char step[64];
    MPI_Datatype block, own;
    MPI_Status status;
    MPI_File file = opened(MPI_COMM_WORLD, scratch(name), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
    int code = MPI_File_set_atomicity(file, is_atomic), flag = -1;
    MPI_File_get_atomicity(file, &flag);
    say("%s: set_atomicity: error %d, now %d", name, class_of(code), flag);
    MPI_Type_contiguous(PART, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, PART * run.ranks, &own);
    MPI_Type_commit(&own);
    need(MPI_File_set_view(file, PART * run.rank, MPI_BYTE, own, "native", MPI_INFO_NULL), "set_view");
    unsigned char *bytes = malloc(PART * PARTS);
    for (int turn = 0; turn < 3; turn++) {
        unsigned state = (unsigned)(turn * 100 + run.rank);
        for (int i = 0; i < PART * PARTS; i++)
            bytes[i] = (unsigned char)drawn(&state);
        need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
        code = MPI_File_write_all(file, bytes, PART * PARTS, MPI_BYTE, &status);
        struct place written = {.bytes = bytes, .size = PART * PARTS, .type = MPI_BYTE};
        snprintf(step, sizeof step, "%s: write_all %d", name, turn);
        tell(step, code, &status, &written, file);
        /* Others' data are seen after both sides have synchronized. */
        need(MPI_File_sync(file), "sync");
        MPI_Barrier(MPI_COMM_WORLD);
        need(MPI_File_sync(file), "sync");
        int whose = (run.rank + turn) % run.ranks;
        need(MPI_File_set_view(file, PART * whose, MPI_BYTE, own, "native", MPI_INFO_NULL), "set_view");
        for (int part = 0; part < 3; part++) {
            snprintf(step, sizeof step, "%s: read back %d", name, turn);
            read_all(step, file, PART * PARTS / 3);
        }
        /* What was read may change before it is read again. */
        MPI_Barrier(MPI_COMM_WORLD);
        memset(bytes, 'a' + turn, 100);
        code = MPI_File_write_at(file, 50, bytes, 100, MPI_BYTE, &status);
        need(code, "write_at");
        need(MPI_File_sync(file), "sync");
        MPI_Barrier(MPI_COMM_WORLD);
        need(MPI_File_sync(file), "sync");
        need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
        snprintf(step, sizeof step, "%s: changed %d", name, turn);
        read_all(step, file, PART);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    closed(MPI_COMM_WORLD, &file);
    free(bytes);
    MPI_Type_free(&own);
    MPI_Type_free(&block);
}

/* A handle reads while another one, of rank 0 alone, writes and lengthens the file. */
static void changed_by_another(void) {
    enum { BYTES = 60000 };
    unsigned char *bytes = malloc(BYTES);
    MPI_File writer = MPI_FILE_NULL, reader;
    MPI_Status status;
    if (run.rank == 0) {
        writer = opened(MPI_COMM_SELF, scratch("changed"), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
        memset(bytes, 'x', BYTES);
        need(MPI_File_write(writer, bytes, BYTES / 2, MPI_BYTE, &status), "write");
        need(MPI_File_sync(writer), "sync");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    reader = opened(MPI_COMM_WORLD, scratch("changed"), MPI_MODE_RDONLY, MPI_INFO_NULL);
    for (int turn = 0; turn < 3; turn++) {
        need(MPI_File_seek(reader, 0, MPI_SEEK_SET), "seek");
        read_all("before it changes", reader, 20000);
        MPI_Barrier(MPI_COMM_WORLD);
        if (run.rank == 0) {
            memset(bytes, '0' + turn, BYTES);
            need(MPI_File_write_at(writer, 20000, bytes, 20000, MPI_BYTE, &status), "write_at");
            need(MPI_File_sync(writer), "sync");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        read_all("after it has changed", reader, 20000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    closed(MPI_COMM_WORLD, &reader);
    if (run.rank == 0)
        closed(MPI_COMM_SELF, &writer);
    free(bytes);
}

/* Sizes set, space allocated, a name that goes away: the reads of an open file stay right. */
static void sizes(void) {
    MPI_Offset size = 0;
    MPI_Status status;
    MPI_File file = opened(MPI_COMM_WORLD, scratch("sized"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
    need(MPI_File_set_size(file, 50000), "set_size");
    read_all("zeros", file, 30000);
    if (!is_mpich) { /* Open MPI: preallocate makes one size or another, set_size and deletion fail in some ranks. */
        closed(MPI_COMM_WORLD, &file);
        return;
    }
    need(MPI_File_preallocate(file, 80000), "preallocate");
    need(MPI_File_get_size(file, &size), "get_size");
    say("size %lld", (long long)size);
    read_all("more zeros", file, 30000);
    need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    /* Each rank has reached the lines above before the file is cut. */
    MPI_Barrier(MPI_COMM_WORLD);
    need(MPI_File_set_size(file, 25000), "set_size");
    struct place to = place(10000, MPI_BYTE);
    for (int turn = 0; turn < 3; turn++) {
        int code = MPI_File_read(file, to.buffer, to.count, to.type, &status);
        tell("cut", code, &status, &to, file);
        refill(&to);
    }
    discard(&to);
    closed(MPI_COMM_WORLD, &file);
    file = opened(MPI_COMM_WORLD, scratch("sized"), MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL);
    read_all("to be deleted", file, 20000);
    closed(MPI_COMM_WORLD, &file);
    int code = MPI_File_open(MPI_COMM_WORLD, scratch("sized"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    say("open what was deleted: error %d", class_of(code));
}

void files(void) {
    at_once();
    halves();
    views_anew();
    written_and_read(0);
    written_and_read(1);
    changed_by_another();
    sizes();
}
