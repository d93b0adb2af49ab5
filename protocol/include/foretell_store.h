/*
 * foretell: read files of object stores and folders through a cache that the programs of a user share.
 *
 * A store joins the cache of `foretell daemon --cache`, or that of the first process that has made the
 * same store. Reads that find their bytes there copy them from shared memory, without a system call.
 * Python's foretell.Store(url, shared=True) uses the same cache.
 *
 * Functions that return a pointer return NULL and set errno if they fail; those that return a number
 * return -1 and set errno. foretell_store_error() then has a line that says what is wrong, and the way out:
 *
 *   ENOENT     there is no such file or folder
 *   EACCES     these credentials do not allow it
 *   EINVAL     the address, a setting, an option or an argument is wrong
 *   ESTALE     the file is no longer the version that was opened
 *   EAGAIN     the store is busy
 *   ETIMEDOUT  the store did not answer in time
 *   EBADF      it was opened before the process forked
 *   ENOMEM     no memory for the cache
 *   EIO, or the error of the operating system, for all else
 *
 * Every function may be called from any thread; none may be called in a signal handler. Nothing may be
 * used once it has been closed, or while it is being closed. In a forked child a store can be used as before, files
 * have to be opened again, and both can be closed.
 *
 * The environment is read by foretell_store_open, and by foretell_store_file_open once the process that had the
 * cache has ended: no other thread may change it (setenv) meanwhile.
 *
 * Link with -lforetell_store.
 */
#ifndef FORETELL_STORE_H
#define FORETELL_STORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part of a file. */
#ifndef FORETELL_SEGMENT_DEFINED
#define FORETELL_SEGMENT_DEFINED
struct foretell_segment {
    uint64_t offset_bytes;
    uint64_t length_bytes; /* at least 1 */
};
#endif

/* The parts may be read in any order. */
#ifndef FORETELL_ANY_ORDER
#define FORETELL_ANY_ORDER 1u
#endif

/* A setting of an object store: docs/reference/stores.md lists them. */
struct foretell_setting {
    const char *name;
    const char *value;
};

/* How a store is made. Begin with FORETELL_STORE_OPTIONS_INIT, which stands for the defaults. Later versions may have more
 * members; programs that were compiled before go on. Stores with other settings, depths or timeouts are other stores:
 * their bytes are fetched apart. */
struct foretell_store_options {
    size_t size; /* sizeof(struct foretell_store_options) */
    /* Memory for data, of a cache of this process: 0 for 256 MiB. A daemon's has its own size. */
    uint64_t budget_bytes;
    /* The unit of fetching, a power of two from 4096 to 16777216: 0 for 16384. A daemon has its own. */
    uint64_t block_bytes;
    /* Requests ahead of reads: 0 for 128, or 32 for a folder. */
    uint32_t depth;
    /* How long a read waits for the store, with retries: 0 for 60000. */
    uint32_t timeout_ms;
    const struct foretell_setting *settings;
    size_t setting_count;
    /* 1 for a cache of this process alone. */
    uint32_t is_private;
    uint32_t reserved; /* 0 */
    /* A server that keeps what is fetched for many machines: redis://HOST[:PORT], ...; NULL for none. */
    const char *tier;
};

#define FORETELL_STORE_OPTIONS_INIT {sizeof(struct foretell_store_options), 0, 0, 0, 0, NULL, 0, 0, 0, NULL}

typedef struct foretell_store foretell_store;
typedef struct foretell_store_file foretell_store_file;

/*
 * The store at s3://bucket/prefix, gs://..., az://container/prefix, http(s)://host/path, file:///folder,
 * or the path of a folder. Credentials, region and endpoint come from the usual environment variables.
 * options: NULL for the defaults.
 */
foretell_store *foretell_store_open(const char *url, const struct foretell_store_options *options);

/* Whose cache a store reads through. */
#define FORETELL_CACHE_ALONE 0  /* this process has it, alone */
#define FORETELL_CACHE_HERE 1   /* this process has it, and others with the same store join it */
#define FORETELL_CACHE_OTHER 2  /* another process with the same store has it */
#define FORETELL_CACHE_DAEMON 3 /* foretell daemon --cache has it */

/*
 * Returns one of these. why, unless NULL, then has a line that says why it is not the daemon's although a daemon
 * was asked, or why it is not shared although it was to be; "" without such a reason. Good until the thread's next
 * call of this function. Nothing is printed.
 */
int foretell_store_cache(foretell_store *store, const char **why);

/* Files that are open stay open. NULL is accepted. */
void foretell_store_close(foretell_store *store);

/* Opens the current version of the file at a path below the store's place. */
foretell_store_file *foretell_store_file_open(foretell_store *store, const char *path);

/* Gives up its hints. NULL is accepted. */
void foretell_store_file_close(foretell_store_file *file);

/* Its size in bytes when it was opened; UINT64_MAX and errno in a forked child. */
uint64_t foretell_store_size(const foretell_store_file *file);

/* Reads from an offset, all that is asked for, up to the end of the file. Returns how many bytes. */
ssize_t foretell_store_pread(const foretell_store_file *file, void *buffer, size_t length_bytes,
                             uint64_t offset_bytes);

/*
 * These parts of the file will be read, in this order; a count of 0 stands for the whole file. They are
 * fetched ahead. Hints of an open file form one list. flags: 0 or FORETELL_ANY_ORDER. Returns 0.
 */
int foretell_store_hint(const foretell_store_file *file, const struct foretell_segment *segments,
                        size_t segment_count, unsigned flags);

/* Gives up what was hinted for this open file and not read. Returns 0. */
int foretell_store_cancel(const foretell_store_file *file);

/* What was wrong in the last call of this thread that has failed; "" if none has. Good until its next failure. */
const char *foretell_store_error(void);

#ifdef __cplusplus
}
#endif

#endif
