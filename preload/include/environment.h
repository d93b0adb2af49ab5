/*
 * The environment: what foretell has put there is hidden from the program, and goes along with what
 * the program executes.
 */
#ifndef FORETELL_PRELOAD_ENVIRONMENT_H
#define FORETELL_PRELOAD_ENVIRONMENT_H

#include "executable.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the library was told. */
struct introduction {
    const char *address; /* the manager's */
    uint32_t interest;
    uint32_t filters; /* of seccomp, which foretell itself was under */
};

/* Called once, in the constructor. Takes foretell's own entries out of the environment; `initial` is
 * the array that the program was started with, `library` this library's path. NULL, and nothing is
 * changed, if foretell has not put this library there. */
const struct introduction *foretell_environment_take(char **initial, const char *library);

/* From here on the library goes along with what is executed. */
void foretell_environment_hand_on(void);
/* From here on it does not. gone: the manager's address is not handed on either. */
void foretell_environment_stop(bool gone);
/* Takes the manager's address out of the environment, since nobody is there. In the constructor. */
void foretell_environment_forget_address(void);
/* From here on it does not, and no call is made to find out: the program locks itself up. */
void foretell_environment_lock_up(void);

struct environment {
    char *const *variables; /* to be handed on */
    void *memory;           /* NULL: they are the program's own */
    size_t bytes;
    bool alone; /* the program is executed without the library, and counted */
};

/* The environment to be handed on. search: what is executed is looked for in PATH, as execvp does; its
 * path changes. Never fails: where it cannot be told, envp is handed on as it is. envp may be any value:
 * what the kernel cannot read is not touched. errno is kept. */
void foretell_environment_for(struct environment *environment, char *const envp[],
                              struct executed *executed, bool search);
/* For a call that cannot be tried twice: takes the library's entries out beforehand where the kernel
 * might find them too long, together with argv. errno is kept. */
void foretell_environment_fit(struct environment *environment, char *const envp[],
                              char *const argv[]);
/* The call has failed for too long an environment: whether it is worth another try, with envp. */
bool foretell_environment_shorten(struct environment *environment, char *const envp[]);
/* Where the call has returned; failed: nothing was executed. errno is kept. */
void foretell_environment_release(struct environment *environment, bool failed);

#endif
