/*
 * Random views, against maps of single bytes: parts, views, reads and what is disclosed. Needs no MPI.
 *
 *   units [CASES] [SEED]
 */
#include "gather.h"
#include "settings.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 120000
#define DATA_MOST 6000

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* A manager that keeps what it is told. */
struct foretell_stream {
    int unused;
};
static struct foretell_stream stream;
static struct foretell_segment told[1 << 20];
static size_t told_count;
static unsigned cancelled;
static enum foretell_result answer = FORETELL_SENT;
static uint64_t busy_in; /* one message in so many is not taken; 0: none */

static enum foretell_result answered(void)
{
    return busy_in > 0 && draw(busy_in) == 0 ? FORETELL_BUSY : answer;
}

foretell_stream *foretell_stream_open(void)
{
    return &stream;
}

enum foretell_result foretell_stream_segments(foretell_stream *to, const char *path,
                                              const struct foretell_segment *segments, size_t count)
{
    assert(to == &stream && strcmp(path, "/data") == 0 && count > 0);
    enum foretell_result result = answered();
    if (result == FORETELL_BUSY)
        return result;
    for (size_t i = 0; i < count; i++) {
        assert(segments[i].length_bytes > 0);
        assert(segments[i].offset_bytes + segments[i].length_bytes <= FILE_BYTES);
        told[told_count++] = segments[i];
    }
    return result;
}

enum foretell_result foretell_stream_cancel(foretell_stream *of)
{
    assert(of == &stream);
    enum foretell_result result = answered();
    cancelled += result != FORETELL_BUSY;
    return result;
}

enum foretell_result foretell_stream_request(foretell_stream *of, uint64_t bytes)
{
    assert((of == NULL || of == &stream) && bytes >= BLOCK_BYTES);
    return answered();
}

void foretell_stream_close(foretell_stream *closed)
{
    assert(closed == &stream);
}

/* Not used here. */
struct functions PMPI;
static struct abi abi;
const struct abi *mpi(void)
{
    return &abi;
}
word handle(word from_register)
{
    return from_register;
}

/* A rising type of up to 12 parts, and where its data bytes are. */
static void draw_view(struct view *view)
{
    int64_t at = (int64_t)draw(3) * 40;
    size_t parts = 1 + draw(12);
    bool is_coarse = draw(2) == 0;
    *view = (struct view){.displacement_bytes = (int64_t)draw(100), .unit_bytes = 1};
    for (size_t i = 0; i < parts; i++) {
        uint64_t bytes = 1 + draw(is_coarse ? 700 : 40);
        parts_add(&view->type, at, bytes);
        at += (int64_t)bytes + (draw(3) == 0 ? 0 : (int64_t)draw(is_coarse ? 9000 : 60));
    }
    view->type.extent_bytes = at + (draw(2) == 0 ? 0 : (int64_t)draw(50));
    if (draw(8) == 0) { /* bytes in a row */
        parts_free(&view->type);
        parts_add(&view->type, 0, 1 + draw(5));
        view->type.extent_bytes = (int64_t)view->type.list[0].length_bytes;
    }
    assert(parts_rising(&view->type));
}

static int64_t offset_of(const struct view *view, uint64_t position)
{
    uint64_t copy = position / view->type.data_bytes, within = position % view->type.data_bytes;
    for (size_t i = 0; i < view->type.count; i++) {
        const struct part *part = &view->type.list[i];
        if (within < part->length_bytes)
            return view->displacement_bytes + (int64_t)copy * view->type.extent_bytes +
                   part->offset_bytes + (int64_t)within;
        within -= part->length_bytes;
    }
    abort();
}

/* The most data that lies within the file. */
static uint64_t data_within(const struct view *view)
{
    uint64_t bytes = 0;
    while (bytes < DATA_MOST && offset_of(view, bytes) < FILE_BYTES)
        bytes++;
    return bytes;
}

