/*
 * Starting programs from inside the library.
 */
#ifndef FORETELL_PRELOAD_PROCESS_H
#define FORETELL_PRELOAD_PROCESS_H

#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* posix_spawn, with the library going along as in its hook. */
int foretell_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                   const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]);

/* A new process shares our descriptors, and may move their positions unseen from now on. */
void foretell_share_descriptors(void);

/* The program is about to forbid itself system calls or the clock. From here on everything is forwarded,
 * and the library goes along no more. */
void foretell_notice_lock_up(void);

/* Whether system and popen of this glibc run `sh -c -- LINE`. Before 2.38 they run `sh -c LINE`, where a
 * line that begins with a dash is taken for options. version: as gnu_get_libc_version gives it. */
static inline bool foretell_shell_gets_dashes(const char *version)
{
    const char *dot = strchr(version, '.');
    long minor = dot != NULL ? strtol(dot + 1, NULL, 10) : 0;
    long major = strtol(version, NULL, 10);
    return major > 2 || (major == 2 && minor >= 38);
}

/* command.c: in a forked child, whose parent's other threads may have held the locks. */
void foretell_commands_forked(void);
/* command.c: called before a stream is closed by any function. Returns the shell behind it if popen's hook
 * has started one, else 0. */
pid_t foretell_take_pipe(FILE *stream);
/* Called after the close: waits for that shell. Returns the result of the whole call: the shell's status,
 * or `closed` if there is no shell. */
int foretell_wait_for_pipe(pid_t pid, int closed);

#endif
