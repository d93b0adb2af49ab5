CREATE FUNCTION foretell_disclose(relation regclass, tuples tid[]) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION foretell_disclose(regclass, tid[]) IS
    'tells foretell that the pages of these tuples will be read, in this order; returns their number, 0 without foretell';

CREATE FUNCTION foretell_index_tids(index regclass, keys integer[]) RETURNS tid[]
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION foretell_index_tids(regclass, integer[]) IS
    'the first tuple that an index has for each key, or (0,0); the table is not read';
