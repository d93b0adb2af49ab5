/*
 * Calls every name that the interposing library exports, with arguments good and bad, and prints a
 * line for each call: what it returned, errno, or the signal that ended it. tests/preload_hooks.rs
 * compares what it prints with and without the library, and what it names with preload/symbols.txt.
 *
 *   every_hook names               the names, one a line
 *   every_hook calls FILE SITUATION…   a line for each call of each name in each situation
 *   every_hook depth FILE SITUATION…   the same, with the bytes of stack that the call took
 *
 * A situation says where the call is made and what went before:
 *   inherited  descriptors and streams were opened before the fork, and are read first by the child
 *   fresh      the child opens its own
 * and
 *   plain      on the usual stack
 *   thread     in a thread with the smallest stack that there is
 *   signal     in a signal handler, on a small alternate stack
 *   strict     after seccomp's strict mode by syscall(SYS_seccomp)
 *   prctl      the same by syscall(SYS_prctl)
 *   raw        the same by an instruction of the program's own
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define BAD ((void *)1)
#define NOWHERE "/nonexistent/file"
/* Of a table's second page, of none, and beyond all. */
#define HIGH_FD 300
#define NO_FD 1000000

extern char **environ;
static const char *path;
static int file, copy, folder, out, ends[2];
static FILE *stream, *memory, *wide;
static char bytes[4096];
static bool over; /* the class knows no such way */

static long none(void)
{
    over = true;
    return 0;
}

/* What a pointer result is worth comparing for. */
static long is(const void *pointer)
{
    return pointer != NULL;
}

static char words[] = "7 words\n";
/* Where streams keep their bytes: so that a first read does not allocate. */
static char room[3][512];

static void open_all(void)
{
    file = open(path, O_RDONLY);
    copy = fcntl(file, F_DUPFD, HIGH_FD);
    folder = open("/", O_RDONLY | O_DIRECTORY);
    out = open("/dev/null", O_WRONLY);
    stream = fopen(path, "r");
    wide = fopen(path, "r");
    memory = fmemopen(words, strlen(words), "r");
    setvbuf(stream, room[0], _IOFBF, sizeof room[0]);
    setvbuf(wide, room[1], _IOFBF, sizeof room[1]);
    setvbuf(stdin, room[2], _IOFBF, sizeof room[2]);
    (void)getc(stream);
    (void)fgetwc(wide);
    /* A child may find that another has taken what was in it. */
    if (pipe2(ends, O_NONBLOCK) != 0 || write(ends[1], "piped", 5) != 5)
        abort();
}

/* The classes: one function for each prototype. `way` counts what is tried. */
#define CLASS(name) static long name(void *f, int way)
#define AS(type, ...) ((type(*)(__VA_ARGS__))f)

CLASS(of_read)
{
    ssize_t (*call)(int, void *, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9);
    case 1: return call(file, bytes, 40) + call(file, bytes, 40);
    case 2: return call(file, NULL, 0);
    case 3: return call(file, BAD, 5);
    case 4: return call(-1, bytes, 5);
    case 5: return call(NO_FD, bytes, 5);
    case 6: return call(folder, bytes, 5);
    case 7: return call(ends[0], bytes, 5);
    case 8: return call(file, BAD, SIZE_MAX);
    case 9: return call(copy, bytes, 9);
    case 10: return call(INT_MAX, NULL, 0);
    }
    return none();
}

CLASS(of_read_chk)
{
    ssize_t (*call)(int, void *, size_t, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, sizeof bytes);
    case 1: return call(file, BAD, 5, 5);
    case 2: return call(-1, NULL, 0, 0);
    case 3: return call(file, bytes, 9, 8);
    }
    return none();
}

CLASS(of_pread)
{
    ssize_t (*call)(int, void *, size_t, off64_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, 100);
    case 1: return call(file, NULL, 0, 0);
    case 2: return call(file, BAD, 5, 0);
    case 3: return call(-1, bytes, 5, 0);
    case 4: return call(file, bytes, 5, -1);
    case 5: return call(ends[0], bytes, 5, 0);
    case 6: return call(file, bytes, 5, INT64_MAX);
    }
    return none();
}

CLASS(of_pread_chk)
{
    ssize_t (*call)(int, void *, size_t, off64_t, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, 100, sizeof bytes);
    case 1: return call(file, BAD, 5, 0, 5);
    case 2: return call(file, bytes, 9, 0, 8);
    }
    return none();
}

static struct iovec parts[2] = {{bytes, 7}, {bytes + 7, 9}};
static struct iovec bad_parts[2] = {{bytes, 7}, {BAD, 9}};

