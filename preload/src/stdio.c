/*
 * Hooks of the stdio family.
 *
 * Decides when a stdio call has read from its descriptor, and what. libc's stdio reads without
 * passing through `read`, so its calls are wrapped by name; what is reported is the descriptor's
 * range, which is ahead of the program's by the buffer (FORETELL_FLAG_STDIO).
 *
 * How, by the public fields of FILE: A. a call whose need is in the buffer is forwarded at once,
 * untimed: a few ns. B. a call that may need more is watched: buffer pointers before and after say
 * whether a refill happened. C. a call of unknown need (a line, a scanned value) is timed only if
 * fewer than NEARLY_EMPTY_BYTES are left; a refill that comes all the same has duration 0.
 * D. after a refill the descriptor's new offset is asked from the kernel, if records are wanted.
 *
 * The fields are read without the stream's lock: two threads on one stream may see a refill twice or
 * not at all. That costs a wrong count, never a wrong access: only pointers are compared.
 *
 * fmemopen, fopencookie: no descriptor, forwarded.
 */
#include "process.h"
#include "real.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

/* Longer than most lines; an eighth of the usual buffer. */
#define NEARLY_EMPTY_BYTES 512u

/* The need of a call that may read any amount, and is timed whatever is buffered. */
#define ALWAYS_WATCH SIZE_MAX
/* The yield of a call that does not say how many bytes it took from the stream. */
#define YIELD_UNKNOWN (-1)
/* The same for one that may also have read past the buffer, into the program's memory. */
#define YIELD_ASK (-2)

struct watch {
    struct descriptor *entry; /* NULL: nothing is to be done afterwards */
    const char *next;
    const char *end;
    const char *base;
    off64_t stream_offset;
    uint64_t began_bytes; /* the descriptor's offset before the call, if known */
    uint64_t start_ns;    /* 0: not timed */
    bool other;           /* not a regular file: only bytes are counted */
};

static inline size_t buffered(const FILE *stream)
{
    return (size_t)(stream->_IO_read_end - stream->_IO_read_ptr);
}

/* timed: start the clock. ask: the descriptor's offset is needed afterwards, records or not. */
static struct watch watch_begin(FILE *stream, bool timed, bool ask)
{
    struct watch watch = {.began_bytes = POSITION_UNKNOWN};
    int fd = stream->_fileno;
    if (fd < 0)
        return watch;
    watch.next = stream->_IO_read_ptr;
    watch.end = stream->_IO_read_end;
    watch.base = stream->_IO_read_base;
    watch.stream_offset = stream->_offset;
    struct descriptor *entry = watched(fd);
    if (entry == NULL) {
        watch.entry = entry_of(fd);
        watch.other = true;
        return watch;
    }
    watch.entry = entry;
    if (wants_records(ring()) || ask) {
        if (state_of(tag_of(entry)) == OWNED)
            watch.began_bytes = __atomic_load_n(&entry->position_bytes, __ATOMIC_RELAXED);
        if (watch.began_bytes == POSITION_UNKNOWN && timed)
            watch.began_bytes = foretell_kernel_position(fd);
    }
    if (timed)
        watch.start_ns = now_ns();
    return watch;
}

/* How many bytes the call took from the descriptor. Exact where the call says what it consumed,
 * else the size of the last refill. */
static uint64_t pulled(const struct watch *watch, const FILE *stream, ssize_t yield)
{
    if (yield >= 0) {
        int64_t before = watch->end - watch->next;
        int64_t after = stream->_IO_read_end - stream->_IO_read_ptr;
        int64_t bytes = (int64_t)yield - before + after;
        return bytes > 0 ? (uint64_t)bytes : 0;
    }
    bool refilled = stream->_IO_read_end != watch->end || stream->_IO_read_base != watch->base ||
                    stream->_IO_read_ptr < watch->next || stream->_offset != watch->stream_offset;
    return refilled ? (uint64_t)(stream->_IO_read_end - stream->_IO_read_base) : 0;
}

