/*
 * Reads FILE in the way named by the first argument and prints what it read, so that runs with and
 * without the interposing library can be compared. The ranges are asserted by tests/preload_records.rs.
 */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

extern char **environ;
static const char *path;
static char *self;
static char buffer[1 << 20];

static void show(const char *bytes, ssize_t length)
{
    unsigned sum = 0;
    for (ssize_t i = 0; i < length; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    printf("%zd %08x\n", length, sum);
}

static void must(int condition, const char *what)
{
    if (!condition) {
        printf("FAILED %s errno %d\n", what, errno);
        exit(1);
    }
}

static void take(int fd, size_t bytes) { show(buffer, read(fd, buffer, bytes)); }

static void do_read(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    take(fd, 200);
    lseek(fd, 5000, SEEK_SET);
    take(fd, 50);
    close(fd);
}

static void do_positioned(void)
{
    int fd = open(path, O_RDONLY);
    struct iovec parts[2] = {{buffer, 10}, {buffer + 10, 20}};
    show(buffer, pread(fd, buffer, 10, 1000));
    show(buffer, preadv(fd, parts, 2, 2000));
    show(buffer, preadv2(fd, parts, 2, 3000, 0));
    show(buffer, readv(fd, parts, 2));
    show(buffer, preadv2(fd, parts, 2, -1, 0));
    take(fd, 5);
}

static void finish(struct aiocb *control)
{
    const struct aiocb *list[] = {control};
    must(aio_suspend(list, 1, NULL) == 0 && aio_error(control) == 0, "aio_suspend");
    show((char *)control->aio_buf, aio_return(control));
}

static void do_asynchronous(void)
{
    int fd = open(path, O_RDONLY);
    struct aiocb first = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = 10, .aio_offset = 1000};
    struct aiocb second = {.aio_fildes = fd, .aio_buf = buffer + 10, .aio_nbytes = 20, .aio_offset = 3000};
    second.aio_lio_opcode = LIO_READ;
    must(aio_read(&first) == 0, "aio_read");
    finish(&first);
    must(lio_listio(LIO_WAIT, (struct aiocb *[]){&second}, 1, NULL) == 0, "lio_listio");
    finish(&second);
    char pattern[] = "/tmp/foretell-test-XXXXXX";
    int out = mkstemp(pattern);
    must(out >= 0 && unlink(pattern) == 0, "mkstemp");
    struct aiocb written = {.aio_fildes = out, .aio_buf = buffer, .aio_nbytes = 10};
    must(aio_write(&written) == 0, "aio_write");
    finish(&written);
    take(fd, 5);
}

/* Copies within the kernel, to a file and to a pipe, from the position and from an offset; and reads
 * between them, for which the position has to be known. */
static void do_copy(void)
{
    int fd = open(path, O_RDONLY);
    int out = fileno(tmpfile());
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    off_t at = 5000;
    take(fd, 100);
    must(sendfile(out, fd, NULL, 200) == 200, "sendfile");
    take(fd, 10);
    must(sendfile(ends[1], fd, &at, 50) == 50 && at == 5050, "sendfile at");
    must(splice(fd, NULL, ends[1], NULL, 20, 0) == 20, "splice");
    must(splice(fd, &at, ends[1], NULL, 30, 0) == 30 && at == 5080, "splice at");
    must(splice(ends[0], NULL, out, NULL, 100, 0) == 100, "splice out");
    ssize_t copied = copy_file_range(fd, NULL, out, NULL, 1000, 0);
    if (copied < 0) /* Another file system, and an old kernel. */
        copied = sendfile(out, fd, NULL, 1000);
    must(copied == 1000, "copy_file_range");
    take(fd, 5);
    must(sendfile(out, -1, NULL, 5) == -1 && errno == EBADF, "sendfile of nothing");
    must(sendfile(out, fd, (off_t *)8, 5) == -1 && errno == EFAULT, "sendfile at nowhere");
    show(buffer, pread(out, buffer, sizeof buffer, 0));
    close(fd);
}

static void do_fread(void)
{
    FILE *stream = fopen(path, "r");
    show(buffer, (ssize_t)fread(buffer, 1, 10, stream));
    show(buffer, (ssize_t)fread(buffer, 1, 100000, stream));
    while (fread(buffer, 60000, 1, stream) == 1) /* the last is short: the rest of the file */
        show(buffer, 60000);
    fclose(stream);
}

