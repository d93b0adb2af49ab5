#include "abi.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct functions PMPI;

static struct abi running;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct abi MPICH = {
    .is_known = true,
    .takes_prefixes = true,
    .combiners = {[COMBINER_NAMED] = 1,
                  [COMBINER_DUP] = 2,
                  [COMBINER_CONTIGUOUS] = 3,
                  [COMBINER_VECTOR] = 4,
                  [COMBINER_HVECTOR] = 6,
                  [COMBINER_INDEXED] = 7,
                  [COMBINER_HINDEXED] = 9,
                  [COMBINER_INDEXED_BLOCK] = 10,
                  [COMBINER_HINDEXED_BLOCK] = 19,
                  [COMBINER_STRUCT] = 12,
                  [COMBINER_SUBARRAY] = 13,
                  [COMBINER_DARRAY] = 14,
                  [COMBINER_RESIZED] = 18},
    .order_fortran = 57,
    .distribute_block = 121,
    .distribute_cyclic = 122,
    .distribute_none = 123,
    .distribute_default = -49767,
    .mode_read_only = 2,
    .modes_passed = 16 | 256,
    .seek_set = 600,
    .undefined = -32766,
    .byte = 0x4c00010d,
    .int64 = 0x4c00083a,
    .min = 0x58000002,
    .max = 0x58000001,
    .sum = 0x58000003,
    .comm_null = 0x04000000,
    .comm_world = 0x44000000,
    .type_null = 0x0c000000,
    .info_null = 0x1c000000,
    .status_ignore = 1,
};

/* Its handles are addresses of objects in the library. */
static const struct abi OPEN_MPI = {
    .is_known = true,
    .has_pointer_handles = true,
    .combiners = {[COMBINER_NAMED] = 0,
                  [COMBINER_DUP] = 1,
                  [COMBINER_CONTIGUOUS] = 2,
                  [COMBINER_VECTOR] = 3,
                  [COMBINER_HVECTOR] = 5,
                  [COMBINER_INDEXED] = 6,
                  [COMBINER_HINDEXED] = 8,
                  [COMBINER_INDEXED_BLOCK] = 9,
                  [COMBINER_HINDEXED_BLOCK] = 18,
                  [COMBINER_STRUCT] = 11,
                  [COMBINER_SUBARRAY] = 12,
                  [COMBINER_DARRAY] = 13,
                  [COMBINER_RESIZED] = 17},
    .order_fortran = 1,
    .distribute_block = 0,
    .distribute_cyclic = 1,
    .distribute_none = 2,
    .distribute_default = -1,
    .mode_read_only = 2,
    .modes_passed = 16 | 256,
    .seek_set = 600,
    .undefined = -32766,
    .status_ignore = 0,
};

/* The ABI of MPI 5.0, appendix A. */
static const struct abi MPI_5 = {
    .is_known = true,
    .has_pointer_handles = true,
    .takes_prefixes = true,
    .combiners = {[COMBINER_NAMED] = 101,
                  [COMBINER_DUP] = 102,
                  [COMBINER_CONTIGUOUS] = 103,
                  [COMBINER_VECTOR] = 104,
                  [COMBINER_HVECTOR] = 105,
                  [COMBINER_INDEXED] = 106,
                  [COMBINER_HINDEXED] = 107,
                  [COMBINER_INDEXED_BLOCK] = 108,
                  [COMBINER_HINDEXED_BLOCK] = 109,
                  [COMBINER_STRUCT] = 110,
                  [COMBINER_SUBARRAY] = 111,
                  [COMBINER_DARRAY] = 112,
                  [COMBINER_RESIZED] = 116},
    .order_fortran = 15,
    .distribute_block = 17,
    .distribute_cyclic = 18,
    .distribute_none = 16,
    .distribute_default = 19,
    .mode_read_only = 16,
    .modes_passed = 4 | 64,
    .seek_set = 403,
    .undefined = -32766,
    .byte = 0x247,
    .int64 = 0x258,
    .min = 0x22,
    .max = 0x23,
    .sum = 0x21,
    .comm_null = 0x100,
    .comm_world = 0x101,
    .type_null = 0x200,
    .info_null = 0x130,
    .status_ignore = 0,
};

