/*
 * Announcing this process to the manager: constructor, fork, and the HELLO.
 *
 * Decides whether the library does anything at all. foretell_active stays or becomes OFF, and every hook
 * only forwards,
 *   - without FORETELL_PRELOAD,
 *   - under a seccomp filter that foretell is not under, when the process would announce itself,
 *   - when the manager does not answer or belongs to another user,
 *   - when memory or descriptors are short.
 *
 * How: A. the constructor resolves the real functions, and takes foretell's entries out of the environment. B. a process
 * looks for a filter, and announces itself, at its first open, recorded read or recorded name, or at
 * the start if its standard input is a file: many programs of scripts end before that, and most children of a fork exec.
 * Until then a program counts in a private header, a fork's child in its parent's ring, and neither writes records. A
 * program that ends unannounced, and has counted something, announces itself then; what it has counted before it executes
 * another one is lost, unless that one is without the library. C. announcing makes the ring, seals it, sends it, and closes
 * both descriptors. connect and send do not wait: the kernel queues both for a listening socket. D. before an announced
 * process executes a program without the library, and when the library is switched off in it, the ring says so.
 *
 * Invariants: everything after the constructor is async-signal-safe (B may run in a signal handler);
 * errno is kept; no descriptor is left open.
 */
#define _GNU_SOURCE 1
#include "environment.h"
#include "look_up.h"
#include "process.h"
#include "real.h"
#include "state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* What registers a handler of libc names the library by this address; the compiler's start files would define it. */
extern void *const __dso_handle;
void *const __dso_handle __attribute__((visibility("hidden"))) = (void *)&__dso_handle;

/* A header without records, for a process that is not announced. Its interest is what the first ring's will be, so that hooks
 * come by and announce it. */
static struct foretell_ring_header no_ring;
enum contact { REACHED, NO_MANAGER, REFUSED };
static struct sockaddr_un manager;
static socklen_t manager_bytes;
static char argv0[256];
static uint32_t first_interest;
static uint32_t known_filters;
static pid_t own_pid;
/* At the start: by the time of the announcement the parent may have ended. */
static pid_t parent_pid;
static uint32_t pending;
/* Whether the announcement will be the first of a program. */
static bool begins_program;

struct foretell_ring_header *foretell_ring = &no_ring;
BEHIND_IN_BSS("3") union foretell_wiped foretell_wiped __attribute__((aligned(LARGEST_PAGE_BYTES)));
/* Whether this process announces itself. A forked child inherits it, unlike foretell_active, which is OFF
 * there. */
static bool watched_run;

/* Raw calls: our own hooks must not see them, and libc's may be cancellation points. */
static pid_t raw_pid(void)
{
    return (pid_t)syscall(SYS_getpid); /* never cached, unlike in old C libraries */
}

static void raw_close(int fd)
{
    (void)syscall(SYS_close, fd);
}

/* The least number of a descriptor while there are other threads: far from those that programs give to descriptors of their
 * own. */
#define FAR 512

/* Moves a descriptor out of the way. Above the numbers of standard input, output and error: a program that has closed one of
 * these would take the descriptor for it. Where there are other threads, far up at once: one of them may copy a descriptor to a
 * low number that it holds to be free, or wait for the lowest one. */
static int out_of_the_way(int fd)
{
    int least = __libc_single_threaded ? STDERR_FILENO + 1 : FAR;
    if (fd < 0 || fd >= least)
        return fd;
    int moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least);
    if (moved < 0 && least == FAR) /* the process may have few */
        moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    raw_close(fd);
    return moved;
}

/* Whether the kernel clears foretell_wiped in a child of a fork. */
static bool wipes;
bool foretell_asks = true;

bool foretell_is_own_process(void)
{
    return raw_pid() == own_pid;
}

bool foretell_is_own_call(void)
{
    bool own = foretell_is_own_process();
    if (UNLIKELY(!own))
        __atomic_store_n(&foretell_asks, true, __ATOMIC_RELAXED);
    return own;
}

