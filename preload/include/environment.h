/*
 * The environment: foretell's entries are hidden from the program, and put into the environment of the
 * programs that it executes.
 */
#ifndef FORETELL_PRELOAD_ENVIRONMENT_H
#define FORETELL_PRELOAD_ENVIRONMENT_H

#include "executable.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library's parameters. */
struct introduction {
    const char *address; /* the manager's */
    uint32_t interest;
    uint32_t filters; /* of seccomp, which foretell itself was under */
};

/* Called once, in the constructor. Takes foretell's own entries out of the environment. `initial` is the
 * array that the program was started with, `library` this library's path, which is kept. Returns NULL and changes
 * nothing if foretell has not put this library there. */
const struct introduction *foretell_environment_take(char **initial, const char *library);

/* From here on the library goes along with executed programs. */
void foretell_environment_hand_on(void);
/* From here on the library does not go along. gone: the manager's address is not handed on either. */
void foretell_environment_stop(bool gone);
/* From here on the library does not go along, and makes no system call to decide it: the program forbids
 * itself system calls. */
void foretell_environment_lock_up(void);

struct environment {
    char *const *variables; /* to be handed on */
    void *memory;           /* NULL: they are the program's own */
    size_t bytes;
    bool alone;     /* the program is executed without the library, and counted */
    bool followed;  /* the library goes along, and that is counted */
    bool skipped;   /* alone, for the sake of skips_repeated */
    bool locked_up; /* the program has forbidden itself system calls */
};

/* Fills in the environment to be handed on. search: the program is looked for in PATH, as by execvp, which
 * changes executed->path. Never fails: if nothing can be decided, envp is handed on as it is. envp may be
 * any value: memory that the kernel cannot read is not touched. errno is kept. */
void foretell_environment_for(struct environment *environment, char *const envp[],
                              struct executed *executed, bool search);
/* For a call that cannot be tried twice: takes the library's entries out beforehand if the kernel might
 * refuse them as too long, together with argv. errno is kept. */
void foretell_environment_fit(struct environment *environment, char *const envp[],
                              char *const argv[]);
/* The call has failed because the environment is too long. Returns whether another try with envp may
 * succeed. */
bool foretell_environment_shorten(struct environment *environment, char *const envp[]);
/* Called when the call has returned. failed: nothing was executed. errno is kept. */
void foretell_environment_release(struct environment *environment, bool failed);

#endif
