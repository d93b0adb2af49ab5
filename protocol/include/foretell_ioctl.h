/*
 * foretell: hints for files on a foretell mount (`foretell mount`), by ioctl.
 *
 * An ioctl on an open file of the mount names the parts of that file that will be read. An ioctl on an
 * open descriptor of MOUNTPOINT/.foretell/control names files by their path below the mount point, in the
 * order in which they will be read. A path that leads to no file is ignored.
 *
 * The hints of a descriptor are one stream, which is matched to the reads of the process that opened it.
 * Hints that are not read yet are given up when they are cancelled or the descriptor is closed.
 *
 * Hints need only permission to read the file. A wrong one costs speed, never correctness. They do not
 * wait for the store.
 *
 * On files elsewhere the calls fail with ENOTTY, which a program may ignore.
 */
#ifndef FORETELL_IOCTL_H
#define FORETELL_IOCTL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

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

/* The head of a hint; its segments and its path follow. */
struct foretell_ioctl_hint {
    uint32_t segment_count; /* 0: all of the file, from its first byte to its last */
    uint32_t flags;         /* FORETELL_ANY_ORDER or 0 */
    uint32_t path_bytes;    /* on the control file: length of the path, without NUL; else 0 */
    uint32_t reserved;      /* 0 */
};

/*
 * The segments may be read in any order. A list that does not fit into one ioctl becomes several such
 * sets, in order (FORETELL_IOCTL_MAX_SEGMENTS each).
 */
#define FORETELL_ANY_ORDER 1u

#define FORETELL_IOCTL_TYPE 0xF7
/* Most bytes of one ioctl, and most segments of one ioctl without a path. */
#define FORETELL_IOCTL_MAX_BYTES 16383
#define FORETELL_IOCTL_MAX_SEGMENTS \
    ((FORETELL_IOCTL_MAX_BYTES - sizeof(struct foretell_ioctl_hint)) / sizeof(struct foretell_segment))

/* A hint; bytes is the size of foretell_ioctl_hint, segments and path together. */
#define FORETELL_IOCTL_HINT(bytes) _IOC(_IOC_WRITE, FORETELL_IOCTL_TYPE, 1, (bytes))
/* Cancels the descriptor's hints that are not read yet. */
#define FORETELL_IOCTL_CANCEL _IO(FORETELL_IOCTL_TYPE, 2)

/*
 * These parts will be read, in this order; segment_count 0 means the whole file. On a file's own
 * descriptor path is NULL; on the control file it is the path below the mount point.
 *
 * Returns 0, or -1 and errno:
 *   EINVAL  a segment is empty or ends beyond any file; or a path is given on a file's own descriptor;
 *           or none is given on the control file
 *   EAGAIN  some 65,000 hints of this descriptor wait for their files to be looked up, or this process
 *           has disclosed some millions of parts that it has not read: try again later, or go without
 *   ENOTTY  this is not a foretell mount
 *   ENOMEM  no memory
 *
 * A list is sent some 1,000 segments at a time (FORETELL_IOCTL_MAX_SEGMENTS, fewer with a path). If one
 * part fails, the parts before it stay in force: the first *taken segments (taken may be NULL). Sending
 * the whole list again would disclose those twice. So continue with segments + *taken later, when some
 * have been read, or call foretell_ioctl_cancel, which cancels all hints of the descriptor, and begin
 * anew. A whole file is sent in one ioctl and counts as 0 segments.
 */
static inline int foretell_ioctl_segments_taken(int fd, const char *path, const struct foretell_segment *segments,
                                                size_t segment_count, uint32_t flags, size_t *taken)
{
    size_t path_bytes = path ? strlen(path) : 0;
    size_t head_bytes = sizeof(struct foretell_ioctl_hint) + path_bytes, most, done = 0;
    unsigned char *message;
    int result = 0;

    if (taken)
        *taken = 0;
    if (head_bytes + sizeof *segments > FORETELL_IOCTL_MAX_BYTES) {
        errno = EINVAL;
        return -1;
    }
    most = (FORETELL_IOCTL_MAX_BYTES - head_bytes) / sizeof *segments;
    message = (unsigned char *)malloc(FORETELL_IOCTL_MAX_BYTES);
    if (!message)
        return -1;
    do {
        size_t count = segment_count - done < most ? segment_count - done : most;
        struct foretell_ioctl_hint hint;
        hint.segment_count = (uint32_t)count;
        hint.flags = flags;
        hint.path_bytes = (uint32_t)path_bytes;
        hint.reserved = 0;
        memcpy(message, &hint, sizeof hint);
        if (count)
            memcpy(message + sizeof hint, segments + done, count * sizeof *segments);
        if (path_bytes)
            memcpy(message + sizeof hint + count * sizeof *segments, path, path_bytes);
        result = ioctl(fd, FORETELL_IOCTL_HINT(head_bytes + count * sizeof *segments), message);
        if (result != 0)
            break;
        done += count;
    } while (done < segment_count);
    free(message);
    if (taken)
        *taken = done;
    return result;
}

/*
 * The same without *taken. If it fails, some of the segments may be in force: cancel before a second try.
 */
static inline int foretell_ioctl_segments(int fd, const char *path, const struct foretell_segment *segments,
                                          size_t segment_count, uint32_t flags)
{
    return foretell_ioctl_segments_taken(fd, path, segments, segment_count, flags, NULL);
}

/* All of the file will be read, from its first byte to its last. As above. */
static inline int foretell_ioctl_sequential(int fd, const char *path)
{
    return foretell_ioctl_segments(fd, path, NULL, 0, 0);
}

/* Cancels the descriptor's hints that are not read yet. */
static inline int foretell_ioctl_cancel(int fd)
{
    return ioctl(fd, FORETELL_IOCTL_CANCEL);
}

#ifdef __cplusplus
}
#endif

#endif
