-- Event triggers that write every schema change into the log, where pgoutput finds it: as a row of
-- a published table, in the same transaction, so that a rollback, also to a savepoint, takes it
-- along.  Only the owner of the table can write it, so that no other role can describe a schema change:
-- the functions run with the owner's rights, and PUBLIC may execute none of them.
--
-- No client's statement fails because of an error in here: a change that cannot be described
-- becomes a record that says so, and its tables become inexact. `gauss-cdc ddl uninstall` drops all of it.
--
-- Arguments of our own functions have exactly their types: then no function of the same name that
-- somebody else has put into the schema is ever preferred.
--
-- No query in here reads a table of the users', and nothing asks for a partition key with an
-- expression: the planner, and the reader of a key, evaluate functions of constant arguments that
-- an owner put into an index, into statistics or into a key. Here they had a superuser's rights.

CREATE SCHEMA IF NOT EXISTS gauss_cdc;
COMMENT ON SCHEMA gauss_cdc IS 'gauss-cdc: schema changes for change data capture';

-- Functions without settings of their own run under those of the triggers: only pg_catalog is in
-- the search path, plans are kept, nothing is compiled, which took longer than running it, and
-- catalogs are read by their indexes: a hash of all of pg_type is dearer than all the rest.

-- A row is inserted and deleted at once; only the insert is read. Row security without a policy
-- keeps members of pg_write_all_data out, too.
CREATE TABLE IF NOT EXISTS gauss_cdc.ddl_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL);
ALTER TABLE gauss_cdc.ddl_log ENABLE ROW LEVEL SECURITY;

-- What is captured, for tables that are made later. NULL means every name.
CREATE TABLE gauss_cdc.ddl_tables (
    is_exclude boolean NOT NULL, table_schema text, table_name text);

-- The publication that such tables join, the schemas that `ddl install` added to it, and the
-- tables of these that it did not have before.
CREATE TABLE gauss_cdc.ddl_publication (
    name text PRIMARY KEY, schemas text[] NOT NULL, others text[] NOT NULL);

-- Partitions as of the last statement that changed one: at ATTACH, DETACH and DROP the catalog
-- does not say any more what was there before.
CREATE TABLE gauss_cdc.ddl_partitions (
    oid oid PRIMARY KEY, root oid NOT NULL, parent oid NOT NULL, bound text);

-- What one trigger passes to a later one of the same statement, which deletes it.
CREATE UNLOGGED TABLE gauss_cdc.ddl_rewrites (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), oid oid NOT NULL, reason int NOT NULL,
    file oid NOT NULL);  -- that held the rows before
CREATE UNLOGGED TABLE gauss_cdc.ddl_spared (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(), oid oid NOT NULL);

-- Columns that were generated as of the last statement: their values were never in the stream.
CREATE TABLE gauss_cdc.ddl_generated (oid oid, number int2, PRIMARY KEY (oid, number));

-- Is a table of this publication's own, or of one of its schemas?
CREATE FUNCTION gauss_cdc.ddl_is_published(which oid, publication text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
                   WHERE r.prrelid = which AND p.pubname = publication)
    /*15*/ OR EXISTS (SELECT FROM pg_class c
    /*15*/            JOIN pg_publication_namespace s ON s.pnnspid = c.relnamespace
    /*15*/            JOIN pg_publication p ON p.oid = s.pnpubid
    /*15*/            WHERE c.oid = which AND p.pubname = publication)
    ;
END $$;

CREATE FUNCTION gauss_cdc.ddl_matches(schema text, name text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(bool_or(NOT is_exclude), false)
                   AND NOT coalesce(bool_or(is_exclude), false)
            FROM gauss_cdc.ddl_tables
            WHERE coalesce(table_schema, $1) = $1 AND coalesce(table_name, $2) = $2);
END $$;

-- Has a transaction committed behind the snapshot of this one? Statements find what it altered, but
-- from REPEATABLE READ on the catalog is read in here as it was before.
CREATE FUNCTION gauss_cdc.ddl_is_behind() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    other bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM pg_snapshot_xip(pg_current_snapshot()) AS x
               WHERE pg_xact_status(x) = 'committed') THEN
        RETURN true;
    END IF;
    other := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
    WHILE pg_xact_status(other::text::xid8) <> 'committed' LOOP
        other := other + 1;
    END LOOP;
    RETURN true;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN false;  -- no transaction has this id yet
END $$;

-- Did this transaction make a table? Then nobody else has altered it.
CREATE FUNCTION gauss_cdc.ddl_is_new(which oid) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    since bigint;  -- own id to that of what made it, perhaps of a savepoint; nothing alters `ctid`
BEGIN
    since := (SELECT age(pg_current_xact_id()::xid)::bigint - age(xmin) FROM pg_attribute
              WHERE attrelid = which AND attnum = -1);
    IF since IS NULL OR since < 0 THEN
        RETURN false;
    END IF;
    RETURN pg_xact_status((pg_current_xact_id()::text::bigint + since)::text::xid8) = 'in progress';
END $$;

