/*
 * Theme `patterns`: a file of blocks, of which each rank reads its own by collective calls, a few blocks a call:
 * interleaved, contiguous portions, boxes of a cube, owners drawn by lot.
 */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 8192,
    BLOCKS = 240,     /* of the file: a multiple of the numbers of ranks that are tested */
    A_CALL = 7,       /* blocks a call: no divisor of a rank's share */
    CUBE = 24,        /* blocks of 128 bytes along each edge of the cube */
    CELL_BYTES = 128,
};

/* Reads the whole view in portions until nothing comes, and some calls more. */
static void read_through(const char *pattern, MPI_Datatype filetype, MPI_Offset displacement, int bytes_a_call, int calls) {
    char step[64];
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    need(MPI_File_set_view(file, displacement, MPI_BYTE, filetype, "native", MPI_INFO_NULL), pattern);
    struct place whole = place(bytes_a_call * calls, MPI_BYTE);
    for (int call = 0; call < calls; call++) {
        MPI_Status status;
        struct place part = whole;
        part.buffer = (char *)whole.buffer + (size_t)call * (size_t)bytes_a_call;
        int code = MPI_File_read_all(file, part.buffer, bytes_a_call, MPI_BYTE, &status);
        snprintf(step, sizeof step, "%s call %d", pattern, call);
        tell(step, code, &status, &part, file);
    }
    discard(&whole);
    closed(MPI_COMM_WORLD, &file);
}

static void interleaved(void) {
    MPI_Datatype block, filetype;
    MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)BLOCK_BYTES * run.ranks, &filetype);
    MPI_Type_commit(&filetype);
    int share = BLOCKS / run.ranks;
    read_through("interleaved", filetype, (MPI_Offset)BLOCK_BYTES * run.rank, A_CALL * BLOCK_BYTES, share / A_CALL);
    MPI_Type_free(&filetype);
    MPI_Type_free(&block);
}

static void portions(void) {
    int share = BLOCKS / run.ranks;
    read_through("portions", MPI_BYTE, (MPI_Offset)share * BLOCK_BYTES * run.rank, A_CALL * BLOCK_BYTES, share / A_CALL);
}

static void boxes(void) {
    int edges[3] = {CUBE, CUBE, CUBE}, grid[3] = {0, 0, 0}, sizes[3], starts[3];
    MPI_Datatype cell, filetype;
    MPI_Dims_create(run.ranks, 3, grid);
    int place[3] = {run.rank / (grid[1] * grid[2]), run.rank / grid[2] % grid[1], run.rank % grid[2]};
    int cells = 1;
    for (int axis = 0; axis < 3; axis++) {
        sizes[axis] = CUBE / grid[axis];
        starts[axis] = place[axis] * sizes[axis];
        cells *= sizes[axis];
    }
    MPI_Type_contiguous(CELL_BYTES, MPI_BYTE, &cell);
    MPI_Type_create_subarray(3, edges, sizes, starts, MPI_ORDER_C, cell, &filetype);
    MPI_Type_commit(&filetype);
    read_through("boxes", filetype, 4096, cells * CELL_BYTES / 6, 6);
    MPI_Type_free(&filetype);
    MPI_Type_free(&cell);
}

static void owners(void) {
    /* All ranks draw the same owners, with equal shares. */
    int owner[BLOCKS], own[BLOCKS], shares = 0;
    unsigned state = 1999;
    MPI_Datatype block, filetype;
    for (int b = 0; b < BLOCKS; b++)
        owner[b] = b % run.ranks;
    for (int b = BLOCKS - 1; b > 0; b--) {
        int other = (int)(drawn(&state) % (unsigned)(b + 1)), kept = owner[b];
        owner[b] = owner[other];
        owner[other] = kept;
    }
    for (int b = 0; b < BLOCKS; b++)
        if (owner[b] == run.rank)
            own[shares++] = b;
    MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &block);
    MPI_Type_create_indexed_block(shares, 1, own, block, &filetype);
    MPI_Type_commit(&filetype);
    read_through("owners", filetype, 0, A_CALL * BLOCK_BYTES, shares / A_CALL);
    MPI_Type_free(&filetype);
    MPI_Type_free(&block);
}

void patterns(void) {
    interleaved();
    portions();
    boxes();
    owners();
}