CLASS(of_readv)
{
    ssize_t (*call)(int, const struct iovec *, int) = f;
    switch (way) {
    case 0: return call(file, parts, 2);
    case 1: return call(file, NULL, 0);
    case 2: return call(file, BAD, 1);
    case 3: return call(file, bad_parts, 2);
    case 4: return call(file, parts, -1);
    case 5: return call(-1, parts, 2);
    }
    return none();
}

CLASS(of_preadv)
{
    ssize_t (*call)(int, const struct iovec *, int, off64_t) = f;
    switch (way) {
    case 0: return call(file, parts, 2, 100);
    case 1: return call(file, NULL, 0, 0);
    case 2: return call(file, BAD, 1, 0);
    case 3: return call(file, bad_parts, 2, 0);
    case 4: return call(file, parts, 2, -1);
    case 5: return call(-1, parts, 2, 0);
    }
    return none();
}

CLASS(of_preadv2)
{
    ssize_t (*call)(int, const struct iovec *, int, off64_t, int) = f;
    switch (way) {
    case 0: return call(file, parts, 2, 100, 0);
    case 1: return call(file, parts, 2, -1, 0);
    case 2: return call(file, BAD, 1, 0, 0);
    case 3: return call(file, parts, 2, 0, -1);
    case 4: return call(file, NULL, 0, -1, 0);
    }
    return none();
}

CLASS(of_sendfile)
{
    ssize_t (*call)(int, int, off64_t *, size_t) = f;
    off64_t at = 100;
    switch (way) {
    case 0: return call(ends[1], file, NULL, 9);
    case 1: return call(ends[1], file, &at, 9) * 1000 + at;
    case 2: return call(ends[1], file, BAD, 0);
    case 3: return call(ends[1], file, BAD, 9);
    case 4: return call(-1, file, &at, 9);
    case 5: return call(ends[1], -1, BAD, 9);
    case 6: at = INT64_MAX; return call(ends[1], file, &at, 9);
    }
    return none();
}

CLASS(of_copy)
{
    ssize_t (*call)(int, off64_t *, int, off64_t *, size_t, unsigned) = f;
    off64_t at = 100;
    switch (way) {
    case 0: return call(file, NULL, ends[1], NULL, 9, 0);
    case 1: return call(file, &at, ends[1], NULL, 9, 0) * 1000 + at;
    case 2: return call(file, BAD, ends[1], NULL, 0, 0);
    case 3: return call(file, BAD, ends[1], NULL, 9, 0);
    case 4: return call(file, NULL, ends[1], BAD, 0, 0);
    case 5: return call(file, BAD, out, BAD, 0, 0);
    case 6: return call(-1, BAD, -1, BAD, 9, 0);
    case 7: return call(file, &at, ends[1], NULL, 9, ~0u);
    }
    return none();
}

CLASS(of_open)
{
    int (*call)(const char *, int, ...) = f;
    switch (way) {
    case 0: return call(path, O_RDONLY);
    case 1: return call(path, O_RDWR);
    case 2: return call(BAD, O_RDONLY);
    case 3: return call(NULL, O_RDONLY);
    case 4: return call(NOWHERE, O_RDONLY);
    case 5: return call("/tmp", O_TMPFILE | O_RDWR, 0600);
    case 6: return call("", O_WRONLY | O_CREAT, 0600);
    case 7: return call(path, ~0);
    case 8: return call(path, O_PATH);
    }
    return none();
}

CLASS(of_open_2)
{
    int (*call)(const char *, int) = f;
    switch (way) {
    case 0: return call(path, O_RDONLY);
    case 1: return call(BAD, O_RDONLY);
    case 2: return call(NOWHERE, O_RDONLY);
    case 3: return call(NOWHERE, O_CREAT);
    }
    return none();
}

CLASS(of_openat)
{
    int (*call)(int, const char *, int, ...) = f;
    switch (way) {
    case 0: return call(AT_FDCWD, path, O_RDONLY);
    case 1: return call(folder, "etc/passwd", O_RDONLY);
    case 2: return call(folder, BAD, O_RDONLY);
    case 3: return call(-1, "relative", O_RDONLY);
    case 4: return call(AT_FDCWD, NULL, O_RDONLY);
    }
    return none();
}

CLASS(of_openat_2)
{
    int (*call)(int, const char *, int) = f;
    switch (way) {
    case 0: return call(folder, "etc/passwd", O_RDONLY);
    case 1: return call(folder, BAD, O_RDONLY);
    case 2: return call(folder, NOWHERE, O_CREAT);
    }
    return none();
}