static void watch_end(const struct watch *watch, FILE *stream, ssize_t yield)
{
    struct descriptor *entry = watch->entry;
    if (entry == NULL)
        return;
    uint64_t end_ns = watch->start_ns != 0 ? now_ns() : 0;
    uint64_t duration_ns = end_ns - watch->start_ns;
    uint64_t bytes = pulled(watch, stream, yield);
    if (yield == YIELD_ASK && !watch->other && watch->began_bytes != POSITION_UNKNOWN) {
        uint64_t position = foretell_kernel_position(stream->_fileno);
        if (position != POSITION_UNKNOWN && position >= watch->began_bytes)
            bytes = position - watch->began_bytes;
    }
    bool stalled = has_stalled(duration_ns, bytes);
    if (bytes == 0 && !stalled)
        return;
    if (watch->other) {
        count_other((ssize_t)bytes);
        return;
    }
    int fd = stream->_fileno;
    struct foretell_ring_header *header = ring();
    bool wanted = wants_records(header);
    uint64_t tag = tag_of(entry);
    if (wanted || stalled) {
        tag = foretell_identify(fd, entry, tag);
        if (state_of(tag) == IGNORED) {
            count_other((ssize_t)bytes);
            return;
        }
    }
    if (!wanted || (tag & TAG_IDENTITY) == 0 || !foretell_is_own_process()) {
        count_read(header, bytes, duration_ns);
        __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
        return;
    }
    uint64_t position = foretell_kernel_position(fd); /* D */
    if (position == POSITION_UNKNOWN)
        return;
    uint64_t began = watch->began_bytes;
    if (began > position || began == POSITION_UNKNOWN)
        began = position - (bytes < position ? bytes : position);
    __atomic_store_n(&entry->position_bytes, position, __ATOMIC_RELAXED);
    count_read(header, position - began, duration_ns);
    if (position == began)
        return;
    struct foretell_record record = {
        .kind = FORETELL_RECORD_READ,
        .flags = FORETELL_FLAG_STDIO | (state_of(tag) == SHARED ? FORETELL_FLAG_SHARED : 0u),
        .device = __atomic_load_n(&entry->device, __ATOMIC_RELAXED),
        .inode = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED),
        .offset_bytes = began,
        .length_bytes = position - began,
        .end_ns = end_ns,
        .duration_ns = duration_ns};
    foretell_emit(header, &record);
}

/* `need`: bytes that certainly suffice. `timed`: whether a refill is likely enough for a clock. */
#define STREAM_BODY(type, stream, need, timed, call, yield)                                        \
    STREAM_BODY_ASKING(type, stream, need, timed, false, call, yield)

#define STREAM_BODY_ASKING(type, stream, need, timed, ask, call, yield)                            \
    do {                                                                                           \
        if (LIKELY(buffered(stream) >= (need)) || UNLIKELY(!foretell_active))                      \
            return call;                                                                           \
        struct watch watch = watch_begin(stream, timed, ask);                                      \
        type result = call;                                                                        \
        watch_end(&watch, stream, yield);                                                          \
        return result;                                                                             \
    } while (0)

/* One byte: a refill happens exactly if the buffer is empty. At the end of the file nothing is
 * consumed. */
#define GETC(name, parameters, stream, ...)                                                        \
    HOOK(int, name, parameters)                                                                    \
    {                                                                                              \
        STREAM_BODY(int, stream, 1u, true, REAL_LATE(name)(__VA_ARGS__), result == EOF ? 0 : 1);   \
    }
GETC(fgetc, (FILE * stream), stream, stream)
GETC(getc, (FILE * stream), stream, stream)
GETC(_IO_getc, (FILE * stream), stream, stream)
GETC(fgetc_unlocked, (FILE * stream), stream, stream)
GETC(getc_unlocked, (FILE * stream), stream, stream)
GETC(getchar, (void), stdin, )
GETC(getchar_unlocked, (void), stdin, )
GETC(__uflow, (FILE * stream), stream, stream)

HOOK(int, __underflow, (FILE * stream))
{
    STREAM_BODY(int, stream, 1u, true, REAL_LATE(__underflow)(stream), 0); /* consumes nothing */
}

HOOK(int, getw, (FILE * stream))
{
    STREAM_BODY(int, stream, sizeof(int), true, REAL_LATE(getw)(stream), YIELD_UNKNOWN);
}

/* Sizes that overflow are the program's error: libc sees them as they are. A short count leaves part
 * of an item unsaid. */
#define FREAD_YIELD(result, size, count)                                                           \
    ((result) < (count) && (size) != 1 ? YIELD_ASK : (ssize_t)((result) * (size)))
#define FREAD(name)                                                                                \
    HOOK(size_t, name, (void *to, size_t size, size_t count, FILE *stream))                        \
    {                                                                                              \
        STREAM_BODY_ASKING(size_t, stream, size * count, true, size != 1,                          \
                           REAL_LATE(name)(to, size, count, stream),                               \
                           FREAD_YIELD(result, size, count));                                      \
    }
