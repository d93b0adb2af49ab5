/*
 * The C API for a program's own disclosures. foretell.h says what each function promises.
 *
 * Decides only where a hint goes: to the manager named in FORETELL_SOCKET at the time of the call. Each
 * call without a stream opens a connection of its own, so that no descriptor stays in the program and no
 * state needs a lock. A stream keeps its connection. Before each use it checks that the descriptor still
 * is its socket (same process, same inode), since a program may close descriptors that it does not know.
 *
 * The socket is non-blocking, and connect and send on it do not need the manager's attention.
 */
#define _GNU_SOURCE 1
#include "foretell.h"

#include "foretell_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* Every stream has a connection of its own, so one number does. */
#define STREAM_OWN UINT64_C(1)

struct foretell_stream {
    int socket;
    pid_t owner;
    ino_t inode;
};

/* Moves a descriptor above the numbers of standard input, output and error. A program that has closed one of these would
 * take the descriptor for it. */
static int above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fd);
    return moved;
}

/* -1 if no trusted manager listens. */
static int connect_manager(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv(FORETELL_SOCKET_VARIABLE);
    size_t length = name != NULL ? strlen(name) : 0;
    if (length == 0 || length + 1 > sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path + 1, name, length); /* the leading NUL makes it abstract */
    socklen_t address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    int fd = above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof peer;
    if (connect(fd, (const struct sockaddr *)&address, address_bytes) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return fd;
    (void)close(fd);
    return -1;
}

static enum foretell_result send_packet(int fd, struct iovec *parts, size_t count)
{
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = count};
    for (;;) {
        if (sendmsg(fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return FORETELL_SENT;
        if (errno != EINTR)
            return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? FORETELL_BUSY
                                                                          : FORETELL_NO_MANAGER;
    }
}

/* The absolute form; false if there is none. */
static bool absolute_path(const char *path, char absolute[FORETELL_PATH_MAX_BYTES + 1])
{
    size_t length = path != NULL ? strlen(path) : 0;
    size_t folder = 0;
    if (length == 0)
        return false;
    if (path[0] != '/') {
        if (getcwd(absolute, FORETELL_PATH_MAX_BYTES) == NULL || absolute[0] != '/')
            return false;
        folder = strlen(absolute);
        absolute[folder++] = '/';
    }
    if (folder + length > FORETELL_PATH_MAX_BYTES)
        return false;
    memcpy(absolute + folder, path, length + 1);
    return true;
}

static bool valid_segments(const struct foretell_segment *segments, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (segments[i].length_bytes == 0 || segments[i].length_bytes > INT64_MAX ||
            segments[i].offset_bytes > INT64_MAX - segments[i].length_bytes)
            return false;
    return true;
}

static bool valid_reading(const struct foretell_reading *reading)
{
    if (reading->segments == NULL)
        return reading->segment_count == 0 && reading->stride_count == 0;
    if (reading->stride_count != 0)
        return reading->segment_count == 1 && valid_segments(reading->segments, 1) &&
               reading->stride_count <= INT64_MAX &&
               reading->stride_bytes <= INT64_MAX - reading->stride_count;
    return reading->segment_count > 0 && valid_segments(reading->segments, reading->segment_count);
}

static enum foretell_result send_part(int fd, uint64_t stream, const char *path, uint32_t flags,
                                      uint32_t repeat, const struct foretell_segment *segments,
                                      size_t count)
{
    uint32_t path_bytes = (uint32_t)strlen(path);
    struct foretell_hint hint = {
        .header = {.kind = FORETELL_MESSAGE_HINT},
        .stream = stream,
        .flags = flags,
        .repeat = repeat,
        .path_bytes = path_bytes,
        .segment_count = (uint32_t)count,
    };
    size_t segment_bytes = count * sizeof(struct foretell_segment);
    hint.header.total_bytes = (uint32_t)(sizeof hint + segment_bytes + path_bytes);
    struct iovec parts[3] = {{&hint, sizeof hint},
                             {(void *)(uintptr_t)segments, segment_bytes},
                             {(void *)(uintptr_t)path, path_bytes}};
    return send_packet(fd, parts, 3);
}

/* Sends one hint in as many packets as its segments need. A repeat count covers one packet only, so several
 * packets are sent once for each repetition. */
static enum foretell_result send_hint(int fd, uint64_t stream, const char *path,
                                      const struct foretell_reading *reading)
{
    uint32_t flags = reading->any_order ? FORETELL_HINT_ANY_ORDER : 0;
    uint32_t repeat = reading->repeat != 0 ? reading->repeat : 1;
    if (reading->segments == NULL)
        return send_part(fd, stream, path, flags | FORETELL_HINT_WHOLE_FILE, repeat, NULL, 0);
    if (reading->stride_count != 0) {
        struct foretell_segment pair[2] = {reading->segments[0],
                                           {reading->stride_bytes, reading->stride_count}};
        return send_part(fd, stream, path, flags | FORETELL_HINT_STRIDED, repeat, pair, 2);
    }
    size_t room = FORETELL_MESSAGE_MAX_BYTES - sizeof(struct foretell_hint) - strlen(path);
    size_t most = room / sizeof(struct foretell_segment);
    size_t count = reading->segment_count;
    if (count <= most)
        return send_part(fd, stream, path, flags, repeat, reading->segments, count);
    for (uint32_t pass = 0; pass < repeat; pass++) {
        for (size_t sent = 0; sent < count; sent += most) {
            size_t now = count - sent < most ? count - sent : most;
            enum foretell_result result =
                send_part(fd, stream, path, flags, 1, reading->segments + sent, now);
            if (result != FORETELL_SENT)
                return result;
        }
    }
    return FORETELL_SENT;
}

static bool stream_alive(const foretell_stream *stream)
{
    struct stat now;
    return stream != NULL && stream->owner == getpid() && fstat(stream->socket, &now) == 0 &&
           S_ISSOCK(now.st_mode) && now.st_ino == stream->inode;
}

/* stream == NULL: to the manager's shared stream, over a connection of this call. */
static enum foretell_result disclose(const foretell_stream *stream, const char *path,
                                     const struct foretell_reading *reading)
{
    char absolute[FORETELL_PATH_MAX_BYTES + 1];
    if (!absolute_path(path, absolute) || !valid_reading(reading))
        return FORETELL_INVALID;
    if (stream != NULL)
        return stream_alive(stream) ? send_hint(stream->socket, STREAM_OWN, absolute, reading)
                                    : FORETELL_NO_MANAGER;
    int fd = connect_manager();
    if (fd < 0)
        return FORETELL_NO_MANAGER;
    enum foretell_result result = send_hint(fd, FORETELL_STREAM_EXTERNAL, absolute, reading);
    (void)close(fd);
    return result;
}

static const struct foretell_reading WHOLE = {.repeat = 1};

PUBLIC enum foretell_result foretell_hint_sequential(const char *path)
{
    int saved = errno;
    enum foretell_result result = disclose(NULL, path, &WHOLE);
    errno = saved;
    return result;
}

PUBLIC enum foretell_result foretell_hint_segments(const char *path,
                                                   const struct foretell_segment *segments,
                                                   size_t segment_count)
{
    int saved = errno;
    struct foretell_reading reading = {.segments = segments, .segment_count = segment_count};
    enum foretell_result result =
        segments == NULL ? FORETELL_INVALID : disclose(NULL, path, &reading);
    errno = saved;
    return result;
}

PUBLIC foretell_stream *foretell_stream_open(void)
{
    int saved = errno;
    struct stat now;
    foretell_stream *stream = NULL;
    int fd = connect_manager();
    if (fd >= 0) {
        stream = malloc(sizeof *stream);
        if (stream != NULL && fstat(fd, &now) == 0) {
            *stream = (foretell_stream){.socket = fd, .owner = getpid(), .inode = now.st_ino};
        } else {
            free(stream);
            stream = NULL;
            (void)close(fd);
        }
    }
    errno = saved;
    return stream;
}

PUBLIC enum foretell_result foretell_stream_hint(foretell_stream *stream, const char *path,
                                                 const struct foretell_reading *reading)
{
    int saved = errno;
    enum foretell_result result = FORETELL_INVALID;
    if (stream == NULL)
        result = FORETELL_NO_MANAGER;
    else if (reading != NULL)
        result = disclose(stream, path, reading);
    errno = saved;
    return result;
}

PUBLIC enum foretell_result foretell_stream_sequential(foretell_stream *stream, const char *path)
{
    return foretell_stream_hint(stream, path, &WHOLE);
}

PUBLIC enum foretell_result foretell_stream_segments(foretell_stream *stream, const char *path,
                                                     const struct foretell_segment *segments,
                                                     size_t segment_count)
{
    struct foretell_reading reading = {.segments = segments, .segment_count = segment_count};
    return foretell_stream_hint(stream, path, segments == NULL ? NULL : &reading);
}

PUBLIC enum foretell_result foretell_stream_cancel(foretell_stream *stream)
{
    int saved = errno;
    enum foretell_result result = FORETELL_NO_MANAGER;
    if (stream_alive(stream)) {
        struct foretell_cancel cancel = {
            .header = {.kind = FORETELL_MESSAGE_CANCEL, .total_bytes = sizeof cancel},
            .stream = STREAM_OWN,
        };
        struct iovec part = {&cancel, sizeof cancel};
        result = send_packet(stream->socket, &part, 1);
    }
    errno = saved;
    return result;
}

PUBLIC enum foretell_result foretell_stream_request(foretell_stream *stream, uint64_t bytes)
{
    int saved = errno;
    enum foretell_result result = FORETELL_NO_MANAGER;
    if (stream_alive(stream)) {
        struct foretell_request request = {
            .header = {.kind = FORETELL_MESSAGE_REQUEST, .total_bytes = sizeof request},
            .stream = STREAM_OWN,
            .bytes = bytes,
        };
        struct iovec part = {&request, sizeof request};
        result = send_packet(stream->socket, &part, 1);
    }
    errno = saved;
    return result;
}

PUBLIC void foretell_stream_close(foretell_stream *stream)
{
    if (stream == NULL)
        return;
    int saved = errno;
    /* Closing does not suffice: a forked child may keep the connection open. */
    (void)foretell_stream_cancel(stream);
    struct stat now;
    if (fstat(stream->socket, &now) == 0 && S_ISSOCK(now.st_mode) && now.st_ino == stream->inode)
        (void)close(stream->socket);
    free(stream);
    errno = saved;
}
