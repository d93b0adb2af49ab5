/*
 * Hooks of system and popen, which start a shell inside libc with the program's environment.
 *
 * That environment names no library (environment.c), so the shell and its children would not be seen. If
 * the library goes along with the shell, the shell is started here, as POSIX describes system, popen and
 * pclose, with the arguments that this glibc gives it. Else the call is forwarded to libc.
 *
 * As with libc's streams, pclose and fclose wait for the shell, and a later popen's shell does not have
 * the stream open.
 */
#include "environment.h"
#include "process.h"
#include "real.h"
#include "state.h"

#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHELL "/bin/sh"

/* Whether the library goes along with a shell now. */
static bool shell_is_watched(void)
{
    struct executed shell = {.folder = AT_FDCWD, .path = SHELL};
    struct environment environment;
    foretell_environment_for(&environment, environ, &shell, false);
    bool watched = environment.memory != NULL;
    foretell_environment_release(&environment, watched); /* asked again by foretell_spawn */
    return watched;
}

static int start_shell(pid_t *pid, const char *command,
                       const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes)
{
    char *arguments[5] = {"sh", "-c"};
    size_t count = 2;
    if (foretell_shell_gets_dashes(gnu_get_libc_version()))
        arguments[count++] = "--";
    arguments[count] = (char *)command;
    return foretell_spawn(pid, SHELL, actions, attributes, arguments, environ);
}

/* A cancellation point. */
static int wait_for(pid_t pid)
{
    int status = -1;
    pid_t ended;
    do
        ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == pid ? status : -1;
}

/* Not a cancellation point: a cancelled thread would leave the shell unreaped, or a lock held. */
static int wait_for_pipe(pid_t pid)
{
    int before;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    int status = wait_for(pid);
    (void)pthread_setcancelstate(before, NULL);
    return status;
}

/* While commands run, the program ignores SIGINT and SIGQUIT, which are to end the command and not the
 * program. The first of several concurrent commands sets these dispositions, the last restores them. */
static pthread_mutex_t commands_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned commands;
static struct sigaction interrupt_before, quit_before;

struct command {
    pid_t pid; /* 0: not started */
    sigset_t mask_before;
};

static void begin_command(struct command *command)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)pthread_mutex_lock(&commands_lock);
    if (commands++ == 0) {
        (void)sigaction(SIGINT, &ignore, &interrupt_before);
        (void)sigaction(SIGQUIT, &ignore, &quit_before);
    }
    (void)pthread_mutex_unlock(&commands_lock);
    (void)pthread_sigmask(SIG_BLOCK, &child, &command->mask_before);
}

static void end_command(struct command *command)
{
    (void)pthread_mutex_lock(&commands_lock);
    if (--commands == 0) {
        (void)sigaction(SIGINT, &interrupt_before, NULL);
        (void)sigaction(SIGQUIT, &quit_before, NULL);
    }
    (void)pthread_mutex_unlock(&commands_lock);
    (void)pthread_sigmask(SIG_SETMASK, &command->mask_before, NULL);
}

/* The thread is cancelled while it waits: the command ends with it. */
static void cancel_command(void *argument)
{
    struct command *command = argument;
    (void)kill(command->pid, SIGKILL);
    (void)wait_for(command->pid);
    end_command(command);
}

__attribute__((noinline)) static int start_command(struct command *command, const char *line)
{
    posix_spawnattr_t attributes;
    sigset_t defaults;
    (void)sigemptyset(&defaults);
    if (interrupt_before.sa_handler != SIG_IGN)
        (void)sigaddset(&defaults, SIGINT);
    if (quit_before.sa_handler != SIG_IGN)
        (void)sigaddset(&defaults, SIGQUIT);
    (void)posix_spawnattr_init(&attributes); /* none of these fails in glibc */
    (void)posix_spawnattr_setsigmask(&attributes, &command->mask_before);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int error = start_shell(&command->pid, line, NULL, &attributes);
    (void)posix_spawnattr_destroy(&attributes);
    return error;
}

/* Not inlined: it takes as much stack as libc's system, and the hook must not take both. */
__attribute__((noinline)) static int run_command(const char *line)
{
    struct command command = {0};
    int status = 127 << 8; /* as if the shell had ended so */
    begin_command(&command);
    int error = start_command(&command, line);
    if (error == 0) {
        pthread_cleanup_push(cancel_command, &command);
        status = wait_for(command.pid); /* a cancellation point, as system is */
        pthread_cleanup_pop(0);
    }
    end_command(&command);
    if (error != 0)
        errno = error;
    return status;
}