static void do_lines(void)
{
    FILE *stream = fopen(path, "r");
    while (fgets(buffer, sizeof buffer, stream))
        show(buffer, (ssize_t)strlen(buffer));
    fclose(stream);
}

static void do_getline(void)
{
    FILE *stream = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stream)) >= 0)
        show(line, length);
    free(line);
    fclose(stream);
}

static void do_getc(void)
{
    FILE *stream = fopen(path, "r");
    size_t length = 0;
    for (int c; (c = getc(stream)) != EOF;)
        buffer[length++] = (char)c;
    show(buffer, (ssize_t)length);
    fclose(stream);
}

static void do_unlocked(void)
{
    FILE *stream = fopen(path, "r");
    size_t length = 0;
    for (int c; (c = getc_unlocked(stream)) != EOF;)
        buffer[length++] = (char)c;
    show(buffer, (ssize_t)length);
    fclose(stream);
}

static void do_scan(void)
{
    FILE *stream = fopen(path, "r");
    char word[4096];
    while (fscanf(stream, "%4095s", word) == 1)
        show(word, (ssize_t)strlen(word));
    fclose(stream);
}

static void do_wide(void)
{
    FILE *stream = fopen(path, "r");
    unsigned sum = 0;
    for (wint_t c; (c = fgetwc(stream)) != WEOF;)
        sum = sum * 31 + (unsigned)c;
    printf("%u\n", sum);
    fclose(stream);
}

static void do_seek(void)
{
    FILE *stream = fopen(path, "r");
    show(buffer, (ssize_t)fread(buffer, 1, 10, stream));
    fseek(stream, 40960, SEEK_SET);
    show(buffer, (ssize_t)fread(buffer, 1, 10, stream));
    rewind(stream);
    show(buffer, (ssize_t)fread(buffer, 1, 10, stream));
    fclose(stream);
}

static void do_no_descriptor(void)
{
    char text[] = "one two\nthree\n";
    FILE *stream = fmemopen(text, sizeof text - 1, "r");
    while (fgets(buffer, 64, stream))
        show(buffer, (ssize_t)strlen(buffer));
    rewind(stream);
    show(buffer, (ssize_t)fread(buffer, 1, 5, stream));
    fclose(stream);
}

static void do_duplicate(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    int copy = dup2(fd, 77);
    take(copy, 50);
    take(fd, 25);
    int third = fcntl(fd, F_DUPFD, 300);
    take(third, 10);
    close(copy);
    take(fd, 5);
}

static void do_fork(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        take(fd, 50);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    take(fd, 25);
}

static void reap(pid_t child)
{
    int status = 0;
    must(waitpid(child, &status, 0) == child && status == 0, "child");
}

static void do_vfork(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        int other = open("/dev/null", O_RDONLY);
        close(other);
        execl(self, self, "read", path, (char *)NULL);
        _exit(1);
    }
    reap(child);
    take(fd, 25);
}

/* A process in its parent's memory, with a copy of its descriptors. */
static int beside(void *given)
{
    int shared = *(int *)given;
    take(shared, 50);
    int own = open(path, O_RDONLY);
    lseek(own, 3000, SEEK_SET);
    take(own, 30);
    take(shared, 7);
    close(own);
    fflush(stdout);
    return 0;
}

static void do_beside(void)
{
    static char stack[1 << 18];
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    pid_t child = clone(beside, stack + sizeof stack, CLONE_VM | SIGCHLD, &fd);
    must(child > 0, "clone");
    reap(child);
    take(fd, 25);
}

static void do_spawn(void)
{
    char *argv[] = {self, "read", (char *)path, NULL};
    char *empty[] = {"KEEP=1", NULL};
    pid_t child;
    must(posix_spawn(&child, self, NULL, NULL, argv, empty) == 0, "posix_spawn");
    reap(child);
    must(posix_spawnp(&child, self, NULL, NULL, argv, environ) == 0, "posix_spawnp");
    reap(child);
}

/* Runs itself as "read" with each exec function. */
static void do_exec(void)
{
    char *argv[] = {self, "read", (char *)path, NULL};
    for (int way = 0; way < 8; way++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int fd;
            switch (way) {
            case 0: execv(self, argv); break;
            case 1: execve(self, argv, environ); break;
            case 2: execvp(self, argv); break;
            case 3: execvpe(self, argv, environ); break;
            case 4: execlp(self, self, "read", path, (char *)NULL); break;
            case 5: execle(self, self, "read", path, (char *)NULL, environ); break;
            case 6: fd = open(self, O_RDONLY | O_CLOEXEC); fexecve(fd, argv, environ); break;
            case 7: execveat(AT_FDCWD, self, argv, environ, 0); break;
            }
            _exit(1);
        }
        reap(child);
    }
}

