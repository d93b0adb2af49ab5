/*
 * Theme `views`: views of each kind of datatype, read by each kind of call into memory of each kind.
 */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

struct view {
    MPI_Offset displacement;
    MPI_Datatype etype, filetype;
};

/* Frees a type that was only a part of another. */
static void part(MPI_Datatype type) {
    MPI_Type_free(&type);
}

static MPI_Datatype resized(MPI_Datatype old, MPI_Aint lower, MPI_Aint extent) {
    MPI_Datatype made;
    MPI_Type_create_resized(old, lower, extent, &made);
    return made;
}

/* The whole file as it is, from a displacement of each rank's own. */
static void plain(struct view *view) {
    *view = (struct view){1000003 % (run.rank + 7), MPI_BYTE, MPI_BYTE};
}

static void same_for_all(struct view *view) {
    *view = (struct view){4099, MPI_SHORT, MPI_DATATYPE_NULL};
    MPI_Type_vector(5, 100, 130, MPI_SHORT, &view->filetype);
}

static void vector(struct view *view) {
    MPI_Datatype strided;
    MPI_Type_vector(6, 40, 40 * run.ranks, MPI_INT, &strided);
    *view = (struct view){160 * run.rank, MPI_INT, resized(strided, 0, 6 * 160 * run.ranks)};
    part(strided);
}

/* Its last block ends at the extent, so that the next instance follows without a gap. */
static void vector_unpadded(struct view *view) {
    *view = (struct view){13 + 24 * run.rank, MPI_DOUBLE, MPI_DATATYPE_NULL};
    MPI_Type_vector(9, 3, 3 * run.ranks + 1, MPI_DOUBLE, &view->filetype);
}

static void hvector(struct view *view) {
    *view = (struct view){run.rank, MPI_INT, MPI_DATATYPE_NULL};
    MPI_Type_create_hvector(11, 17, 977, MPI_INT, &view->filetype);
}

static void indexed(struct view *view) {
    int lengths[24], places[24], at = run.rank * 3;
    unsigned state = 7 + (unsigned)run.rank;
    for (int i = 0; i < 24; i++) {
        lengths[i] = (int)(drawn(&state) % 90);
        at += (int)(drawn(&state) % 120);
        places[i] = at;
        at += lengths[i];
    }
    *view = (struct view){2, MPI_SHORT, MPI_DATATYPE_NULL};
    MPI_Type_indexed(24, lengths, places, MPI_SHORT, &view->filetype);
}

