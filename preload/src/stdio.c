/*
 * Hooks of the stdio family.
 *
 * Decides when a stdio call has read from its descriptor, and which range. libc's stdio reads without
 * passing through `read`, so its calls are wrapped by name. The reported range is the descriptor's, which
 * is ahead of the program by the buffer (FORETELL_FLAG_STDIO).
 *
 * How, by the public fields of FILE: A. a call that the buffer satisfies is forwarded at once,
 * untimed: a few ns. B. a call that may need more is watched: buffer pointers before and after say
 * whether a refill happened. C. a call of unknown need (a line, a scanned value) is timed only if
 * fewer than NEARLY_EMPTY_BYTES are left; a refill that comes all the same has duration 0.
 * D. after a refill the descriptor's new offset is asked from the kernel, if records are wanted.
 *
 * The fields are read without the stream's lock: two threads on one stream may see a refill twice or
 * not at all. That costs a wrong count, never a wrong access: only pointers are compared.
 *
 * The stream may be an invalid pointer where libc does not look at it: in a call for no bytes, or for a
 * line with no place to put it. Such a call is forwarded before anything else. In all other calls libc
 * follows the pointer at once, so a bad one has the same effect with and without the hook.
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

/* The need of a call that may read any amount: it is watched whatever is buffered. */
#define ALWAYS_WATCH SIZE_MAX
/* The yield of a call that does not return the number of bytes that it took from the stream. */
#define YIELD_UNKNOWN (-1)
/* The same for a wide stream. */
#define YIELD_WIDE (-2)

/*
 * Wide streams convert the byte buffer ahead into a buffer of wide characters. Public headers do not declare
 * that structure. Its first two members have been these since glibc 2.2, and they are only compared.
 */
struct wide_front {
    const wchar_t *next;
    const wchar_t *end;
};

struct watch {
    struct descriptor *entry; /* NULL: not a regular file, only bytes are counted */
    const char *next;
    const char *end;
    const char *base;
    struct wide_front wide;
    off64_t stream_offset;
    uint64_t began_bytes; /* the descriptor's offset before the call, if known */
    uint64_t start_ns;    /* 0: not timed */
    bool nothing;         /* no descriptor: nothing is done after the call */
};

static inline size_t buffered(const FILE *stream)
{
    return (size_t)(stream->_IO_read_end - stream->_IO_read_ptr);
}

static inline struct wide_front wide_front(const FILE *stream)
{
    const struct wide_front *wide = (const void *)stream->_wide_data;
    return wide != NULL ? *wide : (struct wide_front){NULL, NULL};
}

/* timed: start the clock. */
static inline void watch_begin(struct watch *watch, const FILE *stream, bool timed, bool wide)
{
    int fd = stream->_fileno;
    watch->entry = NULL;
    watch->nothing = fd < 0;
    watch->start_ns = 0;
    if (fd < 0)
        return;
    watch->next = stream->_IO_read_ptr;
    watch->end = stream->_IO_read_end;
    watch->base = stream->_IO_read_base;
    watch->stream_offset = stream->_offset;
    watch->began_bytes = POSITION_UNKNOWN;
    if (wide)
        watch->wide = wide_front(stream);
    struct descriptor *entry = watched(fd);
    watch->entry = entry;
    if (entry == NULL)
        return;
    if (UNLIKELY(wants_records(ring()))) {
        if (state_of(tag_of(entry)) == OWNED)
            watch->began_bytes = __atomic_load_n(&entry->position_bytes, __ATOMIC_RELAXED);
        if (watch->began_bytes == POSITION_UNKNOWN && timed)
            watch->began_bytes = foretell_kernel_position(fd);
    }
    if (timed)
        watch->start_ns = read_begins(activity());
}

/* The size of the last refill; 0 if there was none. */
static uint64_t refilled(const struct watch *watch, const FILE *stream)
{
    bool moved = stream->_IO_read_end != watch->end || stream->_IO_read_base != watch->base ||
                 stream->_IO_read_ptr < watch->next || stream->_offset != watch->stream_offset;
    return moved ? (uint64_t)(stream->_IO_read_end - stream->_IO_read_base) : 0;
}

/* As refilled, for a wide stream. Its byte buffer may look the same before and after a refill. But if all of
 * the buffer had been converted before, new wide characters come from new bytes. */
static uint64_t refilled_wide(const struct watch *watch, const FILE *stream)
{
    struct wide_front now = wide_front(stream);
    bool converted = now.end != watch->wide.end || now.next < watch->wide.next;
    if (converted && watch->next == watch->end)
        return (uint64_t)(stream->_IO_read_end - stream->_IO_read_base);
    return refilled(watch, stream);
}