/* A sealed ring, mapped, with its descriptor in *fd; NULL if that fails. In a forked child it is mapped over
 * the parent's ring, since a hook that the fork interrupted may hold a pointer to that. */
static struct foretell_ring_header *make_ring(int *fd)
{
    struct rlimit file_size;
    /* Growing a memfd beyond RLIMIT_FSIZE would raise SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &file_size) != 0 || file_size.rlim_cur < FORETELL_RING_BYTES)
        return NULL;
    *fd = out_of_the_way(
        (int)syscall(SYS_memfd_create, "foretell-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (*fd < 0)
        return NULL;
    void *memory = MAP_FAILED;
    void *parents = foretell_ring != &no_ring ? foretell_ring : NULL;
    if (syscall(SYS_ftruncate, *fd, (off64_t)FORETELL_RING_BYTES) == 0 &&
        syscall(SYS_fcntl, *fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(parents, FORETELL_RING_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | (parents != NULL ? MAP_FIXED : 0), *fd, 0);
    if (memory == MAP_FAILED) {
        if (parents != NULL) /* the kernel may have unmapped it */
            __atomic_store_n(&foretell_ring, &no_ring, __ATOMIC_RELEASE);
        raw_close(*fd);
        return NULL;
    }
    struct foretell_ring_header *header = memory;
    header->magic = FORETELL_RING_MAGIC;
    header->version = FORETELL_PROTOCOL_VERSION;
    header->capacity_records = FORETELL_RING_CAPACITY_RECORDS;
    header->record_bytes = FORETELL_RECORD_BYTES;
    header->header_bytes = FORETELL_RING_HEADER_BYTES;
    header->interest = first_interest;
    return header;
}