static void hindexed(struct view *view) {
    int lengths[30];
    MPI_Aint places[30], at = run.rank;
    unsigned state = 77 + (unsigned)run.rank;
    for (int i = 0; i < 30; i++) {
        lengths[i] = 1 + (int)(drawn(&state) % 3000);
        at += (MPI_Aint)(drawn(&state) % 5000);
        places[i] = at;
        at += lengths[i];
    }
    *view = (struct view){0, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_create_hindexed(30, lengths, places, MPI_BYTE, &view->filetype);
}

static void indexed_block(struct view *view) {
    int places[20];
    for (int i = 0; i < 20; i++)
        places[i] = i * i * 3 + i * 14 + run.rank;
    *view = (struct view){8, MPI_FLOAT, MPI_DATATYPE_NULL};
    MPI_Type_create_indexed_block(20, 13, places, MPI_FLOAT, &view->filetype);
}

static void hindexed_block(struct view *view) {
    MPI_Aint places[20];
    for (int i = 0; i < 20; i++)
        places[i] = (MPI_Aint)i * 771 + run.rank * 64;
    *view = (struct view){5, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_create_hindexed_block(20, 611, places, MPI_BYTE, &view->filetype);
}

/* Blocks without elements between others, as in types_with_zeros of ROMIO. */
static void with_empty_blocks(struct view *view) {
    int lengths[6] = {0, 700, 0, 0, 300, 0};
    MPI_Aint places[6] = {0, 100, 800, 900, 1000 + run.rank, 4000};
    *view = (struct view){1, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_create_hindexed(6, lengths, places, MPI_BYTE, &view->filetype);
}

/* A structure as a compiler lays it out: int, double, three characters, and the gaps. */
static MPI_Datatype structure(void) {
    int lengths[3] = {1, 1, 3};
    MPI_Aint places[3] = {0, 8, 16};
    MPI_Datatype types[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR}, packed, made;
    MPI_Type_create_struct(3, lengths, places, types, &packed);
    made = resized(packed, 0, 24);
    part(packed);
    MPI_Type_commit(&made);
    return made;
}

static void structures(struct view *view) {
    *view = (struct view){24 * run.rank, structure(), MPI_DATATYPE_NULL};
    MPI_Type_vector(7, 2, 2 * run.ranks, view->etype, &view->filetype);
}

static void structure_of_bytes(struct view *view) {
    int lengths[4] = {100, 1, 2000, 5};
    MPI_Aint places[4] = {run.rank * 10, 300, 500, 9000};
    MPI_Datatype strided, types[4] = {MPI_BYTE, MPI_DATATYPE_NULL, MPI_BYTE, MPI_BYTE};
    MPI_Type_vector(3, 10, 20, MPI_BYTE, &strided);
    types[1] = strided;
    *view = (struct view){3, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_create_struct(4, lengths, places, types, &view->filetype);
    part(strided);
}

/* A rank's part of an array of `axes` dimensions, cut as evenly as the ranks allow. */
static void array(struct view *view, int axes, const int *sizes, int order, MPI_Datatype etype, MPI_Offset displacement) {
    int grid[4] = {0}, own[4], starts[4], rest = run.rank;
    MPI_Dims_create(run.ranks, axes, grid);
    for (int axis = axes - 1; axis >= 0; axis--) {
        int at = rest % grid[axis];
        rest /= grid[axis];
        starts[axis] = sizes[axis] * at / grid[axis];
        own[axis] = sizes[axis] * (at + 1) / grid[axis] - starts[axis];
    }
    *view = (struct view){displacement, etype, MPI_DATATYPE_NULL};
    MPI_Type_create_subarray(axes, sizes, own, starts, order, etype, &view->filetype);
}

static void subarray_2d(struct view *view) {
    array(view, 2, (int[]){210, 173}, MPI_ORDER_C, MPI_INT, 20);
}
static void subarray_2d_fortran(struct view *view) {
    array(view, 2, (int[]){210, 173}, MPI_ORDER_FORTRAN, MPI_DOUBLE, 16);
}
static void subarray_3d(struct view *view) {
    array(view, 3, (int[]){31, 29, 37}, MPI_ORDER_C, MPI_SHORT, 0);
}
static void subarray_3d_fortran(struct view *view) {
    array(view, 3, (int[]){31, 29, 37}, MPI_ORDER_FORTRAN, MPI_BYTE, 7);
}
static void subarray_4d(struct view *view) {
    array(view, 4, (int[]){12, 9, 11, 10}, MPI_ORDER_C, MPI_DOUBLE, 512);
}
static void subarray_4d_fortran(struct view *view) {
    array(view, 4, (int[]){12, 9, 11, 10}, MPI_ORDER_FORTRAN, MPI_FLOAT, 0);
}
static void subarray_of_structures(struct view *view) {
    array(view, 2, (int[]){41, 33}, MPI_ORDER_C, structure(), 48);
}

static void distributed(struct view *view, int axes, const int *sizes, int *how, int *amounts, int order, MPI_Datatype etype) {
    int grid[3] = {0, 0, 0};
    for (int axis = 0; axis < axes; axis++)
        grid[axis] = how[axis] == MPI_DISTRIBUTE_NONE;
    MPI_Dims_create(run.ranks, axes, grid);
    *view = (struct view){0, etype, MPI_DATATYPE_NULL};
    MPI_Type_create_darray(run.ranks, run.rank, axes, sizes, how, amounts, grid, order, etype, &view->filetype);
}

static void darray_block(struct view *view) {
    int how[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK};
    int amounts[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    distributed(view, 2, (int[]){160, 144}, how, amounts, MPI_ORDER_C, MPI_INT);
}
static void darray_cyclic(struct view *view) {
    int how[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC}, amounts[2] = {3, 5};
    distributed(view, 2, (int[]){170, 131}, how, amounts, MPI_ORDER_C, MPI_FLOAT);
}
static void darray_mixed(struct view *view) {
    int how[3] = {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    int amounts[3] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, 2};
    distributed(view, 3, (int[]){9, 40, 35}, how, amounts, MPI_ORDER_C, MPI_DOUBLE);
}
static void darray_fortran(struct view *view) {
    int how[3] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    int amounts[3] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    distributed(view, 3, (int[]){24, 25, 26}, how, amounts, MPI_ORDER_FORTRAN, MPI_SHORT);
}

static void resized_padded(struct view *view) {
    MPI_Datatype run_of;
    MPI_Type_contiguous(1500, MPI_BYTE, &run_of);
    *view = (struct view){1500 * run.rank, MPI_BYTE, resized(run_of, 0, 1500 * run.ranks + 333)};
    part(run_of);
}

/* The lower bound is before the first byte of data. */
static void resized_with_a_lower_bound(struct view *view) {
    int length = 250;
    MPI_Aint at = 128 + 16 * run.rank;
    MPI_Datatype one;
    MPI_Type_create_hindexed(1, &length, &at, MPI_INT, &one);
    *view = (struct view){64, MPI_INT, resized(one, 96, 4096)};
    part(one);
}

static void duplicate(struct view *view) {
    MPI_Datatype strided;
    MPI_Type_vector(4, 111, 222, MPI_INT, &strided);
    MPI_Type_dup(strided, &view->filetype);
    view->etype = MPI_INT;
    view->displacement = 44 * run.rank;
    part(strided);
}

static void nested(struct view *view) {
    int lengths[3] = {2, 1, 3};
    MPI_Aint places[3] = {0, 20000, 40000 + 64 * run.rank};
    MPI_Datatype inner, middle;
    MPI_Type_vector(4, 6, 9, MPI_INT, &inner);
    MPI_Type_create_hvector(3, 2, 3100, inner, &middle);
    *view = (struct view){12, MPI_INT, MPI_DATATYPE_NULL};
    MPI_Type_create_hindexed(3, lengths, places, middle, &view->filetype);
    part(middle);
    part(inner);
}

/* Etypes of more than one element, with a hole. */
static void compound_etype(struct view *view) {
    MPI_Datatype strided;
    MPI_Type_vector(2, 2, 3, MPI_SHORT, &strided);
    *view = (struct view){6, resized(strided, 0, 12), MPI_DATATYPE_NULL};
    MPI_Type_commit(&view->etype);
    MPI_Type_vector(50, 3, 5, view->etype, &view->filetype);
    part(strided);
}

static void far_apart(struct view *view) {
    *view = (struct view){100 * run.rank, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_create_hvector(3, 7000, 300001, MPI_BYTE, &view->filetype);
}

static void very_fine(struct view *view) {
    *view = (struct view){run.rank % 2, MPI_BYTE, MPI_DATATYPE_NULL};
    MPI_Type_vector(4000, 1, 2, MPI_BYTE, &view->filetype);
}

static const struct {
    const char *name;
    void (*make)(struct view *);
    int has_holes; /* in its etype */
    int overlaps;  /* much: ranks read the same bytes */
} kinds[] = {
    {"plain", plain},
    {"same-for-all", same_for_all, 0, 1},
    {"vector", vector},
    {"vector-unpadded", vector_unpadded},
    {"hvector", hvector},
    {"indexed", indexed},
    {"hindexed", hindexed, 0, 1},
    {"indexed-block", indexed_block},
    {"hindexed-block", hindexed_block},
    {"empty-blocks", with_empty_blocks},
    {"structures", structures, 1},
    {"structure-of-bytes", structure_of_bytes},
    {"subarray-2d", subarray_2d},
    {"subarray-2d-fortran", subarray_2d_fortran},
    {"subarray-3d", subarray_3d},
    {"subarray-3d-fortran", subarray_3d_fortran},
    {"subarray-4d", subarray_4d},
    {"subarray-4d-fortran", subarray_4d_fortran},
    {"subarray-structures", subarray_of_structures, 1},
    {"darray-block", darray_block},
    {"darray-cyclic", darray_cyclic},
    {"darray-mixed", darray_mixed},
    {"darray-fortran", darray_fortran},
    {"resized", resized_padded},
    {"resized-lower-bound", resized_with_a_lower_bound},
    {"dup", duplicate},
    {"nested", nested},
    {"compound-etype", compound_etype, 1},
    {"far-apart", far_apart},
    {"very-fine", very_fine},
};

/* Memory for 6 etypes an item: packed, with holes, backwards, padded. Each is committed. */
static MPI_Datatype memory_type(int kind, MPI_Datatype etype) {
    int lengths[3] = {2, 3, 1};
    MPI_Aint lower, extent, places[3];
    MPI_Datatype made, strided;
    MPI_Type_get_extent(etype, &lower, &extent);
    kind %= is_mpich_4_0 ? 3 : 4; /* MPICH 4.0 reads other bytes into the last one. */
    switch (kind) {
    case 0:
        MPI_Type_contiguous(6, etype, &made);
        break;
    case 1:
        MPI_Type_vector(2, 3, 5, etype, &made);
        break;
    case 2:
        for (int i = 0; i < 3; i++)
            places[i] = (2 - i) * 4 * extent;
        MPI_Type_create_hindexed(3, lengths, places, etype, &made);
        break;
    default:
        MPI_Type_create_hvector(3, 2, 3 * extent + 8, etype, &strided);
        made = resized(strided, -16, 12 * extent + 40);
        part(strided);
    }
    MPI_Type_commit(&made);
    return made;
}

static void read_view(const char *name, int kind) {
    static const char *const calls[] = {
        "read_all", "read_all", "read_at_all", "read", "read_at", "read_all after seek", "read_all"};
    struct view view;
    MPI_Offset end = -1;
    char step[96];
    int etype_bytes;
    kinds[kind].make(&view);
    MPI_Type_commit(&view.filetype);
    MPI_File file = opened(MPI_COMM_WORLD, run.data, MPI_MODE_RDONLY, MPI_INFO_NULL);
    int code = MPI_File_set_view(file, view.displacement, view.etype, view.filetype, "native", MPI_INFO_NULL);
    say("%s: set_view: error %d", name, class_of(code));
    MPI_Type_size(view.etype, &etype_bytes);
    for (int call = 0; code == MPI_SUCCESS && call < 7; call++) {
        /* Up to 30 kB a call; each rank reads an amount of its own. */
        int items = (call == 5 ? 4800 : 900 + 250 * call) / etype_bytes + run.rank;
        MPI_Status status;
        MPI_Datatype type = memory_type(call + kind, view.etype);
        struct place place_of = place(items, type);
        int result;
        switch (call) {
        case 2:
            result = MPI_File_read_at_all(file, 5, place_of.buffer, items, type, &status);
            break;
        case 3:
            result = MPI_File_read(file, place_of.buffer, items, type, &status);
            break;
        case 4:
            result = MPI_File_read_at(file, 11, place_of.buffer, items, type, &status);
            break;
        case 5:
            need(MPI_File_seek(file, 3 + run.rank, MPI_SEEK_CUR), "seek");
            /* fall through */
        default:
            result = MPI_File_read_all(file, place_of.buffer, items, type, &status);
        }
        snprintf(step, sizeof step, "%s: %d %s", name, call, calls[call]);
        tell(step, result, &status, &place_of, file);
        discard(&place_of);
        MPI_Type_free(&type);
    }
    if (MPI_File_seek(file, 0, MPI_SEEK_END) == MPI_SUCCESS && MPI_File_get_position(file, &end) == MPI_SUCCESS)
        say("%s: the end is at %lld", name, (long long)end);
    /* The types may be freed before the file is closed. */
    int combiner, counts[3];
    MPI_Type_get_envelope(view.etype, &counts[0], &counts[1], &counts[2], &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&view.etype);
    MPI_Type_get_envelope(view.filetype, &counts[0], &counts[1], &counts[2], &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        MPI_Type_free(&view.filetype);
    closed(MPI_COMM_WORLD, &file);
}

void views(void) {
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        if (is_mpich_4_0 && kinds[kind].has_holes)
            continue; /* MPICH 4.0 takes the extent of an etype for its size. */
        if (!is_mpich && run.ranks > 2 && kinds[kind].overlaps)
            continue; /* Open MPI reads other bytes for some of the ranks. */
        read_view(kinds[kind].name, (int)kind);
    }
}