/* execve with the environment given on the command line: access env FILE NAME=VALUE… */
static void do_env(char **variables)
{
    char *argv[] = {self, "read", (char *)path, NULL};
    execve(self, argv, variables);
    _exit(1);
}

/* The same with so many variables that the stack does not hold them. */
static void do_large_env(void)
{
    enum { MANY = 6000 };
    static char *variables[MANY + 1];
    for (int i = 0; i < MANY; i++)
        must(asprintf(&variables[i], "V%d=%d", i, i) > 0, "asprintf");
    do_env(variables);
}

static void do_exec_fails(void)
{
    char *argv[] = {"none", NULL};
    char *empty[] = {NULL};
    errno = 0;
    must(execve("/nonexistent/program", argv, empty) == -1 && errno == ENOENT, "execve");
    errno = 0;
    must(execl("/nonexistent/program", "x", (char *)NULL) == -1 && errno == ENOENT, "execl");
    pid_t child;
    must(posix_spawn(&child, "/nonexistent/program", NULL, NULL, argv, empty) == ENOENT, "spawn");
    do_read();
}

static void do_closefrom(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 10);
    closefrom(3);
    fd = open(path, O_RDONLY);
    take(fd, 20);
    close_range(3, ~0u, 0);
    must(read(fd, buffer, 1) == -1 && errno == EBADF, "closed");
    fd = open(path, O_RDONLY);
    take(fd, 30);
}

static void *read_all(void *result)
{
    char own[777];
    int fd = open(path, O_RDONLY);
    ssize_t bytes, total = 0;
    while ((bytes = read(fd, own, sizeof own)) > 0)
        total += bytes;
    close(fd);
    *(ssize_t *)result = total;
    return NULL;
}

