/*
 * Memory around an exec: how the program's arguments are read, whose addresses may be invalid, and where
 * the new environment is stored, which must not lie on the program's stack.
 */
#ifndef FORETELL_PRELOAD_MEMORY_H
#define FORETELL_PRELOAD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A direct-mapped cache of page numbers that are known to be readable; begins as all zero. 256 pages are
 * 1 MiB of variables that lie side by side on the heap. Too large for a stack. */
struct known_pages {
    uintptr_t pages[256];
};

/* Whether the kernel reads the byte at this address. errno may change. */
bool foretell_readable(struct known_pages *known, const void *address);

/* The length of the string at this address, or SIZE_MAX if the kernel cannot read it. errno may change. */
size_t foretell_readable_length(struct known_pages *known, const char *text);

/* Memory for one exec; NULL if there is none. Async-signal-safe. errno is kept. */
void *foretell_exec_memory(size_t bytes);
/* Called when exec has returned, so never where it succeeds. errno is kept. */
void foretell_exec_memory_release(void *memory, size_t bytes);

#endif