CLASS(of_openat2)
{
    int (*call)(int, const char *, struct open_how *, size_t) = f;
    struct open_how how = {.flags = O_RDONLY};
    switch (way) {
    case 0: return call(folder, "etc/passwd", &how, sizeof how);
    case 1: return call(folder, "etc/passwd", BAD, sizeof how);
    case 2: return call(folder, "etc/passwd", NULL, 0);
    case 3: return call(folder, BAD, &how, sizeof how);
    }
    return none();
}

CLASS(of_creat)
{
    int (*call)(const char *, mode_t) = f;
    switch (way) {
    case 0: return call("/dev/null", 0600);
    case 1: return call(BAD, 0600);
    case 2: return call(NOWHERE, 0600);
    }
    return none();
}

CLASS(of_open_by_handle_at)
{
    int (*call)(int, struct file_handle *, int) = f;
    switch (way) {
    case 0: return call(-1, BAD, O_RDONLY);
    case 1: return call(folder, BAD, O_RDONLY);
    case 2: return call(folder, NULL, O_RDONLY);
    }
    return none();
}

/* mkstemp and its kin, told apart by how many arguments are looked at. */
CLASS(of_mkstemp)
{
    int (*call)(char *, int, int) = f;
    char pattern[] = "/tmp/foretell-XXXXXX";
    char wrong[] = "/tmp/foretell";
    char nowhere[] = "/nonexistent/XXXXXX";
    long result;
    switch (way) {
    case 0: result = call(pattern, 0, 0); unlink(pattern); return result;
    case 1: return call(wrong, 0, 0);
    case 2: return call(nowhere, 0, 0);
    case 3: return call(BAD, 0, 0);
    case 4: return call(NULL, 0, 0);
    }
    return none();
}

CLASS(of_tmpfile)
{
    FILE *(*call)(void) = f;
    return way == 0 ? is(call()) : none();
}

CLASS(of_fopen)
{
    FILE *(*call)(const char *, const char *) = f;
    FILE *opened;
    switch (way) {
    case 0: opened = call(path, "r"); return opened != NULL ? fileno(opened) * 1000 + getc(opened) : -1;
    case 1: return is(call(path, "r+"));
    case 2: return is(call(BAD, "r"));
    case 3: return is(call(path, BAD));
    case 4: return is(call(NOWHERE, "r"));
    case 5: return is(call(path, ""));
    case 6: return is(call(path, "re,ccs=UTF-8"));
    case 7: return is(call(NULL, "r"));
    case 8: return is(call(path, NULL));
    }
    return none();
}

CLASS(of_freopen)
{
    FILE *(*call)(const char *, const char *, FILE *) = f;
    switch (way) {
    case 0: return is(call(path, "r", stream)) + getc(stream) * 10;
    case 1: return is(call(NULL, "r", stream)) + getc(stream) * 10;
    case 2: return is(call(path, "r", NULL));
    case 3: return is(call(path, "r", BAD));
    case 4: return is(call(NOWHERE, "r", stream));
    case 5: return is(call(path, BAD, stream));
    case 6: return is(call(path, "r", memory));
    }
    return none();
}

CLASS(of_fclose)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(stream);
    case 1: return call(memory);
    case 2: return call(NULL);
    case 3: return call(BAD);
    }
    return none();
}

CLASS(of_fcloseall)
{
    int (*call)(void) = f;
    return way == 0 ? call() : none();
}

CLASS(of_fread)
{
    size_t (*call)(void *, size_t, size_t, FILE *) = f;
    switch (way) {
    case 0: return (long)call(bytes, 1, 9, stream);
    case 1: return (long)call(bytes, 700, 3, stream) * 10000 + ftell(stream);
    case 2: return (long)call(bytes, 0, 5, NULL);
    case 3: return (long)call(bytes, 5, 0, NULL);
    case 4: return (long)call(NULL, 0, 0, BAD);
    case 5: return (long)call(bytes, 1, 5, NULL);
    case 6: return (long)call(bytes, 1, 5, BAD);
    case 7: return (long)call(BAD, 1, 5, stream);
    case 8: return (long)call(BAD, 1, 900, stream);
    case 9: return (long)call(bytes, 3, 90, memory) * 100 + feof(memory);
    case 10: return (long)call(bytes, SIZE_MAX / 2, 4, NULL);
    }
    return none();
}