FREAD(fread)
FREAD(_IO_fread)
FREAD(fread_unlocked)

#define FREAD_CHK(name)                                                                            \
    HOOK(size_t, name, (void *to, size_t room, size_t size, size_t count, FILE *stream))           \
    {                                                                                              \
        STREAM_BODY_ASKING(size_t, stream, size * count, true, size != 1,                          \
                           REAL_LATE(name)(to, room, size, count, stream),                         \
                           FREAD_YIELD(result, size, count));                                      \
    }
FREAD_CHK(__fread_chk)
FREAD_CHK(__fread_unlocked_chk)

/* C: at most room - 1 bytes, but a line is usually shorter. */
#define LINE_NEED(room) ((room) > 0 ? (size_t)(room) - 1 : 0)
#define NEARLY_EMPTY(stream) (buffered(stream) < NEARLY_EMPTY_BYTES)

#define FGETS(name)                                                                                \
    HOOK(char *, name, (char *to, int room, FILE *stream))                                         \
    {                                                                                              \
        STREAM_BODY(char *, stream, LINE_NEED(room), NEARLY_EMPTY(stream),                         \
                    REAL_LATE(name)(to, room, stream), YIELD_UNKNOWN);                             \
    }
FGETS(fgets)
FGETS(_IO_fgets)
FGETS(fgets_unlocked)

#define FGETS_CHK(name)                                                                            \
    HOOK(char *, name, (char *to, size_t size, int room, FILE *stream))                            \
    {                                                                                              \
        STREAM_BODY(char *, stream, LINE_NEED(room), NEARLY_EMPTY(stream),                         \
                    REAL_LATE(name)(to, size, room, stream), YIELD_UNKNOWN);                       \
    }
FGETS_CHK(__fgets_chk)
FGETS_CHK(__fgets_unlocked_chk)

#define GETS(name, parameters, ...)                                                                \
    HOOK(char *, name, parameters)                                                                 \
    {                                                                                              \
        STREAM_BODY(char *, stdin, ALWAYS_WATCH, NEARLY_EMPTY(stdin), REAL_LATE(name)(__VA_ARGS__), \
                    YIELD_UNKNOWN);                                                                \
    }
GETS(gets, (char *to), to)
GETS(_IO_gets, (char *to), to)
GETS(__gets_chk, (char *to, size_t size), to, size)

HOOK(ssize_t, getline, (char **line, size_t *room, FILE *stream))
{
    STREAM_BODY(ssize_t, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),
                REAL_LATE(getline)(line, room, stream), result);
}

#define GETDELIM(name)                                                                             \
    HOOK(ssize_t, name, (char **line, size_t *room, int end, FILE *stream))                        \
    {                                                                                              \
        STREAM_BODY(ssize_t, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),                           \
                    REAL_LATE(name)(line, room, end, stream), result);                             \
    }
GETDELIM(getdelim)
GETDELIM(__getdelim)

/* Scanning: the variable forms call the real v-form of the same dialect. */
#define VSCANF(name)                                                                               \
    HOOK(int, name, (FILE * stream, const char *format, va_list values))                           \
    {                                                                                              \
        STREAM_BODY(int, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),                               \
                    REAL_LATE(name)(stream, format, values), YIELD_UNKNOWN);                       \
    }
VSCANF(vfscanf)
VSCANF(__isoc99_vfscanf)
VSCANF(__isoc23_vfscanf)

/*
 * Wide streams convert the byte buffer ahead into one of their own, so the byte buffer says nothing:
 * the front of the wide one does. It is not declared in public headers, but its first two members
 * have been these since glibc 2.2, and they are only compared. Whether a refill happened, only the
 * descriptor's offset can tell.
 */
struct wide_front {
    const wchar_t *next;
    const wchar_t *end;
};

static inline size_t wide_buffered(const FILE *stream)
{
    const struct wide_front *wide = (const void *)stream->_wide_data;
    return wide != NULL ? (size_t)(wide->end - wide->next) : 0;
}

/* Wide characters that make a refill unlikely for a call of unknown need. */
#define NEARLY_EMPTY_CHARACTERS 512u

#define WIDE_BODY(type, stream, need, call)                                                        \
    do {                                                                                           \
        if (LIKELY(wide_buffered(stream) >= (need)) || UNLIKELY(!foretell_active))                 \
            return call;                                                                           \
        struct watch watch = watch_begin(stream, true, true);                                      \
        type result = call;                                                                        \
        watch_end(&watch, stream, YIELD_ASK);                                                      \
        return result;                                                                             \
    } while (0)

