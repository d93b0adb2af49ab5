/*
 * Whether the library goes along: see executable.h for the cases A to G.
 *
 * Everything is read by pread into small buffers, since a mapping of a file that is shortened
 * meanwhile would raise SIGBUS. Numbers read from the file serve as offsets for pread and bounds of
 * loops, never as addresses.
 */
#include "executable.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Levels of scripts that the kernel follows. */
#define SCRIPT_LEVELS 5
/* The longest name of an interpreter or dynamic linker, with its end. Longer ones are left alone. */
#define NAME_BYTES 128u
/* More than any program has. They bound the work for a file that claims more. */
#define SEGMENTS_MAX 256u
#define DYNAMIC_MAX 4096u
#define STRINGS_MAX_BYTES (1u << 20)
/* Of a file at a time: the beginning of most programs holds what is wanted of it, and so does the part with the dynamic
 * section. */
#define PART_BYTES 1024u
/* The part of the library that is mapped for a trial: one page, whatever its size. */
#define PAGE_BYTES 4096u

/* The version of glibc that the library needs, as a whole string of a string table. Tests check that
 * the library needs no newer one. */
static const char needed_version[] = "\0GLIBC_2.34";

/* The library's own kind, to which a program and its dynamic linker are compared (B). */
struct kind {
    unsigned char identity[EI_OSABI]; /* magic, word size, byte order, version */
    uint16_t machine;
};

/* A file's dynamic section. */
struct dynamic {
    uint64_t offset; /* of its entries */
    uint64_t count;
    uint64_t strings; /* where its string table lies in the file */
    uint64_t string_bytes;
};

/* A part of a file. */
struct part {
    uint64_t offset;
    size_t bytes;
    char data[PART_BYTES];
};

/* One file, and parts of it. Each function says which member it fills. */
struct look {
    int fd;
    unsigned segments;
    uint64_t segment_table;
    /* The file's beginning, which holds the header, most often the table of segments and the linker's name, and the part that
     * was read last elsewhere. */
    struct part beginning;
    struct part other;
    union {
        char text[NAME_BYTES];
        Elf64_Ehdr header;
        Elf64_Phdr segment;
        Elf64_Dyn entry;
    };
    struct stat status;
    struct kind kind;
    struct dynamic dynamic;
    char needed[48]; /* the beginning of a library's name */
    const struct library *library;
};
_Static_assert(sizeof(struct look) <= sizeof(struct look_room), "the caller's room suffices");

/* Raw calls throughout: libc's names are our own hooks, or cancellation points. */
static long read_at(int fd, uint64_t offset, void *to, size_t bytes)
{
    return syscall(SYS_pread64, fd, to, bytes, (off64_t)offset);
}

/* Whether a part holds these bytes. None of the sums can wrap, whatever a file claims. */
static bool holds(const struct part *part, uint64_t offset, size_t bytes)
{
    return offset >= part->offset && offset - part->offset <= part->bytes &&
           bytes <= part->bytes - (size_t)(offset - part->offset);
}

/* These bytes of look->fd, at most NAME_BYTES; NULL if they are not all there. They stay until others are asked for. */
static const void *bytes_at(struct look *look, uint64_t offset, size_t bytes)
{
    bool begins = offset <= sizeof look->beginning.data - NAME_BYTES;
    struct part *part = begins ? &look->beginning : &look->other;
    if (!holds(part, offset, bytes)) {
        part->offset = begins ? 0 : offset;
        long filled = read_at(look->fd, part->offset, part->data, sizeof part->data);
        part->bytes = filled > 0 ? (size_t)filled : 0;
        if (!holds(part, offset, bytes))
            return NULL;
    }
    return part->data + (size_t)(offset - part->offset);
}

static void close_file(int fd)
{
    (void)syscall(SYS_close, fd);
}

static struct file_identity identity_of(const struct stat *status)
{
    return (struct file_identity){.device = status->st_dev, .inode = status->st_ino};
}

static bool is_same(struct file_identity one, struct file_identity other)
{
    return one.device == other.device && one.inode == other.inode;
}

/* Opens a descriptor's file anew for reading, whatever the descriptor was opened for. Not inlined, because
 * of the stack for its name. */
