-- The tables of the join, of the paper's sizes at SCALE 1, and the join with its loop split in two.
-- Rows are 160 bytes. Even keys are those of the inner table, in no order; one in five of the outer table's is even.

CREATE TABLE inner_table AS
    SELECT 2 * n AS key, n AS number, rpad(md5(n::text), 126, 'inner') AS text
    FROM generate_series(1, (200000 * :scale)::int) n ORDER BY hashint4(n);
CREATE TABLE outer_table AS
    SELECT 2 * (1 + abs(hashint4(n)::bigint) % (200000 * :scale)::int)::int + CASE WHEN n % 5 = 0 THEN 0 ELSE 1 END AS key,
           n AS number, rpad(md5(n::text), 126, 'outer') AS text
    FROM generate_series(1, (20000 * :scale)::int) n;
CREATE INDEX inner_key ON inner_table (key) WITH (fillfactor = 80);
VACUUM (FREEZE, ANALYZE);

-- The first pass looks all keys up in the index. The second reads the inner table's tuples where the first has found them.
CREATE FUNCTION split_join(with_hints boolean) RETURNS TABLE (outer_number int, inner_number int, inner_text text)
LANGUAGE plpgsql AS $$
DECLARE
    tids tid[];
BEGIN
    SELECT foretell_index_tids('inner_key', array_agg(o.key)) INTO tids FROM outer_table o;
    IF with_hints THEN
        PERFORM foretell_disclose('inner_table', tids);
    END IF;
    RETURN QUERY
        SELECT o.number, i.number, i.text
        FROM (SELECT *, row_number() OVER () AS place FROM outer_table) o
        JOIN inner_table i ON i.ctid = tids[o.place] AND i.key = o.key;
END
$$;