-- Has a table, with all its partitions, no rows? By the size of its files, which no snapshot hides;
-- what was rewritten by this statement has none of older rows. NULL: it is gone.
-- A table of a type that changes may be locked by another session's statement: we do not wait for
-- its lock, and assume that the table has rows.
CREATE FUNCTION gauss_cdc.ddl_is_empty(which oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET lock_timeout = '50ms' AS $$
BEGIN
    RETURN (SELECT sum(pg_relation_size(x.oid)) = 0 FROM pg_class x
            WHERE x.oid = which OR x.oid IN (SELECT relid FROM pg_partition_tree(which)));
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- The present shape of a table; NULL for other objects, though a foreign table may have children.
-- Arrays, not objects, where there is one per column; columns of an index by their numbers.
-- Values are printed here as in the stream, whatever the session that alters the table has set:
-- 06-02-2016 is a day in February to one and in June to another.
-- Every statement that alters a table waits for this: what only partitions or types of the users'
-- own need is asked for them alone, since a plan costs by its size, also where it finds nothing.
--
-- `publications`: those that have it. `via_root`: does our own one publish the rows of partitions
-- as their root's? Then, as `ddl_on_end` asks for, `shape` is NULL for what has no name there.
CREATE FUNCTION gauss_cdc.ddl_look(
    which oid, is_any boolean, is_empty_asked boolean,
    OUT schema name, OUT name name, OUT persistence "char", OUT has_heirs boolean,
    OUT has_parts boolean, OUT ours name, OUT is_for_all boolean, OUT via_root boolean,
    OUT publications name[], OUT is_generated boolean, OUT shape json)
LANGUAGE plpgsql STABLE
SET datestyle = 'ISO' SET intervalstyle = postgres SET timezone = 'UTC'
SET bytea_output = hex SET extra_float_digits = 3 SET lc_monetary = 'C' AS $$
DECLARE
    this record;
    line oid[];  -- the table and what it is a partition of
    spaces oid[];  -- their schemas
    columns json;
    stored int2[];  -- columns that are not generated any more
    missing jsonb;  -- of a partitioned table, which has no rows: what its leaves say
    mixed name[];  -- columns of which they say different things
    has_types boolean;
    indexes json;
    made json;
BEGIN
    SELECT n.nspname, c.relname, c.relkind, c.relpersistence, c.relispartition,
           c.relreplident, c.relnamespace, c.relhasindex, c.relhassubclass INTO this
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = which AND c.relkind IN ('r', 'p', 'f');
    has_heirs := this.relhassubclass;
    IF NOT FOUND OR this.relkind = 'f' THEN
        RETURN;
    END IF;
    schema := this.nspname;
    name := this.relname;
    persistence := this.relpersistence;
    has_parts := this.relkind = 'p' OR this.relispartition;
    IF this.relispartition THEN
        line := ARRAY(SELECT relid FROM pg_partition_ancestors(which));
        spaces := ARRAY(SELECT relnamespace FROM pg_class WHERE oid = ANY (line));
    ELSE
        line := ARRAY[which];
        spaces := ARRAY[this.relnamespace];
    END IF;
    SELECT max(o.name), bool_or(p.puballtables) FILTER (WHERE p.pubname = o.name),
           bool_or(p.pubviaroot) FILTER (WHERE p.pubname = o.name),
           array_agg(p.pubname) FILTER (
               WHERE p.puballtables
                  OR EXISTS (SELECT FROM pg_publication_rel r
                             WHERE r.prrelid = ANY (line) AND r.prpubid = p.oid)
               /*15*/ OR EXISTS (SELECT FROM pg_publication_namespace s
               /*15*/            WHERE s.pnnspid = ANY (spaces) AND s.pnpubid = p.oid)
           )
    INTO ours, is_for_all, via_root, publications
    FROM gauss_cdc.ddl_publication o CROSS JOIN pg_publication p;
    publications := coalesce(publications, '{}');
    via_root := coalesce(via_root, true);
    -- Rows come under the root's name, or under those of its leaves.
    IF NOT is_any AND (via_root AND this.relispartition OR NOT via_root AND this.relkind = 'p') THEN
        RETURN;
    END IF;
    IF this.relkind = 'p' THEN
        SELECT jsonb_object_agg(l.attname, l.least) FILTER (WHERE l.least = l.greatest),
               array_agg(l.attname) FILTER (WHERE l.least <> l.greatest) INTO missing, mixed
        FROM (SELECT l.attname, min(l.attmissingval::text) AS least,
                     max(l.attmissingval::text) AS greatest
              FROM pg_partition_tree(which) AS p JOIN pg_attribute l ON l.attrelid = p.relid
              WHERE p.isleaf AND l.attnum > 0 AND NOT l.attisdropped AND l.atthasmissing
              GROUP BY l.attname) AS l;
    END IF;
    -- pg_get_expr: no default names a column, so the table need not be opened for it.
    SELECT json_agg(json_build_array(
               a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod),
               NOT (a.attnotnull AND NOT EXISTS (
                        SELECT FROM pg_constraint k WHERE k.conrelid = which
                        AND k.contype = 'n' AND k.conkey[1] = a.attnum AND NOT k.convalidated)
                    OR (a.typtype = 'd' AND a.typnotnull)), a.attgenerated,
               a.attidentity,
               CASE WHEN a.typdelim <> ',' THEN substr(a.value, 2, length(a.value) - 2) END,
               a.is_default, a.attnum,
               CASE WHEN a.is_default THEN (
                   SELECT pg_get_expr(d.adbin, 0) FROM pg_attrdef d
                   WHERE d.adrelid = which AND d.adnum = a.attnum) END,
               CASE WHEN a.typdelim = ',' THEN (a.value::text[])[1] END)),
           -- As numbers: a plan with an oid in it is made anew when the table of that oid changes.
           bool_or(a.atttypid::bigint >= 16384 OR a.typtype <> 'b'),
           bool_or(a.attgenerated <> '')
    INTO columns, has_types, is_generated
    FROM (SELECT a.*, t.typtype, t.typnotnull, t.typdelim,
                 a.atthasdef AND a.attgenerated = '' AS is_default,
                 coalesce(a.attmissingval::text, missing ->> a.attname) AS value
          FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
          WHERE a.attrelid = which AND a.attnum > 0 AND NOT a.attisdropped
          ORDER BY a.attnum) AS a;
    stored := (SELECT array_agg(g.number) FROM gauss_cdc.ddl_generated g
               JOIN pg_attribute a ON a.attrelid = g.oid AND a.attnum = g.number
               WHERE g.oid = which AND a.attgenerated = '' AND NOT a.attisdropped);
    is_generated := coalesce(is_generated OR stored IS NOT NULL, false);
    IF mixed IS NOT NULL THEN  -- a function that only claims to be stable gave each another value
        stored := stored || (SELECT array_agg(a.attnum) FROM pg_attribute a
                             WHERE a.attrelid = which AND a.attname = ANY (mixed));
    END IF;
    IF this.relhasindex THEN
        SELECT json_agg(json_build_array(
                   x.relname, (i.indkey::int2[])[:i.indnkeyatts - 1],
                   i.indisprimary AND i.indimmediate,
                   i.indisunique AND i.indisvalid AND i.indisready AND i.indpred IS NULL,
                   i.indisreplident)) INTO indexes
        FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = which AND i.indexprs IS NULL AND (i.indisunique OR i.indisreplident);
    END IF;
    IF has_types THEN
        made := (
        WITH RECURSIVE of_use (oid) AS (
            SELECT a.atttypid FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = which AND a.attnum > 0 AND NOT a.attisdropped
              AND (t.oid >= 16384 OR t.typtype <> 'b')
            UNION
            SELECT coalesce(a.atttypid, CASE t.typtype WHEN 'd' THEN t.typbasetype
                            WHEN 'r' THEN (SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid)
                            /*14*/ WHEN 'm' THEN (SELECT rngtypid FROM pg_range
                            /*14*/                WHERE rngmultitypid = t.oid)
                            ELSE t.typelem END)
            FROM of_use u JOIN pg_type t ON t.oid = u.oid
            LEFT JOIN pg_attribute a ON a.attrelid = t.typrelid AND t.typtype = 'c'
                AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
            WHERE t.typtype IN ('d', 'r', 'm') OR a.atttypid IS NOT NULL
               OR EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid)
        )
        SELECT json_agg(json_build_array(
            t.oid::bigint, CASE WHEN e.oid IS NULL THEN t.typtype ELSE 'a' END, t.typname,
            CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
                 WHEN e.oid IS NOT NULL THEN format_type(e.oid, NULL) ELSE '' END,
            CASE t.typtype WHEN 'd' THEN t.typbasetype::bigint
                 WHEN 'r' THEN (SELECT rngsubtype::bigint FROM pg_range WHERE rngtypid = t.oid)
                 /*14*/ WHEN 'm' THEN (SELECT rngtypid::bigint FROM pg_range
                 /*14*/                WHERE rngmultitypid = t.oid)
                 ELSE coalesce(e.oid::bigint, 0) END,
            CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE -1 END, t.typdelim,
            CASE WHEN t.typtype = 'c' THEN
                ARRAY(SELECT concat_ws(':', a.attnum, a.atttypid, a.atttypmod) FROM pg_attribute a
                      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                      ORDER BY a.attnum)
            ELSE ARRAY(SELECT l.enumlabel FROM pg_enum l WHERE l.enumtypid = t.oid
                       ORDER BY l.enumsortorder) END) ORDER BY t.oid)
        FROM of_use u JOIN pg_type t ON t.oid = u.oid LEFT JOIN pg_type e ON e.typarray = t.oid);
    END IF;
    shape := json_build_object(
        'oid', which::bigint, 'space', this.relnamespace::bigint, 'schema', this.nspname, 'name', this.relname, 'kind', this.relkind,
        'persistence', this.relpersistence, 'is_partition', this.relispartition,
        'identity', this.relreplident, 'publications', publications,
        'columns', coalesce(columns, '[]'), 'indexes', coalesce(indexes, '[]'),
        'types', coalesce(made, '[]'), 'stored', coalesce(to_json(stored), '[]'),
        'empty', CASE WHEN is_empty_asked THEN gauss_cdc.ddl_is_empty(which) END);
