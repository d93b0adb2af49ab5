/*
 * Memory around an exec: see memory.h.
 *
 * A. Reading the program's arguments. execve answers EFAULT for an invalid address; the hook must do the
 * same and not crash. rt_sigprocmask copies its second argument before it checks the first, which is
 * invalid here on purpose: it answers EFAULT or EINVAL and changes nothing. It is called once for each new
 * page; a program's environment has two or three. process_vm_readv would ask for many pages at once, but
 * a sandbox may kill for it, since it also reads other processes. glibc itself calls rt_sigprocmask.
 *
 * B. Memory for a new environment. A process that calls exec itself maps it, and unmaps it if the call
 * returns. In a vfork child the mapping would stay with the parent, one for each program that it starts.
 * So the vfork children of a thread use one piece of memory in turn: while one runs, the thread waits.
 * The thread pointer, which a vfork child shares, identifies the piece. A child made by clone may share it
 * and run beside others. So a piece is taken by compare-and-swap, and the kernel marks it free when the
 * child executes or ends (set_tid_address). The number of pieces is bounded; a child that gets none
 * executes its program without the library.
 */
#include "memory.h"
#include "state.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Where pages are larger, this is a part of one, which serves as well. */
#define PAGE_BYTES 4096u

static uintptr_t page_of(const void *address)
{
    return (uintptr_t)address / PAGE_BYTES;
}

bool foretell_readable(struct known_pages *known, const void *address)
{
    uintptr_t page = page_of(address);
    if (page == 0)
        return false; /* the kernel takes NULL for "no set" */
    uintptr_t *place = &known->pages[page % (sizeof known->pages / sizeof known->pages[0])];
    if (*place == page)
        return true;
    uintptr_t aligned = (uintptr_t)address & ~(uintptr_t)7;
    if (syscall(SYS_rt_sigprocmask, -1, aligned, NULL, sizeof(uint64_t)) == 0 || errno == EFAULT)
        return false;
    *place = page;
    return true;
}

size_t foretell_readable_length(struct known_pages *known, const char *text)
{
    size_t length = 0;
    while (foretell_readable(known, text + length)) {
        size_t left = PAGE_BYTES - (uintptr_t)(text + length) % PAGE_BYTES;
        size_t more = strnlen(text + length, left);
        length += more;
        if (more < left)
            return length;
    }
    return SIZE_MAX;
}

struct piece {
    pthread_t thread; /* 0: free. Set once */
    pid_t user;       /* the process that has taken it; the kernel stores 0 when that process is done */
    void *memory;
    size_t bytes;
};

/* As many threads of one process may use vfork. Each takes some KiB. */
static struct piece pieces[64];

static pid_t raw_pid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

/* This thread's piece; NULL if all belong to other threads. */
static struct piece *own_piece(void)
{
    size_t count = sizeof pieces / sizeof pieces[0];
    pthread_t self = pthread_self();
    for (size_t i = 0; i < count; i++)
        if (__atomic_load_n(&pieces[i].thread, __ATOMIC_ACQUIRE) == self)
            return &pieces[i];
    for (size_t i = 0; i < count; i++) {
        pthread_t none = 0;
        if (__atomic_compare_exchange_n(&pieces[i].thread, &none, self, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            return &pieces[i];
    }
    return NULL;
}

static void *map(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Takes a piece and has the kernel store 0 in it later. False if it is taken, or if the program itself has
 * given the kernel an address for this. A kernel that does not report such an address (without
 * CONFIG_CHECKPOINT_RESTORE) is taken to have none. */
static bool take_piece(struct piece *piece)
{
    int *told = NULL;
    (void)syscall(SYS_prctl, PR_GET_TID_ADDRESS, &told);
    pid_t nobody = 0;
    if (told != NULL || !__atomic_compare_exchange_n(&piece->user, &nobody, raw_pid(), false,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return false;
    (void)syscall(SYS_set_tid_address, &piece->user);
    return true;
}

static void leave_piece(struct piece *piece)
{
    (void)syscall(SYS_set_tid_address, NULL);
    __atomic_store_n(&piece->user, 0, __ATOMIC_RELEASE);
}

static void *memory_of_child(size_t bytes)
{
    struct piece *piece = own_piece();
    if (piece == NULL || !take_piece(piece))
        return NULL;
    if (piece->bytes < bytes) {
        if (piece->memory != NULL)
            (void)munmap(piece->memory, piece->bytes);
        piece->memory = map(bytes);
        piece->bytes = piece->memory != NULL ? bytes : 0;
    }
    if (piece->memory == NULL)
        leave_piece(piece);
    return piece->memory;
}

void *foretell_exec_memory(size_t bytes)
{
    int saved = errno;
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *memory = foretell_is_own_process() ? map(bytes) : memory_of_child(bytes);
    errno = saved;
    return memory;
}

void foretell_exec_memory_release(void *memory, size_t bytes)
{
    int saved = errno;
    if (foretell_is_own_process())
        (void)munmap(memory, bytes);
    else
        leave_piece(own_piece()); /* which it got in foretell_exec_memory */
    errno = saved;
}
