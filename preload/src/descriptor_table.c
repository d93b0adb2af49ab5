/*
 * The descriptor table: sparse, two levels, no lock. See state.h for states and invariants.
 *
 * The first page is static, since nearly every program stays below 256 descriptors; others are mapped
 * at first use and live as long as the process, so no reader can hold a freed one.
 */
#include "executable.h"
#include "state.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

BEHIND_IN_BSS("1") static struct descriptor first_page[TABLE_PAGE_ENTRIES];

BEHIND_IN_DATA struct descriptor *foretell_table[TABLE_PAGES] = {first_page};
uint32_t foretell_epoch = 1; /* zeroed entries are of epoch 0 */

struct descriptor *foretell_entry_make(int fd)
{
    struct descriptor *entry = entry_of(fd);
    unsigned page = (unsigned)fd / TABLE_PAGE_ENTRIES;
    if (entry != NULL || page >= TABLE_PAGES)
        return entry;
    int saved = errno;
    size_t bytes = TABLE_PAGE_ENTRIES * sizeof(struct descriptor);
    void *fresh =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh != MAP_FAILED) {
        struct descriptor *none = NULL;
        if (!__atomic_compare_exchange_n(&foretell_table[page], &none, fresh, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            (void)munmap(fresh, bytes); /* another thread, or a signal handler, was first */
    }
    errno = saved;
    return entry_of(fd);
}

/*
 * The answer of statx (256 bytes) is too large for a program's small stack, so it is written here. There
 * is a place for each of several questions at once; a caller that finds none free asks another time. A
 * place is lost if a signal handler jumps out of the question. When all are lost, no kind can be found out.
 */
#define QUESTIONS 8u
BEHIND_IN_BSS("2") static struct statx answers[QUESTIONS];
static uint8_t taken[QUESTIONS];

enum kind { NOT_ASKED, NOT_OPEN, REGULAR, OTHER };

#define VERSION (STATX_SIZE | STATX_MTIME)

/* Fills what is known of a regular file. errno is kept. */
static enum kind kind_of(int fd, struct known_file *file)
{
    unsigned i = 0;
    while (i < QUESTIONS && __atomic_exchange_n(&taken[i], 1, __ATOMIC_ACQUIRE) != 0)
        i++;
    if (i == QUESTIONS)
        return NOT_ASKED;
    struct statx *found = &answers[i];
    int saved = errno;
    enum kind kind = OTHER;
    /* Without DONT_SYNC a network or FUSE file system may ask its server, and the program would wait
     * for a question that it did not ask. */
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                STATX_TYPE | STATX_INO | VERSION, found) != 0) {
        kind = errno == EBADF ? NOT_OPEN : OTHER;
    } else if ((found->stx_mode & S_IFMT) == S_IFREG) {
        file->is.device = makedev(found->stx_dev_major, found->stx_dev_minor);
        file->is.inode = found->stx_ino;
        file->has_version = (found->stx_mask & VERSION) == VERSION;
        file->size_bytes = found->stx_size;
        /* Unsigned: a file system may have any time. */
        file->modified_ns = (int64_t)((uint64_t)found->stx_mtime.tv_sec * UINT64_C(1000000000) +
                                      found->stx_mtime.tv_nsec);
        kind = REGULAR;
    }
    errno = saved;
    __atomic_store_n(&taken[i], 0, __ATOMIC_RELEASE);
    return kind;
}

/* More files than programs lock, and few enough to be searched at each exec. */
#define LOCKED_MAX 256u
BEHIND_IN_BSS("2") struct file_identity foretell_locked[LOCKED_MAX];
size_t foretell_locked_count;

/* Whether any descriptor owes stalls. */
static bool owes;