/* The number of bytes that the call took from the descriptor. Exact if the call's yield is known. */
static uint64_t pulled(const struct watch *watch, const FILE *stream, ssize_t yield)
{
    if (yield == YIELD_WIDE)
        return refilled_wide(watch, stream);
    if (yield < 0)
        return refilled(watch, stream);
    int64_t before = watch->end - watch->next;
    int64_t after = stream->_IO_read_end - stream->_IO_read_ptr;
    int64_t bytes = (int64_t)yield - before + after;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* D. bytes: the number that the call took, as far as the buffer shows it. */
static __attribute__((noinline)) void record_refill(const struct watch *watch, int fd,
                                                    uint64_t bytes, uint64_t end_ns)
{
    struct descriptor *entry = watch->entry;
    uint64_t tag = tag_of(entry);
    uint64_t position = foretell_kernel_position(fd);
    uint64_t duration_ns = end_ns - watch->start_ns;
    uint64_t began = watch->began_bytes;
    if (position != POSITION_UNKNOWN && (began > position || began == POSITION_UNKNOWN))
        began = position - (bytes < position ? bytes : position);
    __atomic_store_n(&entry->position_bytes, position, __ATOMIC_RELAXED);
    uint64_t length = position != POSITION_UNKNOWN ? position - began : bytes;
    if (length == 0 && !has_stalled(duration_ns, 0))
        return;
    count_read(ring(), entry, length, duration_ns);
    if (length == 0 || position == POSITION_UNKNOWN || (tag & TAG_IDENTITY) == 0)
        return;
    struct foretell_record record = {
        .kind = FORETELL_RECORD_READ,
        .flags = FORETELL_FLAG_STDIO | (state_of(tag) == SHARED ? FORETELL_FLAG_SHARED : 0u),
        .device = __atomic_load_n(&entry->device, __ATOMIC_RELAXED),
        .inode = __atomic_load_n(&entry->inode, __ATOMIC_RELAXED),
        .offset_bytes = began,
        .length_bytes = length,
        .end_ns = end_ns,
        .duration_ns = duration_ns};
    foretell_emit_read(ring(), &record);
}

static void watch_end(const struct watch *watch, FILE *stream, ssize_t yield)
{
    struct descriptor *entry = watch->entry;
    if (watch->nothing)
        return;
    uint64_t end_ns = watch->start_ns != 0 ? now_ns() : 0;
    uint64_t duration_ns = end_ns - watch->start_ns;
    uint64_t bytes = pulled(watch, stream, yield);
    if (entry == NULL) {
        count_other((ssize_t)bytes);
        return;
    }
    bool stalled = has_stalled(duration_ns, bytes);
    struct foretell_ring_header *header = ring();
    /* The buffer of a wide stream may hide a refill; the kernel knows. */
    if (UNLIKELY(wants_records(header)) && (bytes > 0 || yield == YIELD_WIDE || stalled)) {
        record_refill(watch, stream->_fileno, bytes, end_ns);
        return;
    }
    if (bytes == 0 && !stalled)
        return;
    count_read(header, entry, bytes, duration_ns);
    __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
}

/* `need`: bytes that certainly suffice. `timed`: whether a refill is likely enough for a clock. */
#define STREAM_BODY(type, stream, need, timed, call, yield)                                        \
    do {                                                                                           \
        if (LIKELY(buffered(stream) >= (need)) || UNLIKELY(!foretell_active))                      \
            return call;                                                                           \
        struct watch watch;                                                                        \
        watch_begin(&watch, stream, timed, false);                                                 \
        type result = call;                                                                        \
        watch_end(&watch, stream, yield);                                                          \
        return result;                                                                             \
    } while (0)

/* One byte: a refill happens exactly if the buffer is empty. At the end of the file nothing is
 * consumed. */
#define GETC(name, parameters, stream, ...)                                                        \
    HOOK(int, name, parameters)                                                                    \
    {                                                                                              \
        STREAM_BODY(int, stream, 1u, true, REAL(name)(__VA_ARGS__), result == EOF ? 0 : 1);   \
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
    STREAM_BODY(int, stream, 1u, true, REAL(__underflow)(stream), 0); /* consumes nothing */
}

HOOK(int, getw, (FILE * stream))
{
    STREAM_BODY(int, stream, sizeof(int), true, REAL(getw)(stream), YIELD_UNKNOWN);
}

/*
 * Forwarded as a read of single bytes. libc reads the same bytes, and the result also counts those of a
 * last, incomplete item. A call for no bytes, and one with sizes that overflow, is forwarded unchanged.
 */
#define FREAD_BODY(size, count, stream, plain, by_bytes)                                           \
    do {                                                                                           \
        size_t bytes;                                                                              \
        if (UNLIKELY(__builtin_mul_overflow(size, count, &bytes)) || UNLIKELY(bytes == 0) ||       \
            LIKELY(buffered(stream) >= bytes) || UNLIKELY(!foretell_active))                       \
            return plain;                                                                          \
        struct watch watch;                                                                        \
        watch_begin(&watch, stream, true, false);                                                  \
        size_t taken = by_bytes;                                                                   \
        watch_end(&watch, stream, (ssize_t)taken);                                                 \
        return taken == bytes ? count : taken / size;                                              \
    } while (0)

#define FREAD(name)                                                                                \
    HOOK(size_t, name, (void *to, size_t size, size_t count, FILE *stream))                        \
    {                                                                                              \
        FREAD_BODY(size, count, stream, REAL(name)(to, size, count, stream),                  \
                   REAL(name)(to, 1, bytes, stream));                                         \
    }
FREAD(fread)
FREAD(_IO_fread)
FREAD(fread_unlocked)

#define FREAD_CHK(name)                                                                            \
    HOOK(size_t, name, (void *to, size_t room, size_t size, size_t count, FILE *stream))           \
    {                                                                                              \
        FREAD_BODY(size, count, stream, REAL(name)(to, room, size, count, stream),            \
                   REAL(name)(to, room, 1, bytes, stream));                                   \
    }
FREAD_CHK(__fread_chk)
FREAD_CHK(__fread_unlocked_chk)

/* C: at most room - 1 bytes, but a line is usually shorter. Without room for any, libc leaves the
 * stream alone. */
#define LINE_NEED(room) ((size_t)(room) - 1)
#define NO_ROOM(room) UNLIKELY((room) <= 1)
#define NEARLY_EMPTY(stream) (buffered(stream) < NEARLY_EMPTY_BYTES)

#define FGETS(name)                                                                                \
    HOOK(char *, name, (char *to, int room, FILE *stream))                                         \
    {                                                                                              \
        if (NO_ROOM(room))                                                                         \
            return REAL(name)(to, room, stream);                                              \
        STREAM_BODY(char *, stream, LINE_NEED(room), NEARLY_EMPTY(stream),                         \
                    REAL(name)(to, room, stream), YIELD_UNKNOWN);                             \
    }
FGETS(fgets)
FGETS(_IO_fgets)
FGETS(fgets_unlocked)

#define FGETS_CHK(name)                                                                            \
    HOOK(char *, name, (char *to, size_t size, int room, FILE *stream))                            \
    {                                                                                              \
        if (NO_ROOM(room))                                                                         \
            return REAL(name)(to, size, room, stream);                                        \
        STREAM_BODY(char *, stream, LINE_NEED(room), NEARLY_EMPTY(stream),                         \
                    REAL(name)(to, size, room, stream), YIELD_UNKNOWN);                       \
    }
FGETS_CHK(__fgets_chk)
FGETS_CHK(__fgets_unlocked_chk)

#define GETS(name, parameters, ...)                                                                \
    HOOK(char *, name, parameters)                                                                 \
    {                                                                                              \
        STREAM_BODY(char *, stdin, ALWAYS_WATCH, NEARLY_EMPTY(stdin), REAL(name)(__VA_ARGS__), \
                    YIELD_UNKNOWN);                                                                \
    }
GETS(gets, (char *to), to)
GETS(_IO_gets, (char *to), to)
GETS(__gets_chk, (char *to, size_t size), to, size)

/* Without a place for the line libc leaves the stream alone. */
#define NO_LINE(line, room) UNLIKELY((line) == NULL || (room) == NULL)

HOOK(ssize_t, getline, (char **line, size_t *room, FILE *stream))
{
    if (NO_LINE(line, room))
        return REAL(getline)(line, room, stream);
    STREAM_BODY(ssize_t, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),
                REAL(getline)(line, room, stream), result);
}

