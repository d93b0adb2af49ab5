/*
 * Hooks of the process family: the library goes along with a new program, which shares our descriptors.
 *
 * Every way to start a program raises the epoch: the child inherits descriptors and may move their
 * positions from now on. A vfork child raises it in the parent's memory, where it is needed. Nothing
 * else is changed before exec, so nothing has to be undone if exec fails. libc's exec functions reach
 * none of the hooks.
 *
 * vfork and clone are not wrapped: the child would overwrite a wrapper's frame. system and popen, which
 * start a shell inside libc, are in command.c. wordexp does so too and is not hooked.
 */
#include "process.h"
#include "environment.h"
#include "real.h"
#include "state.h"

#include <stdarg.h>
#include <sys/prctl.h>

#include <unistd.h>

void foretell_share_descriptors(void)
{
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
}

/* A file by its path. A relative path starts at the working folder. */
static struct executed by_path(const char *path)
{
    return (struct executed){.folder = AT_FDCWD, .path = path};
}

/* A file by its name, as for execvp, which has the shell execute a text file. */
static struct executed by_name(const char *file)
{
    return (struct executed){.folder = AT_FDCWD, .path = file, .shell = true};
}

/* Before a program is executed. If it is without the library, what was counted is brought to the manager; if it also replaces
 * this process's program, the manager is told not to expect more. Returns whether the manager was told. */
static bool leave(const struct environment *environment, bool replaces)
{
    if (LIKELY(!environment->alone) || environment->locked_up)
        return false;
    foretell_register_if_counted();
    return replaces && foretell_fall_silent();
}

/* `call` forwards with `environment.variables`. If our entries make the environment too long, the call is tried again without
 * them. */
#define EXEC_BODY(envp, as, search, call)                                                          \
    EXEC_MEASURED_BODY(true, envp, as, search, call, errno, NULL)

/* replaces: whether the call replaces this process's program if it succeeds. error: the call's error. measured: the arguments
 * of a call that cannot be tried twice; NULL if it can. */
#define EXEC_MEASURED_BODY(replaces, envp, as, search, call, error, measured)                      \
    do {                                                                                           \
        struct executed what = as;                                                                 \
        struct environment environment;                                                            \
        foretell_environment_for(&environment, envp, &what, search);                               \
        bool silent = leave(&environment, replaces);                                               \
        char *const *words = measured;                                                             \
        if (words != NULL)                                                                         \
            foretell_environment_fit(&environment, envp, words);                                   \
        foretell_share_descriptors();                                                              \
        int result = call;                                                                         \
        if (UNLIKELY(result != 0 && (error) == E2BIG) && words == NULL &&                          \
            foretell_environment_shorten(&environment, envp)) {                                    \
            silent = silent || leave(&environment, replaces);                                      \
            result = call;                                                                         \
        }                                                                                          \
        if (UNLIKELY(silent) && result != 0)                                                       \
            foretell_speak_again();                                                                \
        foretell_environment_release(&environment, result != 0);                                   \
        return result;                                                                             \
    } while (0)

static int run_path(const char *path, char *const argv[], char *const envp[])
{
    EXEC_BODY(envp, by_path(path), false, REAL(execve)(path, argv, environment.variables));
}

static int run_file(const char *file, char *const argv[], char *const envp[])
{
    EXEC_BODY(envp, by_name(file), true, REAL(execvpe)(file, argv, environment.variables));
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
    struct executed executed = {.folder = folder, .path = path, .flags = flags};
    EXEC_BODY(envp, executed, false,
              REAL(execveat)(folder, path, argv, environment.variables, flags));
}