static void check_ranges(const struct view *view, uint64_t data_bytes)
{
    uint64_t position = draw(data_bytes);
    struct cursor cursor = view_seek(view, position);
    while (position < data_bytes) {
        uint64_t most = 1 + draw(draw(2) == 0 ? 20 : 3000);
        struct range range = view_next(view, &cursor, most);
        assert(range.length_bytes >= 1 && range.length_bytes <= most);
        for (uint64_t i = 0; i < range.length_bytes; i++)
            assert(offset_of(view, position + i) == range.offset_bytes + (int64_t)i);
        position += range.length_bytes;
        if (range.length_bytes < most) /* ranges end only where the next byte lies elsewhere */
            assert(offset_of(view, position) != range.offset_bytes + (int64_t)range.length_bytes);
        assert(cursor.position_bytes == position);
        assert(view_end(view, position) == offset_of(view, position - 1) + 1);
        struct cursor again = view_seek(view, position);
        struct cursor same = cursor;
        assert(view_next(view, &again, 5).offset_bytes == view_next(view, &same, 5).offset_bytes);
    }
}

/* How many of the ranges' blocks there are, each counted once for neighbours in the order of the data. */
static uint64_t blocks_between(const struct view *view, uint64_t from, uint64_t to)
{
    uint64_t blocks = 0;
    int64_t last = -1;
    for (uint64_t i = from; i < to; i++) {
        int64_t block = offset_of(view, i) / (int64_t)BLOCK_BYTES;
        blocks += block != last;
        last = block;
    }
    return blocks;
}

static void check_reads(const struct view *view, uint64_t data_bytes, int fd, const char *contents)
{
    struct view memory;
    draw_view(&memory);
    memory.displacement_bytes = 0;
    if (draw(2) == 0) {
        parts_free(&memory.type);
        parts_add(&memory.type, 0, 1);
        memory.type.extent_bytes = 1;
    }
    struct outlook outlook = {.stream = draw(8) == 0 ? NULL : &stream,
                              .path = (char *)"/data",
                              .view = view,
                              .depth_blocks = draw(2) == 0 ? DEPTH_BY_MANAGER : draw(12),
                              .budget_bytes = 1 + draw(4000),
                              .file_bytes = FILE_BYTES};
    char *bounce = malloc(BOUNCE_BYTES);
    struct gather gather = {.fd = fd,
                            .file = view,
                            .memory = &memory,
                            .bounce = bounce,
                            .most_bytes = draw(2) == 0 ? BLOCK_BYTES : (uint64_t)1 << 20,
                            .outlook = &outlook};
    uint64_t position = draw(data_bytes), sequence = position;
    told_count = 0;
    size_t first_told = 0;
    for (int call = 0; call < 4 && position < data_bytes; call++) {
        uint64_t bytes = 1 + draw(data_bytes - position);
        uint64_t memory_bytes = (uint64_t)offset_of(&memory, bytes - 1) + 64;
        char *buffer = malloc(memory_bytes), *expected = malloc(memory_bytes);
        memset(buffer, 0x5a, memory_bytes);
        memset(expected, 0x5a, memory_bytes);
        for (uint64_t i = 0; i < bytes; i++)
            expected[offset_of(&memory, i)] = contents[offset_of(view, position + i)];
        gather.buffer = buffer;
        outlook_begin(&outlook, position, position + bytes);
        assert(gather_read(&gather, position, bytes));
        assert(memcmp(buffer, expected, memory_bytes) == 0);
        free(buffer);
        free(expected);
        position += bytes;
        outlook_extend(&outlook, position + draw(2000));
        assert(outlook.read.cursor.position_bytes == position);
        uint64_t ahead = outlook.ahead.cursor.position_bytes;
        assert(ahead >= position && ahead - position <= outlook.budget_bytes);
        if (outlook.depth_blocks != DEPTH_BY_MANAGER)
            assert(outlook.ahead.blocks - outlook.read.blocks <= outlook.depth_blocks);
        /* What was told is the data, in order. Where the reads got ahead of it, some is left out. */
        uint64_t place = sequence;
        for (size_t i = first_told; i < told_count; i++) {
            while (place < ahead && offset_of(view, place) != (int64_t)told[i].offset_bytes)
                place++;
            for (uint64_t j = 0; j < told[i].length_bytes; j++, place++)
                assert(offset_of(view, place) == (int64_t)(told[i].offset_bytes + j));
        }
        assert(place <= ahead);
        if (draw(3) == 0 && position < data_bytes) { /* elsewhere: the rest is cancelled */
            unsigned before = cancelled;
            bool has_more = outlook.stream != NULL && ahead > position;
            position = draw(data_bytes);
            if (position != outlook.read.cursor.position_bytes) {
                first_told = told_count;
                sequence = position;
                outlook_begin(&outlook, position, position + 1);
                assert(cancelled == before + has_more);
            }
        }
    }
    free(bounce);
    parts_free(&memory.type);
}

