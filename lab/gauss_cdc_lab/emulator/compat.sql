-- The schema that the facade makes in each database; `compat.py` tells why.
CREATE SCHEMA IF NOT EXISTS gauss_compat;
CREATE TABLE IF NOT EXISTS gauss_compat.plugins (
    slot_name text PRIMARY KEY, plugin text NOT NULL, output_order int NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS gauss_compat.declared (
    relid oid PRIMARY KEY, identity "char" NOT NULL, index oid);
CREATE TABLE IF NOT EXISTS gauss_compat.settings (name text PRIMARY KEY, setting text NOT NULL);
CREATE TABLE IF NOT EXISTS gauss_compat.column_types (
    relid oid, attnum int, type_oid oid, PRIMARY KEY (relid, attnum));
CREATE TABLE IF NOT EXISTS gauss_compat.partitions (relid oid PRIMARY KEY, root oid NOT NULL);
CREATE TABLE IF NOT EXISTS gauss_compat.types (oid oid PRIMARY KEY, name text NOT NULL);
GRANT USAGE ON SCHEMA gauss_compat TO public;

-- ---- identities
CREATE OR REPLACE FUNCTION gauss_compat.declare(relid oid, asked text) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    now "char"; name text; short text; is_known bool; found_index oid;
BEGIN
    SELECT c.relreplident, format('%I.%I', n.nspname, c.relname), c.relname INTO now, name, short
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = relid AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname NOT IN ('gauss_compat', 'pg_catalog', 'information_schema');
    IF name IS NULL THEN RETURN; END IF;
    SELECT true INTO is_known FROM gauss_compat.declared d WHERE d.relid = declare.relid;
    IF now = 'f' THEN
        -- FULL by us, or by the statement itself: its text decides.
        IF is_known IS NULL OR asked ~* format(
            'alter\s+table\s+(if\s+exists\s+)?(only\s+)?((\w+|"[^"]+")\s*\.\s*)?"?%s"?'
            '\s+replica\s+identity\s+full', regexp_replace(short, '(\W)', '\\\1', 'g')) THEN
            INSERT INTO gauss_compat.declared VALUES (relid, 'f', NULL)
            ON CONFLICT ON CONSTRAINT declared_pkey DO UPDATE SET identity = 'f', index = NULL;
        END IF;
        RETURN;
    END IF;
    SELECT indexrelid INTO found_index FROM pg_catalog.pg_index
    WHERE indrelid = relid AND indisreplident;
    INSERT INTO gauss_compat.declared VALUES (relid, now, found_index)
    ON CONFLICT ON CONSTRAINT declared_pkey
    DO UPDATE SET identity = excluded.identity, index = excluded.index;
    PERFORM set_config('gauss_compat.ours', 'on', true);
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', name);
    PERFORM set_config('gauss_compat.ours', '', true);
END $body$;

-- ---- DDL, as `deparse.py` words it
CREATE OR REPLACE FUNCTION gauss_compat.type_of(oid, int) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog AS $body$
SELECT CASE WHEN t.typname IN ('time', 'timetz', 'timestamp', 'timestamptz', 'interval')
    THEN jsonb_build_object('schema', '', 'name', upper(substring(said FROM '^\w+')),
                            'modifier', substring(said FROM '^\w+(.*)$'))
    ELSE jsonb_build_object('schema', n.nspname, 'name', t.typname,
                            'modifier', coalesce(substring(said FROM '\([0-9,]+\)'), '')) END
    || jsonb_build_object('array', is_array)
FROM (SELECT CASE WHEN typcategory = 'A' AND typelem <> 0 THEN typelem ELSE oid END AS element,
             typcategory = 'A' AND typelem <> 0 AS is_array FROM pg_type WHERE oid = $1) e
JOIN pg_type t ON t.oid = e.element JOIN pg_namespace n ON n.oid = t.typnamespace,
LATERAL format_type(t.oid, $2) said
$body$;

-- A default is mutable where it calls a function that is not immutable.
CREATE OR REPLACE FUNCTION gauss_compat.is_mutable(pg_node_tree) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog AS $body$
SELECT $1::text ~ '\{(SQLVALUEFUNCTION|NEXTVALUEEXPR)' OR EXISTS (
    SELECT FROM regexp_matches($1::text, ':(?:op)?funcid (\d+)', 'g') found(ids)
    JOIN pg_proc p ON p.oid = ids[1]::oid WHERE p.provolatile <> 'i')
$body$;

CREATE OR REPLACE FUNCTION gauss_compat.shape(relid oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog AS $body$
SELECT jsonb_build_object(
    'schema', n.nspname, 'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence,
    'partition_by', CASE c.relkind WHEN 'p' THEN pg_get_partkeydef(c.oid) END,
    'columns', (SELECT coalesce(jsonb_agg(jsonb_build_object(
        'name', a.attname, 'type', gauss_compat.type_of(a.atttypid, a.atttypmod),
        'not_null', a.attnotnull, 'is_identity', a.attidentity <> '',
        'is_generated', a.attgenerated <> '', 'default', pg_get_expr(d.adbin, d.adrelid),
        'is_mutable', coalesce(gauss_compat.is_mutable(d.adbin), false)) ORDER BY a.attnum), '[]')
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'constraints', (SELECT coalesce(jsonb_agg(jsonb_build_object(
        'name', k.conname, 'definition', pg_get_constraintdef(k.oid)) ORDER BY k.oid), '[]')
        FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'c')))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relid
$body$;

CREATE OR REPLACE FUNCTION gauss_compat.definition(kind text, id oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog AS $body$
SELECT CASE kind
    WHEN 'table' THEN gauss_compat.shape(id)
    WHEN 'index' THEN (SELECT jsonb_build_object('unique', i.indisunique, 'method', m.amname,
        'table', gauss_compat.shape(i.indrelid) - 'columns' - 'constraints',
        'name', c.relname, 'rest', substring(pg_get_indexdef(i.indexrelid) FROM ' USING \w+ (.*)'))
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
        WHERE i.indexrelid = id)
    WHEN 'view' THEN jsonb_build_object('text', pg_get_viewdef(id))
    WHEN 'materialized view' THEN jsonb_build_object('text', pg_get_viewdef(id))
    WHEN 'function' THEN jsonb_build_object('text', pg_get_functiondef(id))
    WHEN 'procedure' THEN jsonb_build_object('text', pg_get_functiondef(id))
    WHEN 'trigger' THEN jsonb_build_object('text', pg_get_triggerdef(id))
END
$body$;

-- Whose a partition was: when it is dropped the catalog does not say so any more.
CREATE OR REPLACE FUNCTION gauss_compat.note_partitions() RETURNS void LANGUAGE sql AS $body$
INSERT INTO gauss_compat.partitions SELECT t.relid, c.oid
FROM pg_catalog.pg_class c CROSS JOIN pg_catalog.pg_partition_tree(c.oid) t
WHERE c.relkind = 'p' AND NOT c.relispartition AND t.relid <> c.oid
ON CONFLICT (relid) DO UPDATE SET root = excluded.root WHERE partitions.root <> excluded.root;
DELETE FROM gauss_compat.partitions p
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = p.relid);
$body$;
SELECT gauss_compat.note_partitions();

CREATE OR REPLACE FUNCTION gauss_compat.on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM set_config('gauss_compat.dropped', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'kind', object_type, 'identity', object_identity, 'name', object_name,
            'partition_of', (SELECT jsonb_build_object('schema', n.nspname, 'name', c.relname)
                FROM gauss_compat.partitions p JOIN pg_catalog.pg_class c ON c.oid = p.root
                JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE p.relid = objid))), '[]')::text
        FROM pg_event_trigger_dropped_objects() WHERE original AND NOT is_temporary), true);
