/*
 * Checks the constants of src/abi.c against the header of an MPI: compiled with its mpicc, and run without mpiexec. It
 * prints the name of each constant that differs, and ends with 1.
 */
#include "abi.h"

#include <mpi.h>
#include <stdio.h>

static int wrong;

static void check(const char *name, word ours, word theirs)
{
    if (ours != theirs) {
        printf("%s: %#lx, and the header has %#lx\n", name, (unsigned long)ours, (unsigned long)theirs);
        wrong = 1;
    }
}

#define SAME(ours, theirs) check(#theirs, (word)(ours), (word)(theirs))
#define COMBINER(name) SAME(mpi()->combiners[COMBINER_##name], MPI_COMBINER_##name)

int main(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    (void)MPI_Get_library_version(version, &length); /* so that the MPI is linked */
    const struct abi *abi = mpi();
    if (!abi->is_known) {
        printf("not known\n");
        return 1;
    }
    COMBINER(NAMED);
    COMBINER(DUP);
    COMBINER(CONTIGUOUS);
    COMBINER(VECTOR);
    COMBINER(HVECTOR);
    COMBINER(INDEXED);
    COMBINER(HINDEXED);
    COMBINER(INDEXED_BLOCK);
    COMBINER(HINDEXED_BLOCK);
    COMBINER(STRUCT);
    COMBINER(SUBARRAY);
    COMBINER(DARRAY);
    COMBINER(RESIZED);
    SAME(abi->order_fortran, MPI_ORDER_FORTRAN);
    SAME(abi->distribute_block, MPI_DISTRIBUTE_BLOCK);
    SAME(abi->distribute_cyclic, MPI_DISTRIBUTE_CYCLIC);
    SAME(abi->distribute_none, MPI_DISTRIBUTE_NONE);
    SAME(abi->distribute_default, MPI_DISTRIBUTE_DFLT_DARG);
    SAME(abi->mode_read_only, MPI_MODE_RDONLY);
    SAME(abi->modes_passed, MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_SEQUENTIAL);
    SAME(abi->seek_set, MPI_SEEK_SET);
    SAME(abi->byte, MPI_BYTE);
    SAME(abi->int64, MPI_INT64_T);
    SAME(abi->min, MPI_MIN);
    SAME(abi->max, MPI_MAX);
    SAME(abi->sum, MPI_SUM);
    SAME(abi->comm_null, MPI_COMM_NULL);
    SAME(abi->comm_world, MPI_COMM_WORLD);
    SAME(abi->undefined, MPI_UNDEFINED);
    SAME(abi->type_null, MPI_DATATYPE_NULL);
    SAME(abi->info_null, MPI_INFO_NULL);
    SAME(abi->status_ignore, MPI_STATUS_IGNORE);
    SAME(0, MPI_SUCCESS);
    SAME(sizeof(int64_t), sizeof(MPI_Offset));
    SAME(sizeof(int64_t), sizeof(MPI_Count));
    SAME(sizeof(int64_t), sizeof(MPI_Aint));
    SAME(sizeof(word), sizeof(MPI_File));
    SAME(abi->has_pointer_handles ? sizeof(word) : sizeof(int), sizeof(MPI_Datatype));
    return wrong;
}
