/*
 * Open files: what this library knows of each MPI_File.
 */
#ifndef FORETELL_MPI_FILE_H
#define FORETELL_MPI_FILE_H

#include "outlook.h"
#include "settings.h"
#include "trial.h"

#include <pthread.h>
#include <sys/types.h>

/* A split collective read that has begun and not ended. */
struct split {
    bool is_open;
    int64_t at; /* in etypes of the view */
    int64_t count;
    word type; /* a copy: the program may free its own */
};

struct file {
    struct file *next;
    word mpi_file;
    /* Held during an informed read, and during each read and seek by the individual pointer which the MPI makes for one rank:
     * otherwise two threads might find the pointer in the same place. A thread that has an explicit offset and finds it held
     * is served by the MPI. It is recursive, because the MPI may call the program's error handler meanwhile. */
    pthread_mutex_t busy;
    int fd;
    dev_t device;
    ino_t inode;
    word comm; /* a copy, while `auto` measures; else mpi()->comm_null */
    int rank, ranks;
    bool replaces_collectives; /* all ranks do, or none: see `agree` */
    bool is_node_leader; /* discloses what is read by a shared pointer */
    bool is_atomic, is_foreign; /* on all ranks: atomic mode, or another representation of data than the machine's */
    bool passes;         /* on this rank: its view is not understood, so its informed reads are the MPI's independent ones */
    struct settings settings;
    struct view view;
    struct outlook outlook;
    struct trial trial;
    char *bounce;
    struct split split;
    /* Where the last read began, and how far behind the one before: whether explicit offsets go on in equal steps. */
    uint64_t last_start_bytes;
    int64_t last_step_bytes;
    unsigned steps; /* in a row that were foreseen */
};

/* Before the MPI opens the file: what this rank could do. Collective in `comm`. NULL: this rank leaves
 * the file alone. */
struct file *file_prepare(word comm, const char *path, int mode, word info);

/* The MPI has opened it. */
void file_enter(struct file *file, word mpi_file);

/* NULL if it is left alone. */
struct file *file_find(word mpi_file);

/* Takes it out of the list. */
struct file *file_leave(word mpi_file);

/* Unlocks `busy` after a call of the MPI, in which an error handler may have closed the file. */
void file_unlock(struct file *file, word mpi_file);

/* Drops what is known of a handle that the MPI has given out anew: its last file was closed by a call that was not seen. */
void file_forget(word mpi_file);

/* `auto` has decided. Collective in the file's communicator. */
void file_end_trial(struct file *file);

void file_free(struct file *file);

/* A new view: flattened, if it can be. */
void file_set_view(struct file *file, int64_t at, word unit, word type, const char *representation);

/* What others have written is to be seen: opens this rank's descriptor anew. */
void file_sync(struct file *file);

/* Depth and budget may change; the method is that of the opening. */
void file_set_hints(struct file *file, word info);

/* For each file that is still open, at the end. */
void file_each(void (*each)(const struct file *));

#endif
