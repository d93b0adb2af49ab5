/*
 * Theme `threads`: threads that read at once, by themselves and with their counterparts in the other ranks.
 */
#include "steps.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 3, TURNS = 12, BYTES = 9000 }; /* reads of less than a block are left to the MPI */

struct reader {
    pthread_t thread;
    int number;
    MPI_Comm comm;    /* of the threads of this number in all ranks */
    MPI_File file;    /* of this thread, or of all threads of the process */
    unsigned long long sum;
    long long bytes;
    int class;
};

static void note(struct reader *reader, int code, MPI_Status *status, const struct place *to) {
    int bytes = 0;
    if (code == MPI_SUCCESS)
        MPI_Get_count(status, MPI_BYTE, &bytes);
    else if (!reader->class)
        reader->class = class_of(code);
    reader->bytes += bytes;
    reader->sum = reader->sum * 31 + checksum(to->bytes, to->size);
}

/* A file of its own, which the same thread of each rank reads too. */
static void *collectively(void *argument) {
    struct reader *reader = argument;
    MPI_Status status;
    MPI_Datatype type;
    struct place to = place(BYTES, MPI_BYTE);
    MPI_Type_vector(40, 100, 100 * run.ranks, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    reader->file = opened(reader->comm, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    MPI_Offset displacement = 3333 * reader->number + 100 * run.rank;
    need(MPI_File_set_view(reader->file, displacement, MPI_BYTE, type, "native", MPI_INFO_NULL), "set_view");
    for (int turn = 0; turn < TURNS; turn++) {
        note(reader, MPI_File_read_all(reader->file, to.buffer, BYTES, MPI_BYTE, &status), &status, &to);
        refill(&to);
    }
    closed(reader->comm, &reader->file);
    MPI_Type_free(&type);
    discard(&to);
    return NULL;
}

/* One handle for all threads, by explicit offsets. */
static void *at_offsets(void *argument) {
    struct reader *reader = argument;
    MPI_Status status;
    struct place to = place(BYTES, MPI_BYTE);
    for (int turn = 0; turn < TURNS; turn++) {
        MPI_Offset offset = (MPI_Offset)(turn * THREADS + reader->number) * BYTES + run.rank;
        if (turn % 2) {
            MPI_Request request;
            int code = MPI_File_iread_at(reader->file, offset, to.buffer, BYTES, MPI_BYTE, &request);
            if (code == MPI_SUCCESS)
                code = MPI_Wait(&request, &status);
            note(reader, code, &status, &to);
        } else {
            note(reader, MPI_File_read_at(reader->file, offset, to.buffer, BYTES, MPI_BYTE, &status), &status, &to);
        }
        refill(&to);
    }
    discard(&to);
    return NULL;
}

static void together(const char *step, void *(*steps)(void *), MPI_File file) {
    struct reader readers[THREADS];
    memset(readers, 0, sizeof readers);
    for (int i = 0; i < THREADS; i++) {
        readers[i].number = i;
        readers[i].file = file;
        MPI_Comm_dup(MPI_COMM_WORLD, &readers[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&readers[i].thread, NULL, steps, &readers[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        say("%s: thread %d: error %d, bytes %lld, sum %016llx", step, i, readers[i].class, readers[i].bytes, readers[i].sum);
        MPI_Comm_free(&readers[i].comm);
    }
}

void threads(void) {
    /* MPICH holds a lock of the process while a collective call waits for other ranks, in which another thread may hold it. */
    if (run.ranks == 1 || !is_mpich)
        together("files of their own", collectively, MPI_FILE_NULL);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    together("one file", at_offsets, file);
    closed(MPI_COMM_WORLD, &file);
}