END $$;

-- Records the partitions of one root anew; returns those attached and detached since.
CREATE FUNCTION gauss_cdc.ddl_repartition(top oid) RETURNS jsonb
LANGUAGE plpgsql
SET datestyle = 'ISO' SET intervalstyle = postgres SET timezone = 'UTC'
SET bytea_output = hex SET extra_float_digits = 3 AS $$
DECLARE
    told jsonb;
    this regclass;
BEGIN
    WITH now AS (
        SELECT relid::oid AS oid, parentrelid::oid AS parent
        FROM pg_partition_tree(top) WHERE relid <> top
    ), come AS (
        SELECT * FROM now n WHERE NOT EXISTS (
            SELECT FROM gauss_cdc.ddl_partitions p WHERE p.oid = n.oid AND p.root = top)
    ), gone AS (
        SELECT * FROM gauss_cdc.ddl_partitions p
        WHERE p.root = top AND NOT EXISTS (SELECT FROM now n WHERE n.oid = p.oid)
    )
    SELECT jsonb_build_object(
        'attached', (SELECT coalesce(jsonb_agg(jsonb_build_array(oid::bigint, top::bigint)), '[]')
                     FROM come c WHERE NOT EXISTS (SELECT FROM come o WHERE o.oid = c.parent)),
        'detached', (SELECT coalesce(jsonb_agg(jsonb_build_array(
                                oid::bigint, top::bigint,
                                CASE WHEN gauss_cdc.ddl_is_empty(oid) THEN 'false' ELSE bound END
                            )), '[]')
                     FROM gone g WHERE NOT EXISTS (SELECT FROM gone o WHERE o.oid = g.parent)))
    INTO told;
    DELETE FROM gauss_cdc.ddl_partitions WHERE root = top
        OR oid IN (SELECT relid FROM pg_partition_tree(top));
    INSERT INTO gauss_cdc.ddl_partitions
    -- A default partition that is alone has no bounds: every row is its. Where a key has an
    -- expression no copy can use the bounds, and printing them would evaluate it.
    SELECT t.relid, r.root, t.parentrelid,
           CASE WHEN NOT EXISTS (
               SELECT FROM pg_partition_ancestors(t.relid) a
               JOIN pg_partitioned_table k ON k.partrelid = a.relid
               WHERE a.relid <> t.relid AND k.partexprs IS NOT NULL)
           THEN coalesce(pg_get_partition_constraintdef(t.relid), 'true') END
    FROM (SELECT top AS root UNION ALL
          -- A detached one is its own root, and is not attached.
          SELECT (d ->> 0)::oid FROM jsonb_array_elements(told -> 'detached') AS d) AS r
    CROSS JOIN pg_partition_tree(r.root) t WHERE t.relid <> r.root;
    -- TRUNCATE has no event, and of one partition the stream says nothing.
    IF EXISTS (SELECT FROM gauss_cdc.ddl_publication o JOIN pg_publication p ON p.pubname = o.name
               WHERE p.puballtables OR gauss_cdc.ddl_is_published(top, o.name)) THEN
        FOR this IN SELECT t.relid FROM pg_partition_tree(top) t JOIN pg_class c ON c.oid = t.relid
            WHERE (c.relkind = 'r' OR c.oid = top)
              AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid
                              AND g.tgname = 'gauss_cdc_truncate')
        LOOP
            BEGIN
                EXECUTE format('CREATE TRIGGER gauss_cdc_truncate %s TRUNCATE ON %s'
                               ' EXECUTE FUNCTION gauss_cdc.ddl_on_truncate()',
                               CASE WHEN this = top THEN 'BEFORE' ELSE 'AFTER' END, this);
            EXCEPTION WHEN others THEN NULL;  -- no client's statement fails because of us
            END;
        END LOOP;
    END IF;
    RETURN told;