__attribute__((noinline)) static int open_descriptor(int fd)
{
    static const char folder[] = "/proc/self/fd/";
    char name[sizeof folder + 10] = "/proc/self/fd/";
    char *to = name + sizeof folder - 1;
    unsigned power = 1;
    while ((unsigned)fd / power >= 10)
        power *= 10;
    for (; power > 0; power /= 10)
        *to++ = (char)('0' + (unsigned)fd / power % 10);
    return (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
}

/* G */
static bool is_locked(const struct look *look)
{
    const struct library *library = look->library;
    size_t count = library->locked_count == NULL
                       ? 0
                       : __atomic_load_n(library->locked_count, __ATOMIC_ACQUIRE);
    for (size_t i = 0; count != SIZE_MAX && i < count; i++)
        if (is_same(identity_of(&look->status), library->locked[i]))
            return true;
    return count == SIZE_MAX;
}

/* Leaves look->status. False if there is no regular file. */
static bool find_file(int folder, const char *path, int flags, struct look *look)
{
    return syscall(SYS_newfstatat, folder, path, &look->status, flags) == 0 &&
           S_ISREG(look->status.st_mode);
}

/* Opens for reading the file that was found. */
static bool open_found(int folder, const char *path, int flags, struct look *look)
{
    if (is_locked(look))
        return false;
    look->beginning.offset = 0;
    look->beginning.bytes = 0;
    look->other.bytes = 0;
    int how = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    if ((flags & AT_SYMLINK_NOFOLLOW) != 0)
        how |= O_NOFOLLOW;
    look->fd = (int)syscall(SYS_openat, folder, path, how, 0);
    if (look->fd < 0 && errno == ENOENT && (flags & AT_EMPTY_PATH) != 0 && folder >= 0)
        look->fd = open_descriptor(folder); /* the path is empty */
    return look->fd >= 0;
}

/* Opens a regular file for reading: look->status is its. False if it is none. */
static bool open_file(int folder, const char *path, int flags, struct look *look)
{
    return find_file(folder, path, flags, look) && open_found(folder, path, flags, look);
}

/* Reads an ELF file's header; leaves the table of segments. False if it is of another kind. */
static bool read_header(struct look *look)
{
    const Elf64_Ehdr *header = &look->header;
    const struct kind *kind = &look->kind;
    const void *found = bytes_at(look, 0, sizeof *header);
    if (found == NULL)
        return false;
    memcpy(&look->header, found, sizeof *header);
    if (memcmp(header->e_ident, kind->identity, sizeof kind->identity) != 0 ||
        header->e_machine != kind->machine || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum > SEGMENTS_MAX)
        return false;
    look->segments = header->e_phnum;
    look->segment_table = header->e_phoff;
    return true;
}

static bool read_segment(struct look *look, unsigned index)
{
    if (index >= look->segments)
        return false;
    uint64_t offset = look->segment_table + index * sizeof look->segment;
    const void *found = bytes_at(look, offset, sizeof look->segment);
    if (found == NULL)
        return false;
    memcpy(&look->segment, found, sizeof look->segment);
    return true;
}

/* Leaves the first segment of this type. */
static bool find_segment(struct look *look, uint32_t type)
{
    for (unsigned i = 0; read_segment(look, i); i++)
        if (look->segment.p_type == type)
            return true;
    return false;
}

/* Where in the file an address lies; 0 if nowhere. */
static uint64_t offset_of_address(struct look *look, uint64_t address)
{
    for (unsigned i = 0; read_segment(look, i); i++) {
        const Elf64_Phdr *segment = &look->segment;
        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr < segment->p_filesz)
            return segment->p_offset + (address - segment->p_vaddr);
    }
    return 0;
}

/* Leaves one entry. */
static const Elf64_Dyn *entry_at(struct look *look, uint64_t index)
{
    uint64_t offset = look->dynamic.offset + index * sizeof look->entry;
    const void *found = bytes_at(look, offset, sizeof look->entry);
    if (found == NULL)
        return NULL;
    memcpy(&look->entry, found, sizeof look->entry);
    return &look->entry;
}

/* Leaves look->dynamic. */
static bool find_dynamic(struct look *look)
{
    struct dynamic *dynamic = &look->dynamic;
    if (!find_segment(look, PT_DYNAMIC))
        return false;
    *dynamic = (struct dynamic){.offset = look->segment.p_offset,
                                .count = look->segment.p_filesz / sizeof(Elf64_Dyn)};
    uint64_t address = 0;
    if (dynamic->count > DYNAMIC_MAX)
        return false;
    for (uint64_t i = 0; i < dynamic->count; i++) {
        const Elf64_Dyn *entry = entry_at(look, i);
        if (entry == NULL)
            return false;
        if (entry->d_tag == DT_NULL)
            break;
        if (entry->d_tag == DT_STRTAB)
            address = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRSZ)
            dynamic->string_bytes = entry->d_un.d_val;
    }
    dynamic->strings = offset_of_address(look, address);
    return dynamic->strings != 0;
}