static void do_threads(void)
{
    pthread_t threads[8];
    ssize_t totals[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, read_all, &totals[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        printf("%zd\n", totals[i]);
    }
}

static void do_errno(void)
{
    int fd = open(path, O_RDONLY);
    errno = 4242;
    must(read(fd, buffer, 10) == 10 && errno == 4242, "errno after read");
    must(lseek(fd, 0, SEEK_SET) == 0 && errno == 4242, "errno after lseek");
    must(dup(fd) >= 0 && errno == 4242, "errno after dup");
    must(close(fd) == 0 && errno == 4242, "errno after close");
    must((fd = open(path, O_RDONLY)) >= 0 && errno == 4242, "errno after open");
    must(open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT, "ENOENT");
    must(read(-1, buffer, 1) == -1 && errno == EBADF, "EBADF");
    must(read(1000000, buffer, 1) == -1 && errno == EBADF, "EBADF beyond");
    must(read(2000000000, buffer, 1) == -1 && errno == EBADF, "EBADF far beyond");
    must(lseek(-1, 0, SEEK_SET) == -1 && errno == EBADF, "EBADF lseek");
    must(close(-1) == -1 && errno == EBADF, "EBADF close");
    must(dup2(-1, 5) == -1 && errno == EBADF, "EBADF dup2");
    must(open(path, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR, "ENOTDIR");
    must((fd = open("/", O_RDONLY)) >= 0, "folder");
    must(read(fd, buffer, 1) == -1 && errno == EISDIR, "EISDIR");
    must(fopen("/nonexistent", "r") == NULL && errno == ENOENT, "fopen");
    int ends[2];
    must(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3, "pipe");
    errno = 4242;
    must(read(ends[0], buffer, 3) == 3 && errno == 4242, "errno after pipe");
    must(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
    must((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0, "F_GETFL");
    must(read(ends[0], buffer, 3) == -1 && errno == EAGAIN, "EAGAIN");
    must(llabs((long long)lseek(open(path, O_RDONLY), -1, SEEK_SET)) == 1 && errno == EINVAL, "lseek");
}

static int ends[2];
static void *wait_on_pipe(void *unused)
{
    (void)unused;
    char byte;
    (void)!read(ends[0], &byte, 1);
    return NULL;
}

static void on_alarm(int signal)
{
    (void)signal;
    int fd = open(path, O_RDONLY);
    (void)!read(fd, buffer, 10);
    close(fd);
}

static void do_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    must(pipe(ends) == 0, "pipe");
    ualarm(20000, 0);
    must(read(ends[0], buffer, 1) == -1 && errno == EINTR, "EINTR");
    pthread_t waiting;
    void *result;
    pthread_create(&waiting, NULL, wait_on_pipe, NULL);
    usleep(20000);
    pthread_cancel(waiting);
    pthread_join(waiting, &result);
    must(result == PTHREAD_CANCELED, "cancellation");
}

static void do_descriptors(void)
{
    fflush(stdout);
    do_read();
    fflush(stdout);
    int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    printf("next free %d\n", fd);
    close(fd);
    for (fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("open %d\n", fd);
}

/* Fills the ring many times over. */
static void do_flood(void)
{
    int fd = open(path, O_RDONLY);
    for (int i = 0; i < 100000; i++)
        must(pread(fd, buffer, 1, i) == 1, "pread");
    printf("done\n");
}

/* Fills the ring from eight threads until killed; offsets of a thread ascend from its own base. */
static void *flood_from(void *base)
{
    char own;
    int fd = open(path, O_RDONLY);
    for (off_t i = 0;; i++)
        must(pread(fd, &own, 1, (off_t)(size_t)base + i) >= 0, "pread");
}

static void do_flood_threads(void)
{
    pthread_t thread;
    for (size_t i = 0; i < 8; i++)
        pthread_create(&thread, NULL, flood_from, (void *)(i << 40));
    pause();
}

/* stdin is a file that somebody else opened: adopted at the first read. */
static void do_stdin(void)
{
    int c = getchar();
    show((char[]){(char)c}, 1);
    while (scanf("%4000s", buffer) == 1)
        show(buffer, (ssize_t)strlen(buffer));
}

static void do_wide_lines(void)
{
    static wchar_t line[4096];
    FILE *stream = fopen(path, "r");
    while (fgetws(line, 4096, stream))
        printf("%zu\n", wcslen(line));
    fclose(stream);
}

/* Opened for writing too: the position moves unseen by the library. */
static void do_read_write(void)
{
    char pattern[] = "/tmp/foretell-test-XXXXXX";
    int fd = mkstemp(pattern);
    must(fd >= 0 && unlink(pattern) == 0, "mkstemp");
    must(write(fd, "0123456789", 10) == 10 && lseek(fd, 2, SEEK_SET) == 2, "write");
    take(fd, 3);
    must(write(fd, "x", 1) == 1, "write");
    take(fd, 2);
}

static void do_raw_fork(void)
{
    int fd = open(path, O_RDONLY);
    take(fd, 100);
    fflush(stdout);
    pid_t child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        int other = open(path, O_RDONLY);
        take(other, 7);
        take(fd, 50);
        fflush(stdout);
        syscall(SYS_exit_group, 0);
    }
    waitpid(child, NULL, 0);
    take(fd, 25);
}

static void do_many(void)
{
    for (int i = 0; i < 700; i++)
        must(open(path, O_RDONLY) >= 0, "open");
    take(600, 10);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"read", do_read}, {"positioned", do_positioned}, {"asynchronous", do_asynchronous}, {"copy", do_copy},
        {"fread", do_fread}, {"lines", do_lines}, {"getline", do_getline}, {"getc", do_getc},
        {"unlocked", do_unlocked}, {"scan", do_scan}, {"wide", do_wide}, {"seek", do_seek},
        {"no-descriptor", do_no_descriptor}, {"duplicate", do_duplicate}, {"fork", do_fork},
        {"vfork", do_vfork}, {"beside", do_beside}, {"spawn", do_spawn}, {"exec", do_exec},
        {"exec-fails", do_exec_fails}, {"closefrom", do_closefrom}, {"threads", do_threads},
        {"errno", do_errno}, {"interrupt", do_interrupt}, {"descriptors", do_descriptors},
        {"flood", do_flood}, {"flood-threads", do_flood_threads}, {"raw-fork", do_raw_fork}, {"many", do_many},
        {"large-env", do_large_env}, {"stdin", do_stdin}, {"wide-lines", do_wide_lines},
        {"read-write", do_read_write},
    };
    self = argv[0];
    if (argc < 3)
        return 2;
    path = argv[2];
    if (strcmp(argv[1], "env") == 0)
        do_env(argv + 3);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(argv[1], ways[i].name) == 0) {
            ways[i].run();
            return 0;
        }
    return 2;
}