CLASS(of_fread_chk)
{
    size_t (*call)(void *, size_t, size_t, size_t, FILE *) = f;
    switch (way) {
    case 0: return (long)call(bytes, sizeof bytes, 7, 3, stream);
    case 1: return (long)call(bytes, 0, 0, 5, NULL);
    case 2: return (long)call(bytes, 0, 5, 0, BAD);
    case 3: return (long)call(bytes, 8, 3, 3, stream);
    case 4: return (long)call(bytes, 8, 1, 5, NULL);
    case 5: return (long)call(bytes, 8, SIZE_MAX / 2, 4, stream);
    }
    return none();
}

CLASS(of_fgets)
{
    char *(*call)(char *, int, FILE *) = f;
    switch (way) {
    case 0: return is(call(bytes, 99, stream));
    case 1: return is(call(bytes, 0, NULL));
    case 2: return is(call(bytes, -1, NULL));
    case 3: return is(call(bytes, 1, NULL));
    case 4: return is(call(bytes, 1, BAD));
    case 5: return is(call(bytes, 2, NULL));
    case 6: return is(call(bytes, 2, BAD));
    case 7: return is(call(NULL, 9, stream));
    case 8: return is(call(bytes, 99, memory));
    case 9: return is(call(BAD, 0, BAD));
    }
    return none();
}

CLASS(of_fgets_chk)
{
    char *(*call)(char *, size_t, int, FILE *) = f;
    switch (way) {
    case 0: return is(call(bytes, sizeof bytes, 99, stream));
    case 1: return is(call(bytes, 0, 0, NULL));
    case 2: return is(call(bytes, 1, 1, NULL));
    case 3: return is(call(bytes, 8, 9, stream));
    case 4: return is(call(bytes, 8, 5, NULL));
    }
    return none();
}

CLASS(of_getc)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(stream);
    case 1: while (way++ < 600) call(stream); return ftell(stream);
    case 2: return call(NULL);
    case 3: return call(BAD);
    case 4: return call(memory);
    }
    return none();
}

CLASS(of_getchar)
{
    int (*call)(void) = f;
    switch (way) {
    case 0: return call();
    case 1: stdin = NULL; return call();
    case 2: stdin = memory; return call();
    }
    return none();
}

CLASS(of_gets)
{
    char *(*call)(char *, size_t) = f;
    switch (way) {
    case 0: return is(call(bytes, sizeof bytes));
    case 1: return is(call(BAD, sizeof bytes));
    case 2: stdin = memory; return is(call(bytes, sizeof bytes));
    }
    return none();
}

CLASS(of_getline)
{
    ssize_t (*call)(char **, size_t *, FILE *) = f;
    static char *line;
    static size_t size;
    switch (way) {
    case 0: return call(&line, &size, stream);
    case 1: return call(NULL, &size, NULL);
    case 2: return call(&line, NULL, NULL);
    case 3: return call(NULL, NULL, BAD);
    case 4: return call(&line, &size, NULL);
    case 5: return call(BAD, &size, stream);
    case 6: return call(&line, &size, memory);
    }
    return none();
}

CLASS(of_getdelim)
{
    ssize_t (*call)(char **, size_t *, int, FILE *) = f;
    static char *line;
    static size_t size;
    switch (way) {
    case 0: return call(&line, &size, 'w', stream);
    case 1: return call(NULL, &size, 'w', NULL);
    case 2: return call(&line, NULL, 'w', BAD);
    case 3: return call(&line, &size, 'w', NULL);
    }
    return none();
}

CLASS(of_fscanf)
{
    int (*call)(FILE *, const char *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(stream, "%d", &number) * 1000 + number;
    case 1: return call(stream, "");
    case 2: return call(stream, NULL);
    case 3: return call(NULL, "%d", &number);
    case 4: return call(stream, BAD);
    case 5: return call(memory, "%d", &number) * 1000 + number;
    }
    return none();
}

CLASS(of_scanf)
{
    int (*call)(const char *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call("%d", &number) * 1000 + number;
    case 1: return call(NULL);
    case 2: return call(BAD);
    case 3: stdin = memory; return call("%d", &number) * 1000 + number;
    }
    return none();
}

/* The v-forms, by a function that has variable arguments. */
static long scan(void *f, bool of_stdin, FILE *from, const void *format, ...)
{
    va_list values;
    va_start(values, format);
    int result = of_stdin ? AS(int, const void *, va_list)(format, values)
                          : AS(int, FILE *, const void *, va_list)(from, format, values);
    va_end(values);
    return result;
}

CLASS(of_vfscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, false, stream, "%d", &number) * 1000 + number;
    case 1: return scan(f, false, stream, NULL);
    case 2: return scan(f, false, NULL, "%d", &number);
    case 3: return scan(f, false, memory, "%d", &number) * 1000 + number;
    }
    return none();
}

