/*
 * Hook of syscall: a program that loads a seccomp filter by it is noticed, as by prctl.
 *
 * All else passes through without a frame, by a jump: what is called may be clone, whose child returns
 * on another stack. The library's own calls go this way, too.
 */
#include "process.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Until libc's function is known. */
__attribute__((used)) static long early(long number, ...)
{
    va_list values;
    va_start(values, number);
    long a = va_arg(values, long);
    long b = va_arg(values, long);
    long c = va_arg(values, long);
    long d = va_arg(values, long);
    long e = va_arg(values, long);
    long f = va_arg(values, long);
    va_end(values);
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    /* The kernel keeps all registers but these. */
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long result __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    register long x8 __asm__("x8") = number;
    __asm__ volatile("svc 0"
                     : "+r"(result)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8)
                     : "memory");
#else
#error "a machine whose system calls are not known here"
#endif
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Where the hook jumps to. */
__attribute__((used)) static long (*next)(long number, ...) = early;

__attribute__((used)) static void notice(long number, unsigned long first)
{
    if (number == SYS_prctl)
        foretell_notice_prctl(first);
    else if (first == SECCOMP_SET_MODE_STRICT || first == SECCOMP_SET_MODE_FILTER)
        foretell_notice_lock_up();
}

void foretell_resolve_syscall(void)
{
    void *found = dlsym(RTLD_NEXT, "syscall");
    if (found != NULL)
        __atomic_store_n((void **)(void *)&next, found, __ATOMIC_RELAXED);
}

#define TEXT(value) #value
#define NUMBER(value) TEXT(value)

/* The arguments are kept over the call of `notice`, which takes the first two. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    cmpq $" NUMBER(__NR_prctl) ", %rdi\n"
        "    je 1f\n"
        "    cmpq $" NUMBER(__NR_seccomp) ", %rdi\n"
        "    je 1f\n"
        "0:  jmp *next(%rip)\n"
        "1:  pushq %rdi\n"
        "    pushq %rsi\n"
        "    pushq %rdx\n"
        "    pushq %rcx\n"
        "    pushq %r8\n"
        "    pushq %r9\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 56\n"
        "    call notice\n"
        "    addq $8, %rsp\n"
        "    popq %r9\n"
        "    popq %r8\n"
        "    popq %rcx\n"
        "    popq %rdx\n"
        "    popq %rsi\n"
        "    popq %rdi\n"
        ".cfi_adjust_cfa_offset -56\n"
        "    jmp 0b\n"
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, %function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    cmp x0, #" NUMBER(__NR_prctl) "\n"
        "    b.eq 1f\n"
        "    cmp x0, #" NUMBER(__NR_seccomp) "\n"
        "    b.eq 1f\n"
        "0:  adrp x16, next\n"
        "    ldr x16, [x16, #:lo12:next]\n"
        "    br x16\n"
        "1:  stp x29, x30, [sp, #-80]!\n"
        ".cfi_adjust_cfa_offset 80\n"
        "    stp x0, x1, [sp, #16]\n"
        "    stp x2, x3, [sp, #32]\n"
        "    stp x4, x5, [sp, #48]\n"
        "    str x6, [sp, #64]\n"
        "    bl notice\n"
        "    ldr x6, [sp, #64]\n"
        "    ldp x4, x5, [sp, #48]\n"
        "    ldp x2, x3, [sp, #32]\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #80\n"
        ".cfi_adjust_cfa_offset -80\n"
        "    b 0b\n"
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
#endif
