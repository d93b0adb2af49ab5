/*
 * Themes of runs in which something fails:
 *   slow       many collective reads with pauses. FORETELL_STEPS_KILL=RANK:TURN kills a rank. SCRATCH/address tells the
 *              manager's address once the reads have begun.
 *   failing    reads that fail, of a file whose contents cannot be read, by each rank for itself.
 *   failing-together  the same by all ranks: without the library, the MPIs hang.
 *   truncated  a file that another process cuts between two reads.
 */
#include "steps.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 16384 };

static MPI_Datatype own_parts(int bytes) {
    MPI_Datatype block, made;
    MPI_Type_contiguous(bytes, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)bytes * run.ranks, &made);
    MPI_Type_commit(&made);
    MPI_Type_free(&block);
    return made;
}

/* Appears whole, or not at all. */
static void tell_address(void) {
    const char *address = getenv("FORETELL_SOCKET");
    FILE *file = fopen(scratch("address.new"), "w");
    fprintf(file, "%s\n", address ? address : "");
    fclose(file);
    char to[4096];
    snprintf(to, sizeof to, "%s", scratch("address"));
    rename(scratch("address.new"), to);
}

void slow(void) {
    enum { TURNS = 30 };
    MPI_Status status;
    MPI_Datatype type = own_parts(BYTES / 2);
    int victim = -1, turn_of_death = -1;
    const char *kill_whom = getenv("FORETELL_STEPS_KILL");
    if (kill_whom)
        sscanf(kill_whom, "%d:%d", &victim, &turn_of_death);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(file, BYTES / 2 * run.rank, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    struct place to = place(BYTES, MPI_BYTE);
    for (int turn = 0; turn < TURNS; turn++) {
        if (run.rank == victim && turn == turn_of_death)
            raise(SIGKILL);
        /* The file has room for some turns of 8 ranks, and begins again. */
        if (turn % 10 == 0)
            need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
        int code = MPI_File_read_all(file, to.buffer, BYTES, MPI_BYTE, &status);
        tell("read_all", code, &status, &to, file);
        refill(&to);
        if (turn == 3 && run.rank == 0)
            tell_address();
        usleep(30000);
    }
    discard(&to);
    closed(MPI_COMM_WORLD, &file);
    MPI_Type_free(&type);
}

/* A process's memory can be opened, and at 0 there is nothing to read. Each MPI hangs if this happens to some of many ranks. */
static void read_nothing_there(const char *step, MPI_Comm comm) {
    MPI_Status status;
    MPI_File file;
    char line[64];
    struct place to = place(5000, MPI_BYTE);
    int code = MPI_File_open(comm, "/proc/self/mem", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    say("%s: open: error %d", step, class_of(code));
    if (code == MPI_SUCCESS) {
        MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
        for (int turn = 0; turn < 2; turn++) {
            snprintf(line, sizeof line, "%s: read_at_all", step);
            tell(line, MPI_File_read_at_all(file, 0, to.buffer, to.count, to.type, &status), NULL, &to, MPI_FILE_NULL);
            snprintf(line, sizeof line, "%s: read_all", step);
            tell(line, MPI_File_read_all(file, to.buffer, to.count, to.type, &status), NULL, &to, MPI_FILE_NULL);
            snprintf(line, sizeof line, "%s: read_at", step);
            tell(line, MPI_File_read_at(file, 0, to.buffer, to.count, to.type, &status), NULL, &to, MPI_FILE_NULL);
            snprintf(line, sizeof line, "%s: read", step);
            tell(line, MPI_File_read(file, to.buffer, to.count, to.type, &status), NULL, &to, MPI_FILE_NULL);
        }
        MPI_File_close(&file);
    }
    discard(&to);
}

void failing(void) {
    read_nothing_there("alone", MPI_COMM_SELF);
}

void failing_together(void) {
    read_nothing_there("together", MPI_COMM_WORLD);
}

void truncated(void) {
    enum { PART = 20000 };
    unsigned char *bytes = malloc(PART);
    MPI_Status status;
    MPI_Datatype type = own_parts(PART / 4);
    if (run.rank == 0) {
        FILE *file = fopen(scratch("truncated"), "w");
        unsigned state = 5;
        for (int part = 0; part < 4 * run.ranks; part++) {
            for (int i = 0; i < PART; i++)
                bytes[i] = (unsigned char)drawn(&state);
            fwrite(bytes, 1, PART, file);
        }
        fclose(file);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File file = opened(MPI_COMM_WORLD, scratch("truncated"), MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(file, PART / 4 * run.rank, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    struct place to = place(PART, MPI_BYTE);
    for (int turn = 0; turn < 4; turn++) {
        int code = MPI_File_read_all(file, to.buffer, to.count, to.type, &status);
        tell_at_end(turn < 2 ? "whole" : "cut", code, &status, &to, file, (MPI_Offset)turn * PART, 1);
        refill(&to);
        MPI_Barrier(MPI_COMM_WORLD);
        if (turn == 1 && run.rank == 0 && truncate(scratch("truncated"), 2 * PART * run.ranks + 7001))
            need(MPI_ERR_IO, "truncate");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    discard(&to);
    closed(MPI_COMM_WORLD, &file);
    MPI_Type_free(&type);
    free(bytes);
}