END $$;

-- Put a record into the log. Deleted by its ctid: a scan of the index would make serializable
-- transactions conflict that have nothing to do with each other.
CREATE FUNCTION gauss_cdc.ddl_write(whole text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    place tid;
BEGIN
    INSERT INTO gauss_cdc.ddl_log (body) VALUES (whole) RETURNING ctid INTO place;
    DELETE FROM gauss_cdc.ddl_log WHERE ctid = place;
    IF current_setting('gauss_cdc.plan', true) = 'on' THEN  -- `ddl plan` reads it, and rolls back
        RAISE NOTICE 'gauss-cdc.ddl %', whole;
    END IF;
END $$;

-- Records are put together as text: that of an object of another one costs a copy.
--
-- `context`: the stack of calls at the trigger. Where it is the trigger alone, the statement is
-- one of the text that the server was given, and no function's. `plain`: and this text holds no
-- USING, so that values were converted by nothing but the types' own cast.
CREATE FUNCTION gauss_cdc.ddl_emit(told json, context text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    given text := current_query();
    lowered text;
    is_top boolean;
    is_plain boolean := false;
    whole text;
BEGIN
    is_top := given IS NOT NULL AND octet_length(given) <= 100000
        AND context IS NOT NULL AND strpos(context, E'\n') = 0;
    given := left(given, 100000);
    lowered := lower(given COLLATE "C");  -- in Turkish there is no `using` in USING
    is_plain := is_top AND strpos(lowered, 'using') = 0 AND strpos(lowered, 'alter') > 0
        AND strpos(lowered, 'extension') = 0;
    -- What holds a password stays here.
    IF strpos(lowered, 'password') > 0 AND given COLLATE "C" ~* E'\\mpassword\\s*(=|''|\\$|e'')'
    THEN  -- E: a session may have standard_conforming_strings off
        given := NULL;
    END IF;
    whole := left(told::text, -1) || ', ' || substr(json_build_object(
        'sql', given,
        'top', is_top,
        'plain', is_plain,
        'user', session_user,
        'settings', json_build_object(
            'TimeZone', current_setting('TimeZone'), 'DateStyle', current_setting('DateStyle'),
            'IntervalStyle', current_setting('IntervalStyle'),
            'bytea_output', current_setting('bytea_output'),
            'extra_float_digits', current_setting('extra_float_digits'),
            'lc_monetary', current_setting('lc_monetary'))
        )::text, 2);
    PERFORM gauss_cdc.ddl_write(whole);
END $$;

-- Something failed in here: record the tables whose shape is unknown now; all tables if oids is
-- empty. ASCII only, and nothing of the statement: its text may be what failed.
CREATE FUNCTION gauss_cdc.ddl_gap(tag text, oids oid[], state text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    roots oid[] := oids;
BEGIN
    BEGIN
        roots := oids || ARRAY(SELECT a.relid FROM unnest(oids) AS o
                               CROSS JOIN LATERAL pg_partition_ancestors(o) AS a);
    EXCEPTION WHEN others THEN NULL;
    END;
    PERFORM gauss_cdc.ddl_write(json_build_object(
        'version', 1, 'event', 'gap', 'tag', tag, 'oids', roots::bigint[], 'state', state)::text);
EXCEPTION WHEN others THEN NULL;  -- no client's statement fails because of us
END $$;

-- The log stays in the publication for as long as the triggers exist.
CREATE FUNCTION gauss_cdc.ddl_publish() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ours record;
BEGIN
    SELECT o.name INTO ours FROM gauss_cdc.ddl_publication o JOIN pg_publication p
        ON p.pubname = o.name
    WHERE NOT p.puballtables
      AND NOT gauss_cdc.ddl_is_published('gauss_cdc.ddl_log'::regclass::oid, o.name);
    IF FOUND THEN
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE gauss_cdc.ddl_log', ours.name);
    END IF;
EXCEPTION WHEN others THEN NULL;  -- `run` and `check` say that it is missing
END $$;

-- The definition of an object other than a table; NULL: not known.
CREATE FUNCTION gauss_cdc.ddl_definition(class oid, object oid, kind text) RETURNS text
LANGUAGE plpgsql STABLE
SET datestyle = 'ISO' SET intervalstyle = postgres SET timezone = 'UTC'
SET bytea_output = hex SET extra_float_digits = 3 AS $$
BEGIN
    CASE kind
    WHEN 'index' THEN RETURN pg_get_indexdef(object);
    WHEN 'view' THEN
        RETURN format('CREATE OR REPLACE VIEW %s AS %s', object::regclass,
                      pg_get_viewdef(object));
    WHEN 'materialized view' THEN
        RETURN format('CREATE MATERIALIZED VIEW IF NOT EXISTS %s AS %s WITH NO DATA',
                      object::regclass, rtrim(pg_get_viewdef(object), ';'));
    WHEN 'function', 'procedure' THEN RETURN pg_get_functiondef(object);
    WHEN 'trigger' THEN RETURN pg_get_triggerdef(object);
    WHEN 'sequence' THEN
        RETURN (SELECT format('CREATE SEQUENCE IF NOT EXISTS %s AS %s INCREMENT BY %s'
                              ' MINVALUE %s MAXVALUE %s START WITH %s CACHE %s%s',
                              object::regclass, format_type(seqtypid, NULL), seqincrement, seqmin,
                              seqmax, seqstart, seqcache, CASE WHEN seqcycle THEN ' CYCLE' ELSE '' END)
                FROM pg_sequence WHERE seqrelid = object);
    WHEN 'schema' THEN
        RETURN (SELECT format('CREATE SCHEMA IF NOT EXISTS %I', nspname)
                FROM pg_namespace WHERE oid = object);
    WHEN 'domain' THEN
        RETURN (SELECT format('CREATE DOMAIN %s AS %s%s%s', format_type(object, NULL),
                    format_type(typbasetype, typtypmod), CASE WHEN typnotnull THEN ' NOT NULL' END,
                    (SELECT string_agg(' CONSTRAINT ' || quote_ident(conname) || ' '
                                       || pg_get_constraintdef(oid), '' ORDER BY conname)
                     FROM pg_constraint WHERE contypid = object))
                FROM pg_type WHERE oid = object);
    WHEN 'type' THEN
        IF (SELECT typtype = 'd' FROM pg_type WHERE oid = object) THEN
            RETURN gauss_cdc.ddl_definition(class, object, 'domain'::text);
        END IF;
        RETURN (SELECT format('CREATE TYPE %s AS ENUM (%s)', format_type(object, NULL),
                    (SELECT string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder)
                     FROM pg_enum WHERE enumtypid = object))
                FROM pg_type WHERE oid = object AND typtype = 'e');
    ELSE RETURN NULL;
    END CASE;
EXCEPTION WHEN others THEN
    RETURN NULL;  -- an aggregate has no definition; no client's statement fails because of us
END $$;

-- A partition was emptied: TRUNCATE has no event, and the stream does not report one partition.
-- If its root was emptied, too, the stream reports that: all triggers BEFORE run before the first
-- one AFTER, so the root's names the partitions whose own ones have nothing to say.
CREATE FUNCTION gauss_cdc.ddl_on_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part gauss_cdc.ddl_partitions;
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        -- Else it was a root before it became a partition: its own ones speak for it.
        IF TG_RELID = pg_partition_root(TG_RELID) THEN
            INSERT INTO gauss_cdc.ddl_spared (oid)
            SELECT t.relid FROM pg_partition_tree(TG_RELID) t JOIN pg_trigger g
                ON g.tgrelid = t.relid AND g.tgname = 'gauss_cdc_truncate'
            WHERE t.isleaf AND g.tgenabled IN ('O', 'A');
        END IF;
        RETURN NULL;
    END IF;
    DELETE FROM gauss_cdc.ddl_spared WHERE xid = pg_current_xact_id() AND oid = TG_RELID;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO part FROM gauss_cdc.ddl_partitions WHERE oid = TG_RELID;
    IF part.oid IS NULL AND gauss_cdc.ddl_is_behind() THEN  -- it may have become one since
        PERFORM gauss_cdc.ddl_gap('TRUNCATE TABLE'::text, ARRAY[TG_RELID], 'behind'::text);
        RETURN NULL;
    END IF;
    IF part.oid IS NULL OR NOT EXISTS (
        SELECT FROM gauss_cdc.ddl_publication o JOIN pg_publication p ON p.pubname = o.name
        WHERE p.pubviaroot) THEN
        RETURN NULL;  -- a table of its own: the stream says it
    END IF;
    -- Another trigger may have filled it again: then its rows precede this record.
    PERFORM gauss_cdc.ddl_emit(json_build_object(
        'version', 1, 'event', 'end', 'tag', 'TRUNCATE TABLE',
        'files', json_build_array(json_build_array(part.oid::bigint, 0, (
            SELECT relfilenode::bigint FROM pg_class WHERE oid = part.oid))),
        'detached', json_build_array(json_build_array(
            part.oid::bigint, part.root::bigint,
            CASE WHEN pg_relation_size(TG_RELID) = 0 THEN part.bound END))), NULL::text);
    RETURN NULL;
EXCEPTION WHEN others THEN
    PERFORM gauss_cdc.ddl_gap('TRUNCATE TABLE'::text, ARRAY[TG_RELID], SQLSTATE);
    RETURN NULL;
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO gauss_cdc.ddl_rewrites (oid, reason, file)
    SELECT oid, pg_event_trigger_table_rewrite_reason(), relfilenode
    FROM pg_class WHERE oid = pg_event_trigger_table_rewrite_oid();
EXCEPTION WHEN others THEN
    PERFORM gauss_cdc.ddl_gap(TG_TAG, ARRAY[pg_event_trigger_table_rewrite_oid()], SQLSTATE);
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan SET quote_all_identifiers = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    gone json;
    altered oid[];
    tables json;
    via_root boolean;
    context text;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    SELECT json_agg(json_build_array(
               o.object_type, o.schema_name, o.object_name, o.object_identity, o.objid::bigint,
               o.original,
               CASE WHEN NOT EXISTS (SELECT FROM gauss_cdc.ddl_partitions x
                                     WHERE x.oid = p.parent AND x.oid <> p.root
                                       AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = x.oid))
                    THEN p.root::bigint END, p.bound))
    INTO gone
    FROM pg_event_trigger_dropped_objects() o
    LEFT JOIN gauss_cdc.ddl_partitions p ON p.oid = o.objid AND o.object_type = 'table'
    WHERE NOT o.is_temporary AND o.object_type <> 'toast table'
      AND (o.original OR o.object_type IN ('table', 'schema'));
    IF gone IS NULL THEN
        RETURN;
    END IF;
    -- Tables that stay, without a column, a key or a constraint of theirs.
    SELECT array_agg(DISTINCT c.oid) INTO altered
    FROM pg_event_trigger_dropped_objects() o
    JOIN pg_class c ON o.classid = 'pg_class'::regclass AND c.oid = o.objid AND o.objsubid > 0
    WHERE c.relkind IN ('r', 'p');
    DELETE FROM gauss_cdc.ddl_partitions p USING pg_event_trigger_dropped_objects() o
    WHERE o.object_type = 'table' AND (p.oid = o.objid OR p.root = o.objid);
    DELETE FROM gauss_cdc.ddl_generated g USING pg_event_trigger_dropped_objects() o
    WHERE o.object_type = 'table' AND g.oid = o.objid;
    IF altered IS NOT NULL AND gauss_cdc.ddl_is_behind() THEN
        PERFORM gauss_cdc.ddl_gap(TG_TAG, altered, 'behind'::text);
        altered := '{}';
    END IF;
    SELECT json_agg(l.shape) FILTER (WHERE l.shape IS NOT NULL), bool_and(l.via_root)
    INTO tables, via_root
    FROM unnest(altered) AS a CROSS JOIN gauss_cdc.ddl_look(a, false, false) AS l;
    PERFORM gauss_cdc.ddl_emit(json_build_object(
        'version', 1, 'event', 'drop', 'tag', TG_TAG, 'dropped', gone,
        'via_root', coalesce(via_root, true), 'tables', coalesce(tables, '[]')), context);
EXCEPTION WHEN others THEN
    PERFORM gauss_cdc.ddl_gap(TG_TAG, '{}'::oid[], SQLSTATE);
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan SET quote_all_identifiers = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
    c record;
    commands json[];
    touched oid[] := '{}';  -- tables
    given int;  -- so many of them the statement names itself
    at int := 0;
    types oid[] := '{}';
    spaces oid[] := '{}';  -- schemas
    seen record;
    root oid;
    roots oid[] := '{}';
    partitions jsonb := '{}';
    joined json[] := '{}';  -- [table, has rows]
    has_rows boolean;
    via_root boolean := true;
    tables json[] := '{}';
    rewritten text[] := '{}';
    files json := '[]';  -- [table, its file before, its file after]
    is_rewritten boolean;
    renamed json[] := '{}';  -- schemas: [oid, name]
    casts json := '[]';
    context text;
    one jsonb;
    this oid;
    is_behind boolean;
    unseen oid[] := '{}';  -- tables that others may have altered behind our snapshot
BEGIN
    IF TG_TAG = 'ALTER PUBLICATION' THEN
        PERFORM gauss_cdc.ddl_publish();
    END IF;
    IF TG_TAG IN ('GRANT', 'REVOKE', 'ALTER DEFAULT PRIVILEGES', 'REFRESH MATERIALIZED VIEW',
                  'CREATE PUBLICATION', 'ALTER PUBLICATION', 'CREATE SUBSCRIPTION',
                  'ALTER SUBSCRIPTION', 'SECURITY LABEL') THEN
        RETURN;
    END IF;
    GET DIAGNOSTICS context = PG_CONTEXT;
    is_rewritten := EXISTS (SELECT FROM gauss_cdc.ddl_rewrites WHERE xid = pg_current_xact_id());
    FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
        IF c.in_extension THEN
            context := NULL;  -- the script's statement, not the client's
        END IF;
        CONTINUE WHEN c.schema_name = 'gauss_cdc' OR c.schema_name ~ '^pg_(temp|toast)'
            OR c.object_identity LIKE 'pg_temp%' OR c.object_type = 'publication'
            OR c.object_type = 'trigger' AND c.object_identity LIKE 'gauss_cdc_truncate on %';
        IF c.object_type IN ('table', 'table column', 'foreign table', 'foreign table column') THEN
            this := c.objid;
        ELSIF c.object_type = 'index' THEN
            this := (SELECT indrelid FROM pg_index WHERE indexrelid = c.objid);
        ELSIF c.object_type = 'table constraint' OR c.object_type = 'default value' THEN
            this := coalesce((SELECT conrelid FROM pg_constraint WHERE oid = c.objid),
                             (SELECT adrelid FROM pg_attrdef WHERE oid = c.objid));
            CONTINUE WHEN (SELECT relpersistence = 't' FROM pg_class WHERE oid = this);
        ELSE
            this := NULL;
        END IF;
        IF TG_TAG <> 'COMMENT' THEN
            IF this IS NOT NULL THEN
                touched := touched || this;
            ELSIF c.classid::regclass::text = 'pg_type' THEN
                types := types || c.objid;
            ELSIF c.object_type IN ('composite type', 'composite type column') THEN
                types := types || (SELECT reltype FROM pg_class WHERE oid = c.objid);
            ELSIF c.object_type = 'schema' THEN
                spaces := spaces || c.objid;
                renamed := renamed || (SELECT json_build_array(oid::bigint, nspname)
                                       FROM pg_namespace WHERE oid = c.objid);
            END IF;
        END IF;
        CONTINUE WHEN c.in_extension OR TG_TAG = 'REINDEX';
        commands := commands || json_build_array(
            c.command_tag, c.object_type, c.schema_name, c.object_identity, c.objid::bigint,
            CASE WHEN TG_TAG = 'COMMENT' THEN
                     format('COMMENT ON %s %s IS %s', upper(CASE c.object_type WHEN 'table column'
                            THEN 'column' ELSE c.object_type END COLLATE "C"), c.object_identity,
                            coalesce(quote_literal(CASE WHEN c.objsubid > 0
                                     THEN col_description(c.objid, c.objsubid)
                                     ELSE obj_description(c.objid, c.classid::regclass::name) END),
                                     'NULL'))
                 WHEN c.object_type <> 'table' THEN
                     gauss_cdc.ddl_definition(c.classid, c.objid, c.object_type) END);
    END LOOP;
    IF is_rewritten THEN  -- temporary tables come here, too
        DELETE FROM gauss_cdc.ddl_rewrites r USING pg_class x
        WHERE r.xid = pg_current_xact_id() AND x.oid = r.oid AND x.relpersistence = 't';
    END IF;
    IF commands IS NULL AND touched = '{}' AND types = '{}' AND spaces = '{}' THEN
        RETURN;
    END IF;
    IF types <> '{}' THEN  -- tables of these types, and of types made of them
        touched := touched || ARRAY(
            WITH RECURSIVE made (oid) AS (
                SELECT unnest(types)
                UNION SELECT x.oid FROM made m CROSS JOIN LATERAL (
                    SELECT t.oid FROM pg_type t WHERE t.typbasetype = m.oid OR t.typelem = m.oid
                    UNION ALL SELECT rngtypid FROM pg_range WHERE rngsubtype = m.oid
                    /*14*/ UNION ALL SELECT rngmultitypid FROM pg_range WHERE rngtypid = m.oid
                    UNION ALL SELECT r.reltype FROM pg_attribute a
                    JOIN pg_class r ON r.oid = a.attrelid AND r.relkind = 'c'
                    WHERE a.atttypid = m.oid AND NOT a.attisdropped) AS x)
            SELECT a.attrelid FROM made m JOIN pg_attribute a ON a.atttypid = m.oid
            WHERE a.attnum > 0 AND NOT a.attisdropped
            UNION SELECT oid FROM pg_class WHERE reloftype = ANY (types));
    END IF;
    IF spaces <> '{}' AND TG_TAG = 'ALTER SCHEMA' THEN
        touched := touched || ARRAY(SELECT oid FROM pg_class WHERE relnamespace = ANY (spaces));
    END IF;
    -- Whoever is met on the way comes at the end: what inherits changes with its parent; partitions
    -- are their root, where it is published. Of a root that came so, the others did not change.
    given := cardinality(touched);
    is_behind := gauss_cdc.ddl_is_behind();
    WHILE at < cardinality(touched) LOOP
        at := at + 1;
        this := touched[at];
        CONTINUE WHEN this = ANY (touched[: at - 1]);
        seen := gauss_cdc.ddl_look(this, false, is_rewritten OR types <> '{}');
        via_root := coalesce(seen.via_root, via_root);
        IF seen.has_heirs AND (this <> ALL (roots) OR this = ANY (touched[: given])) THEN
            touched := touched || ARRAY(
                SELECT inhrelid FROM pg_inherits WHERE inhparent = this ORDER BY inhrelid);
        END IF;
        -- A table that [tables] names joins the publication with the statement that makes it so.
        IF seen.shape IS NOT NULL AND NOT seen.is_for_all AND seen.persistence = 'p'
            AND seen.ours <> ALL (seen.publications)
            AND seen.schema NOT IN ('pg_catalog', 'information_schema', 'gauss_cdc')
            AND gauss_cdc.ddl_matches(seen.schema::text, seen.name::text)
        THEN
            EXECUTE format('ALTER PUBLICATION %I ADD TABLE %I.%I',
                           seen.ours, seen.schema, seen.name);
            has_rows := coalesce(NOT gauss_cdc.ddl_is_empty(this), true);
            joined := joined || json_build_array(this::bigint, has_rows);
            seen := gauss_cdc.ddl_look(this, false, is_rewritten OR types <> '{}');
        END IF;
        IF seen.has_parts AND TG_TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA') THEN
            root := pg_partition_root(this);
            IF root <> ALL (roots) THEN
                roots := roots || root;
                one := gauss_cdc.ddl_repartition(root);
                partitions := jsonb_build_object(
                    'attached', coalesce(partitions -> 'attached', '[]') || (one -> 'attached'),
                    'detached', coalesce(partitions -> 'detached', '[]') || (one -> 'detached'));
                touched := touched || root || ARRAY(
                    SELECT (d ->> 0)::oid FROM jsonb_array_elements(one -> 'detached') AS d);
            END IF;
        END IF;
        IF seen.is_generated THEN
            DELETE FROM gauss_cdc.ddl_generated WHERE oid = this;
            INSERT INTO gauss_cdc.ddl_generated
            SELECT attrelid, attnum FROM pg_attribute
            WHERE attrelid = this AND attnum > 0 AND attgenerated <> '' AND NOT attisdropped;
        END IF;
        IF is_behind AND NOT gauss_cdc.ddl_is_new(this) THEN
            unseen := unseen || this;
        ELSIF seen.shape IS NOT NULL THEN
            tables := tables || seen.shape;
        END IF;
    END LOOP;
    /*15*/ IF spaces <> '{}' AND TG_TAG = 'CREATE SCHEMA' THEN
    /*15*/     FOR seen IN SELECT n.nspname, o.name FROM pg_namespace n, gauss_cdc.ddl_publication o
    /*15*/         JOIN pg_publication p ON p.pubname = o.name AND NOT p.puballtables
    /*15*/         WHERE n.oid = ANY (spaces)
    /*15*/         AND EXISTS (SELECT FROM gauss_cdc.ddl_tables t WHERE NOT t.is_exclude
    /*15*/             AND coalesce(t.table_schema, n.nspname) = n.nspname AND t.table_name IS NULL)
    /*15*/         AND NOT EXISTS (SELECT FROM gauss_cdc.ddl_tables t WHERE t.is_exclude
    /*15*/             AND coalesce(t.table_schema, n.nspname) = n.nspname)
    /*15*/     LOOP
    /*15*/         EXECUTE format('ALTER PUBLICATION %I ADD TABLES IN SCHEMA %I',
    /*15*/                        seen.name, seen.nspname);
    /*15*/         UPDATE gauss_cdc.ddl_publication o SET schemas = o.schemas || seen.nspname::text;
    /*15*/     END LOOP;
    /*15*/ END IF;

    IF is_rewritten THEN
        -- Of this statement's tables only: one inside of another must not take what is the other's.
        WITH taken AS (DELETE FROM gauss_cdc.ddl_rewrites r
                       WHERE r.xid = pg_current_xact_id() AND r.oid = ANY (touched)
                       RETURNING r.oid, r.reason, r.file)
        SELECT coalesce(array_agg(t.oid || ':' || t.reason), '{}'), coalesce(json_agg(
                   json_build_array(t.oid::bigint, t.file::bigint, now.relfilenode::bigint)), '[]')
        INTO rewritten, files FROM taken t JOIN pg_class now ON now.oid = t.oid;
        -- Casts that a copy may not have, or not in the same way.
        casts := (SELECT coalesce(json_agg(json_build_array(castsource::bigint, casttarget::bigint)),
                                  '[]')
                  FROM pg_cast WHERE oid::bigint >= 16384);
    END IF;
    IF unseen <> '{}' THEN
        PERFORM gauss_cdc.ddl_gap(TG_TAG, unseen, 'behind'::text);
    END IF;
    PERFORM gauss_cdc.ddl_emit(json_build_object(
        'version', 1, 'event', 'end', 'tag', TG_TAG, 'commands', coalesce(commands, '{}'),
        'attached', coalesce(partitions -> 'attached', '[]'),
        'detached', coalesce(partitions -> 'detached', '[]'),
        'via_root', via_root, 'joined', joined, 'rewritten', rewritten, 'files', files,
        'casts', casts,
        'spaces', renamed, 'tables', tables), context);
EXCEPTION WHEN others THEN
    PERFORM gauss_cdc.ddl_gap(TG_TAG, touched, SQLSTATE);
END $$;

-- Ours only: only the triggers call these, and no role can attach them to its own tables.
-- Default privileges may have given rights to more than PUBLIC. What else is in the schema keeps its.
DO $$
DECLARE
    this record;
BEGIN
    FOR this IN
        SELECT DISTINCT o.rights, coalesce(quote_ident(r.rolname), 'PUBLIC') AS who FROM (
            SELECT format('ALL ON %s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                          c.oid::regclass) AS rights, c.relacl AS acl, c.relowner AS owner
            FROM pg_class c WHERE c.relnamespace = 'gauss_cdc'::regnamespace
              AND c.relkind IN ('r', 'S') AND c.relname ~ '^ddl_'
            UNION ALL
            SELECT 'ALL ON FUNCTION ' || p.oid::regprocedure,
                   coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner
            FROM pg_proc p WHERE p.pronamespace = 'gauss_cdc'::regnamespace
            UNION ALL
            SELECT 'CREATE ON SCHEMA gauss_cdc', n.nspacl, n.nspowner
            FROM pg_namespace n WHERE n.nspname = 'gauss_cdc') AS o
        CROSS JOIN LATERAL aclexplode(o.acl) AS a
        LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> o.owner
    LOOP
        EXECUTE format('REVOKE %s FROM %s CASCADE', this.rights, this.who);
    END LOOP;
END $$;

CREATE EVENT TRIGGER gauss_cdc_ddl_end ON ddl_command_end
    EXECUTE FUNCTION gauss_cdc.ddl_on_end();
CREATE EVENT TRIGGER gauss_cdc_ddl_drop ON sql_drop
    -- ALTER TABLE … DROP COLUMN drops something, too, and is recorded at its end.
    WHEN TAG IN ('DROP ACCESS METHOD', 'DROP AGGREGATE', 'DROP CAST', 'DROP COLLATION',
                 'DROP CONVERSION', 'DROP DOMAIN', 'DROP EXTENSION', 'DROP FOREIGN DATA WRAPPER',
                 'DROP FOREIGN TABLE', 'DROP FUNCTION', 'DROP INDEX', 'DROP LANGUAGE',
                 'DROP MATERIALIZED VIEW', 'DROP OPERATOR', 'DROP OPERATOR CLASS',
                 'DROP OPERATOR FAMILY', 'DROP OWNED', 'DROP POLICY', 'DROP PROCEDURE',
                 'DROP ROUTINE', 'DROP RULE', 'DROP SCHEMA', 'DROP SEQUENCE',
                 'DROP SERVER', 'DROP STATISTICS', 'DROP SUBSCRIPTION', 'DROP TABLE',
                 'DROP TEXT SEARCH CONFIGURATION', 'DROP TEXT SEARCH DICTIONARY',
                 'DROP TEXT SEARCH PARSER', 'DROP TEXT SEARCH TEMPLATE', 'DROP TRANSFORM',
                 'DROP TRIGGER', 'DROP TYPE', 'DROP USER MAPPING', 'DROP VIEW')
    EXECUTE FUNCTION gauss_cdc.ddl_on_drop();
CREATE EVENT TRIGGER gauss_cdc_ddl_rewrite ON table_rewrite
    EXECUTE FUNCTION gauss_cdc.ddl_on_rewrite();
-- Replayed changes (session_replication_role = replica) are changes, too.
ALTER EVENT TRIGGER gauss_cdc_ddl_end ENABLE ALWAYS;
ALTER EVENT TRIGGER gauss_cdc_ddl_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER gauss_cdc_ddl_rewrite ENABLE ALWAYS;
