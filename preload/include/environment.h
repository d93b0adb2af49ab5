/*
 * The environment that a program hands on, with what it dropped by accident put back.
 */
#ifndef FORETELL_PRELOAD_ENVIRONMENT_H
#define FORETELL_PRELOAD_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* A changed environment up to this size lies on the stack, else in mapped memory. */
#define ENVIRONMENT_ON_STACK_BYTES 32768u

struct environment {
    char *const *variables; /* to be handed on */
    void *mapped;           /* NULL, or memory to be given back */
    size_t mapped_bytes;
};

/* Called once, before any other function here. Copies what is in the environment now. */
void foretell_environment_remember(const char *library);

/* How much memory a changed environment takes; 0 if envp may be handed on as it is. */
size_t foretell_environment_bytes(char *const envp[]);

/* The environment to be handed on. bytes: what foretell_environment_bytes said; stack: so much
 * memory, aligned for pointers, if bytes is between 1 and ENVIRONMENT_ON_STACK_BYTES. Never fails:
 * when memory is refused, envp is handed on as it is. errno is kept. */
struct environment foretell_environment_for_child(char *const envp[], size_t bytes, void *stack);
/* Where the forwarded call returns. errno is kept. */
void foretell_environment_release(const struct environment *environment);

#endif
