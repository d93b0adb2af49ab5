/*
 * Looking up functions of the objects that follow this library: see look_up.h.
 */
#define _GNU_SOURCE 1
#include "look_up.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

/* One object's tables. */
struct object {
    uintptr_t base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint16_t *versions;       /* of each symbol; NULL: none */
    const ElfW(Verdef) *definitions; /* NULL: none */
    /* The GNU hash: a Bloom filter, the first symbol of each bucket, and the symbols' hashes in the order of symbols. */
    const uintptr_t *bloom;
    const uint32_t *buckets;
    const uint32_t *hashes; /* of symbol 0, which has none: those of the first symbols are left out */
    uint32_t bloom_words;   /* a power of two */
    uint32_t bloom_shift;
    uint32_t bucket_count;
};

/* Programs of a desktop have some hundred libraries, which are few that need this library's speed at their start. */
#define OBJECTS_MAX 32u
/* Bits of a symbol's version: the number of the definition, and whether the symbol is found only by programs linked to it. */
#define VERSION_NUMBER 0x7fffu
#define VERSION_HIDDEN 0x8000u

static struct object objects[OBJECTS_MAX];
static size_t object_count;
/* Set once all tables are there, and read before them. */
static bool sees_all;
static const char *own_path;

/* glibc writes addresses into the table of the objects that it loads, but not where that is read-only. */
static uintptr_t address_in(uintptr_t base, const ElfW(Dyn) *entry)
{
    uintptr_t value = entry->d_un.d_ptr;
    return value < base ? value + base : value;
}

static void read_hash(struct object *object, uintptr_t address)
{
    const uint32_t *header = (const uint32_t *)address;
    uint32_t first = header[1];
    object->bucket_count = header[0];
    object->bloom_words = header[2];
    object->bloom_shift = header[3];
    object->bloom = (const uintptr_t *)(const void *)(header + 4);
    object->buckets = (const uint32_t *)(const void *)(object->bloom + object->bloom_words);
    object->hashes = object->buckets + object->bucket_count - first;
}

/* False if the object has symbols and no GNU hash. */
static bool read_dynamic(struct object *object, const ElfW(Dyn) *entry)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = address_in(object->base, entry);
        if (entry->d_tag == DT_GNU_HASH)
            read_hash(object, at);
        else if (entry->d_tag == DT_SYMTAB)
            object->symbols = (const ElfW(Sym) *)at;
        else if (entry->d_tag == DT_STRTAB)
            object->strings = (const char *)at;
        else if (entry->d_tag == DT_VERSYM)
            object->versions = (const uint16_t *)at;
        else if (entry->d_tag == DT_VERDEF)
            object->definitions = (const ElfW(Verdef) *)at;
    }
    return object->bucket_count != 0 && object->bloom_words != 0 && object->strings != NULL;
}

static bool holds(const struct dl_phdr_info *info, const void *address)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            (uintptr_t)address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return true;
    }
    return false;
}

static const ElfW(Dyn) *dynamic_of(const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

/* Called for each object, in the order in which they are searched, up to the C library: it has all names that are looked for,
 * and objects that constructors have loaded, which may be unloaded again, come behind it. */
static int note(struct dl_phdr_info *info, size_t bytes, void *complete)
{
    (void)bytes;
    if (own_path == NULL) {
        if (holds(info, &object_count))
            own_path = info->dlpi_name;
        return 0;
    }
    const ElfW(Dyn) *dynamic = dynamic_of(info);
    if (dynamic == NULL)
        return 0;
    if (object_count == OBJECTS_MAX)
        return 1;
    struct object *object = &objects[object_count];
    object->base = info->dlpi_addr;
    if (!read_dynamic(object, dynamic))
        return 1;
    object_count++;
    *(bool *)complete = holds(info, (const void *)(uintptr_t)gnu_get_libc_version);
    return *(bool *)complete;
}

const char *foretell_look_around(bool *suffices)
{
    *suffices = false;
    (void)dl_iterate_phdr(note, suffices);
    __atomic_store_n(&sees_all, *suffices, __ATOMIC_RELEASE);
    return own_path;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The number of a version's definition; 0 if there is none. */
static unsigned number_of(const struct object *object, const char *version)
{
    const ElfW(Verdef) *definition = object->definitions;
    for (;;) {
        const char *at = (const char *)definition;
        const ElfW(Verdaux) *name = (const ElfW(Verdaux) *)(const void *)(at + definition->vd_aux);
        if (strcmp(object->strings + name->vda_name, version) == 0)
            return definition->vd_ndx & VERSION_NUMBER;
        if (definition->vd_next == 0)
            return 0;
        definition = (const ElfW(Verdef) *)(const void *)(at + definition->vd_next);
    }
}

static bool is_version(const struct object *object, uint32_t index, const char *version)
{
    if (object->versions == NULL)
        return true;
    if (version == NULL)
        return (object->versions[index] & VERSION_HIDDEN) == 0;
    unsigned number = object->definitions != NULL ? number_of(object, version) : 0;
    return number != 0 && (object->versions[index] & VERSION_NUMBER) == number;
}

/* The symbol in one object; NULL if it has none. */
static const ElfW(Sym) *find(const struct object *object, const char *name, uint32_t hash,
                             const char *version)
{
    const unsigned bits = 8 * sizeof *object->bloom;
    uintptr_t word = object->bloom[hash / bits & (object->bloom_words - 1)];
    if ((word >> hash % bits & word >> (hash >> object->bloom_shift) % bits & 1) == 0)
        return NULL;
    uint32_t index = object->buckets[hash % object->bucket_count];
    if (index == 0)
        return NULL;
    for (;; index++) {
        const ElfW(Sym) *symbol = &object->symbols[index];
        /* The last bit marks the end of a bucket. */
        if ((object->hashes[index] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(object->strings + symbol->st_name, name) == 0 && is_version(object, index, version))
            return symbol;
        if ((object->hashes[index] & 1) != 0)
            return NULL;
    }
}

bool foretell_next(const char *name, const char *version, void **found)
{
    *found = NULL;
    if (!__atomic_load_n(&sees_all, __ATOMIC_ACQUIRE))
        return false;
    uint32_t hash = hash_of(name);
    const ElfW(Sym) *symbol = NULL;
    for (size_t i = 0; symbol == NULL && i < object_count; i++) {
        symbol = find(&objects[i], name, hash, version);
        if (symbol != NULL)
            *found = (void *)(objects[i].base + symbol->st_value);
    }
    return (symbol == NULL || ELF64_ST_TYPE(symbol->st_info) != STT_GNU_IFUNC);
}
