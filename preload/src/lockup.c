/*
 * The hook of syscall, for two numbers only: seccomp and prctl.
 *
 * Decides when a program locks itself up by a raw system call. From then on the hooks must make no
 * system call but the program's own, and read no clock: strict seccomp takes the processor's clock
 * away (on x86-64 reading it is then a fault). A program that makes the call by an instruction of its
 * own is not noticed. While nobody wants records, a child that does so, having done nothing but read since
 * it was forked, is served all the same (UNANNOUNCED in state.h).
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