/* A socket connected to a manager of this user or root; -1 if there is none. *gone: no manager listens. */
static inline __attribute__((always_inline)) int connect_manager(bool *gone)
{
    int fd = out_of_the_way(
        (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof peer;
    long connected = syscall(SYS_connect, fd, &manager, manager_bytes);
    *gone = connected != 0 && errno == ECONNREFUSED;
    if (connected == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return fd;
    raw_close(fd);
    return -1;
}

bool foretell_manager_is_gone(void)
{
    bool gone = false;
    int fd = connect_manager(&gone);
    if (fd >= 0)
        raw_close(fd);
    return gone;
}

bool foretell_run_is_over(void)
{
    const struct foretell_ring_header *header = ring();
    if (__atomic_load_n(&header->manager_ended, __ATOMIC_RELAXED) != 0)
        return true;
    /* Nobody says so in a ring that the manager does not have: it may have ended before it took the ring, or the process
     * that has announced itself with it has ended, or none has. One thread asks at a time, for the question has one buffer. */
    static uint32_t asking;
    if (__atomic_load_n(&header->manager_hears, __ATOMIC_RELAXED) != 0 ||
        __atomic_exchange_n(&asking, 1, __ATOMIC_ACQUIRE) != 0)
        return false;
    bool is_over = !foretell_is_filtered(known_filters) && foretell_manager_is_gone();
    __atomic_store_n(&asking, 0, __ATOMIC_RELEASE);
    return is_over;
}

/* Called once in a process, so its message can lie in static memory rather than on the stack. */
static bool send_hello(int socket, int ring_fd)
{
    static struct foretell_hello hello;
    hello.header.kind = FORETELL_MESSAGE_HELLO;
    hello.version = FORETELL_PROTOCOL_VERSION;
    hello.pid = (uint32_t)raw_pid();
    hello.ppid = (uint32_t)parent_pid;
    hello.argv0_bytes = (uint32_t)strlen(argv0);
    hello.flags = begins_program ? FORETELL_HELLO_PROGRAM : 0;
    hello.header.total_bytes = (uint32_t)sizeof hello + hello.argv0_bytes;
    (void)syscall(SYS_prctl, PR_GET_NAME, hello.comm); /* prctl is hooked */
    struct iovec parts[2] = {{&hello, sizeof hello}, {argv0, hello.argv0_bytes}};
    union {
        struct cmsghdr header; /* for alignment */
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct msghdr packet = {.msg_iov = parts,
                            .msg_iovlen = 2,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &ring_fd, sizeof ring_fd);
    /* The raw call: libc's sendmsg is a cancellation point. */
    return syscall(SYS_sendmsg, socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* The counters of a header. */
static const size_t counters[] = {
    offsetof(struct foretell_ring_header, read_calls),
    offsetof(struct foretell_ring_header, read_bytes),
    offsetof(struct foretell_ring_header, open_calls),
    offsetof(struct foretell_ring_header, open_stall_ns),
    offsetof(struct foretell_ring_header, open_stalls),
    offsetof(struct foretell_ring_header, other_read_bytes),
    offsetof(struct foretell_ring_header, dropped_records),
    offsetof(struct foretell_ring_header, programs_left_alone),
    offsetof(struct foretell_ring_header, programs_skipped),
    offsetof(struct foretell_ring_header, programs_followed),
};

/* Adds to the process's ring, unless that is NULL, what was counted without one: before, or by another thread during the
 * announcement. */
static void carry_over(struct foretell_ring_header *to)
{
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        uint64_t *from = (uint64_t *)(void *)((char *)&no_ring + counters[i]);
        if (__atomic_load_n(from, __ATOMIC_RELAXED) == 0)
            continue;
        uint64_t counted = __atomic_exchange_n(from, 0, __ATOMIC_RELAXED);
        if (to != NULL)
            count((uint64_t *)(void *)((char *)to + counters[i]), counted);
    }
}

/* C */
static enum contact announce(void)
{
    int saved = errno;
    bool announced = false;
    bool gone = false;
    int ring_fd = -1;
    /* Before the connection, which wakes the manager: it finds the message when it looks. */
    struct foretell_ring_header *header = make_ring(&ring_fd);
    if (header == NULL) {
        errno = saved;
        return REFUSED;
    }
    int socket = connect_manager(&gone);
    if (socket >= 0) {
        announced = send_hello(socket, ring_fd);
        raw_close(socket);
    }
    raw_close(ring_fd);
    /* A ring that was not sent stays mapped if it replaced the parent's. */
    if (announced)
        __atomic_store_n(&foretell_ring, header, __ATOMIC_RELEASE);
    else if (header != foretell_ring)
        (void)munmap(header, FORETELL_RING_BYTES);
    errno = saved;
    return announced ? REACHED : gone ? NO_MANAGER : REFUSED;
}

void foretell_switch_off(void)
{
    __atomic_store_n(&watched_run, false, __ATOMIC_RELAXED);
    __atomic_store_n(&no_ring.interest, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&foretell_active, OFF, __ATOMIC_RELEASE);
}

bool foretell_fall_silent(void)
{
    /* A vfork child, which executes a program in its parent's memory, is not the process of the ring. */
    if (activity() != ANNOUNCED || !foretell_is_own_process())
        return false;
    (void)__atomic_add_fetch(&ring()->silent, 1, __ATOMIC_RELAXED);
    return true;
}

void foretell_speak_again(void)
{
    (void)__atomic_sub_fetch(&ring()->silent, 1, __ATOMIC_RELAXED);
}

/* Looks for a filter that the process has loaded by itself, before any call that it might kill for, and switches the library
 * off if there is one. A vfork child with such a filter switches its parent's library off, too: to tell the two apart takes a
 * call. */
static bool stays_out(void)
{
    bool filtered = foretell_is_filtered(known_filters);
    if (UNLIKELY(filtered)) {
        foretell_environment_lock_up();
        foretell_switch_off();
    }
    return filtered;
}

void foretell_register_if_pending(void)
{
    /* Exchanged, so that one of several threads, or a signal handler, does it. */
    if (activity() != UNANNOUNCED || __atomic_exchange_n(&pending, 0, __ATOMIC_ACQ_REL) == 0 ||
        stays_out())
        return;
    if (!foretell_is_own_process()) { /* a vfork child */
        __atomic_store_n(&pending, 1, __ATOMIC_RELEASE);
        return;
    }
    first_interest = ring()->interest; /* a parent's, until the manager sets this process's own */
    enum contact contact = announce();
    if (contact == REACHED) {
        __atomic_store_n(&foretell_active, ANNOUNCED, __ATOMIC_RELEASE);
        carry_over(ring());
    } else {
        foretell_switch_off();
    }
    if (contact == NO_MANAGER)
        foretell_environment_stop(true);
}

void foretell_register_if_counted(void)
{
    if (activity() == ANNOUNCED && foretell_is_own_process())
        carry_over(ring());
    else if (activity() == UNANNOUNCED && ring() == &no_ring &&
        (no_ring.read_calls | no_ring.other_read_bytes | no_ring.programs_left_alone) != 0)
        foretell_register_if_pending();
}

static void after_fork_in_parent(void)
{
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
}

/* B */
static void after_fork_in_child(void)
{
    int saved = errno;
    own_pid = raw_pid();
    parent_pid = getppid();
    __atomic_store_n(&foretell_asks, !wipes, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&foretell_epoch, 1, __ATOMIC_RELAXED);
    foretell_table_forked();
    foretell_commands_forked();
    begins_program = false;
    carry_over(NULL); /* what the parent has counted */
    __atomic_store_n(&pending, watched_run ? 1u : 0u, __ATOMIC_RELEASE);
    __atomic_store_n(&foretell_active, watched_run ? UNANNOUNCED : OFF, __ATOMIC_RELEASE);
    errno = saved;
}

static bool remember_manager(const char *name)
{
    size_t length = strlen(name);
    if (length + 1 > sizeof manager.sun_path)
        return false;
    manager.sun_family = AF_UNIX;
    memcpy(manager.sun_path + 1, name, length); /* the leading NUL makes it abstract */
    manager_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return true;
}

/* Whether an earlier program has forbidden the processor's clock to this one (PR_SET_TSC). */
static bool clock_is_forbidden(void)
{
    int allowed = PR_TSC_ENABLE;
    return syscall(SYS_prctl, PR_GET_TSC, &allowed) == 0 && allowed == PR_TSC_SIGSEGV;
}

static void begin_watching(const struct introduction *given)
{
    known_filters = given->filters;
    if (clock_is_forbidden() || !remember_manager(given->address))
        return;
    first_interest = given->interest;
    if (program_invocation_name != NULL)
        strncpy(argv0, program_invocation_name, sizeof argv0 - 1);
    own_pid = raw_pid();
    parent_pid = (pid_t)syscall(SYS_getppid);
    no_ring.interest = first_interest;
    begins_program = true;
    if (pthread_atfork(NULL, after_fork_in_parent, after_fork_in_child) != 0)
        return;
    foretell_environment_hand_on();
    /* Refused by kernels before 4.14: then a fork by a raw system call counts as its parent. */
    wipes = syscall(SYS_madvise, &foretell_wiped, sizeof foretell_wiped, MADV_WIPEONFORK) == 0;
    foretell_asks = !wipes;
    watched_run = true;
    pending = 1;
    __atomic_store_n(&foretell_active, UNANNOUNCED, __ATOMIC_RELEASE);
    struct descriptor *input = foretell_entry_make(STDIN_FILENO);
    if (input != NULL && (foretell_adopt(STDIN_FILENO, input) & TAG_STATE) != IGNORED)
        foretell_register_if_pending();
}

/* A. The earliest priority that is not reserved for the implementation. Other libraries' constructors may
 * still come first: real.h says what the hooks do until then. */
__attribute__((constructor(101))) static void begin(int argc, char **argv, char **envp)
{
    (void)argc;
    (void)argv;
    int saved = errno;
    bool suffices = false;
    const char *path = foretell_look_around(&suffices);
    foretell_resolve(suffices);
    const struct introduction *given = path != NULL ? foretell_environment_take(envp, path) : NULL;
    if (given != NULL)
        begin_watching(given);
    errno = saved;
}
