#include "outlook.h"

/* Ranges of one message. */
#define SEGMENTS 512

/* Bytes of one read(2). */
#define READ_MOST_BYTES (UINT64_C(1) << 20)

/* A step is so small a part of the depth. */
#define STEPS_OF_DEPTH 16

/* Moves a front over a range of the file. */
static void pass(struct front *front, struct range range)
{
    int64_t first = range.offset_bytes / (int64_t)BLOCK_BYTES;
    int64_t last = (range.offset_bytes + (int64_t)range.length_bytes - 1) / (int64_t)BLOCK_BYTES;
    front->blocks += (uint64_t)(last - first) + (first != front->last_block);
    front->last_block = last;
}

static uint64_t blocks_ahead(const struct outlook *outlook)
{
    return outlook->ahead.blocks - outlook->read.blocks;
}

static uint64_t bytes_ahead(const struct outlook *outlook)
{
    return outlook->ahead.cursor.position_bytes - outlook->read.cursor.position_bytes;
}

/* How many bytes of data may be disclosed in one range from here on, as far as the budget and the end go. */
static uint64_t room(const struct outlook *outlook)
{
    uint64_t position = outlook->ahead.cursor.position_bytes;
    if (position >= outlook->end_bytes || bytes_ahead(outlook) >= outlook->budget_bytes ||
        blocks_ahead(outlook) >= outlook->depth_blocks)
        return 0;
    uint64_t most = outlook->end_bytes - position;
    uint64_t budget = outlook->budget_bytes - bytes_ahead(outlook);
    return budget < most ? budget : most;
}

/* How long a range may be: up to the end of the file, and to where the depth ends. */
static uint64_t bounded(const struct outlook *outlook, struct range range)
{
    int64_t in_file = outlook->file_bytes - range.offset_bytes;
    if (in_file <= 0)
        return 0;
    uint64_t bytes = range.length_bytes < (uint64_t)in_file ? range.length_bytes : (uint64_t)in_file;
    if (outlook->depth_blocks == DEPTH_BY_MANAGER)
        return bytes;
    uint64_t first = (uint64_t)range.offset_bytes / BLOCK_BYTES;
    uint64_t blocks = outlook->depth_blocks - blocks_ahead(outlook);
    blocks += (int64_t)first == outlook->ahead.last_block;
    if (blocks > bytes / BLOCK_BYTES + 1)
        return bytes;
    uint64_t in_depth = (first + blocks) * BLOCK_BYTES - (uint64_t)range.offset_bytes;
    return in_depth < bytes ? in_depth : bytes;
}

/* The next range that may be disclosed, of at most `most` bytes; of none if it lies beyond the file. */
static struct range next_range(struct outlook *outlook, uint64_t most)
{
    struct cursor cursor = outlook->ahead.cursor;
    struct range range = view_next(outlook->view, &cursor, most);
    uint64_t bytes = bounded(outlook, range);
    if (bytes == 0)
        return (struct range){0};
    if (bytes < range.length_bytes)
        range = view_next(outlook->view, &outlook->ahead.cursor, bytes);
    else
        outlook->ahead.cursor = cursor;
    pass(&outlook->ahead, range);
    return range;
}

uint64_t outlook_step_bytes(const struct outlook *outlook)
{
    uint64_t blocks = outlook->depth_blocks / STEPS_OF_DEPTH;
    if (outlook->depth_blocks == DEPTH_BY_MANAGER || blocks >= READ_MOST_BYTES / BLOCK_BYTES)
        return READ_MOST_BYTES;
    return blocks > 0 ? blocks * BLOCK_BYTES : BLOCK_BYTES;
}

/* Whether the manager has taken a message. The connection is closed where there is none any more. */
static bool is_taken(struct outlook *outlook, enum foretell_result result)
{
    if (result == FORETELL_NO_MANAGER) {
        foretell_stream_close(outlook->stream);
        outlook->stream = NULL;
    }
    return result == FORETELL_SENT;
}

/* Sends what comes before any range: that older ones are void, and how long requests may be. False if the manager is busy, or
 * has gone. */