CLASS(of_vscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, true, NULL, "%d", &number) * 1000 + number;
    case 1: return scan(f, true, NULL, NULL);
    }
    return none();
}

CLASS(of_fwscanf)
{
    int (*call)(FILE *, const wchar_t *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(wide, L"%d", &number) * 1000 + number;
    case 1: return call(wide, NULL);
    case 2: return call(NULL, L"%d", &number);
    }
    return none();
}

CLASS(of_wscanf)
{
    int (*call)(const wchar_t *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(L"%d", &number) * 1000 + number;
    case 1: return call(NULL);
    }
    return none();
}

CLASS(of_vfwscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, false, wide, L"%d", &number) * 1000 + number;
    case 1: return scan(f, false, NULL, L"%d", &number);
    }
    return none();
}

CLASS(of_vwscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, true, NULL, L"%d", &number) * 1000 + number;
    case 1: return scan(f, true, NULL, NULL);
    }
    return none();
}

CLASS(of_getwc)
{
    wint_t (*call)(FILE *) = f;
    switch (way) {
    case 0: return (long)call(wide);
    case 1: while (way++ < 600) call(wide); return ftell(wide);
    case 2: return (long)call(NULL);
    case 3: return (long)call(BAD);
    case 4: return (long)call(memory);
    case 5: return (long)call(stream);
    }
    return none();
}

CLASS(of_fgetws)
{
    wchar_t *(*call)(wchar_t *, int, FILE *) = f;
    wchar_t *to = (wchar_t *)(void *)bytes;
    switch (way) {
    case 0: return is(call(to, 99, wide));
    case 1: return is(call(to, 0, NULL));
    case 2: return is(call(to, -1, BAD));
    case 3: return is(call(to, 1, NULL));
    case 4: return is(call(to, 2, NULL));
    case 5: return is(call(NULL, 9, wide));
    case 6: return is(call(to, 99, memory));
    }
    return none();
}

CLASS(of_fgetws_chk)
{
    wchar_t *(*call)(wchar_t *, size_t, int, FILE *) = f;
    wchar_t *to = (wchar_t *)(void *)bytes;
    switch (way) {
    case 0: return is(call(to, 1000, 99, wide));
    case 1: return is(call(to, 0, 0, NULL));
    case 2: return is(call(to, 1, 1, NULL));
    case 3: return is(call(to, 8, 9, wide));
    }
    return none();
}

CLASS(of_fseek)
{
    int (*call)(FILE *, long, int) = f;
    switch (way) {
    case 0: return call(stream, 1000, SEEK_SET) * 1000 + getc(stream);
    case 1: return call(stream, 0, 99);
    case 2: return call(stream, -1, SEEK_SET);
    case 3: return call(NULL, 0, SEEK_SET);
    case 4: return call(BAD, 0, 99);
    case 5: return call(memory, 2, SEEK_SET) * 1000 + getc(memory);
    }
    return none();
}

CLASS(of_fsetpos)
{
    int (*call)(FILE *, const void *) = f;
    fpos_t at = {0};
    switch (way) {
    case 0: fgetpos(stream, &at); (void)getc(stream); return call(stream, &at) + getc(stream) * 10;
    case 1: return call(stream, BAD);
    case 2: return call(NULL, &at);
    case 3: return call(BAD, BAD);
    }
    return none();
}

CLASS(of_rewind)
{
    void (*call)(FILE *) = f;
    switch (way) {
    case 0: call(stream); return getc(stream);
    case 1: call(NULL); return 0;
    case 2: call(BAD); return 0;
    case 3: call(memory); return getc(memory);
    }
    return none();
}

CLASS(of_lseek)
{
    off64_t (*call)(int, off64_t, int) = f;
    switch (way) {
    case 0: return call(file, 10, SEEK_SET) * 1000 + read(file, bytes, 5);
    case 1: return call(-1, 0, SEEK_SET);
    case 2: return call(file, -1, SEEK_SET);
    case 3: return call(file, 0, 99);
    case 4: return call(ends[0], 0, SEEK_CUR);
    }
    return none();
}

CLASS(of_close)
{
    int (*call)(int) = f;
    switch (way) {
    case 0: return call(file) * 10 + (int)read(file, bytes, 1);
    case 1: return call(-1);
    case 2: return call(NO_FD);
    case 3: return call(copy);
    case 4: return call(ends[0]);
    }
    return none();
}

CLASS(of_close_range)
{
    int (*call)(unsigned, unsigned, int) = f;
    switch (way) {
    case 0: return call((unsigned)file, (unsigned)copy, 0) * 10 + (int)read(file, bytes, 1);
    case 1: return call(9, 5, 0);
    case 2: return call(0, 0, ~0);
    }
    return none();
}

