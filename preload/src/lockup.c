/*
 * The hook of syscall, for two numbers only: seccomp and prctl.
 *
 * Decides when a program locks itself up by a raw system call: when it forbids itself system calls or the
 * clock. From then on the hooks must make only the program's own system calls, and read no clock: under
 * strict seccomp, reading the processor's clock is a fault on x86-64. A program that loads a filter by an
 * instruction of its own is noticed if it does so before it announces itself (filter.c), and else is not. A
 * forked child that does so and has only read since its fork is not harmed while no records are wanted
 * (UNANNOUNCED in state.h).
 */
#include "process.h"
#include "real.h"
#include "state.h"

#include <sys/syscall.h>

#if defined(__x86_64__) || defined(__aarch64__)

static __attribute__((noinline)) long perhaps_locking_up SYSCALL_ARGS
{
    /* A variable argument may be an int: its upper half says nothing. */
    if (number == SYS_seccomp || foretell_locks_up((int)a))
        foretell_notice_lock_up();
    return REAL(syscall)(number, a, b, c, d, e, f);
}

/* Both calls are jumps, without a frame of our own (the Makefile asks for it): a raw vfork returns twice
 * through here. */
HOOK(long, syscall, SYSCALL_ARGS)
{
    if (UNLIKELY(number == SYS_seccomp || number == SYS_prctl))
        return perhaps_locking_up(number, a, b, c, d, e, f);
    return REAL(syscall)(number, a, b, c, d, e, f);
}

#endif