END $body$;

CREATE OR REPLACE FUNCTION gauss_compat.on_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    one record; told jsonb := '[]'; dropped text;
BEGIN
    IF current_setting('gauss_compat.ours', true) = 'on' THEN RETURN; END IF;
    FOR one IN SELECT DISTINCT objid FROM pg_event_trigger_ddl_commands()
        WHERE classid = 'pg_catalog.pg_class'::regclass AND schema_name IS DISTINCT FROM 'pg_temp'
    LOOP
        PERFORM gauss_compat.declare(one.objid, current_query());
    END LOOP;
    FOR one IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
        told := told || jsonb_build_object('tag', one.command_tag, 'kind', one.object_type,
            'schema', one.schema_name, 'identity', one.object_identity,
            'definition', gauss_compat.definition(one.object_type, one.objid));
    END LOOP;
    PERFORM gauss_compat.note_partitions();
    dropped := coalesce(nullif(current_setting('gauss_compat.dropped', true), ''), '[]');
    PERFORM set_config('gauss_compat.dropped', '', true);
    PERFORM pg_logical_emit_message(true, 'gauss_compat.ddl', jsonb_build_object(
        'tag', TG_TAG, 'text', coalesce(current_query(), ''), 'commands', told,
        'dropped', dropped::jsonb)::text);