static bool is_settled(struct outlook *outlook)
{
    if (outlook->stream == NULL)
        return false;
    if (outlook->must_cancel) {
        if (!is_taken(outlook, foretell_stream_cancel(outlook->stream)))
            return false;
        outlook->must_cancel = false;
    }
    uint64_t step_bytes = outlook_step_bytes(outlook);
    if (outlook->depth_blocks != DEPTH_BY_MANAGER && step_bytes != outlook->request_bytes) {
        if (!is_taken(outlook, foretell_stream_request(outlook->stream, step_bytes)))
            return false;
        outlook->request_bytes = step_bytes;
    }
    return true;
}

void outlook_bound(struct outlook *outlook, uint64_t depth_blocks, uint64_t budget_bytes)
{
    outlook->depth_blocks = depth_blocks;
    outlook->budget_bytes = budget_bytes;
    (void)is_settled(outlook);
}

/* The next ranges, as many as one message holds and the bounds allow. */
static size_t fill(struct outlook *outlook, struct foretell_segment *segments, uint64_t *bytes)
{
    size_t count = 0;
    uint64_t most;
    *bytes = 0;
    while (count < SEGMENTS && (most = room(outlook)) > 0) {
        struct range range = next_range(outlook, most);
        if (range.length_bytes == 0) {
            outlook->end_bytes = outlook->ahead.cursor.position_bytes;
            break;
        }
        segments[count++] =
            (struct foretell_segment){(uint64_t)range.offset_bytes, range.length_bytes};
        *bytes += range.length_bytes;
    }
    return count;
}

/* Sends what may be disclosed by now. What a busy manager does not take is sent after a later read. */
static void disclose(struct outlook *outlook)
{
    struct foretell_segment segments[SEGMENTS];
    uint64_t bytes;
    while (is_settled(outlook)) {
        struct front before = outlook->ahead;
        size_t count = fill(outlook, segments, &bytes);
        if (count == 0)
            return;
        enum foretell_result result =
            foretell_stream_segments(outlook->stream, outlook->path, segments, count);
        if (!is_taken(outlook, result)) {
            outlook->ahead = before;
            return;
        }
        outlook->disclosed_bytes += bytes;
    }
}

/* Whether enough has been read for another message: a step of a bounded depth, or an eighth of the budget. */
static bool is_due(const struct outlook *outlook)
{
    if (outlook->depth_blocks != DEPTH_BY_MANAGER)
        return blocks_ahead(outlook) + outlook_step_bytes(outlook) / BLOCK_BYTES <= outlook->depth_blocks;
    return outlook->budget_bytes - bytes_ahead(outlook) > outlook->budget_bytes / 8;
}

void outlook_begin(struct outlook *outlook, uint64_t start_bytes, uint64_t end_bytes)
{
    if (!outlook->is_open || outlook->read.cursor.position_bytes != start_bytes) {
        outlook_cancel(outlook);
        outlook->read =
            (struct front){.cursor = view_seek(outlook->view, start_bytes), .last_block = -1};
        outlook->ahead = outlook->read;
        outlook->is_open = true;
    }
    outlook_extend(outlook, end_bytes);
}

void outlook_extend(struct outlook *outlook, uint64_t end_bytes)
{
    outlook->end_bytes = end_bytes;
    disclose(outlook);
}

void outlook_read(struct outlook *outlook, uint64_t bytes)
{
    while (bytes > 0) {
        struct range range = view_next(outlook->view, &outlook->read.cursor, bytes);
        pass(&outlook->read, range);
        bytes -= range.length_bytes;
    }
    if (outlook->read.cursor.position_bytes > outlook->ahead.cursor.position_bytes)
        outlook->ahead = outlook->read;
    if (is_due(outlook))
        disclose(outlook);
}

void outlook_cancel(struct outlook *outlook)
{
    if (outlook->is_open && bytes_ahead(outlook) > 0) {
        outlook->must_cancel = true;
        (void)is_settled(outlook);
    }
    outlook->is_open = false;
}