HOOK(int, fexecve, (int fd, char *const argv[], char *const envp[]))
{
    struct executed executed = {.folder = fd, .path = "", .flags = AT_EMPTY_PATH};
    EXEC_BODY(envp, executed, false, REAL(fexecve)(fd, argv, environment.variables));
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

/* Set when the program has made a spawn action that changes the folder. A child with such an action looks
 * a relative name up in another folder. `actions` is opaque, so one such action counts for all of them. */
static bool spawn_changes_folder;

#define ADDS_FOLDER(name, parameters, call)                                                        \
    HOOK(int, name, parameters)                                                                    \
    {                                                                                              \
        __atomic_store_n(&spawn_changes_folder, true, __ATOMIC_RELAXED);                           \
        return REAL(name) call;                                                               \
    }
ADDS_FOLDER(posix_spawn_file_actions_addchdir_np,
            (posix_spawn_file_actions_t * actions, const char *path), (actions, path))
ADDS_FOLDER(posix_spawn_file_actions_addfchdir_np, (posix_spawn_file_actions_t * actions, int fd),
            (actions, fd))

static struct executed spawned(const char *path, const posix_spawn_file_actions_t *actions,
                               bool shell)
{
    struct executed executed = by_path(path);
    executed.shell = shell;
    executed.elsewhere =
        actions != NULL && __atomic_load_n(&spawn_changes_folder, __ATOMIC_RELAXED);
    return executed;
}

static char *const no_words[] = {NULL};

/* search: the name is looked for in PATH. shell: a file that the kernel does not execute goes to /bin/sh. */
#define SPAWN_BODY(name, search, shell)                                                            \
    {                                                                                              \
        /* Actions must not run twice: a file that they create exists the second time. */          \
        EXEC_MEASURED_BODY(                                                                        \
            false, envp, spawned(path, actions, shell), search,                                    \
            REAL(name)(pid, path, actions, attributes, argv, environment.variables), result,  \
            actions == NULL ? NULL : argv != NULL ? argv : no_words);                              \
    }

int foretell_spawn SPAWN_ARGS
SPAWN_BODY(posix_spawn, false, false)

#if HAS_OLD_SPAWN
HOOK_VERSION(int, posix_spawn, "posix_spawn@@" SPAWN_VERSION, SPAWN_ARGS)
SPAWN_BODY(posix_spawn, false, false)
HOOK_VERSION(int, posix_spawnp, "posix_spawnp@@" SPAWN_VERSION, SPAWN_ARGS)
SPAWN_BODY(posix_spawnp, true, false)
HOOK_VERSION(int, posix_spawn_old, "posix_spawn@" SPAWN_OLD_VERSION, SPAWN_ARGS)
SPAWN_BODY(posix_spawn_old, false, true)
HOOK_VERSION(int, posix_spawnp_old, "posix_spawnp@" SPAWN_OLD_VERSION, SPAWN_ARGS)
SPAWN_BODY(posix_spawnp_old, true, true)
#else
HOOK(int, posix_spawn, SPAWN_ARGS) SPAWN_BODY(posix_spawn, false, false)
HOOK(int, posix_spawnp, SPAWN_ARGS) SPAWN_BODY(posix_spawnp, true, false)
#endif

/* All state lies in shared memory, and the manager notices the end by itself. Only the stalls of descriptors
 * whose kind was not looked up have to be counted, and a program that is not announced and has counted something announces
 * itself. */
#define EXIT_BODY(name)                                                                            \
    {                                                                                              \
        foretell_at_end();                                                                         \
        REAL(name)(status);                                                                   \
        __builtin_unreachable();                                                                   \
    }
HOOK(void, _exit, (int status)) EXIT_BODY(_exit)
HOOK(void, _Exit, (int status)) EXIT_BODY(_Exit)
HOOK_VERSION(void, quick_exit, "quick_exit@@" QUICK_EXIT_VERSION, (int status)) EXIT_BODY(quick_exit)
HOOK_VERSION(void, quick_exit_old, "quick_exit@" QUICK_EXIT_OLD_VERSION, (int status))
EXIT_BODY(quick_exit_old)

/* The process may be killed for system calls that the hooks add (statx, getpid, lseek, and socket and
 * memfd_create in a forked child), and for reading the processor's clock. */
void foretell_notice_lock_up(void)
{
    /* While it still may, so that its counts reach the manager. */
    foretell_register_if_pending();
    foretell_environment_lock_up();
    if (foretell_active && foretell_is_own_process()) {
        (void)foretell_fall_silent();
        foretell_switch_off();
    }
}

HOOK(int, prctl, (int option, ...))
{
    va_list values;
    va_start(values, option);
    unsigned long first = va_arg(values, unsigned long);
    unsigned long second = va_arg(values, unsigned long);
    unsigned long third = va_arg(values, unsigned long);
    unsigned long fourth = va_arg(values, unsigned long);
    va_end(values);
    if (UNLIKELY(foretell_locks_up(option)))
        foretell_notice_lock_up();
    return REAL(prctl)(option, first, second, third, fourth);
}