/* D. The name as it is linked, which may have a folder before it. */
static bool is_sanitizer(const char *name)
{
    static const char *const beginnings[] = {
        "libasan.",         "libtsan.",         "liblsan.",         "libhwasan.",
        "libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.lsan", "libclang_rt.hwasan",
    };
    const char *slash = strrchr(name, '/');
    if (slash != NULL)
        name = slash + 1;
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* D: whether the program needs one of those libraries. True if that cannot be found out. */
static bool needs_sanitizer(struct look *look)
{
    const struct dynamic *dynamic = &look->dynamic;
    if (!find_dynamic(look))
        return true;
    for (uint64_t i = 0; i < dynamic->count; i++) {
        const Elf64_Dyn *entry = entry_at(look, i);
        if (entry == NULL)
            return true;
        if (entry->d_tag == DT_NULL)
            break;
        if (entry->d_tag != DT_NEEDED)
            continue;
        memset(look->needed, 0, sizeof look->needed);
        if (entry->d_un.d_val >= dynamic->string_bytes ||
            read_at(look->fd, dynamic->strings + entry->d_un.d_val, look->needed,
                    sizeof look->needed - 1) <= 0 || /* not a part: the entries are read on */
            is_sanitizer(look->needed))
            return true;
    }
    return false;
}

/* Not memmem, which takes more stack than all of this. */
static bool holds_needed_version(const char *text, size_t bytes)
{
    for (size_t i = 0; i + sizeof needed_version <= bytes; i++)
        if (memcmp(text + i, needed_version, sizeof needed_version) == 0)
            return true;
    return false;
}

/* C: whether this dynamic linker belongs to a glibc with the version that the library needs. */
static bool defines_needed_version(struct look *look)
{
    const struct dynamic *dynamic = &look->dynamic;
    if (!find_dynamic(look) || dynamic->string_bytes > STRINGS_MAX_BYTES)
        return false;
    size_t step = sizeof look->text - sizeof needed_version; /* pieces overlap by a string */
    for (uint64_t at = 0; at < dynamic->string_bytes; at += step) {
        uint64_t left = dynamic->string_bytes - at;
        size_t bytes = left < sizeof look->text ? (size_t)left : sizeof look->text;
        if (read_at(look->fd, dynamic->strings + at, look->text, bytes) != (long)bytes)
            return false;
        if (holds_needed_version(look->text, bytes))
            return true;
    }
    return false;
}

/* C: look->text names the program's dynamic linker. Uses look for that file. */
static bool loader_fits(const struct library *library, struct look *look,
                        struct file_identity *loader)
{
    if (!find_file(AT_FDCWD, look->text, 0, look))
        return false;
    *loader = identity_of(&look->status);
    if (is_same(*loader, library->loader))
        return true;
    if (!open_found(AT_FDCWD, look->text, 0, look))
        return false;
    bool fits = read_header(look) && defines_needed_version(look);
    close_file(look->fd);
    return fits;
}

/* This object's own header, which ld maps with its first segment. */
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

static void leave_kind(struct look *look, const Elf64_Ehdr *header)
{
    memcpy(look->kind.identity, header->e_ident, sizeof look->kind.identity);
    look->kind.machine = header->e_machine;
}

static bool is_library(const struct library *library, const struct look *look)
{
    return library->file.inode == 0 || is_same(identity_of(&look->status), library->file);
}

/* Whether ld.so, which has loaded the library here, would load it again. X_OK fails on a mount without exec; it also does if
 * the file is not executable, which a library need not be. It is opened, for Landlock forbids that and not what faccessat
 * asks. */
static bool loads_again(const struct library *library, struct look *look)
{
    if (!library->loaded || library->file.inode == 0 ||
        syscall(SYS_faccessat, AT_FDCWD, library->path, R_OK | X_OK) != 0 ||
        !open_file(AT_FDCWD, library->path, 0, look))
        return false;
    close_file(look->fd);
    if (!is_library(library, look))
        return false;
    leave_kind(look, &__ehdr_start);
    return true;
}

/* Tries what ld.so will do, which can fail for many reasons: rights, descriptors, a mount without exec. */
static bool loads(const struct library *library, struct look *look)
{
    if (syscall(SYS_faccessat, AT_FDCWD, library->path, R_OK) != 0 ||
        !open_file(AT_FDCWD, library->path, 0, look))
        return false;
    bool there = false;
    if (is_library(library, look) &&
        read_at(look->fd, 0, &look->header, sizeof look->header) == (long)sizeof look->header) {
        leave_kind(look, &look->header);
        void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, look->fd, 0);
        there = page != MAP_FAILED;
        if (there)
            (void)munmap(page, PAGE_BYTES);
    }
    close_file(look->fd);
    return there;
}

/* F. Leaves the library's kind. faccessat disregards capabilities that this process has and the program will not have. */
static bool library_is_there(const struct library *library, struct look *look)
{
    return loads_again(library, look) || loads(library, look);
}

/* E: whether real and effective user or group differ, as the kernel sees it at an exec. */
static bool is_another_user(void)
{
    return syscall(SYS_getuid) != syscall(SYS_geteuid) ||
           syscall(SYS_getgid) != syscall(SYS_getegid);
}

