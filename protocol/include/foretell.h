/*
 * foretell: tell the machine which files you will read, in order, before you read them.
 *
 * While a manager runs (`foretell run -- CMD`), it reads disclosed files ahead, in parallel and
 * within its budget. Without one every call here is a safe no-op, so a program may be written with
 * hints and run anywhere.
 *
 * Every function is thread-safe, never blocks, never raises a signal, never prints and leaves errno
 * as it was. A hint is a wish: a lost or a wrong one costs speed, never correctness, so that results
 * may be ignored. Paths may be relative; they are resolved against the current folder at the call.
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
    FORETELL_INVALID = 3     /* empty, relative to a lost folder or too long a path; no segments; an
                                empty segment, or one beyond any file */
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
 * The file will be read from its first byte to its last. Files are taken to be read in the order of
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
 * closes that (closefrom), or forks, the stream is dead in that process: its calls return
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

/* How a file will be read. What is left out (0) is the usual: all of it, once, in order. */
struct foretell_reading {
    /* The parts, or NULL for the whole file. */
    const struct foretell_segment *segments;
    size_t segment_count;
    /* If stride_count is not 0: so many parts like the only one given, so far from one to the next. */
    uint64_t stride_bytes;
    uint64_t stride_count;
    /* How many times over; 0 is once. */
    uint32_t repeat;
    /* The parts may be read in any order. Beyond some 4,000 parts, each 4,000 are a set of their own. */
    bool any_order;
};

enum foretell_result foretell_stream_hint(foretell_stream *stream, const char *path,
                                          const struct foretell_reading *reading);

/* What was hinted to the stream and is not read yet will not be. The stream can be used further. */
enum foretell_result foretell_stream_cancel(foretell_stream *stream);

/* Cancels and frees. */
void foretell_stream_close(foretell_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
