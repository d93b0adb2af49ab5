/*
 * Memory around an exec: see memory.h.
 *
 * A. Reading the program's arguments. execve answers EFAULT for an invalid address; the hook must do the
 * same and not crash. rt_sigprocmask copies its second argument before it checks the first, which is
 * invalid here on purpose: it answers EFAULT or EINVAL and changes nothing. It is called once for each new
 * page; a program's environment has two or three. process_vm_readv would ask for many pages at once, but
 * a sandbox may kill for it, since it also reads other processes. glibc itself calls rt_sigprocmask.
 *
 * B. Memory for a new environment. Each thread has one piece, which is kept for its next exec: a new mapping would have to be
 * filled with pages and given back each time, and in a vfork child it would stay with the parent. The vfork children of
 * a thread use its piece in turn: while one runs, the thread waits. The thread pointer, which a vfork child shares, identifies
 * the piece. A child made by clone may share it and run beside others, and a signal handler may interrupt its thread's exec. So
 * a piece is taken by compare-and-swap. The process gives it back when its call has returned; from a vfork child the kernel
 * takes it when the child executes or ends (set_tid_address). The number of pieces is bounded. A process that gets none maps
 * memory for one call; a vfork child that gets none executes its program without the library.
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
BEHIND_IN_BSS("2") static struct piece pieces[64];

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

/* Takes the piece for this process. */
static bool take(struct piece *piece)
{
    pid_t nobody = 0;
    return __atomic_compare_exchange_n(&piece->user, &nobody, raw_pid(), false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* Takes a piece and has the kernel store 0 in it later. False if it is taken, or if the program itself has
 * given the kernel an address for this. A kernel that does not report such an address (without
 * CONFIG_CHECKPOINT_RESTORE) is taken to have none. */
static bool take_for_child(struct piece *piece)
{
    int *told = NULL;
    (void)syscall(SYS_prctl, PR_GET_TID_ADDRESS, &told);
    if (told != NULL || !take(piece))
        return false;
    (void)syscall(SYS_set_tid_address, &piece->user);
    return true;
}

/* own: whether it was taken for this process. */
static void give_back(struct piece *piece, bool own)
{
    if (!own)
        (void)syscall(SYS_set_tid_address, NULL);
    __atomic_store_n(&piece->user, 0, __ATOMIC_RELEASE);
}

/* The memory of a piece that was taken, with room for so many bytes; NULL if there is none. */
static void *memory_of(struct piece *piece, size_t bytes)
{
    if (piece->bytes < bytes) {
        void *before = piece->memory;
        piece->memory = NULL; /* a signal handler's exec may get the same address */
        if (before != NULL)
            (void)munmap(before, piece->bytes);
        piece->memory = map(bytes);
        piece->bytes = piece->memory != NULL ? bytes : 0;
    }
    return piece->memory;
}

void *foretell_exec_memory(size_t bytes)
{
    int saved = errno;
    bool own = foretell_is_own_process();
    struct piece *piece = own_piece();
    bool taken = piece != NULL && (own ? take(piece) : take_for_child(piece));
    void *memory = NULL;
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (taken)
        memory = memory_of(piece, bytes);
    else if (own)
        memory = map(bytes);
    if (taken && memory == NULL)
        give_back(piece, own);
    errno = saved;
    return memory;
}

void foretell_exec_memory_release(void *memory, size_t bytes)
{
    int saved = errno;
    bool own = foretell_is_own_process();
    struct piece *piece = own_piece();
    if (!own || (piece != NULL && piece->memory == memory))
        give_back(piece, own);
    else
        (void)munmap(memory, bytes);
    errno = saved;
}
