/*
 * Hooks of the process family: a new program gets our variables, and shares our descriptors.
 *
 * Every way to start a program raises the epoch: the child inherits descriptors, whose positions it
 * may move from now on. In a vfork child this is done on the parent's memory, which is where it is
 * needed. Nothing else is changed before exec, so nothing has to be undone when it fails: the hooks
 * stay as they are, and libc's exec functions reach none of them.
 *
 * vfork and clone are not wrapped: a wrapper's frame would be overwritten by the child. system and
 * popen take the environment from `environ` inside libc: they are forwarded, and their children are
 * not seen if the program has emptied `environ` itself.
 */
#include "environment.h"
#include "real.h"
#include "state.h"

#include <stdarg.h>
#include <sys/prctl.h>

#include <unistd.h>

static void share_descriptors(void)
{
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
}

/* `call` forwards with `environment.variables`. The changed environment, rarely needed, takes exactly
 * the stack that it needs: exec may run on a small alternative signal stack. */
#define EXEC_BODY(envp, call)                                                                      \
    do {                                                                                           \
        size_t bytes = foretell_active ? foretell_environment_bytes(envp) : 0;                     \
        size_t on_stack = bytes <= ENVIRONMENT_ON_STACK_BYTES ? bytes : 0;                         \
        char *stack[on_stack / sizeof(char *) + 1];                                                \
        struct environment environment = foretell_environment_for_child(envp, bytes, stack);       \
        share_descriptors();                                                                       \
        int result = call;                                                                         \
        foretell_environment_release(&environment);                                                \
        return result;                                                                             \
    } while (0)

static int run_path(const char *path, char *const argv[], char *const envp[])
{
    EXEC_BODY(envp, REAL(execve)(path, argv, environment.variables));
}

static int run_file(const char *file, char *const argv[], char *const envp[])
{
    EXEC_BODY(envp, REAL_LATE(execvpe)(file, argv, environment.variables));
}

HOOK(int, execve, (const char *path, char *const argv[], char *const envp[]))
{
    return run_path(path, argv, envp);
}

HOOK(int, execv, (const char *path, char *const argv[]))
{
    return run_path(path, argv, environ);
}

HOOK(int, execvp, (const char *file, char *const argv[]))
{
    return run_file(file, argv, environ);
}

HOOK(int, execvpe, (const char *file, char *const argv[], char *const envp[]))
{
    return run_file(file, argv, envp);
}

HOOK(int, execveat,
     (int folder, const char *path, char *const argv[], char *const envp[], int flags))
{
    EXEC_BODY(envp, REAL(execveat)(folder, path, argv, environment.variables, flags));
}

HOOK(int, fexecve, (int fd, char *const argv[], char *const envp[]))
{
    EXEC_BODY(envp, REAL_LATE(fexecve)(fd, argv, environment.variables));
}

static size_t count_arguments(const char *first, va_list rest)
{
    va_list values;
    va_copy(values, rest);
    size_t count = 0;
    for (const char *next = first; next != NULL; next = va_arg(values, const char *))
        count++;
    va_end(values);
    return count;
}

/* The list forms: an argv on the stack, as libc does it. The terminating NULL is taken from `rest`
 * too, so that execle's environment comes next. */
#define EXECL_BODY(run, environment_of_child)                                                      \
    do {                                                                                           \
        va_list rest;                                                                              \
        va_start(rest, first);                                                                     \
        size_t count = count_arguments(first, rest);                                               \
        char *argv[count + 1];                                                                     \
        argv[0] = (char *)first;                                                                   \
        for (size_t i = 1; i <= count; i++)                                                        \
            argv[i] = va_arg(rest, char *);                                                        \
        char *const *envp = environment_of_child;                                                  \
        va_end(rest);                                                                              \
        return run(path, argv, envp);                                                              \
    } while (0)

HOOK(int, execl, (const char *path, const char *first, ...))
{
    EXECL_BODY(run_path, environ);
}

HOOK(int, execlp, (const char *path, const char *first, ...))
{
    EXECL_BODY(run_file, environ);
}

HOOK(int, execle, (const char *path, const char *first, ...))
{
    EXECL_BODY(run_path, va_arg(rest, char *const *));
}

#define SPAWN(name)                                                                                \
    HOOK(int, name, SPAWN_ARGS)                                                                    \
    {                                                                                              \
        EXEC_BODY(envp, REAL_LATE(name)(pid, path, actions, attributes, argv,                      \
                                        environment.variables));                                   \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

HOOK(int, system, (const char *command))
{
    share_descriptors();
    return REAL_LATE(system)(command);
}

HOOK(FILE *, popen, (const char *command, const char *mode))
{
    share_descriptors();
    FILE *stream = REAL_LATE(popen)(command, mode);
    if (stream != NULL)
        foretell_forget(stream->_fileno);
    return stream;
}

HOOK(int, pclose, (FILE * stream))
{
    foretell_forget(stream->_fileno);
    return REAL_LATE(pclose)(stream);
}

/* All state lies in shared memory and the manager notices death by itself: nothing to flush. */
#define EXIT(name)                                                                                 \
    HOOK(void, name, (int status))                                                                 \
    {                                                                                              \
        REAL_LATE(name)(status);                                                                   \
        __builtin_unreachable();                                                                   \
    }
EXIT(_exit)
EXIT(_Exit)
EXIT(quick_exit)

/* A program that locks itself up would be killed for the calls that the hooks make (getpid, statx,
 * lseek, and socket and memfd_create in a forked child): from here on everything is forwarded. What
 * locks itself up by raw system calls is not noticed. */
HOOK(int, prctl, (int option, ...))
{
    va_list values;
    va_start(values, option);
    unsigned long first = va_arg(values, unsigned long);
    unsigned long second = va_arg(values, unsigned long);
    unsigned long third = va_arg(values, unsigned long);
    unsigned long fourth = va_arg(values, unsigned long);
    va_end(values);
    bool locks_up = option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS;
    if (UNLIKELY(locks_up) && foretell_active && foretell_is_own_process())
        __atomic_store_n(&foretell_active, false, __ATOMIC_RELEASE);
    return REAL_LATE(prctl)(option, first, second, third, fourth);
}