HOOK(int, system, (const char *line))
{
    if (line != NULL && shell_is_watched())
        return run_command(line);
    foretell_share_descriptors();
    return REAL(system)(line);
}

/* Streams of shells that were started here. */
struct pipe_stream {
    struct pipe_stream *next;
    FILE *stream;
    pid_t pid;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pipe_stream *streams;

/* "r" or "w", and "e" for a stream that is closed by exec. Returns false for any other mode. */
static bool read_mode(const char *mode, bool *reads, bool *closes)
{
    unsigned directions = 0;
    *closes = false;
    for (; *mode != '\0'; mode++) {
        if (*mode == 'e') {
            *closes = true;
        } else if (*mode == 'r' || *mode == 'w') {
            *reads = *mode == 'r';
            directions |= *reads ? 1u : 2u;
        } else {
            return false;
        }
    }
    return directions == 1 || directions == 2;
}

/* Starts the shell with one end of a pipe, and returns the other end; -1 and errno if that fails. */
static int start_pipe(struct pipe_stream *entry, const char *line, bool reads)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    int own = ends[reads ? 0 : 1];
    int of_shell = ends[reads ? 1 : 0];
    int wanted = reads ? STDOUT_FILENO : STDIN_FILENO;
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        for (struct pipe_stream *other = streams; other != NULL && error == 0; other = other->next)
            if (other->stream->_fileno != wanted)
                error = posix_spawn_file_actions_addclose(&actions, other->stream->_fileno);
        if (error == 0)
            error = posix_spawn_file_actions_adddup2(&actions, of_shell, wanted);
        if (error == 0)
            error = start_shell(&entry->pid, line, &actions, NULL);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)REAL(close)(of_shell);
    if (error == 0)
        return own;
    (void)REAL(close)(own);
    errno = ENOMEM; /* as glibc says it, whatever the reason */
    return -1;
}

/* With streams_lock held. */
static FILE *open_stream(const char *line, bool reads, bool closes)
{
    struct pipe_stream *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return NULL;
    int fd = start_pipe(entry, line, reads);
    if (fd >= 0) {
        foretell_forget(fd);
        if (!closes)
            (void)REAL(fcntl)(fd, F_SETFD, 0);
        entry->stream = fdopen(fd, reads ? "r" : "w");
        if (entry->stream != NULL) {
            entry->next = streams;
            __atomic_store_n(&streams, entry, __ATOMIC_RELEASE);
            return entry->stream;
        }
        /* No memory: the shell sees its pipe closed. */
        (void)REAL(close)(fd);
        (void)wait_for_pipe(entry->pid);
        errno = ENOMEM;
    }
    free(entry);
    return NULL;
}

HOOK(FILE *, popen, (const char *line, const char *mode))
{
    bool reads = false;
    bool closes = false;
    if (!read_mode(mode, &reads, &closes) || !shell_is_watched()) {
        foretell_share_descriptors();
        FILE *stream = REAL(popen)(line, mode);
        if (stream != NULL)
            foretell_forget(stream->_fileno);
        return stream;
    }
    (void)pthread_mutex_lock(&streams_lock);
    FILE *stream = open_stream(line, reads, closes);
    (void)pthread_mutex_unlock(&streams_lock);
    return stream;
}

void foretell_commands_forked(void)
{
    commands_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    streams_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

pid_t foretell_take_pipe(FILE *stream)
{
    if (LIKELY(__atomic_load_n(&streams, __ATOMIC_ACQUIRE) == NULL))
        return 0;
    pid_t pid = 0;
    (void)pthread_mutex_lock(&streams_lock);
    struct pipe_stream **at = &streams;
    while (*at != NULL && (*at)->stream != stream)
        at = &(*at)->next;
    struct pipe_stream *found = *at;
    if (found != NULL) {
        __atomic_store_n(at, found->next, __ATOMIC_RELEASE);
        pid = found->pid;
    }
    (void)pthread_mutex_unlock(&streams_lock);
    free(found);
    return pid;
}

int foretell_wait_for_pipe(pid_t pid, int closed)
{
    if (LIKELY(pid == 0))
        return closed;
    int status = wait_for_pipe(pid);
    return status != 0 ? status : closed; /* closed: whether the rest of the buffer was written */
}

HOOK(int, pclose, (FILE * stream))
{
    pid_t pid = foretell_take_pipe(stream);
    foretell_forget(stream->_fileno);
    return pid == 0 ? REAL(pclose)(stream)
                    : foretell_wait_for_pipe(pid, REAL(fclose)(stream));
}
