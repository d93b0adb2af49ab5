/*
 * Looking up functions of the objects that follow this library.
 *
 * Decides what RTLD_NEXT means for this library, without dlsym: dlsym takes the dynamic linker's lock, forgets the error
 * that the program has yet to ask for (dlerror), and takes five times as long.
 *
 * How: A. the constructor notes the tables of each object behind this one, up to the C library, in the order in which the
 * dynamic linker searches them. These are there from the start and are never unloaded. B. a name is looked up in each by its
 * GNU hash, as the dynamic linker does it: the version that is asked for, else the one that is not hidden. Objects
 * without versions have every version.
 *
 * Invariants: B reads memory only, so it may run in signal handlers, vfork children and any thread. The tables are
 * those that the dynamic linker itself has used before, so they are trusted as it trusts them.
 *
 * Cost: A. 1 µs and 0.1 µs an object; B. 0.05 µs a name.
 */
#ifndef FORETELL_PRELOAD_LOOK_UP_H
#define FORETELL_PRELOAD_LOOK_UP_H

#include <stdbool.h>
#include <stddef.h>

/* A. Called once. Returns this library's path, as the dynamic linker knows it; NULL if it is not found. *suffices is false
 * where an object has no GNU hash, there are more objects than are noted, or the C library is not among them: then
 * foretell_next knows nothing. */
const char *foretell_look_around(bool *suffices);

/* B. The function `name`; version: NULL for the one that is found without. *found is NULL if there is none. Returns false if
 * only the dynamic linker can tell: before foretell_look_around, where that did not suffice, and if the function is chosen at
 * run time (STT_GNU_IFUNC), which none of glibc's that are hooked is. */
bool foretell_next(const char *name, const char *version, void **found);

#endif