CLASS(of_closefrom)
{
    void (*call)(int) = f;
    switch (way) {
    case 0: call(file); return read(file, bytes, 1);
    case 1: call(-5); return read(file, bytes, 1);
    }
    return none();
}

CLASS(of_dup)
{
    int (*call)(int) = f;
    switch (way) {
    case 0: return call(file) * 1000 + (int)read(file, bytes, 5);
    case 1: return call(-1);
    case 2: return call(NO_FD);
    }
    return none();
}

CLASS(of_dup2)
{
    int (*call)(int, int, int) = f; /* dup3 has flags */
    switch (way) {
    case 0: return call(file, 77, 0) * 1000 + (int)read(77, bytes, 5);
    case 1: return call(-1, 77, 0);
    case 2: return call(file, -1, 0);
    case 3: return call(file, file, 0);
    case 4: return call(ends[0], file, 0) * 1000 + (int)read(file, bytes, 5);
    case 5: return call(NO_FD, NO_FD, 0);
    }
    return none();
}

CLASS(of_fcntl)
{
    int (*call)(int, int, ...) = f;
    switch (way) {
    case 0: return call(file, F_GETFL);
    case 1: return call(file, F_DUPFD, 100) * 1000 + (int)read(100, bytes, 5);
    case 2: return call(-1, F_DUPFD, 0);
    case 3: return call(file, F_GETLK, BAD);
    case 4: return call(file, 12345);
    }
    return none();
}

static char *const no_arguments[] = {"true", NULL};

CLASS(of_spawn)
{
    int (*call)(pid_t *, const char *, const void *, const void *, char *const *, char *const *) = f;
    pid_t child = -1;
    int status = -1;
    switch (way) {
    case 0:
        if (call(&child, "/bin/true", NULL, NULL, no_arguments, environ) == 0)
            waitpid(child, &status, 0);
        return status;
    case 1: return call(&child, NOWHERE, NULL, NULL, no_arguments, environ);
    case 2: return call(NULL, NOWHERE, NULL, NULL, no_arguments, environ);
    }
    return none();
}

CLASS(of_execve)
{
    int (*call)(const char *, char *const *, char *const *) = f;
    switch (way) {
    case 0: return call("/bin/true", no_arguments, environ);
    case 1: return call(NOWHERE, no_arguments, environ);
    case 2: return call("/bin/true", BAD, environ);
    }
    return none();
}

CLASS(of_execl)
{
    int (*call)(const char *, const char *, ...) = f;
    switch (way) {
    case 0: return call("/bin/true", "true", NULL, environ);
    case 1: return call(NOWHERE, "none", NULL, environ);
    }
    return none();
}

CLASS(of_execveat)
{
    int (*call)(int, const char *, char *const *, char *const *, int) = f;
    switch (way) {
    case 0: return call(folder, "/bin/true", no_arguments, environ, 0);
    case 1: return call(-1, "true", no_arguments, environ, 0);
    case 2: return call(folder, BAD, no_arguments, environ, 0);
    }
    return none();
}

CLASS(of_fexecve)
{
    int (*call)(int, char *const *, char *const *) = f;
    switch (way) {
    case 0: return call(open("/bin/true", O_RDONLY | O_CLOEXEC), no_arguments, environ);
    case 1: return call(-1, no_arguments, environ);
    case 2: return call(file, NULL, environ);
    }
    return none();
}

CLASS(of_system)
{
    int (*call)(const char *) = f;
    switch (way) {
    case 0: return call("exit 3");
    case 1: return call(NULL);
    }
    return none();
}

CLASS(of_popen)
{
    FILE *(*call)(const char *, const char *) = f;
    FILE *opened;
    switch (way) {
    case 0: opened = call("echo yes", "r"); return getc(opened) * 1000 + pclose(opened);
    case 1: return is(call("true", "x"));
    case 2: return is(call("true", BAD));
    }
    return none();
}

CLASS(of_pclose)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(popen("exit 3", "r"));
    case 1: return call(NULL);
    case 2: return call(BAD);
    }
    return none();
}

CLASS(of_exit)
{
    void (*call)(int) = f;
    if (way == 0)
        call(5);
    return none();
}

CLASS(of_prctl)
{
    int (*call)(int, ...) = f;
    char name[16] = "";
    switch (way) {
    case 0: return call(PR_GET_DUMPABLE);
    case 1: return call(PR_SET_NAME, "renamed") * 10 + call(PR_GET_NAME, name) + name[0];
    case 2: return call(PR_GET_NAME, BAD);
    case 3: return call(-1, 1L, 2L, 3L, 4L);
    case 4: return call(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) * 100 + (int)read(file, bytes, 5);
    }
    return none();
}

