/*
 * The running MPI: its functions by their profiling names (PMPI_…), its constants, and the width of its handles.
 *
 * One library serves all MPIs of an ABI that is published and stable: MPICH and its relatives (libmpi.so.12), Open MPI
 * (libmpi.so.40), and the ABI of MPI 5 (libmpi_abi.so.0). Handles are 32-bit integers in the first and pointers in the
 * others; both are passed on in a whole register, as they came. `mpi/tests/abi.c` checks the constants against the
 * headers of an MPI.
 *
 * Where a handle is compared or kept, it goes through `handle`: the upper half of a register that holds an int is
 * undefined.
 */
#ifndef FORETELL_MPI_ABI_H
#define FORETELL_MPI_ABI_H

#include <stdbool.h>
#include <stdint.h>

#if !(defined(__x86_64__) || defined(__aarch64__)) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "handles are passed in 64-bit registers, and integers lie in their lower half"
#endif

/* A handle, or an argument that is passed on: what a register holds. */
typedef uintptr_t word;

enum combiner {
    COMBINER_OTHER,
    COMBINER_NAMED,
    COMBINER_DUP,
    COMBINER_CONTIGUOUS,
    COMBINER_VECTOR,
    COMBINER_HVECTOR,
    COMBINER_INDEXED,
    COMBINER_HINDEXED,
    COMBINER_INDEXED_BLOCK,
    COMBINER_HINDEXED_BLOCK,
    COMBINER_STRUCT,
    COMBINER_SUBARRAY,
    COMBINER_DARRAY,
    COMBINER_RESIZED,
    COMBINERS
};

struct abi {
    bool has_pointer_handles;
    bool takes_prefixes; /* of file systems, in names of files: ROMIO does */
    bool is_known; /* else all calls are passed through */
    int combiners[COMBINERS];
    int order_fortran, distribute_block, distribute_cyclic, distribute_none, distribute_default;
    int mode_read_only, modes_passed; /* the latter: modes in which a file is left alone */
    int seek_set, undefined;
    word byte, int64, min, max, sum, comm_null, comm_world, type_null, info_null, status_ignore;
};