/* The stalls of a descriptor whose kind is known now. */
static void settle(struct descriptor *entry, bool regular)
{
    uint64_t stall_ns = __atomic_exchange_n(&entry->owed_stall_ns, 0, __ATOMIC_RELAXED);
    uint64_t stalls = __atomic_exchange_n(&entry->owed_stalls, 0, __ATOMIC_RELAXED);
    if (!regular)
        return;
    count(&ring()->read_stall_ns, stall_ns);
    count(&ring()->read_stalls, stalls);
}

static inline bool owing(const struct descriptor *entry)
{
    return UNLIKELY(__atomic_load_n(&entry->owed_stalls, __ATOMIC_RELAXED) != 0);
}

static __attribute__((noinline)) void ask_and_settle(int fd, struct descriptor *entry)
{
    struct known_file file;
    settle(entry, activity() != OFF && kind_of(fd, &file) == REGULAR);
}

void foretell_owe(struct descriptor *entry, uint64_t stall_ns)
{
    count(&entry->owed_stall_ns, stall_ns);
    count(&entry->owed_stalls, 1);
    __atomic_store_n(&owes, true, __ATOMIC_RELAXED);
}

/* Settles for each descriptor that owes, or drops what it owes. */
static void settle_each(bool dropped)
{
    if (!__atomic_exchange_n(&owes, false, __ATOMIC_RELAXED))
        return;
    for (unsigned fd = 0; fd < TABLE_PAGES * TABLE_PAGE_ENTRIES; fd++) {
        struct descriptor *entry = entry_of((int)fd);
        if (entry == NULL)
            fd += TABLE_PAGE_ENTRIES - 1; /* the first of a page that is not there */
        else if (owing(entry) && dropped)
            settle(entry, false);
        else if (owing(entry))
            ask_and_settle((int)fd, entry);
    }
}

__attribute__((destructor)) void foretell_at_end(void)
{
    settle_each(false);
    foretell_register_if_counted();
}


void foretell_table_forked(void)
{
    foretell_locked_count = 0; /* locks are the parent's */
    foretell_folders_forked();
    settle_each(true);
    memset(taken, 0, sizeof taken);
}

uint64_t foretell_adopt(int fd, struct descriptor *entry)
{
    if (!foretell_is_own_call())
        return current_tag(IGNORED); /* for this call only: nothing is stored */
    return foretell_adopt_own(fd, entry);
}

static void set_identity(struct descriptor *entry, const struct file_identity *file)
{
    __atomic_store_n(&entry->device, file->device, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->inode, file->inode, __ATOMIC_RELAXED);
}

uint64_t foretell_adopt_own(int fd, struct descriptor *entry)
{
    struct known_file file;
    enum kind kind = kind_of(fd, &file);
    uint64_t tag = current_tag(IGNORED);
    if (kind == NOT_ASKED || kind == NOT_OPEN)
        return tag;
    if (kind == REGULAR) {
        set_identity(entry, &file.is);
        tag = current_tag(SHARED) | TAG_IDENTITY;
    }
    __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->tag, tag, __ATOMIC_RELEASE);
    if (owing(entry))
        settle(entry, kind == REGULAR);
    return tag;
}

bool foretell_identify(int fd, struct descriptor *entry, struct known_file *file)
{
    uint64_t tag = tag_of(entry);
    enum kind kind = kind_of(fd, file);
    if (kind == NOT_ASKED)
        return false;
    if (kind == REGULAR)
        set_identity(entry, &file->is);
    /* Only if the descriptor was not reset or shared meanwhile: that state is newer. */
    uint64_t better = kind == REGULAR ? tag | TAG_IDENTITY : current_tag(IGNORED);
    (void)__atomic_compare_exchange_n(&entry->tag, &tag, better, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED);
    return kind == REGULAR;
}

struct descriptor *foretell_watch(int fd)
{
    foretell_register_if_pending();
    struct descriptor *entry = activity() != OFF ? foretell_entry_make(fd) : NULL;
    if (entry == NULL)
        return NULL;
    uint64_t tag = tag_of(entry);
    if ((tag & TAG_STATE) == UNKNOWN || (tag & TAG_STATE) == FRESH)
        tag = foretell_adopt(fd, entry);
    return (tag & TAG_STATE) != IGNORED ? entry : NULL;
}