END $body$;

-- ALTER TABLE … EXCHANGE PARTITION, which PostgreSQL has not: no row of it is in the log.
CREATE OR REPLACE FUNCTION gauss_compat.exchange(root regclass, part regclass, other regclass)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    part_name text; other_name text; root_schema text; root_name text; bounds text; said text;
BEGIN
    SELECT relname, pg_get_expr(relpartbound, oid) INTO part_name, bounds
    FROM pg_catalog.pg_class WHERE oid = part;
    SELECT relname INTO other_name FROM pg_catalog.pg_class WHERE oid = other;
    SELECT n.nspname, c.relname INTO root_schema, root_name
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = root;
    said := format('ALTER TABLE %I.%I EXCHANGE PARTITION (%I) WITH TABLE %I.%I', root_schema,
                   root_name, part_name, root_schema, other_name);
    PERFORM set_config('gauss_compat.ours', 'on', true);
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', root, part);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s %s', root, other, bounds);
    EXECUTE format('ALTER TABLE %s RENAME TO gauss_compat_exchanged', part);
    EXECUTE format('ALTER TABLE %s RENAME TO %I', other, part_name);
    EXECUTE format('ALTER TABLE %s RENAME TO %I', part, other_name);
    PERFORM set_config('gauss_compat.ours', '', true);
    PERFORM gauss_compat.note_partitions();
    PERFORM pg_logical_emit_message(true, 'gauss_compat.ddl', jsonb_build_object(
        'tag', 'ALTER TABLE', 'text', said, 'dropped', '[]'::jsonb,
        'commands', jsonb_build_array(jsonb_build_object(
            'tag', 'ALTER TABLE', 'kind', 'table', 'schema', root_schema,
            'identity', format('%I.%I', root_schema, root_name),
            'definition', gauss_compat.shape(root))))::text);
END $body$;

DROP EVENT TRIGGER IF EXISTS gauss_compat_ddl;
SELECT gauss_compat.declare(oid, '') FROM pg_catalog.pg_class
WHERE relkind IN ('r', 'p') AND relpersistence = 'p' AND oid >= 16384;
CREATE EVENT TRIGGER gauss_compat_ddl ON ddl_command_end EXECUTE FUNCTION gauss_compat.on_ddl();
DROP EVENT TRIGGER IF EXISTS gauss_compat_drop;
CREATE EVENT TRIGGER gauss_compat_drop ON sql_drop EXECUTE FUNCTION gauss_compat.on_drop();
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'gauss_compat') THEN
        CREATE PUBLICATION gauss_compat FOR ALL TABLES WITH (publish_via_partition_root = true);
    END IF;
END $body$;