static void check_depth(const struct view *view, uint64_t data_bytes)
{
    struct outlook outlook = {.stream = &stream,
                              .path = (char *)"/data",
                              .view = view,
                              .depth_blocks = 1 + draw(9),
                              .budget_bytes = UINT64_MAX,
                              .file_bytes = FILE_BYTES};
    told_count = 0;
    outlook_begin(&outlook, 0, data_bytes);
    /* As deep as may be, unless all is told. */
    uint64_t ahead = outlook.ahead.cursor.position_bytes;
    assert(outlook.ahead.blocks == blocks_between(view, 0, ahead));
    assert(ahead == data_bytes || outlook.ahead.blocks == outlook.depth_blocks);
}

/* What a busy manager does not take is sent later: all is told once and in order, and cancelled before anything else. */
static void check_busy(const struct view *view, uint64_t data_bytes)
{
    struct outlook outlook = {.stream = &stream,
                              .path = (char *)"/data",
                              .view = view,
                              .depth_blocks = DEPTH_BY_MANAGER,
                              .budget_bytes = UINT64_MAX,
                              .file_bytes = FILE_BYTES};
    uint64_t read_bytes = draw(data_bytes), place = 0, told_bytes = 0;
    told_count = 0;
    busy_in = 1 + draw(4);
    outlook_begin(&outlook, 0, data_bytes);
    outlook_read(&outlook, read_bytes);
    busy_in = 0;
    outlook_extend(&outlook, data_bytes);
    assert(outlook.ahead.cursor.position_bytes == data_bytes);
    for (size_t i = 0; i < told_count; i++) {
        while (place < read_bytes && offset_of(view, place) != (int64_t)told[i].offset_bytes)
            place++;
        for (uint64_t j = 0; j < told[i].length_bytes; j++, place++)
            assert(offset_of(view, place) == (int64_t)(told[i].offset_bytes + j));
        told_bytes += told[i].length_bytes;
    }
    assert(place == data_bytes && told_bytes == outlook.disclosed_bytes);
    if (read_bytes == 0)
        return;
    unsigned before = cancelled;
    told_count = 0;
    busy_in = 1;
    outlook_begin(&outlook, 0, data_bytes);
    assert(told_count == 0 && cancelled == before);
    busy_in = 0;
    outlook_extend(&outlook, data_bytes);
    assert(told_count > 0 && cancelled == before + 1);
}

static void check_damage(const struct view *view, uint64_t data_bytes, const char *contents)
{
    /* The file has become shorter: a read across its end says so. */
    char name[] = "/tmp/foretell-units-XXXXXX";
    int fd = mkstemp(name);
    assert(fd >= 0 && unlink(name) == 0);
    int64_t end = view_end(view, data_bytes);
    assert(write(fd, contents, (size_t)end - 1) == end - 1);
    struct view memory = {.unit_bytes = 1};
    parts_add(&memory.type, 0, 1);
    memory.type.extent_bytes = 1;
    struct outlook outlook = {.path = (char *)"/data",
                              .view = view,
                              .depth_blocks = DEPTH_BY_MANAGER,
                              .budget_bytes = 1 << 20,
                              .file_bytes = FILE_BYTES};
    char *bounce = malloc(BOUNCE_BYTES), *buffer = malloc(data_bytes);
    struct gather gather = {fd, view, &memory, buffer, bounce, 1 << 20, &outlook};
    outlook_begin(&outlook, 0, data_bytes);
    assert(!gather_read(&gather, 0, data_bytes));
    assert(data_bytes == 1 || view_end(view, data_bytes - 1) > end - 1 ||
           (outlook_cancel(&outlook), outlook_begin(&outlook, 0, data_bytes - 1),
            gather_read(&gather, 0, data_bytes - 1)));
    free(bounce);
    free(buffer);
    parts_free(&memory.type);
    (void)close(fd);
}

