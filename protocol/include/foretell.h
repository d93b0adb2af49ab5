/*
 * foretell: tell the machine which files you will read, in order, before you read them.
 *
 * While a manager runs (`foretell run -- CMD`), it reads disclosed files ahead, in parallel and
 * within its budget. Without one every call here is a safe no-op, so a program may be written with
 * hints and run anywhere.
 *
 * Every function is thread-safe, never blocks, never raises a signal, never prints and leaves errno
 * as it was. A lost or wrong hint costs speed, never correctness, so results may be ignored. Relative
 * paths are resolved against the current folder at the call.
 * None of these functions may be called in a signal handler.
 *
 * Link with -lforetell.
 */
#ifndef FORETELL_H
#define FORETELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum foretell_result {
    FORETELL_SENT = 0,       /* the manager has it */
    FORETELL_NO_MANAGER = 1, /* none runs, or it has ended, or it is another user's */
    FORETELL_BUSY = 2,       /* the manager is behind: this hint (or its rest) was dropped */
    FORETELL_INVALID = 3     /* the path is empty, too long, or relative to a removed folder; or there
                                are no segments; or one is empty or ends beyond any file */
};

/* A part of a file. */
#ifndef FORETELL_SEGMENT_DEFINED
#define FORETELL_SEGMENT_DEFINED
struct foretell_segment {
    uint64_t offset_bytes;
    uint64_t length_bytes; /* at least 1 */
};
#endif

/*
 * The file will be read from its first byte to its last. Files are expected to be read in the order of
 * the calls. These hints belong to no stream: they cannot be cancelled and outlive the program.
 */
enum foretell_result foretell_hint_sequential(const char *path);

/* These parts of the file will be read, in this order. */
enum foretell_result foretell_hint_segments(const char *path,
                                            const struct foretell_segment *segments,
                                            size_t segment_count);

/*
 * A stream of its own: an ordered list of reads to come that can be cancelled, and that ends with
 * foretell_stream_close or with the program. It holds one close-on-exec descriptor. If the program
 * closes that descriptor (closefrom), or in a forked child, the stream is dead: its calls return
 * FORETELL_NO_MANAGER.
 */
typedef struct foretell_stream foretell_stream;

/* NULL if there is no manager or no memory; all functions below accept NULL. */
foretell_stream *foretell_stream_open(void);

/* As the functions above, appended to the stream. */
enum foretell_result foretell_stream_sequential(foretell_stream *stream, const char *path);
enum foretell_result foretell_stream_segments(foretell_stream *stream, const char *path,
                                              const struct foretell_segment *segments,
                                              size_t segment_count);

/* How a file will be read. All zero means: all of it, once, in order. */
struct foretell_reading {
    /* The parts, or NULL for the whole file. */
    const struct foretell_segment *segments;
    size_t segment_count;
    /* If stride_count is not 0: stride_count parts like the single one given, stride_bytes apart. */
    uint64_t stride_bytes;
    uint64_t stride_count;
    /* How many times in a row; 0 means once. */
    uint32_t repeat;
    /* The parts may be read in any order. More than some 4,000 parts become sets of 4,000, in order. */
    bool any_order;
};

enum foretell_result foretell_stream_hint(foretell_stream *stream, const char *path,
                                          const struct foretell_reading *reading);

/*
 * From now on the stream's hints are fetched in requests of at most so many bytes, and of at least a block of 8 KiB. For a
 * program that hints only a few blocks ahead of its reads: a request ends with its last block, so a large one leaves it without
 * a block to read meanwhile.
 */
enum foretell_result foretell_stream_request(foretell_stream *stream, uint64_t bytes);

/* Cancels the stream's hints that are not read yet. The stream can be used further. */
enum foretell_result foretell_stream_cancel(foretell_stream *stream);

/* Cancels the stream's hints and frees it. */
void foretell_stream_close(foretell_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
