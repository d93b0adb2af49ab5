/*
 * What the themes of the test program share.
 *
 * Each theme is a list of steps. A step makes a call, and says in one line what the program sees of it: the error class, the
 * counts in the status, a checksum of the whole buffer, where the file pointers are. Each rank writes its lines to a file of
 * its own. The lines are the same in any run with as many ranks, with the library of foretell and without.
 */
#ifndef FORETELL_MPI_STEPS_H
#define FORETELL_MPI_STEPS_H

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

/* The run: who this process is, and where the files are. */
struct run {
    int rank, ranks;
    const char *data;    /* a file of known bytes, the same for all runs */
    const char *scratch; /* a folder for the files that the themes write */
    FILE *lines;
    char theme[32];
};
extern struct run run;

/* Each MPI has errors of its own; a comment says which, wherever a step is left out. */
#ifdef MPICH_NUMVERSION
enum { is_mpich = 1, is_mpich_4_0 = MPICH_NUMVERSION < 40100000 };
#else
enum { is_mpich = 0, is_mpich_4_0 = 0 };
#endif

/* Memory that a read fills: `count` items of `type` at `buffer`, and all bytes that surround and separate them. */
struct place {
    unsigned char *bytes;
    size_t size;
    void *buffer;
    int count;
    MPI_Datatype type;
};

/* A line of this rank. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The error class of a code, 0 for none. */
int class_of(int code);
/* Ends the program where the set-up of a step fails. */
void need(int code, const char *what);

/* Memory for `count` items, filled with bytes that no file has in this order. */
struct place place(int count, MPI_Datatype type);
/* Fills it so again, so that a read which does nothing is seen. */
void refill(struct place *place);
void discard(struct place *place);
/* A checksum of all bytes of the memory. */
unsigned long long checksum(const void *bytes, size_t size);

/* The line of a read that has ended. `file` may be MPI_FILE_NULL: then the file pointer is left out. */
void tell(const char *step, int code, MPI_Status *status, const struct place *place, MPI_File file);

/*
 * The line of a read from `at` in a view of bytes, which may meet the end of the file. The rest of the buffer is left out:
 * MPICH fills it with whatever it likes. Collective calls of some MPIs count, and pass over, what is not there; others do not.
 */
void tell_at_end(const char *step, int code, MPI_Status *status, struct place *place, MPI_File file, MPI_Offset at,
    int is_collective);

/* Opens with errors returned. */
MPI_File opened(MPI_Comm comm, const char *path, int mode, MPI_Info info);
/* Closes, and waits: Open MPI may hang where a rank opens a file again while another one still closes it. */
void closed(MPI_Comm comm, MPI_File *file);
/* The path of a file in the scratch folder; valid until the next call. */
const char *scratch(const char *name);
/* The next number of a sequence that is the same in each run. */
unsigned drawn(unsigned *state);

/* The themes. */
void patterns(void);
void views(void);
void calls(void);
void ends(void);
void files(void);
void handles(void);
void threads(void);
void slow(void);
void failing(void);
void failing_together(void);
void truncated(void);

#endif