/* The functions that this library calls, and those that it only passes on to. */
#define MPI_FUNCTIONS(X)                                                                           \
    X(Allreduce, (const void *from, void *to, int count, word type, word op, word comm))           \
    X(Comm_free, (word * comm))                                                                    \
    X(Comm_group, (word comm, word *group))                                                        \
    X(Comm_rank, (word comm, int *rank))                                                           \
    X(Comm_size, (word comm, int *size))                                                           \
    X(Comm_split, (word comm, int color, int key, word *part))                                     \
    X(Comm_test_inter, (word comm, int *is_inter))                                                 \
    X(Finalize, (void))                                                                            \
    X(File_close, (word * file))                                                                   \
    X(File_get_byte_offset, (word file, int64_t at, int64_t *offset))                              \
    X(File_get_position, (word file, int64_t *offset))                                             \
    X(File_get_position_shared, (word file, int64_t *offset))                                      \
    X(File_iread, (word file, void *to, int count, word type, word request))                       \
    X(File_iread_all, (word file, void *to, int count, word type, word request))                   \
    X(File_iread_all_c, (word file, void *to, int64_t count, word type, word request))             \
    X(File_iread_at, (word file, int64_t at, void *to, int count, word type, word request))        \
    X(File_iread_at_all, (word file, int64_t at, void *to, int count, word type, word request))    \
    X(File_iread_at_all_c,                                                                         \
      (word file, int64_t at, void *to, int64_t count, word type, word request))                   \
    X(File_iread_at_c, (word file, int64_t at, void *to, int64_t count, word type, word request))  \
    X(File_iread_c, (word file, void *to, int64_t count, word type, word request))                 \
    X(File_iread_shared, (word file, void *to, int count, word type, word request))                \
    X(File_iread_shared_c, (word file, void *to, int64_t count, word type, word request))          \
    X(File_open, (word comm, const char *path, int mode, word info, word *file))                   \
    X(File_read, (word file, void *to, int count, word type, word status))                         \
    X(File_read_all, (word file, void *to, int count, word type, word status))                     \
    X(File_read_all_begin, (word file, void *to, int count, word type))                            \
    X(File_read_all_begin_c, (word file, void *to, int64_t count, word type))                      \
    X(File_read_all_c, (word file, void *to, int64_t count, word type, word status))               \
    X(File_read_all_end, (word file, void *to, word status))                                       \
    X(File_read_at, (word file, int64_t at, void *to, int count, word type, word status))          \
    X(File_read_at_all, (word file, int64_t at, void *to, int count, word type, word status))      \
    X(File_read_at_all_begin, (word file, int64_t at, void *to, int count, word type))             \
    X(File_read_at_all_begin_c, (word file, int64_t at, void *to, int64_t count, word type))       \
    X(File_read_at_all_c, (word file, int64_t at, void *to, int64_t count, word type, word status))\
    X(File_read_at_all_end, (word file, void *to, word status))                                    \
    X(File_read_at_c, (word file, int64_t at, void *to, int64_t count, word type, word status))    \
    X(File_read_c, (word file, void *to, int64_t count, word type, word status))                   \
    X(File_read_ordered, (word file, void *to, int count, word type, word status))                 \
    X(File_read_ordered_c, (word file, void *to, int64_t count, word type, word status))           \
    X(File_read_shared, (word file, void *to, int count, word type, word status))                  \
    X(File_read_shared_c, (word file, void *to, int64_t count, word type, word status))            \
    X(File_seek, (word file, int64_t offset, int whence))                                          \
    X(File_set_atomicity, (word file, int flag))                                                   \
    X(File_set_info, (word file, word info))                                                       \
    X(File_sync, (word file))                                                                      \
    X(File_set_view,                                                                               \
      (word file, int64_t at, word unit, word type, const char *representation, word info))        \
    X(Get_library_version, (char *version, int *length))                                           \
    X(Group_free, (word * group))                                                                  \
    X(Group_size, (word group, int *size))                                                         \
    X(Group_translate_ranks,                                                                       \
      (word group, int count, const int *ranks, word other, int *others))                          \
    X(Init, (int *count, char ***words))                                                           \
    X(Init_thread, (int *count, char ***words, int required, int *provided))                       \
    X(Info_get, (word info, const char *key, int most, char *value, int *is_there))                \
    X(Status_set_elements_x, (word status, word type, int64_t count))                              \
    X(Type_dup, (word type, word * copy))                                                          \
    X(Type_free, (word *type))                                                                     \
    X(Type_get_contents, (word type, int integers, int addresses, int types, int *to_integers,     \
                          int64_t *to_addresses, void *to_types))                                  \
    X(Type_get_contents_c,                                                                         \
      (word type, int64_t integers, int64_t addresses, int64_t counts, int64_t types,              \
       int *to_integers, int64_t *to_addresses, int64_t *to_counts, void *to_types))               \
    X(Type_get_envelope,                                                                           \
      (word type, int *integers, int *addresses, int *types, int *combiner))                       \
    X(Type_get_envelope_c, (word type, int64_t *integers, int64_t *addresses, int64_t *counts,     \
                            int64_t *types, int *combiner))                                        \
    X(Type_get_extent, (word type, int64_t *lower, int64_t *extent))                               \
    X(Type_get_true_extent, (word type, int64_t *lower, int64_t *extent))                          \
    X(Type_size, (word type, int *bytes))                                                          \
    X(Type_size_x, (word type, int64_t *bytes))

struct functions {
#define X(name, arguments) int(*name) arguments;
    MPI_FUNCTIONS(X)
#undef X
};

/* Filled in by the first call of `mpi`. NULL: this MPI does not have the function. */
extern struct functions PMPI;

/* The running MPI, which is found at the first call. */
const struct abi *mpi(void);

/* A handle as it came in a register, for comparing and keeping. */
word handle(word from_register);

#endif