CLASS(of_syscall)
{
    long (*call)(long, ...) = f;
    switch (way) {
    case 0: return call(SYS_read, file, bytes, 9L);
    case 1: return call(SYS_read, file, BAD, 9L);
    case 2: return call(-1L);
    case 3: return call(SYS_prctl, PR_GET_DUMPABLE, 0L, 0L, 0L, 0L);
    case 4: return call(SYS_seccomp, -1L, 0L, NULL);
    case 5: return call(SYS_pread64, file, bytes, 9L, 100L);
    case 6: return is(BAD) + (call(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, file, 1L) < 0);
    }
    return none();
}

/* Names of the same prototype. */
static const struct {
    long (*call)(void *, int);
    const char *names;
} classes[] = {
    {of_read, "read __read"},
    {of_read_chk, "__read_chk"},
    {of_pread, "pread pread64 __pread64"},
    {of_pread_chk, "__pread_chk __pread64_chk"},
    {of_readv, "readv"},
    {of_preadv, "preadv preadv64"},
    {of_preadv2, "preadv2 preadv64v2"},
    {of_sendfile, "sendfile sendfile64"},
    {of_copy, "copy_file_range splice"},
    {of_open, "open open64 __open __open64"},
    {of_open_2, "__open_2 __open64_2"},
    {of_openat, "openat openat64"},
    {of_openat_2, "__openat_2 __openat64_2"},
    {of_openat2, "openat2"},
    {of_creat, "creat creat64"},
    {of_open_by_handle_at, "open_by_handle_at"},
    {of_mkstemp, "mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64"},
    {of_tmpfile, "tmpfile tmpfile64"},
    {of_fopen, "fopen fopen64 _IO_fopen"},
    {of_freopen, "freopen freopen64"},
    {of_fclose, "fclose _IO_fclose"},
    {of_fcloseall, "fcloseall"},
    {of_fread, "fread _IO_fread fread_unlocked"},
    {of_fread_chk, "__fread_chk __fread_unlocked_chk"},
    {of_fgets, "fgets _IO_fgets fgets_unlocked"},
    {of_fgets_chk, "__fgets_chk __fgets_unlocked_chk"},
    {of_getc, "fgetc getc _IO_getc fgetc_unlocked getc_unlocked __uflow __underflow getw"},
    {of_getchar, "getchar getchar_unlocked"},
    {of_gets, "gets _IO_gets __gets_chk"},
    {of_getline, "getline"},
    {of_getdelim, "getdelim __getdelim"},
    {of_fscanf, "fscanf __isoc99_fscanf __isoc23_fscanf"},
    {of_scanf, "scanf __isoc99_scanf __isoc23_scanf"},
    {of_vfscanf, "vfscanf __isoc99_vfscanf __isoc23_vfscanf"},
    {of_vscanf, "vscanf __isoc99_vscanf __isoc23_vscanf"},
    {of_fwscanf, "fwscanf __isoc99_fwscanf __isoc23_fwscanf"},
    {of_wscanf, "wscanf __isoc99_wscanf __isoc23_wscanf"},
    {of_vfwscanf, "vfwscanf __isoc99_vfwscanf __isoc23_vfwscanf"},
    {of_vwscanf, "vwscanf __isoc99_vwscanf __isoc23_vwscanf"},
    {of_getwc, "fgetwc getwc fgetwc_unlocked getwc_unlocked"},
    {of_getchar, "getwchar getwchar_unlocked"},
    {of_fgetws, "fgetws fgetws_unlocked"},
    {of_fgetws_chk, "__fgetws_chk __fgetws_unlocked_chk"},
    {of_fseek, "fseek fseeko fseeko64"},
    {of_fsetpos, "fsetpos fsetpos64"},
    {of_rewind, "rewind"},
    {of_lseek, "lseek lseek64 __lseek llseek"},
    {of_close, "close __close"},
    {of_close_range, "close_range"},
    {of_closefrom, "closefrom"},
    {of_dup, "dup"},
    {of_dup2, "dup2 __dup2 dup3"},
    {of_fcntl, "fcntl fcntl64 __fcntl"},
    {of_spawn, "posix_spawn posix_spawnp"},
    {of_execve, "execve execvpe execv execvp"},
    {of_execl, "execl execlp execle"},
    {of_execveat, "execveat"},
    {of_fexecve, "fexecve"},
    {of_system, "system"},
    {of_popen, "popen"},
    {of_pclose, "pclose"},
    {of_exit, "_exit _Exit quick_exit"},
    {of_prctl, "prctl"},
    {of_syscall, "syscall"},
};