void foretell_note_lock(int fd)
{
    struct known_file file;
    size_t count = __atomic_load_n(&foretell_locked_count, __ATOMIC_ACQUIRE);
    enum kind kind = kind_of(fd, &file);
    if (kind == NOT_ASKED)
        __atomic_store_n(&foretell_locked_count, SIZE_MAX, __ATOMIC_RELEASE);
    if (kind != REGULAR)
        return;
    for (size_t i = 0; i < count && i < LOCKED_MAX; i++)
        if (foretell_locked[i].device == file.is.device && foretell_locked[i].inode == file.is.inode)
            return;
    /* A place is counted before it is filled: a look meanwhile may miss the lock that is just taken. */
    count = __atomic_load_n(&foretell_locked_count, __ATOMIC_RELAXED);
    do {
        if (count >= LOCKED_MAX) {
            __atomic_store_n(&foretell_locked_count, SIZE_MAX, __ATOMIC_RELEASE);
            return;
        }
    } while (!__atomic_compare_exchange_n(&foretell_locked_count, &count, count + 1, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    foretell_locked[count] = file.is;
}


bool foretell_is_regular_file(int fd)
{
    struct descriptor *entry = foretell_entry_make(fd);
    if (entry == NULL)
        return false;
    uint64_t tag = tag_of(entry);
    if ((tag & TAG_STATE) != IGNORED && (tag & TAG_IDENTITY) == 0)
        tag = foretell_adopt(fd, entry);
    return (tag & TAG_STATE) != IGNORED;
}

void foretell_forget(int fd)
{
    struct descriptor *entry = entry_of(fd);
    /* A read first: most descriptors closed are UNKNOWN, and a load does not dirty the line. */
    if (entry == NULL || tag_of(entry) == 0)
        return;
    if (owing(entry))
        ask_and_settle(fd, entry);
    __atomic_store_n(&entry->tag, 0, __ATOMIC_RELEASE);
}

void foretell_forget_range(unsigned first, unsigned last)
{
    for (unsigned page = first / TABLE_PAGE_ENTRIES;
         page < TABLE_PAGES && page <= last / TABLE_PAGE_ENTRIES; page++) {
        if (__atomic_load_n(&foretell_table[page], __ATOMIC_ACQUIRE) == NULL)
            continue;
        for (unsigned i = 0; i < TABLE_PAGE_ENTRIES; i++) {
            unsigned fd = page * TABLE_PAGE_ENTRIES + i;
            if (fd >= first && fd <= last)
                foretell_forget((int)fd);
        }
    }
}

void foretell_share(int fd)
{
    struct descriptor *entry = entry_of(fd);
    if (entry == NULL)
        return;
    uint64_t tag = tag_of(entry);
    if (state_of(tag) == OWNED) {
        uint64_t shared = (tag & ~TAG_STATE) | SHARED;
        (void)__atomic_compare_exchange_n(&entry->tag, &tag, shared, false, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED);
    }
}

void foretell_copied(int fd, int copy)
{
    struct descriptor *from = copy >= 0 && copy != fd ? entry_of(fd) : NULL;
    uint64_t tag = from != NULL ? tag_of(from) : 0;
    uint64_t state = tag & TAG_STATE;
    if (UNLIKELY((tag & TAG_FOLDER) != 0))
        foretell_copied_folder(from, copy);
    if (state == UNKNOWN || state == IGNORED || activity() == OFF)
        return;
    struct descriptor *to = foretell_entry_make(copy);
    if (to != NULL) {
        __atomic_store_n(&to->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
        __atomic_store_n(&to->tag, current_tag(FRESH), __ATOMIC_RELEASE);
    }
}
