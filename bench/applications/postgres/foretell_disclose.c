/*
 * Lets a query tell foretell which pages of a table it will read, before it reads them.
 *
 * foretell_disclose(regclass, tid[]) discloses the page of each tuple, in this order. foretell_index_tids(regclass, int4[])
 * looks keys up in an index and leaves the table alone, so that a join knows its tuples before it reads the first of them.
 *
 * Disclosing needs a server that runs under `foretell run`. Elsewhere it does nothing.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/itemptr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include <foretell.h>

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(foretell_disclose);
PG_FUNCTION_INFO_V1(foretell_index_tids);

/* Pages of one call to foretell.h at most. */
#define PIECE_PAGES 4096

/* This backend's hints. A backend is forked, and a stream does not survive a fork; so each has its own. */
static foretell_stream *stream;

/* Fails unless the user may read a relation. */
static void check_may_read(Oid relation)
{
    AclResult may = pg_class_aclcheck(relation, GetUserId(), ACL_SELECT);
    if (may != ACLCHECK_OK)
        aclcheck_error(may, OBJECT_TABLE, get_rel_name(relation));
}

/* The absolute path of a relation's first segment. */
static char *path_of(Relation relation)
{
#if PG_VERSION_NUM >= 160000
    char *path = relpathbackend(relation->rd_locator, relation->rd_backend, MAIN_FORKNUM);
#else
    char *path = relpathbackend(relation->rd_node, relation->rd_backend, MAIN_FORKNUM);
#endif
    return psprintf("%s/%s", DataDir, path);
}

/* Discloses pages that lie in one segment of a relation. Returns whether there is somebody to tell. */
static bool send(const char *path, BlockNumber segment, const struct foretell_segment *pages, size_t count)
{
    char *name = segment == 0 ? pstrdup(path) : psprintf("%s.%u", path, segment);
    enum foretell_result result = foretell_stream_segments(stream, name, pages, count);
    pfree(name);
    return result == FORETELL_SENT;
}

/* foretell_disclose(relation regclass, tuples tid[]): returns the number of pages disclosed. */
Datum foretell_disclose(PG_FUNCTION_ARGS)
{
    Oid oid = PG_GETARG_OID(0);
    ArrayType *array = PG_GETARG_ARRAYTYPE_P(1);
    Datum *tids;
    bool *are_null;
    int count;
    int64 disclosed = 0;

    /* Hints of an earlier query are of no use any more. */
    if (stream == NULL)
        stream = foretell_stream_open();
    else
        foretell_stream_cancel(stream);
    if (stream == NULL)
        PG_RETURN_INT64(0); /* No manager. */

    check_may_read(oid);
    Relation relation = relation_open(oid, AccessShareLock);
    if (!RELKIND_HAS_STORAGE(relation->rd_rel->relkind))
        ereport(ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
                errmsg("\"%s\" has no pages", RelationGetRelationName(relation)));
    BlockNumber blocks = RelationGetNumberOfBlocks(relation);
    char *path = path_of(relation);
    deconstruct_array(array, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT, &tids, &are_null, &count);

    /* When each page was disclosed last, as a number from 1 on. A page that is disclosed again so soon that it will still be
     * in the server's own buffers is not read again. */
    uint32 *last = MemoryContextAllocExtended(CurrentMemoryContext, sizeof(uint32) * (Size)Max(blocks, 1),
                                              MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    struct foretell_segment *pages = palloc(sizeof *pages * PIECE_PAGES);
    size_t waiting = 0;
    uint32 number = 0;
    BlockNumber segment = 0;
    bool goes_on = true;
    for (int i = 0; i < count && goes_on; i++) {
        CHECK_FOR_INTERRUPTS();
        if (are_null[i])
            continue;
        BlockNumber block = ItemPointerGetBlockNumberNoCheck((ItemPointer)DatumGetPointer(tids[i]));
        if (block >= blocks || (last[block] != 0 && number - last[block] < (uint32)NBuffers))
            continue;
        last[block] = ++number;
        if (waiting > 0 && (waiting == PIECE_PAGES || block / RELSEG_SIZE != segment)) {
            goes_on = send(path, segment, pages, waiting);
            waiting = 0;
        }
        segment = block / RELSEG_SIZE;
        pages[waiting].offset_bytes = (uint64_t)(block % RELSEG_SIZE) * BLCKSZ;
        pages[waiting].length_bytes = BLCKSZ;
        waiting++;
        disclosed++;
    }
    if (waiting > 0 && goes_on)
        send(path, segment, pages, waiting);
    relation_close(relation, AccessShareLock);
    PG_RETURN_INT64(disclosed);
}

/*
 * foretell_index_tids(index regclass, keys int4[]): for each key, the first tuple that the index has for it, or (0,0).
 * The index alone is read. So a tuple may be one that the query does not see, or one that was moved by an update.
 */
Datum foretell_index_tids(PG_FUNCTION_ARGS)
{
    Oid oid = PG_GETARG_OID(0);
    ArrayType *array = PG_GETARG_ARRAYTYPE_P(1);
    Datum *keys;
    bool *are_null;
    int count;

    deconstruct_array(array, INT4OID, sizeof(int32), true, TYPALIGN_INT, &keys, &are_null, &count);
    Relation index = index_open(oid, AccessShareLock);
    if (index->rd_rel->relam != BTREE_AM_OID || index->rd_opcintype[0] != INT4OID)
        ereport(ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
                errmsg("\"%s\" is no B-tree index of an integer column", RelationGetRelationName(index)));
    Oid table_oid = index->rd_index->indrelid;
    check_may_read(table_oid);
    Relation table = table_open(table_oid, AccessShareLock);

    Datum *tids = palloc(sizeof(Datum) * Max(count, 1));
    ItemPointerData *places = palloc(sizeof(ItemPointerData) * Max(count, 1));
    IndexScanDesc scan = index_beginscan(table, index, GetActiveSnapshot(), 1, 0);
    for (int i = 0; i < count; i++) {
        ItemPointer found = NULL;
        CHECK_FOR_INTERRUPTS();
        if (!are_null[i]) {
            ScanKeyData key;
            ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, keys[i]);
            index_rescan(scan, &key, 1, NULL, 0);
            found = index_getnext_tid(scan, ForwardScanDirection);
        }
        if (found != NULL)
            places[i] = *found;
        else
            ItemPointerSet(&places[i], 0, 0);
        tids[i] = PointerGetDatum(&places[i]);
    }
    index_endscan(scan);
    table_close(table, AccessShareLock);
    index_close(index, AccessShareLock);
    PG_RETURN_ARRAYTYPE_P(construct_array(tids, count, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
}