/* The one call of this child. */
static struct {
    long (*call)(void *, int);
    void *function;
    int way;
    long result;
    int error;
} shot;

static void fire(void)
{
    errno = 0;
    shot.result = shot.call(shot.function, shot.way);
    shot.error = errno;
}

static void *in_thread(void *unused)
{
    fire();
    return unused;
}

static void in_handler(int signal)
{
    (void)signal;
    fire();
}

static void on_small_stack(char *stack, size_t size)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = size};
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        abort();
    raise(SIGUSR1);
}

static void in_small_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attributes, in_thread, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
}

static void lock_up_raw(void)
{
#if defined(__x86_64__)
    long result = SYS_seccomp;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"((long)SECCOMP_SET_MODE_STRICT), "S"(0L), "d"(0L)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_seccomp;
    register long x0 __asm__("x0") = SECCOMP_SET_MODE_STRICT;
    register long x1 __asm__("x1") = 0;
    register long x2 __asm__("x2") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(number), "r"(x1), "r"(x2) : "memory");
#endif
}

#define DEEP (256 * 1024)
#define PAINT 0x5a
/* Room for what is not the hook's: the frame of the signal, with all vector registers, and libc's own. */
static char painted[DEEP];

static long depth(void)
{
    long untouched = 0;
    while (untouched < DEEP && painted[untouched] == PAINT)
        untouched++;
    return DEEP - untouched;
}

static char line[256];

static void child(const char *situation, bool measures, const char *name)
{
    char *last = strrchr(situation, '-');
    const char *where = last + 1;
    alarm(60);
    if (strncmp(situation, "fresh", 5) == 0)
        open_all();
    if (measures) {
        memset(painted, PAINT, sizeof painted);
        on_small_stack(painted, sizeof painted);
    } else if (strcmp(where, "thread") == 0) {
        in_small_thread();
    } else if (strcmp(where, "signal") == 0) {
        on_small_stack(painted, (size_t)sysconf(_SC_MINSIGSTKSZ) + 512);
    } else {
        if (strcmp(where, "strict") == 0)
            syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
        else if (strcmp(where, "prctl") == 0)
            syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0L, 0L, 0L);
        else if (strcmp(where, "raw") == 0)
            lock_up_raw();
        fire();
    }
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    int length = over ? 0
                      : snprintf(line, sizeof line, "%s %s %d: %ld errno %d bytes %08x", situation, name,
                                 shot.way, shot.result, shot.error, sum);
    if (!over && measures)
        length = snprintf(line, sizeof line, "%s %s %d: depth %ld", situation, name, shot.way, depth());
    if (length > 0) {
        line[length++] = '\n';
        (void)!write(STDOUT_FILENO, line, (size_t)length);
    }
    syscall(SYS_exit, over ? 9 : 0); /* the only end that strict mode knows */
}

/* False if there is no such way. */
static bool try(const char *situation, bool measures, const char *name)
{
    pid_t pid = fork();
    if (pid == 0)
        child(situation, measures, name);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
        return false;
    if (!measures && WIFSIGNALED(status))
        dprintf(STDOUT_FILENO, "%s %s %d: signal %d\n", situation, name, shot.way, WTERMSIG(status));
    else if (!measures && WEXITSTATUS(status) != 0)
        dprintf(STDOUT_FILENO, "%s %s %d: exit %d\n", situation, name, shot.way, WEXITSTATUS(status));
    return true;
}

static void each(const char *situation, bool measures, bool only_names)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char names[256];
        char *rest = names;
        strcpy(names, classes[i].names);
        for (char *name; (name = strsep(&rest, " ")) != NULL;) {
            if (only_names) {
                puts(name);
                continue;
            }
            shot.call = classes[i].call;
            shot.function = dlsym(RTLD_DEFAULT, name);
            if (shot.function == NULL) {
                dprintf(STDOUT_FILENO, "%s is not there\n", name);
                continue;
            }
            shot.way = 0;
            while (try(situation, measures, name))
                shot.way++;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "names") == 0) {
        each("", false, true);
        return 0;
    }
    if (argc < 4)
        return 2;
    path = argv[2];
    bool measures = strcmp(argv[1], "depth") == 0;
    for (int i = 3; i < argc; i++) {
        if (strncmp(argv[i], "inherited", 9) == 0)
            open_all();
        each(argv[i], measures, false);
    }
    return 0;
}