/* E: whether the kernel would raise the program's rights. */
static bool raises_rights(const struct look *look)
{
    mode_t mode = look->status.st_mode;
    return (mode & S_ISUID) != 0 || (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) ||
           syscall(SYS_fgetxattr, look->fd, "security.capability", NULL, 0) >= 0;
}

/* Whether the program in `look` fits. Closes it. */
static bool fits(const struct library *library, struct look *look, struct file_identity *loader)
{
    bool dynamic = read_header(look) && find_segment(look, PT_INTERP) && /* A */
                   !raises_rights(look) && !needs_sanitizer(look) && find_segment(look, PT_INTERP);
    uint64_t offset = look->segment.p_offset;
    uint64_t bytes = look->segment.p_filesz;
    const char *name = dynamic && bytes > 1 && bytes <= sizeof look->text
                           ? bytes_at(look, offset, (size_t)bytes)
                           : NULL;
    close_file(look->fd);
    if (name == NULL)
        return false;
    memcpy(look->text, name, (size_t)bytes);
    return look->text[bytes - 1] == '\0' && loader_fits(library, look, loader);
}

/* The name of a script's interpreter, which is cut out of look->text; NULL if it is too long. Not inlined: the caller's frame
 * lies below the deepest calls, and there may be little stack. */
__attribute__((noinline)) static const char *interpreter_in(struct look *look, size_t bytes)
{
    size_t begin = 2;
    while (begin < bytes && (look->text[begin] == ' ' || look->text[begin] == '\t'))
        begin++;
    for (size_t end = begin; end < bytes; end++) {
        if (memchr(" \t\n", look->text[end], 4) == NULL) /* the end of the string counts, too */
            continue;
        look->text[end] = '\0';
        return look->text + begin;
    }
    return NULL;
}

/* errno may change. */
static bool decide(const struct library *library, const struct executed *executed,
                   struct file_identity *loader, struct look *look)
{
    if (is_another_user() || !library_is_there(library, look) ||
        !open_file(executed->folder, executed->path, executed->flags, look))
        return false;
    bool shell = executed->shell;
    for (int level = 0; level <= SCRIPT_LEVELS; level++) {
        long bytes = read_at(look->fd, 0, look->beginning.data, sizeof look->beginning.data);
        look->beginning.bytes = bytes > 0 ? (size_t)bytes : 0;
        memcpy(look->text, look->beginning.data, sizeof look->text);
        if (bytes >= SELFMAG && memcmp(look->text, ELFMAG, SELFMAG) == 0)
            return fits(library, look, loader);
        const char *next = NULL;
        if (bytes >= 2 && memcmp(look->text, "#!", 2) == 0)
            next = interpreter_in(look, (size_t)bytes < NAME_BYTES ? (size_t)bytes : NAME_BYTES);
        else if (shell && bytes >= 0)
            next = "/bin/sh";
        shell = false; /* a shell serves only the executed file itself */
        close_file(look->fd);
        if (next == NULL || !open_file(AT_FDCWD, next, 0, look))
            return false;
    }
    close_file(look->fd);
    return false;
}

bool foretell_goes_along(const struct library *library, const struct executed *executed,
                         struct file_identity *loader, struct look_room *room)
{
    int saved = errno;
    ((struct look *)(void *)room)->library = library;
    bool goes = decide(library, executed, loader, (struct look *)(void *)room);
    errno = saved;
    return goes;
}

bool foretell_is_mpi_launcher(const char *path)
{
    static const char *const names[] = {"mpiexec", "mpirun", "orterun", "prterun", "prun"};
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(name, names[i], length) == 0 && (name[length] == '\0' || name[length] == '.'))
            return true;
    }
    return false;
}

/* Whether execvp would execute this file. */
static bool is_executable(const char *path, struct stat *status)
{
    return syscall(SYS_newfstatat, AT_FDCWD, path, status, 0) == 0 && S_ISREG(status->st_mode) &&
           faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

const char *foretell_search(const char *file, const char *path_variable, char found[FOUND_BYTES],
                            struct look_room *room)
{
    if (strchr(file, '/') != NULL)
        return file;
    size_t length = strlen(file);
    if (length == 0 || length > 255)
        return NULL;
    int saved = errno;
    const char *result = NULL;
    const char *folder = path_variable != NULL ? path_variable : "/bin:/usr/bin";
    for (;; folder++) {
        size_t bytes = strcspn(folder, ":");
        if (bytes < 4096) {
            memcpy(found, folder, bytes);
            found[bytes] = '/';
            /* An empty folder is the working folder. */
            memcpy(found + bytes + (bytes > 0), file, length + 1);
            if (is_executable(found, &((struct look *)(void *)room)->status)) {
                result = found;
                break;
            }
        }
        folder += bytes;
        if (*folder == '\0')
            break;
    }
    errno = saved;
    return result;
}