#define GETDELIM(name)                                                                             \
    HOOK(ssize_t, name, (char **line, size_t *room, int end, FILE *stream))                        \
    {                                                                                              \
        if (NO_LINE(line, room))                                                                   \
            return REAL(name)(line, room, end, stream);                                       \
        STREAM_BODY(ssize_t, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),                           \
                    REAL(name)(line, room, end, stream), result);                             \
    }
GETDELIM(getdelim)
GETDELIM(__getdelim)

/* Scanning: the variable forms call the real v-form of the same dialect. */
#define HOOK_2023(result, name, parameters)                                                        \
    HOOK_VERSION(result, name, #name SCANF_2023_VERSION, parameters)
#define VSCANF_BODY(name)                                                                          \
    {                                                                                              \
        STREAM_BODY(int, stream, ALWAYS_WATCH, NEARLY_EMPTY(stream),                               \
                    REAL(name)(stream, format, values), YIELD_UNKNOWN);                       \
    }
#define VSCANF_ARGS (FILE * stream, const char *format, va_list values)
HOOK(int, vfscanf, VSCANF_ARGS) VSCANF_BODY(vfscanf)
HOOK(int, __isoc99_vfscanf, VSCANF_ARGS) VSCANF_BODY(__isoc99_vfscanf)
HOOK_2023(int, __isoc23_vfscanf, VSCANF_ARGS) VSCANF_BODY(__isoc23_vfscanf)

static inline size_t wide_buffered(const FILE *stream)
{
    struct wide_front front = wide_front(stream);
    return (size_t)(front.end - front.next);
}

/* Wide characters that make a refill unlikely for a call of unknown need. */
#define NEARLY_EMPTY_CHARACTERS 512u

#define WIDE_BODY(type, stream, need, call)                                                        \
    do {                                                                                           \
        if (LIKELY(wide_buffered(stream) >= (need)) || UNLIKELY(!foretell_active))                 \
            return call;                                                                           \
        struct watch watch;                                                                        \
        watch_begin(&watch, stream, true, true);                                                   \
        type result = call;                                                                        \
        watch_end(&watch, stream, YIELD_WIDE);                                                     \
        return result;                                                                             \
    } while (0)

#define VWSCANF_BODY(name)                                                                         \
    {                                                                                              \
        WIDE_BODY(int, stream, NEARLY_EMPTY_CHARACTERS, REAL(name)(stream, format, values));  \
    }
#define VWSCANF_ARGS (FILE * stream, const wchar_t *format, va_list values)
HOOK(int, vfwscanf, VWSCANF_ARGS) VWSCANF_BODY(vfwscanf)
HOOK(int, __isoc99_vfwscanf, VWSCANF_ARGS) VWSCANF_BODY(__isoc99_vfwscanf)
HOOK_2023(int, __isoc23_vfwscanf, VWSCANF_ARGS) VWSCANF_BODY(__isoc23_vfwscanf)

#define SCANF(hook, name, target, parameters, stream)                                              \
    hook(int, name, parameters)                                                                    \
    {                                                                                              \
        va_list values;                                                                            \
        va_start(values, format);                                                                  \
        int result = foretell_hook_##target(stream, format, values);                               \
        va_end(values);                                                                            \
        return result;                                                                             \
    }
SCANF(HOOK, fscanf, vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(HOOK, __isoc99_fscanf, __isoc99_vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(HOOK_2023, __isoc23_fscanf, __isoc23_vfscanf, (FILE * stream, const char *format, ...), stream)
SCANF(HOOK, fwscanf, vfwscanf, (FILE * stream, const wchar_t *format, ...), stream)
SCANF(HOOK, __isoc99_fwscanf, __isoc99_vfwscanf, (FILE * stream, const wchar_t *format, ...),
      stream)
SCANF(HOOK_2023, __isoc23_fwscanf, __isoc23_vfwscanf, (FILE * stream, const wchar_t *format, ...),
      stream)
SCANF(HOOK, scanf, vfscanf, (const char *format, ...), stdin)
SCANF(HOOK, __isoc99_scanf, __isoc99_vfscanf, (const char *format, ...), stdin)
SCANF(HOOK_2023, __isoc23_scanf, __isoc23_vfscanf, (const char *format, ...), stdin)

SCANF(HOOK, wscanf, vfwscanf, (const wchar_t *format, ...), stdin)
SCANF(HOOK, __isoc99_wscanf, __isoc99_vfwscanf, (const wchar_t *format, ...), stdin)
SCANF(HOOK_2023, __isoc23_wscanf, __isoc23_vfwscanf, (const wchar_t *format, ...), stdin)

#define VSCANF_STDIN(hook, name, target, character)                                                \
    hook(int, name, (const character *format, va_list values))                                     \
    {                                                                                              \
        return foretell_hook_##target(stdin, format, values);                                      \
    }
VSCANF_STDIN(HOOK, vscanf, vfscanf, char)
VSCANF_STDIN(HOOK, __isoc99_vscanf, __isoc99_vfscanf, char)
VSCANF_STDIN(HOOK_2023, __isoc23_vscanf, __isoc23_vfscanf, char)
VSCANF_STDIN(HOOK, vwscanf, vfwscanf, wchar_t)
VSCANF_STDIN(HOOK, __isoc99_vwscanf, __isoc99_vfwscanf, wchar_t)
VSCANF_STDIN(HOOK_2023, __isoc23_vwscanf, __isoc23_vfwscanf, wchar_t)

#define GETWC(name, parameters, stream, ...)                                                       \
    HOOK(wint_t, name, parameters)                                                                 \
    {                                                                                              \
        WIDE_BODY(wint_t, stream, 1u, REAL(name)(__VA_ARGS__));                               \
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
        if (NO_ROOM(room))                                                                         \
            return REAL(name)(to, room, stream);                                              \
        WIDE_BODY(wchar_t *, stream, NEARLY_EMPTY_CHARACTERS, REAL(name)(to, room, stream)); \
    }
FGETWS(fgetws)
FGETWS(fgetws_unlocked)

#define FGETWS_CHK(name)                                                                           \
    HOOK(wchar_t *, name, (wchar_t * to, size_t size, int room, FILE *stream))                     \
    {                                                                                              \
        if (NO_ROOM(room))                                                                         \
            return REAL(name)(to, size, room, stream);                                        \
        WIDE_BODY(wchar_t *, stream, NEARLY_EMPTY_CHARACTERS,                                      \
                  REAL(name)(to, size, room, stream));                                        \
    }
FGETWS_CHK(__fgetws_chk)
FGETWS_CHK(__fgetws_unlocked_chk)

/*
 * Seeking. libc moves the descriptor to a block's edge and may read that block at once. The stream's field
 * _offset, its copy of the descriptor's offset, shows whether it did. The new position is asked from the
 * kernel; the range read is the buffer's content.
 */
static void seek_end(struct watch *watch, FILE *stream)
{
    if (watch->entry == NULL)
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
            return REAL(name)(__VA_ARGS__);                                                   \
        struct watch watch;                                                                        \
        watch_begin(&watch, stream, true, false);                                                  \
        type result = REAL(name)(__VA_ARGS__);                                                \
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
        REAL(rewind)(stream);
        return;
    }
    struct watch watch;
    watch_begin(&watch, stream, true, false);
    REAL(rewind)(stream);
    seek_end(&watch, stream);
}

/* Opening: a mode of "r" without "+" is a descriptor of our own, at offset 0. Called only with a mode that
 * libc has taken. */
static int mode_flags(const char *mode)
{
    size_t length = strcspn(mode, ",");
    return mode[0] == 'r' && memchr(mode, '+', length) == NULL ? O_RDONLY : O_RDWR;
}

/* The path of an fopen or freopen that may read what is there; else NULL. `again`: its result, or NULL. */
static const char *named_by(const char *path, const char *mode, const FILE *again)
{
    return looked_up(again != NULL ? 0 : -1) && mode[0] == 'r' ? path : NULL;
}

#define FOPEN(name)                                                                                \
    HOOK(FILE *, name, (const char *path, const char *mode))                                       \
    {                                                                                              \
        if (!foretell_active)                                                                      \
            return REAL(name)(path, mode);                                                    \
        uint64_t start_ns = open_begins();                                                         \
        FILE *stream = REAL(name)(path, mode);                                                \
        foretell_opened(stream != NULL ? stream->_fileno : -1,                                     \
                        stream != NULL ? mode_flags(mode) : O_RDWR, AT_FDCWD,                      \
                        named_by(path, mode, stream), start_ns);                                   \
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
            return REAL(name)(path, mode, stream);                                            \
        uint64_t start_ns = open_begins();                                                         \
        FILE *again = REAL(name)(path, mode, stream);                                         \
        /* Without a path only the mode changes: the position is not 0. */                        \
        foretell_opened(again != NULL ? again->_fileno : -1,                                       \
                        again != NULL && path != NULL ? mode_flags(mode) : O_RDWR, AT_FDCWD,       \
                        named_by(path, mode, again), start_ns);                                    \
        return again;                                                                              \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

#define FCLOSE(name)                                                                               \
    HOOK(int, name, (FILE * stream))                                                               \
    {                                                                                              \
        pid_t shell = foretell_take_pipe(stream);                                                  \
        foretell_forget(stream->_fileno);                                                          \
        return foretell_wait_for_pipe(shell, REAL(name)(stream));                             \
    }
FCLOSE(fclose)
FCLOSE(_IO_fclose)

HOOK(int, fcloseall, (void))
{
    /* In glibc this flushes and unbuffers, and closes nothing. Positions are asked from the kernel again. */
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
    return REAL(fcloseall)();
}