static void check_limits(void)
{
    struct parts parts = {0}, inner = {0};
    for (size_t i = 0; i <= PARTS_MAX; i++)
        parts_add(&parts, (int64_t)i * 2, 1);
    assert(parts.has_failed && !parts_rising(&parts));
    parts_free(&parts);
    parts_add(&inner, 0, 8);
    inner.extent_bytes = INT64_MAX / 4;
    parts_repeat(&parts, &inner, 0, 8);
    assert(parts.has_failed);
    parts_free(&parts);
    inner.extent_bytes = 8; /* touching copies are one part, however many */
    parts_repeat(&parts, &inner, 16, (uint64_t)1 << 40);
    assert(!parts.has_failed && parts.count == 1 && parts.data_bytes == (uint64_t)8 << 40);
    parts_repeat(&parts, &inner, 0, UINT64_MAX / 2);
    assert(parts.has_failed);
    parts_free(&parts);
    parts_free(&inner);
    parts_add(&parts, 0, 8);
    parts_add(&parts, 4, 8); /* overlaps */
    parts.extent_bytes = 100;
    assert(!parts_rising(&parts));
    parts_free(&parts);
}

static void check_settings(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } CASES[] = {{"65537", 65537},  {"64KiB", 65536},    {"2m", 2 << 20}, {"1GiB", 1 << 30},
                 {"8 MiB", 0},      {"-1", 0},           {"", 0},         {"x", 0},
                 {"1TiBs", 0},      {"99999999999G", 0}, {"300KB", 307200}, {"100000B", 100000},
                 {"18446744073709551616", 0}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert(setenv("FORETELL_MPI_BUDGET", CASES[i].text, 1) == 0);
        uint64_t bytes = settings_default(false).budget_bytes;
        assert(bytes == (CASES[i].bytes == 0 ? BUDGET_DEFAULT_BYTES : CASES[i].bytes));
    }
    assert(setenv("FORETELL_MPI_BUDGET", "16", 1) == 0);
    assert(settings_default(false).budget_bytes == BUDGET_MIN_BYTES);
    assert(settings_default(false).method == METHOD_AUTO);
    assert(setenv("FORETELL_MPI_METHOD", "Informed", 1) == 0);
    assert(setenv("FORETELL_MPI_DEPTH", "0", 1) == 0);
    assert(settings_default(false).method == METHOD_INFORMED && settings_default(false).depth_blocks == 0);
}

int main(int argc, char **argv)
{
    long cases = argc > 1 ? atol(argv[1]) : 300;
    state = argc > 2 ? strtoull(argv[2], NULL, 0) | 1 : 1;
    char name[] = "/tmp/foretell-units-XXXXXX";
    int fd = mkstemp(name);
    assert(fd >= 0 && unlink(name) == 0);
    char *contents = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        contents[i] = (char)draw(256);
    assert(write(fd, contents, FILE_BYTES) == FILE_BYTES);
    check_limits();
    check_settings();
    for (long i = 0; i < cases; i++) {
        struct view view;
        draw_view(&view);
        uint64_t data_bytes = data_within(&view);
        if (data_bytes > 0) {
            check_ranges(&view, data_bytes);
            check_reads(&view, data_bytes, fd, contents);
            check_depth(&view, data_bytes);
            check_busy(&view, data_bytes);
            check_damage(&view, data_bytes, contents);
        }
        parts_free(&view.type);
    }
    answer = FORETELL_NO_MANAGER; /* from here on nobody is told */
    struct view view;
    draw_view(&view);
    uint64_t data_bytes = data_within(&view);
    struct outlook outlook = {.stream = &stream,
                              .path = (char *)"/data",
                              .view = &view,
                              .depth_blocks = DEPTH_BY_MANAGER,
                              .budget_bytes = 100,
                              .file_bytes = FILE_BYTES};
    outlook_begin(&outlook, 0, data_bytes);
    assert(outlook.stream == NULL);
    outlook_read(&outlook, data_bytes);
    outlook_cancel(&outlook);
    parts_free(&view.type);
    free(contents);
    (void)close(fd);
    printf("%ld cases\n", cases);
    return 0;
}
