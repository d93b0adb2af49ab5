/*
 * Theme `ends`: reads up to, across and beyond the end of a file, which each rank may reach at another call.
 */
#include "steps.h"

#include <string.h>

/* All calls with blocking ends, each from `at` etypes of the view. */
static void around(const char *view, MPI_File file, MPI_Offset at, int count, MPI_Datatype type) {
    static const char *const names[] = {
        "read_at", "read_at_all", "read", "read_all", "iread_at", "iread_all", "read_all_begin"};
    char step[128];
    MPI_Request request;
    MPI_Status status;
    struct place to = place(count, type);
    for (int call = 0; call < 7; call++) {
        int code;
        if (!is_mpich && call >= 4)
            continue; /* In Open MPI, these never end where the file does. */
        need(MPI_File_seek(file, at, MPI_SEEK_SET), "seek");
        switch (call) {
        case 0:
            code = MPI_File_read_at(file, at, to.buffer, count, type, &status);
            break;
        case 1:
            code = MPI_File_read_at_all(file, at, to.buffer, count, type, &status);
            break;
        case 2:
            code = MPI_File_read(file, to.buffer, count, type, &status);
            break;
        case 3:
            code = MPI_File_read_all(file, to.buffer, count, type, &status);
            break;
        case 4:
            need(MPI_File_iread_at(file, at, to.buffer, count, type, &request), names[call]);
            code = MPI_Wait(&request, &status);
            break;
        case 5:
            need(MPI_File_iread_all(file, to.buffer, count, type, &request), names[call]);
            code = MPI_Wait(&request, &status);
            break;
        default:
            need(MPI_File_read_all_begin(file, to.buffer, count, type), names[call]);
            code = MPI_File_read_all_end(file, to.buffer, &status);
        }
        snprintf(step, sizeof step, "%s: %s", view, names[call]);
        tell_at_end(step, code, &status, &to, file, at, call % 2 || call == 6);
        refill(&to);
    }
    discard(&to);
}

/* As programs read that do not ask how large a file is. In Open MPI and MPICH 4.0, collective reads count what was
 * asked for. */
static void until_less_comes(MPI_File file, const char *name, int count) {
    MPI_Status status;
    struct place to = place(count, MPI_BYTE);
    int turns = 0, counted = count;
    need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    while (is_mpich && !is_mpich_4_0 && counted == count && turns < 1000) {
        need(MPI_File_read_all(file, to.buffer, count, MPI_BYTE, &status), "read_all");
        MPI_Get_count(&status, MPI_BYTE, &counted);
        turns++;
    }
    say("%s: until less comes: %d turns, %d bytes in the last", name, turns, counted);
    discard(&to);
    MPI_Barrier(MPI_COMM_WORLD);
}

void ends(void) {
    MPI_Datatype with_holes, block, own, sparse, strided;
    MPI_Type_vector(2, 3, 5, MPI_INT, &with_holes);
    MPI_Type_commit(&with_holes);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    MPI_Offset size;
    need(MPI_File_get_size(file, &size), "get_size");

    around("to the end", file, size - 20000, 20000, MPI_BYTE);
    around("across the end", file, size - 20000, 20001, MPI_BYTE);
    around("across within an item", file, size - 1001, 100, with_holes);
    around("across, each from its place", file, size - 9000 + 2000 * run.rank, 4000, MPI_BYTE);
    around("across, one rank only", file, run.rank == 0 ? size - 10 : 5000, 100, MPI_BYTE);
    around("from the end", file, size, 500, MPI_INT);
    around("beyond the end", file, size + 100000, 500, MPI_INT);

    /* Parts of each rank: the last is not whole. */
    MPI_Type_contiguous(3000, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, 3000 * run.ranks, &own);
    MPI_Type_commit(&own);
    need(MPI_File_set_view(file, 3000 * run.rank, MPI_BYTE, own, "native", MPI_INFO_NULL), "set_view");
    around("own parts", file, size / run.ranks - 10000, 16000, MPI_BYTE);
    until_less_comes(file, "own parts", 64000);

    /* The data ends within a piece of the view, or in a hole of it. */
    MPI_Type_vector(6, 50, 90, MPI_BYTE, &strided);
    MPI_Type_create_resized(strided, 0, 700, &sparse);
    MPI_Type_commit(&sparse);
    for (int cut = 0; cut < 3; cut++) {
        char view[64];
        MPI_Offset tiles = size / 700 - 3;
        need(MPI_File_set_view(file, 31 * cut + run.rank, MPI_BYTE, sparse, "native", MPI_INFO_NULL), "set_view");
        snprintf(view, sizeof view, "sparse %d", cut);
        around(view, file, tiles * 300, 2000, MPI_BYTE);
    }

    /* A view that begins beyond the end in one rank, or in all. */
    need(MPI_File_set_view(file, run.rank == 0 ? size + 5 : 10, MPI_BYTE, sparse, "native", MPI_INFO_NULL), "set_view");
    around("one view beyond", file, 0, 900, MPI_BYTE);
    need(MPI_File_set_view(file, size + 4096, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
    around("all views beyond", file, 0, 900, MPI_BYTE);
    closed(MPI_COMM_WORLD, &file);

    /* An empty file, and one of a single byte. */
    for (int bytes = 0; bytes < 2; bytes++) {
        file = opened(MPI_COMM_WORLD, scratch("short"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
        need(MPI_File_set_size(file, bytes), "set_size");
        around(bytes ? "a byte" : "empty", file, 0, 300, MPI_INT);
        closed(MPI_COMM_WORLD, &file);
        file = opened(MPI_COMM_WORLD, scratch("short"), MPI_MODE_RDONLY, MPI_INFO_NULL);
        around(bytes ? "a byte, read only" : "empty, read only", file, 0, 300, MPI_BYTE);
        closed(MPI_COMM_WORLD, &file);
    }
    MPI_Type_free(&sparse);
    MPI_Type_free(&strided);
    MPI_Type_free(&own);
    MPI_Type_free(&block);
    MPI_Type_free(&with_holes);
}
