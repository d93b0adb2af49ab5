/*
 * Theme `calls`: each call that reads, in views with and without holes, with requests completed in each way.
 */
#include "steps.h"

#include <string.h>

enum { INTS = 6000 };

/* A file in a view, memory with holes for its etype, and a name for the lines. */
struct subject {
    const char *view;
    MPI_File file;
    MPI_Datatype memory;
    int count;
};

static void line(const struct subject *at, const char *step, int code, MPI_Status *status, struct place *place) {
    char text[96];
    snprintf(text, sizeof text, "%s: %s", at->view, step);
    tell(text, code, status, place, at->file);
    refill(place);
}

static void blocking(struct subject *at) {
    MPI_Status status;
    struct place to = place(at->count, at->memory);
    MPI_File file = at->file;
    line(at, "read", MPI_File_read(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_at", MPI_File_read_at(file, 17, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_at_all", MPI_File_read_at_all(file, 1000 + run.rank, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_all, no status", MPI_File_read_all(file, to.buffer, to.count, to.type, MPI_STATUS_IGNORE), NULL, &to);
    line(at, "read, no status", MPI_File_read(file, to.buffer, to.count, to.type, MPI_STATUS_IGNORE), NULL, &to);
    /* Ranks read amounts of their own; some read nothing. */
    int some = run.rank % 3 == 1 ? 0 : to.count / (1 + run.rank);
    line(at, "read_all of some", MPI_File_read_all(file, to.buffer, some, to.type, &status), &status, &to);
    line(at, "read_at_all of some", MPI_File_read_at_all(file, 99, to.buffer, some, to.type, &status), &status, &to);
    line(at, "read of nothing", MPI_File_read(file, to.buffer, 0, to.type, &status), &status, &to);
    line(at, "read_all of nothing", MPI_File_read_all(file, to.buffer, 0, to.type, &status), &status, &to);
    line(at, "read_all of nothing at NULL", MPI_File_read_all(file, NULL, 0, MPI_BYTE, &status), &status, &to);
    discard(&to);
}

static void split(struct subject *at) {
    MPI_Status status;
    struct place to = place(at->count, at->memory);
    MPI_File file = at->file;
    need(MPI_File_read_all_begin(file, to.buffer, to.count, to.type), "read_all_begin");
    line(at, "read_all_end", MPI_File_read_all_end(file, to.buffer, &status), &status, &to);
    need(MPI_File_read_at_all_begin(file, 40 * run.rank, to.buffer, to.count, to.type), "read_at_all_begin");
    line(at, "read_at_all_end", MPI_File_read_at_all_end(file, to.buffer, &status), &status, &to);
    need(MPI_File_read_all_begin(file, to.buffer, to.count, to.type), "read_all_begin");
    line(at, "read_all_end, no status", MPI_File_read_all_end(file, to.buffer, MPI_STATUS_IGNORE), NULL, &to);
    need(MPI_File_read_all_begin(file, to.buffer, 0, to.type), "read_all_begin");
    line(at, "read_all_end of nothing", MPI_File_read_all_end(file, to.buffer, &status), &status, &to);
    line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    discard(&to);
}

/* Starts a read of one of the kinds without waiting. */
static int start(int kind, MPI_File file, struct place *to, MPI_Request *request) {
    switch (kind % 4) {
    case 0:
        return MPI_File_iread(file, to->buffer, to->count, to->type, request);
    case 1:
        return MPI_File_iread_at(file, 250, to->buffer, to->count, to->type, request);
    case 2:
        return MPI_File_iread_all(file, to->buffer, to->count, to->type, request);
    default:
        return MPI_File_iread_at_all(file, 31 * run.rank, to->buffer, to->count, to->type, request);
    }
}

static const char *const started[] = {"iread", "iread_at", "iread_all", "iread_at_all"};

static void completed_alone(struct subject *at) {
    MPI_Status status;
    MPI_Request request;
    char step[64];
    struct place to = place(at->count, at->memory);
    for (int kind = 0; kind < 4; kind++) {
        for (int way = 0; way < 4; way++) {
            static const char *const ways[] = {"wait", "test", "wait without status", "get_status"};
            if (way == 3 && is_mpich)
                continue; /* In MPICH, reads make no progress in this call. */
            int code = start(kind, at->file, &to, &request), done = 0;
            snprintf(step, sizeof step, "%s, %s", started[kind], ways[way]);
            if (code == MPI_SUCCESS && way == 1)
                while (!done && code == MPI_SUCCESS)
                    code = MPI_Test(&request, &done, &status);
            if (code == MPI_SUCCESS && way == 3)
                while (!done && code == MPI_SUCCESS)
                    code = MPI_Request_get_status(request, &done, &status);
            if (code == MPI_SUCCESS && way == 3)
                code = MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (code == MPI_SUCCESS && (way == 0 || way == 2))
                code = MPI_Wait(&request, way == 0 ? &status : MPI_STATUS_IGNORE);
            line(at, step, code, way == 2 ? NULL : &status, &to);
            say("%s: %s: the request is %s", at->view, step, request == MPI_REQUEST_NULL ? "null" : "there");
        }
    }
    discard(&to);
}

/*
 * Several reads in flight, together with a message. One of them is collective: MPICH mixes up the messages of two that are
 * in flight on one file.
 */
static void completed_together(struct subject *at) {
    enum { READS = 3 };
    char step[64];
    for (int way = 0; way < 4; way++) {
        static const char *const ways[] = {"waitall", "waitany", "waitsome", "testall"};
        MPI_Request requests[READS + 2];
        MPI_Status statuses[READS + 2];
        struct place to[READS];
        int sent = run.rank * 1000 + way, received = -1, codes = 0, done = 0, indices[READS + 2];
        int kinds[READS] = {0, 1, 2 + way % 2};
        for (int i = 0; i < READS; i++) {
            to[i] = place(at->count, at->memory);
            need(start(kinds[i], at->file, &to[i], &requests[i]), started[kinds[i]]);
        }
        int next = (run.rank + 1) % run.ranks, last = (run.rank + run.ranks - 1) % run.ranks;
        MPI_Irecv(&received, 1, MPI_INT, last, 5, MPI_COMM_WORLD, &requests[READS]);
        MPI_Isend(&sent, 1, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[READS + 1]);
        /* MPI_Testall of MPICH 4.0 ends the program now and then, also without foretell: "ref_count >= 0". */
        if (way == 0 || (way == 3 && is_mpich_4_0)) {
            codes = MPI_Waitall(READS + 2, requests, statuses);
        } else if (way == 1) {
            for (int i = 0; i < READS + 2; i++) {
                MPI_Status one;
                int index;
                codes |= MPI_Waitany(READS + 2, requests, &index, &one);
                statuses[index] = one;
            }
        } else if (way == 2) {
            for (int left = READS + 2; left > 0; left -= done) {
                MPI_Status some[READS + 2];
                codes |= MPI_Waitsome(READS + 2, requests, &done, indices, some);
                for (int i = 0; i < done; i++)
                    statuses[indices[i]] = some[i];
            }
        } else {
            while (!done)
                codes |= MPI_Testall(READS + 2, requests, &done, statuses);
        }
        say("%s: %s: error %d, received %d", at->view, ways[way], class_of(codes), received);
        for (int i = 0; i < READS; i++) {
            snprintf(step, sizeof step, "%s, %s", started[kinds[i]], ways[way]);
            line(at, step, codes, &statuses[i], &to[i]);
            discard(&to[i]);
        }
    }
}

static void shared_at(struct subject *at, const char *step) {
    MPI_Offset position = -1;
    int code = MPI_File_get_position_shared(at->file, &position);
    say("%s: %s: shared position %lld, error %d", at->view, step, (long long)position, class_of(code));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Reads by the shared pointer. The ranks take turns, so that each run has the same order. */
static void shared(struct subject *at) {
    MPI_Status status;
    MPI_Request request;
    struct place to = place(at->count / 2, at->memory);
    MPI_File file = at->file;
    need(MPI_File_seek_shared(file, 0, MPI_SEEK_SET), "seek_shared");
    shared_at(at, "at first");
    for (int turn = 0; turn < 2 * run.ranks; turn++) {
        if (turn % run.ranks == run.rank) {
            if (turn < run.ranks) {
                line(at, "read_shared", MPI_File_read_shared(file, to.buffer, to.count, to.type, &status), &status, &to);
            } else {
                int code = MPI_File_iread_shared(file, to.buffer, to.count, to.type, &request);
                if (code == MPI_SUCCESS)
                    code = MPI_Wait(&request, &status);
                line(at, "iread_shared", code, &status, &to);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    shared_at(at, "after read_shared");
    line(at, "read_ordered", MPI_File_read_ordered(file, to.buffer, to.count / (1 + run.rank), to.type, &status), &status, &to);
    shared_at(at, "after read_ordered");
    need(MPI_File_read_ordered_begin(file, to.buffer, to.count / 2, to.type), "read_ordered_begin");
    line(at, "read_ordered_end", MPI_File_read_ordered_end(file, to.buffer, &status), &status, &to);
    need(MPI_File_seek_shared(file, 2, MPI_SEEK_CUR), "seek_shared");
    shared_at(at, "after seek_shared");
    line(at, "read_ordered", MPI_File_read_ordered(file, to.buffer, to.count / 3, to.type, &status), &status, &to);
    /* The individual pointer is where it was. */
    line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    shared_at(at, "at last");
    discard(&to);
}

static void seeks(struct subject *at) {
    MPI_Status status;
    struct place to = place(at->count / 3, at->memory);
    MPI_File file = at->file;
    static const struct {
        const char *name;
        MPI_Offset by;
        int from;
    } moves[] = {{"set", 100, MPI_SEEK_SET}, {"cur", 50, MPI_SEEK_CUR}, {"back", -70, MPI_SEEK_CUR},
        {"before the start", -999999999, MPI_SEEK_CUR},
        {"end", -90000, MPI_SEEK_END}, {"nowhere", 0, 12345}, {"start", 0, MPI_SEEK_SET}};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (!is_mpich && moves[i].from == MPI_SEEK_END)
            continue; /* In Open MPI 5.0, the end of a view with holes is beyond that of the file. */
        int code = MPI_File_seek(file, moves[i].by, moves[i].from);
        say("%s: seek %s: error %d", at->view, moves[i].name, class_of(code));
        line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    }
    discard(&to);
}

/* A program may call the MPI by its second names too, between calls by the first. */
static void by_the_second_names(struct subject *at) {
    MPI_Status status;
    struct place to = place(at->count / 3, at->memory);
    MPI_File file = at->file;
    need(PMPI_File_seek(file, 40, MPI_SEEK_SET), "PMPI_File_seek");
    line(at, "read_all after PMPI seek", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "PMPI read_all", PMPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read_all", MPI_File_read_all(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "PMPI read", PMPI_File_read(file, to.buffer, to.count, to.type, &status), &status, &to);
    line(at, "read", MPI_File_read(file, to.buffer, to.count, to.type, &status), &status, &to);
    discard(&to);
}

#if MPI_VERSION >= 4
static void large_counts(struct subject *at) {
    MPI_Status status;
    MPI_Request request;
    MPI_Count count = at->count;
    struct place to = place(at->count, at->memory);
    MPI_File file = at->file;
    need(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    line(at, "read_c", MPI_File_read_c(file, to.buffer, count, to.type, &status), &status, &to);
    line(at, "read_all_c", MPI_File_read_all_c(file, to.buffer, count, to.type, &status), &status, &to);
    line(at, "read_at_c", MPI_File_read_at_c(file, 9, to.buffer, count, to.type, &status), &status, &to);
    line(at, "read_at_all_c", MPI_File_read_at_all_c(file, 9, to.buffer, count, to.type, &status), &status, &to);
    need(MPI_File_iread_c(file, to.buffer, count, to.type, &request), "iread_c");
    line(at, "iread_c", MPI_Wait(&request, &status), &status, &to);
    need(MPI_File_iread_at_c(file, 70, to.buffer, count, to.type, &request), "iread_at_c");
    line(at, "iread_at_c", MPI_Wait(&request, &status), &status, &to);
    need(MPI_File_iread_all_c(file, to.buffer, count, to.type, &request), "iread_all_c");
    line(at, "iread_all_c", MPI_Wait(&request, &status), &status, &to);
    need(MPI_File_iread_at_all_c(file, 8, to.buffer, count, to.type, &request), "iread_at_all_c");
    line(at, "iread_at_all_c", MPI_Wait(&request, &status), &status, &to);
    need(MPI_File_read_all_begin_c(file, to.buffer, count, to.type), "read_all_begin_c");
    line(at, "read_all_begin_c", MPI_File_read_all_end(file, to.buffer, &status), &status, &to);
    need(MPI_File_read_at_all_begin_c(file, 3, to.buffer, count, to.type), "read_at_all_begin_c");
    line(at, "read_at_all_begin_c", MPI_File_read_at_all_end(file, to.buffer, &status), &status, &to);
    need(MPI_File_read_ordered_begin_c(file, to.buffer, count / 2, to.type), "read_ordered_begin_c");
    line(at, "read_ordered_begin_c", MPI_File_read_ordered_end(file, to.buffer, &status), &status, &to);
    line(at, "read_ordered_c", MPI_File_read_ordered_c(file, to.buffer, count / 2, to.type, &status), &status, &to);
    discard(&to);
}
#endif

static void all_calls(struct subject *at, int is_shared) {
    blocking(at);
    split(at);
    completed_alone(at);
    completed_together(at);
    seeks(at);
    by_the_second_names(at);
    if (is_shared)
        shared(at);
#if MPI_VERSION >= 4
    if (is_shared)
        large_counts(at);
#endif
}

void calls(void) {
    MPI_Datatype with_holes, strided, block, own;
    MPI_Type_vector(2, 3, 5, MPI_INT, &with_holes);
    MPI_Type_commit(&with_holes);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);

    /* Bytes, as the file is opened. */
    all_calls(&(struct subject){"bytes", file, with_holes, INTS / 6}, 1);

    /* Holes in the view and in the memory; the shared pointer needs the same view in all ranks. */
    MPI_Type_vector(5, 30, 41, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    need(MPI_File_set_view(file, 20, MPI_INT, strided, "native", MPI_INFO_NULL), "set_view");
    all_calls(&(struct subject){"same view", file, with_holes, INTS / 6}, 1);

    /* Each rank has its own part. */
    MPI_Type_contiguous(500, MPI_INT, &block);
    MPI_Type_create_resized(block, 0, 2000 * run.ranks, &own);
    MPI_Type_commit(&own);
    need(MPI_File_set_view(file, 2000 * run.rank, MPI_INT, own, "native", MPI_INFO_NULL), "set_view");
    all_calls(&(struct subject){"own parts", file, MPI_INT, INTS}, 0);

    MPI_Type_free(&own);
    MPI_Type_free(&block);
    MPI_Type_free(&strided);
    MPI_Type_free(&with_holes);
    closed(MPI_COMM_WORLD, &file);
}