-- ---- catalogs
DO $body$
DECLARE columns text;
BEGIN
    SELECT string_agg(CASE WHEN attname = 'relreplident'
        THEN 'coalesce(d.identity, c.relreplident) AS relreplident'
        ELSE format('c.%I', attname) END, ', ' ORDER BY attnum) INTO columns
    FROM pg_catalog.pg_attribute
    WHERE attrelid = 'pg_catalog.pg_class'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE 'CREATE OR REPLACE VIEW gauss_compat.pg_class AS SELECT c.tableoid, c.xmin, ' || columns
        || ' FROM pg_catalog.pg_class c LEFT JOIN gauss_compat.declared d ON d.relid = c.oid'
        || ' WHERE c.relkind <> ''r'' OR c.relnamespace <> ''gauss_compat''::regnamespace';
    SELECT string_agg(CASE WHEN attname = 'indisreplident'
        THEN 'coalesce(d.identity = ''i'' AND d.index = i.indexrelid, i.indisreplident)'
             ' AS indisreplident'
        ELSE format('i.%I', attname) END, ', ' ORDER BY attnum) INTO columns
    FROM pg_catalog.pg_attribute
    WHERE attrelid = 'pg_catalog.pg_index'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE 'CREATE OR REPLACE VIEW gauss_compat.pg_index AS SELECT ' || columns
        || ', i.xmin FROM pg_catalog.pg_index i LEFT JOIN gauss_compat.declared d ON d.relid = i.indrelid';
    -- attmissingval is of type anyarray, which a view may not have.
    SELECT string_agg(CASE WHEN attname = 'atttypid'
        THEN 'coalesce(t.type_oid, a.atttypid) AS atttypid'
        WHEN attname = 'attmissingval' THEN 'a.attmissingval::text AS attmissingval'
        ELSE format('a.%I', attname) END, ', ' ORDER BY a.attnum) INTO columns
    FROM pg_catalog.pg_attribute a
    WHERE attrelid = 'pg_catalog.pg_attribute'::regclass AND attnum > 0 AND NOT attisdropped;
    -- pg_database has one column more, as the view below.
    EXECUTE 'CREATE OR REPLACE VIEW gauss_compat.pg_attribute AS SELECT a.tableoid, ' || columns
        || ', a.xmin FROM pg_catalog.pg_attribute a LEFT JOIN gauss_compat.column_types t'
        || ' ON t.relid = a.attrelid AND t.attnum = a.attnum UNION ALL SELECT a.tableoid, '
        || replace(replace(columns, 'a.attname,', '''datcompatibility''::name,'),
                   'a.attnum,', '99::int2,')
        || ', a.xmin FROM pg_catalog.pg_attribute a'
        || ' LEFT JOIN gauss_compat.column_types t ON false'
        || ' WHERE a.attrelid = ''pg_catalog.pg_database''::regclass'
        || ' AND a.attname = ''datname''';
    SELECT string_agg(format('t.%I', attname), ', ' ORDER BY attnum) INTO columns
    FROM pg_catalog.pg_attribute
    WHERE attrelid = 'pg_catalog.pg_type'::regclass AND attnum > 0 AND NOT attisdropped;
    EXECUTE 'CREATE OR REPLACE VIEW gauss_compat.pg_type AS SELECT ' || columns
        || ', t.xmin FROM pg_catalog.pg_type t'
        || ' WHERE t.oid NOT IN (SELECT oid FROM gauss_compat.types)'
        || ' UNION ALL SELECT ' || replace(replace(columns, 't.oid,', 'g.oid,'), 't.typname,',
           'g.name::name,')
        || ', t.xmin FROM gauss_compat.types g JOIN pg_catalog.pg_type t ON t.oid = 25';
END $body$;

CREATE OR REPLACE VIEW gauss_compat.pg_database AS
    SELECT d.xmin, d.*, (SELECT setting FROM gauss_compat.settings
                 WHERE name = 'sql_compatibility')::name AS datcompatibility
    FROM pg_catalog.pg_database d;
CREATE OR REPLACE VIEW gauss_compat.pg_stat_activity AS
    SELECT a.*, a.pid::bigint AS sessionid FROM pg_catalog.pg_stat_activity a;
CREATE OR REPLACE FUNCTION gauss_compat.pg_terminate_session(pid bigint, sessionid bigint)
RETURNS bool LANGUAGE sql AS $$ SELECT pg_catalog.pg_terminate_backend($2::int) $$;
CREATE OR REPLACE FUNCTION gauss_compat.format_type(oid, int) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT coalesce((SELECT name FROM gauss_compat.types t WHERE t.oid = $1),
                   pg_catalog.format_type($1, $2)) $$;
CREATE OR REPLACE FUNCTION gauss_compat.current_setting(text, bool DEFAULT false) RETURNS text
LANGUAGE sql STABLE AS
$$ SELECT coalesce((SELECT setting FROM gauss_compat.settings WHERE name = lower($1)),
                   pg_catalog.current_setting($1, $2)) $$;
CREATE OR REPLACE VIEW gauss_compat.pg_settings AS
    SELECT * FROM pg_catalog.pg_settings s
    WHERE s.name NOT IN (SELECT name FROM gauss_compat.settings)
    UNION ALL
    SELECT g.name, g.setting, NULL, 'GaussDB', NULL, NULL, 'sighup', 'string', 'default', NULL,
           NULL, NULL, g.setting, g.setting, NULL, NULL, false
    FROM gauss_compat.settings g;

-- ---- the product
CREATE OR REPLACE FUNCTION gauss_compat.version() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT setting FROM gauss_compat.settings WHERE name = 'gauss_compat.version' $$;
CREATE OR REPLACE FUNCTION gauss_compat.shards() RETURNS int LANGUAGE sql STABLE AS
$$ SELECT coalesce((SELECT setting::int FROM gauss_compat.settings
                    WHERE name = 'gauss_compat.shards'), 0) $$;
CREATE OR REPLACE FUNCTION gauss_compat.opengauss_version() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT substring(gauss_compat.version() FROM 'openGauss ([^ ]+)') $$;
CREATE OR REPLACE FUNCTION gauss_compat.gs_deployment() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE WHEN gauss_compat.shards() > 0 THEN 'Distribute'
               WHEN gauss_compat.version() LIKE '%GaussDB Kernel%' THEN 'BusinessCentralized'
               ELSE 'OpenSourceCentralized' END $$;
CREATE OR REPLACE VIEW gauss_compat.pgxc_node AS
    SELECT 'cn_5001'::name AS node_name, 'C'::"char" AS node_type WHERE gauss_compat.shards() > 0
    UNION ALL
    SELECT format('dn_%s', 6000 + n)::name, 'D' FROM generate_series(1, gauss_compat.shards()) n;
CREATE OR REPLACE FUNCTION gauss_compat.position() RETURNS pg_lsn LANGUAGE sql AS  -- a replay's
$$ SELECT nullif(pg_catalog.current_setting('gauss_compat.position', true), '')::pg_lsn $$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_current_xlog_location() RETURNS text
LANGUAGE sql AS $$ SELECT coalesce(gauss_compat.position(), pg_catalog.pg_current_wal_lsn())::text $$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_current_xlog_insert_location() RETURNS text
LANGUAGE sql AS
$$ SELECT coalesce(gauss_compat.position(), pg_catalog.pg_current_wal_insert_lsn())::text $$;
-- pgoutput shows no transaction that has nothing but an id; GaussDB's decoders show it as empty.
CREATE OR REPLACE FUNCTION gauss_compat.txid_current() RETURNS int8 LANGUAGE sql AS
$$ SELECT pg_logical_emit_message(true, 'gauss_compat.background', '');
   SELECT pg_catalog.txid_current() $$;
-- A replay's transactions are older than any of its catalog's.  A coordinator's own ids are ahead of
-- those in rows (xmin), which are of data nodes, and behind those that data nodes print (`live.py`).
CREATE OR REPLACE FUNCTION gauss_compat.txid_current_snapshot() RETURNS txid_snapshot LANGUAGE sql AS
$$ SELECT CASE WHEN gauss_compat.position() IS NOT NULL THEN '1:4611686018427387903:'::txid_snapshot
               WHEN gauss_compat.shards() = 0 THEN pg_catalog.txid_current_snapshot()
               ELSE (SELECT format('%s:%s:', txid_snapshot_xmin(s) + 524288,
                                   txid_snapshot_xmax(s) + 524288)::txid_snapshot
                     FROM pg_catalog.txid_current_snapshot() s) END $$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_xlog_location_diff(text, text) RETURNS numeric
LANGUAGE sql AS $$ SELECT pg_catalog.pg_wal_lsn_diff($1::pg_lsn, $2::pg_lsn) $$;

CREATE OR REPLACE FUNCTION gauss_compat.current_database() RETURNS name LANGUAGE sql STABLE AS
$$ SELECT coalesce((SELECT setting::name FROM gauss_compat.settings
                    WHERE name = 'gauss_compat.database'), pg_catalog.current_database()) $$;

-- ---- slots; a replay's own are in the setting gauss_compat.slots, and moved by the emulator
CREATE OR REPLACE FUNCTION gauss_compat.pg_get_replication_slots(
    OUT slot_name text, OUT plugin text, OUT slot_type text, OUT datoid oid, OUT active bool,
    OUT xmin xid, OUT catalog_xmin xid, OUT restart_lsn text, OUT dummy_standby bool,
    OUT confirmed_flush text) RETURNS SETOF record LANGUAGE sql STABLE AS
$$
    SELECT s.slot_name::text, coalesce(p.plugin, 'mppdb_decoding'), s.slot_type, s.datoid, s.active,
           s.xmin, s.catalog_xmin, s.restart_lsn::text, false, s.confirmed_flush_lsn::text
    FROM pg_catalog.pg_replication_slots s LEFT JOIN gauss_compat.plugins p USING (slot_name)
    WHERE s.plugin = 'pgoutput' AND coalesce(current_setting('gauss_compat.slots', true), '') = ''
    UNION ALL
    SELECT r.slot_name, r.plugin, 'logical', (SELECT oid FROM pg_database d WHERE
           d.datname = pg_catalog.current_database()), r.active, NULL, NULL, r.confirmed_flush, false,
           r.confirmed_flush
    FROM json_to_recordset(nullif(current_setting('gauss_compat.slots', true), '')::json)
         AS r(slot_name text, plugin text, active bool, confirmed_flush text)
$$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_create_logical_replication_slot(
    slot name, plugin name, output_order int DEFAULT 0, OUT slotname text, OUT xlog_position text)
LANGUAGE plpgsql AS $body$
DECLARE point pg_lsn;
BEGIN
    IF slot::text !~ '^[a-z0-9_?.-]+$' THEN
        RAISE EXCEPTION 'replication slot name "%" contains invalid character', slot
            USING ERRCODE = '42602';
    ELSIF plugin::text !~ '^(.*/)?(mppdb|sql|test|parallel_binary|parallel_json|parallel_text)_decoding$' THEN
        RAISE EXCEPTION 'could not access file "%": No such file or directory', plugin
            USING ERRCODE = '58P01';
    END IF;
    SELECT lsn INTO point FROM pg_catalog.pg_create_logical_replication_slot(slot, 'pgoutput');
    INSERT INTO gauss_compat.plugins VALUES (slot, plugin, output_order)
    ON CONFLICT ON CONSTRAINT plugins_pkey
    DO UPDATE SET plugin = excluded.plugin, output_order = excluded.output_order;
    slotname := slot;
    xlog_position := CASE output_order WHEN 0 THEN point::text
        ELSE ('0/0'::pg_lsn + trunc((point - '0/0'::pg_lsn) / 8))::text END;
END $body$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_drop_replication_slot(slot name) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF coalesce(current_setting('gauss_compat.slots', true), '') <> '' THEN RETURN; END IF;
    PERFORM pg_catalog.pg_drop_replication_slot(slot);
    DELETE FROM gauss_compat.plugins WHERE slot_name = slot;
END $body$;
CREATE OR REPLACE FUNCTION gauss_compat.pg_replication_slot_advance(
    slot name, upto text, OUT slot_name name, OUT end_lsn text) LANGUAGE plpgsql AS $body$
DECLARE
    goal pg_lsn := coalesce(upto::pg_lsn, pg_catalog.pg_current_wal_lsn());
    now pg_lsn;
BEGIN
    IF coalesce(current_setting('gauss_compat.slots', true), '') <> '' THEN
        SELECT r.slot_name, lower(r.confirmed_flush) INTO slot_name, end_lsn
        FROM gauss_compat.pg_get_replication_slots() r WHERE r.slot_name = slot::text;
        RETURN;
    END IF;
    SELECT s.confirmed_flush_lsn INTO now FROM pg_catalog.pg_replication_slots s
    WHERE s.slot_name = slot;
    IF now IS NULL THEN
        RAISE EXCEPTION 'replication slot "%" does not exist', slot USING ERRCODE = '42704';
    ELSIF goal < now THEN
        RAISE EXCEPTION 'cannot move slot to %, minimum is %', goal, now USING ERRCODE = '55000';
    END IF;
    slot_name := slot;
    SELECT lower(a.end_lsn::text) INTO end_lsn
    FROM pg_catalog.pg_replication_slot_advance(slot, goal) a;
END $body$;

-- ---- rows that the emulator has encoded
DO $body$
DECLARE name text; kind text;
BEGIN
    FOREACH name IN ARRAY ARRAY['peek_changes', 'get_changes', 'peek_binary_changes',
                                'get_binary_changes'] LOOP
        kind := CASE WHEN name LIKE '%binary%' THEN 'bytea' ELSE 'text' END;
        EXECUTE format($f$
            CREATE OR REPLACE FUNCTION gauss_compat.pg_logical_slot_%s(
                name, text, int, VARIADIC text[] DEFAULT '{}',
                OUT location text, OUT xid xid, OUT data %s) RETURNS SETOF record LANGUAGE sql AS
            $$ SELECT e ->> 0, (e ->> 1)::xid, (e ->> 2)::%s
               FROM json_array_elements(
                   coalesce(nullif(current_setting('gauss_compat.changes', true), ''), '[]')::json
               ) e $$ $f$, name, kind, kind);
    END LOOP;
END $body$;
