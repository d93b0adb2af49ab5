/*
 * The descriptor table: sparse, two levels, no lock. See state.h for states and invariants.
 *
 * The first page is static, since nearly every program stays below 256 descriptors; others are mapped
 * at first use and live as long as the process, so no reader can hold a freed one.
 */
#include "state.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct descriptor first_page[TABLE_PAGE_ENTRIES];

struct descriptor *foretell_table[TABLE_PAGES] = {first_page};
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

/* Fills device and inode; false if fd is not an open regular file. errno is kept. */
static bool regular_file(int fd, uint64_t *device, uint64_t *inode)
{
    struct statx found;
    int saved = errno;
    /* Without DONT_SYNC a network or FUSE file system may ask its server, and the program would wait
     * for a question that it did not ask. */
    long result = syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                          STATX_TYPE | STATX_INO, &found);
    if (result == 0) {
        *device = makedev(found.stx_dev_major, found.stx_dev_minor);
        *inode = found.stx_ino;
    }
    errno = saved;
    return result == 0 && (found.stx_mode & S_IFMT) == S_IFREG;
}

static void store_identity(struct descriptor *entry, uint64_t device, uint64_t inode)
{
    __atomic_store_n(&entry->device, device, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->inode, inode, __ATOMIC_RELAXED);
}

uint64_t foretell_adopt(int fd, struct descriptor *entry)
{
    if (!foretell_is_own_process())
        return current_tag(IGNORED); /* for this call only: nothing is stored */
    foretell_register_if_pending();
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t tag = current_tag(IGNORED);
    if (regular_file(fd, &device, &inode)) {
        store_identity(entry, device, inode);
        tag = current_tag(SHARED) | TAG_IDENTITY;
    }
    __atomic_store_n(&entry->position_bytes, POSITION_UNKNOWN, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->tag, tag, __ATOMIC_RELEASE);
    return tag;
}

uint64_t foretell_identify(int fd, struct descriptor *entry, uint64_t tag)
{
    enum descriptor_state state = state_of(tag);
    if ((tag & TAG_IDENTITY) != 0 || (state != OWNED && state != FRESH))
        return tag;
    if (state == FRESH)
        return foretell_adopt(fd, entry);
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t better = current_tag(IGNORED);
    if (regular_file(fd, &device, &inode)) {
        store_identity(entry, device, inode);
        better = tag | TAG_IDENTITY;
    }
    /* Only if nobody has reset or shared the descriptor meanwhile: their word is newer. */
    (void)__atomic_compare_exchange_n(&entry->tag, &tag, better, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED);
    return better;
}

void foretell_forget(int fd)
{
    struct descriptor *entry = entry_of(fd);
    /* A read first: most descriptors closed are UNKNOWN, and a load does not dirty the line. */
    if (entry != NULL && tag_of(entry) != 0)
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