word handle(word from_register)
{
    return running.has_pointer_handles ? from_register : (uint32_t)from_register;
}

/* Names of loaded libraries. They are opened after the walk through the list, in which the dynamic linker is locked. */
#define LOADED_MAX 64
struct loaded {
    char *names[LOADED_MAX];
    size_t count;
};

static int name_loaded(struct dl_phdr_info *object, size_t bytes, void *to)
{
    (void)bytes;
    struct loaded *loaded = to;
    const char *slash = object->dlpi_name == NULL ? NULL : strrchr(object->dlpi_name, '/');
    if (slash != NULL && strstr(slash, "mpi") != NULL && loaded->count < LOADED_MAX)
        loaded->names[loaded->count++] = strdup(object->dlpi_name);
    return 0;
}

/* Where the MPI's functions are: A. in the program's scope, or B. in a library that was opened for a part of the program
 * alone, as Python does with its modules. It is kept open. False if there are none. */
static bool find_library(void **library)
{
    *library = RTLD_DEFAULT;
    if (dlsym(RTLD_DEFAULT, "PMPI_File_open") != NULL)
        return true;
    bool is_found = false;
    struct loaded loaded = {.count = 0};
    (void)dl_iterate_phdr(name_loaded, &loaded);
    for (size_t i = 0; i < loaded.count; i++) {
        void *opened = is_found || loaded.names[i] == NULL
                           ? NULL
                           : dlopen(loaded.names[i], RTLD_LAZY | RTLD_NOLOAD);
        is_found |= opened != NULL && dlsym(opened, "PMPI_File_open") != NULL;
        if (opened != NULL && is_found)
            *library = opened;
        else if (opened != NULL)
            (void)dlclose(opened);
        free(loaded.names[i]);
    }
    return is_found;
}

static bool is_of_mpi_5(const void *function)
{
    Dl_info about;
    return dladdr(function, &about) != 0 && about.dli_fname != NULL &&
           strstr(about.dli_fname, "libmpi_abi") != NULL;
}

static bool is_like_mpich(void)
{
    static const char *const NAMES[] = {"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"};
    char version[8192] = {0}; /* at least MPI_MAX_LIBRARY_VERSION_STRING of all of them */
    int length = 0;
    if (PMPI.Get_library_version == NULL || PMPI.Get_library_version(version, &length) != 0)
        return false;
    version[sizeof version - 1] = 0;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strstr(version, NAMES[i]) != NULL)
            return true;
    return false;
}

static void find(void)
{
    void *library;
    if (!find_library(&library))
        return; /* the program only looks whether an MPI is loaded */
#define X(name, arguments) *(void **)&PMPI.name = dlsym(library, "PMPI_" #name);
    MPI_FUNCTIONS(X)
#undef X
    void *byte = dlsym(library, "ompi_mpi_byte");
    if (byte != NULL) {
        running = OPEN_MPI;
        running.byte = (word)byte;
        running.int64 = (word)dlsym(library, "ompi_mpi_int64_t");
        running.min = (word)dlsym(library, "ompi_mpi_op_min");
        running.max = (word)dlsym(library, "ompi_mpi_op_max");
        running.sum = (word)dlsym(library, "ompi_mpi_op_sum");
        running.comm_null = (word)dlsym(library, "ompi_mpi_comm_null");
        running.comm_world = (word)dlsym(library, "ompi_mpi_comm_world");
        running.type_null = (word)dlsym(library, "ompi_mpi_datatype_null");
        running.info_null = (word)dlsym(library, "ompi_mpi_info_null");
        running.is_known = running.int64 && running.min && running.max && running.sum && running.comm_world;
    } else if (is_of_mpi_5((const void *)PMPI.File_open)) {
        running = MPI_5;
    } else if (is_like_mpich()) {
        running = MPICH;
    }
    running.is_known &= PMPI.Allreduce && PMPI.Comm_split && PMPI.File_get_position &&
                        PMPI.File_get_byte_offset && PMPI.File_seek && PMPI.Status_set_elements_x &&
                        PMPI.Type_get_envelope && PMPI.Type_get_contents && PMPI.Type_dup;
}

const struct abi *mpi(void)
{
    (void)pthread_once(&once, find);
    return &running;
}