#define VWSCANF(name)                                                                              \
    HOOK(int, name, (FILE * stream, const wchar_t *format, va_list values))                        \
    {                                                                                              \
        WIDE_BODY(int, stream, NEARLY_EMPTY_CHARACTERS, REAL_LATE(name)(stream, format, values));  \
    }
VWSCANF(vfwscanf)
VWSCANF(__isoc99_vfwscanf)
VWSCANF(__isoc23_vfwscanf)

#define SCANF(name, target, parameters, stream)                                                    \
    HOOK(int, name, parameters)                                                                    \
    {                                                                                              \
        va_list values;                                                                            \
        va_start(values, format);                                                                  \
        int result = foretell_hook_##target(stream, format, values);                               \
        va_end(values);                                                                            \
        return result;                                                                             \
    }
SCANF(fscanf, vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(__isoc99_fscanf, __isoc99_vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(__isoc23_fscanf, __isoc23_vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(fwscanf, vfwscanf, (FILE * stream, const wchar_t *format, ...), stream)
SCANF(__isoc99_fwscanf, __isoc99_vfwscanf, (FILE * stream, const wchar_t *format, ...),
      stream)
SCANF(__isoc23_fwscanf, __isoc23_vfwscanf, (FILE * stream, const wchar_t *format, ...),
      stream)
SCANF(scanf, vfscanf, (const char *format, ...), stdin)
SCANF(__isoc99_scanf, __isoc99_vfscanf, (const char *format, ...), stdin)
SCANF(__isoc23_scanf, __isoc23_vfscanf, (const char *format, ...), stdin)

SCANF(wscanf, vfwscanf, (const wchar_t *format, ...), stdin)
SCANF(__isoc99_wscanf, __isoc99_vfwscanf, (const wchar_t *format, ...), stdin)
SCANF(__isoc23_wscanf, __isoc23_vfwscanf, (const wchar_t *format, ...), stdin)

#define VSCANF_STDIN(name, target, character)                                                      \
    HOOK(int, name, (const character *format, va_list values))                                     \
    {                                                                                              \
        return foretell_hook_##target(stdin, format, values);                                      \
    }
VSCANF_STDIN(vscanf, vfscanf, char)
VSCANF_STDIN(__isoc99_vscanf, __isoc99_vfscanf, char)
VSCANF_STDIN(__isoc23_vscanf, __isoc23_vfscanf, char)
VSCANF_STDIN(vwscanf, vfwscanf, wchar_t)
VSCANF_STDIN(__isoc99_vwscanf, __isoc99_vfwscanf, wchar_t)
VSCANF_STDIN(__isoc23_vwscanf, __isoc23_vfwscanf, wchar_t)

#define GETWC(name, parameters, stream, ...)                                                       \
    HOOK(wint_t, name, parameters)                                                                 \
    {                                                                                              \
        WIDE_BODY(wint_t, stream, 1u, REAL_LATE(name)(__VA_ARGS__));                               \
    }
GETWC(fgetwc, (FILE * stream), stream, stream)
GETWC(getwc, (FILE * stream), stream, stream)
GETWC(fgetwc_unlocked, (FILE * stream), stream, stream)
GETWC(getwc_unlocked, (FILE * stream), stream, stream)
GETWC(getwchar, (void), stdin, )
GETWC(getwchar_unlocked, (void), stdin, )

#define FGETWS(name)                                                                               \
    HOOK(wchar_t *, name, (wchar_t * to, int room, FILE *stream))                                  \
    {                                                                                              \
        WIDE_BODY(wchar_t *, stream, NEARLY_EMPTY_CHARACTERS, REAL_LATE(name)(to, room, stream)); \
    }
FGETWS(fgetws)
FGETWS(fgetws_unlocked)

#define FGETWS_CHK(name)                                                                           \
    HOOK(wchar_t *, name, (wchar_t * to, size_t size, int room, FILE *stream))                     \
    {                                                                                              \
        WIDE_BODY(wchar_t *, stream, NEARLY_EMPTY_CHARACTERS,                                      \
                  REAL_LATE(name)(to, size, room, stream));                                        \
    }
FGETWS_CHK(__fgetws_chk)
FGETWS_CHK(__fgetws_unlocked_chk)

/*
 * Seeking. libc moves the descriptor to a block's edge and may read that block at once. The stream's
 * own note of the descriptor's offset (_offset) tells whether it did; the new position is the
 * kernel's, the range read is what the buffer holds now.
 */
static void seek_end(struct watch *watch, FILE *stream)
{
    if (watch->entry == NULL || watch->other)
        return;
    watch->began_bytes = POSITION_UNKNOWN;
    if (stream->_offset != watch->stream_offset && stream->_IO_read_end != stream->_IO_read_base)
        watch_end(watch, stream, YIELD_UNKNOWN);
    else
        __atomic_store_n(&watch->entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
}

#define SEEK(type, name, parameters, ...)                                                          \
    HOOK(type, name, parameters)                                                                   \
    {                                                                                              \
        if (!foretell_active)                                                                      \
            return REAL_LATE(name)(__VA_ARGS__);                                                   \
        struct watch watch = watch_begin(stream, true, false);                                     \
        type result = REAL_LATE(name)(__VA_ARGS__);                                                \
        seek_end(&watch, stream);                                                                  \
        return result;                                                                             \
    }
SEEK(int, fseek, (FILE * stream, long offset, int whence), stream, offset, whence)
SEEK(int, fseeko, (FILE * stream, off64_t offset, int whence), stream, offset, whence)
SEEK(int, fseeko64, (FILE * stream, off64_t offset, int whence), stream, offset, whence)
SEEK(int, fsetpos, (FILE * stream, const void *position), stream, position)
SEEK(int, fsetpos64, (FILE * stream, const void *position), stream, position)

HOOK(void, rewind, (FILE * stream))
{
    if (!foretell_active) {
        REAL_LATE(rewind)(stream);
        return;
    }
    struct watch watch = watch_begin(stream, true, false);
    REAL_LATE(rewind)(stream);
    seek_end(&watch, stream);
}

/* Opening: a mode of "r" without "+" is a descriptor of our own, at offset 0. */
static int mode_flags(const char *mode)
{
    size_t length = strcspn(mode, ",");
    return mode[0] == 'r' && memchr(mode, '+', length) == NULL ? O_RDONLY : O_RDWR;
}

#define FOPEN(name)                                                                                \
    HOOK(FILE *, name, (const char *path, const char *mode))                                       \
    {                                                                                              \
        if (!foretell_active)                                                                      \
            return REAL_LATE(name)(path, mode);                                                    \
        uint64_t start_ns = now_ns();                                                              \
        FILE *stream = REAL_LATE(name)(path, mode);                                                \
        foretell_opened(stream != NULL ? stream->_fileno : -1, mode_flags(mode), start_ns);        \
        return stream;                                                                             \
    }
FOPEN(fopen)
FOPEN(fopen64)
FOPEN(_IO_fopen)

#define FREOPEN(name)                                                                              \
    HOOK(FILE *, name, (const char *path, const char *mode, FILE *stream))                         \
    {                                                                                              \
        foretell_forget(stream->_fileno);                                                          \
        if (!foretell_active)                                                                      \
            return REAL_LATE(name)(path, mode, stream);                                            \
        uint64_t start_ns = now_ns();                                                              \
        FILE *again = REAL_LATE(name)(path, mode, stream);                                         \
        /* Without a path only the mode changes: the position is not 0. */                        \
        foretell_opened(again != NULL ? again->_fileno : -1,                                       \
                        path != NULL ? mode_flags(mode) : O_RDWR, start_ns);                       \
        return again;                                                                              \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

/* A descriptor given to stdio stays what it was. */
HOOK(FILE *, fdopen, (int fd, const char *mode))
{
    return REAL_LATE(fdopen)(fd, mode);
}

HOOK(FILE *, _IO_fdopen, (int fd, const char *mode))
{
    return REAL_LATE(_IO_fdopen)(fd, mode);
}

HOOK(int, fileno, (FILE * stream))
{
    return REAL_LATE(fileno)(stream);
}

#define FCLOSE(name)                                                                               \
    HOOK(int, name, (FILE * stream))                                                               \
    {                                                                                              \
        pid_t shell = foretell_take_pipe(stream);                                                  \
        foretell_forget(stream->_fileno);                                                          \
        return foretell_wait_for_pipe(shell, REAL_LATE(name)(stream));                             \
    }
FCLOSE(fclose)
FCLOSE(_IO_fclose)

HOOK(int, fcloseall, (void))
{
    /* In glibc this flushes and unbuffers, and closes nothing; descriptors are asked again. */
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
    return REAL_LATE(fcloseall)();
}
