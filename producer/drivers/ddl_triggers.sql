-- Event triggers that write every schema change into the log, where pgoutput finds it: as a
-- message in the same transaction, so that a rollback, also to a savepoint, takes it along.
--
-- Everything stands in schema gauss_cdc; `gauss-cdc ddl uninstall` drops all of it.

CREATE SCHEMA gauss_cdc;
COMMENT ON SCHEMA gauss_cdc IS 'gauss-cdc: schema changes for change data capture';

-- Functions without settings of their own run under those of the triggers: only pg_catalog is in
-- the search path, plans are kept, and nothing is compiled, which took longer than running it.

-- What is captured, for tables that are made later. NULL stands for every name.
CREATE TABLE gauss_cdc.ddl_tables (
    is_exclude boolean NOT NULL, table_schema text, table_name text);

-- The publication that such tables join, the schemas that `ddl install` added to it, and the
-- tables of these that it did not have before.
CREATE TABLE gauss_cdc.ddl_publication (
    name text NOT NULL, schemas text[] NOT NULL, version int NOT NULL, others text[] NOT NULL);

-- Partitions as of the last statement that changed one: at ATTACH, DETACH and DROP the catalog
-- does not say any more what was there before.
CREATE TABLE gauss_cdc.ddl_partitions (
    oid oid PRIMARY KEY, root oid NOT NULL, parent oid NOT NULL, bound text);

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

-- A table as it stands now. Arrays, not objects, where there is one per column.
-- Values are printed here as in the stream, whatever the session that alters the table has set:
-- 06-02-2016 is a day in February to one and in June to another.
-- Every statement that alters a table waits for this: what only partitions or types of the users'
-- own need is asked for them alone, since a plan costs by its size, also where it finds nothing.
CREATE FUNCTION gauss_cdc.ddl_shape(which oid) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET datestyle = 'ISO' SET intervalstyle = postgres SET timezone = 'UTC'
SET bytea_output = hex SET extra_float_digits = 3 AS $$
DECLARE
    this record;
    line oid[];  -- the table and what it is a partition of
    spaces oid[];  -- their schemas
    publications name[];
    columns jsonb;
    missing jsonb;  -- of a partitioned table, which has no rows: what a leaf says
    has_types boolean;
    indexes jsonb;
    made jsonb := '[]';
BEGIN
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relispartition,
           c.relreplident, c.relnamespace INTO this
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = which;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    line := ARRAY[which];
    spaces := ARRAY[this.relnamespace];
    IF this.relispartition THEN
        line := ARRAY(SELECT relid FROM pg_partition_ancestors(which));
        spaces := ARRAY(SELECT relnamespace FROM pg_class WHERE oid = ANY (line));
    END IF;
    publications := ARRAY(
        SELECT p.pubname FROM pg_publication p
        WHERE p.puballtables
           OR EXISTS (SELECT FROM pg_publication_rel r
                      WHERE r.prrelid = ANY (line) AND r.prpubid = p.oid)
        /*15*/ OR EXISTS (SELECT FROM pg_publication_namespace s
        /*15*/            WHERE s.pnnspid = ANY (spaces) AND s.pnpubid = p.oid)
        );
    IF this.relkind = 'p' THEN
        SELECT jsonb_object_agg(l.attname, l.attmissingval::text) INTO missing
        FROM pg_partition_tree(which) AS p JOIN pg_attribute l ON l.attrelid = p.relid
        WHERE p.isleaf AND l.attnum > 0 AND NOT l.attisdropped AND l.atthasmissing;
    END IF;
    SELECT coalesce(jsonb_agg(jsonb_build_array(
               a.attname, a.atttypid::bigint, a.atttypmod, a.written,
               NOT (a.attnotnull OR (a.typtype = 'd' AND a.typnotnull)), a.attgenerated,
               a.attidentity,
               CASE WHEN a.typdelim <> ',' THEN substr(a.value, 2, length(a.value) - 2) END,
               a.atthasdef AND a.attgenerated = '', a.attnum,
               CASE WHEN a.atthasdef AND a.attgenerated = '' THEN (
                   SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
                   WHERE d.adrelid = which AND d.adnum = a.attnum) END,
               CASE WHEN a.typdelim = ',' THEN (a.value::text[])[1] END
               ) ORDER BY a.attnum), '[]'),
           -- As numbers: a plan with an oid in it is made anew when the table of that oid changes.
           coalesce(bool_or(a.atttypid::bigint >= 16384 OR a.typtype <> 'b'), false)
    INTO columns, has_types
    FROM (SELECT a.*, t.typtype, t.typnotnull, t.typdelim,
                 format_type(a.atttypid, a.atttypmod) AS written,
                 coalesce(a.attmissingval::text, missing ->> a.attname) AS value
          FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
          WHERE a.attrelid = which AND a.attnum > 0 AND NOT a.attisdropped) AS a;
    SELECT coalesce(jsonb_agg(jsonb_build_array(
               x.relname,
               ARRAY(SELECT a.attname
                     FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
                     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                     WHERE k.place <= i.indnkeyatts ORDER BY k.place),
               i.indisprimary AND i.indimmediate,
               i.indisunique AND i.indisvalid AND i.indisready AND i.indpred IS NULL,
               i.indisreplident) ORDER BY x.relname), '[]') INTO indexes
    FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = which AND i.indexprs IS NULL AND (i.indisunique OR i.indisreplident);
    IF has_types THEN
        made := (
        WITH RECURSIVE of_use (oid) AS (
            SELECT a.atttypid FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = which AND a.attnum > 0 AND NOT a.attisdropped
              AND (t.oid >= 16384 OR t.typtype <> 'b')
            UNION
            SELECT coalesce(a.atttypid,
                            CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END)
            FROM of_use u JOIN pg_type t ON t.oid = u.oid
            LEFT JOIN pg_attribute a ON a.attrelid = t.typrelid AND t.typtype = 'c'
                AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
            WHERE t.typtype = 'd' OR a.atttypid IS NOT NULL
               OR EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid)
        )
        SELECT coalesce(jsonb_agg(jsonb_build_array(
            t.oid::bigint, CASE WHEN e.oid IS NULL THEN t.typtype ELSE 'a' END, t.typname,
            CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
                 WHEN e.oid IS NOT NULL THEN format_type(e.oid, NULL) ELSE '' END,
            CASE WHEN t.typtype = 'd' THEN t.typbasetype::bigint
                 ELSE coalesce(e.oid::bigint, 0) END,
            CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE -1 END, t.typdelim,
            CASE WHEN t.typtype = 'c' THEN
                ARRAY(SELECT concat_ws(':', a.attnum, a.atttypid, a.atttypmod) FROM pg_attribute a
                      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                      ORDER BY a.attnum)
            ELSE ARRAY(SELECT l.enumlabel FROM pg_enum l WHERE l.enumtypid = t.oid
                       ORDER BY l.enumsortorder) END) ORDER BY t.oid), '[]')
        FROM of_use u JOIN pg_type t ON t.oid = u.oid LEFT JOIN pg_type e ON e.typarray = t.oid);
    END IF;
    RETURN jsonb_build_object(
        'oid', which::bigint, 'schema', this.nspname, 'name', this.relname, 'kind', this.relkind,
        'persistence', this.relpersistence, 'is_partition', this.relispartition,
        'identity', this.relreplident, 'publications', publications, 'columns', columns,
        'indexes', indexes, 'types', made);
END $$;

-- Has a table, with all its partitions, no rows? By the size of its files, which no snapshot hides;
-- what was rewritten by this statement has none of older rows. NULL: it is gone.
CREATE FUNCTION gauss_cdc.ddl_is_empty(which oid) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT sum(pg_relation_size(x.oid)) = 0 FROM pg_class x
            WHERE x.oid = which OR x.oid IN (SELECT relid FROM pg_partition_tree(which)));
END $$;

-- Partitions of one root, written down anew; returns who came and who went since.
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
    -- A default partition that is alone has no bounds: every row is its.
    SELECT relid, top, parentrelid, coalesce(pg_get_partition_constraintdef(relid), 'true')
    FROM pg_partition_tree(top) WHERE relid <> top;
    -- TRUNCATE has no event, and of one partition the stream says nothing.
    IF EXISTS (SELECT FROM gauss_cdc.ddl_publication o JOIN pg_publication p ON p.pubname = o.name
               WHERE p.puballtables OR gauss_cdc.ddl_is_published(top, o.name)) THEN
        FOR this IN SELECT t.relid FROM pg_partition_tree(top) t JOIN pg_class c ON c.oid = t.relid
            WHERE (c.relkind = 'r' OR c.oid = top)
              AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid
                              AND g.tgname = 'gauss_cdc_truncate')
        LOOP
            BEGIN
                EXECUTE format('CREATE TRIGGER gauss_cdc_truncate AFTER TRUNCATE ON %s'
                               ' EXECUTE FUNCTION gauss_cdc.ddl_on_truncate()', this);
            EXCEPTION WHEN others THEN NULL;  -- nobody's statement fails because of us
            END;
        END LOOP;
    END IF;
    RETURN told;
END $$;

CREATE FUNCTION gauss_cdc.ddl_emit(told jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    given text := current_query();
    whole text;
BEGIN
    -- What holds a password stays here.
    IF given ~* '\mpassword\s*(=|''|\$|e'')' THEN
        given := NULL;
    END IF;
    whole := (told || jsonb_build_object(
        'sql', left(given, 100000),
        'user', session_user,
        'settings', jsonb_build_object(
            'TimeZone', current_setting('TimeZone'), 'DateStyle', current_setting('DateStyle'),
            'IntervalStyle', current_setting('IntervalStyle'),
            'bytea_output', current_setting('bytea_output'),
            'extra_float_digits', current_setting('extra_float_digits'),
            'lc_monetary', current_setting('lc_monetary'))
        ))::text;
    PERFORM pg_logical_emit_message(true, 'gauss-cdc.ddl', convert_to(whole, 'UTF8'));
    IF current_setting('gauss_cdc.plan', true) = 'on' THEN  -- `ddl plan` reads it, and rolls back
        PERFORM set_config('gauss_cdc.told',
            coalesce(current_setting('gauss_cdc.told', true), '') || whole || E'\n', true);
    END IF;
END $$;

-- The text that makes an object anew, for kinds that are no tables; NULL: not known.
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
            RETURN gauss_cdc.ddl_definition(class, object, 'domain');
        END IF;
        RETURN (SELECT format('CREATE TYPE %s AS ENUM (%s)', format_type(object, NULL),
                    (SELECT string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder)
                     FROM pg_enum WHERE enumtypid = object))
                FROM pg_type WHERE oid = object AND typtype = 'e');
    ELSE RETURN NULL;
    END CASE;
EXCEPTION WHEN others THEN
    RETURN NULL;  -- an aggregate has no definition; nobody's statement fails because of us
END $$;

-- A partition was emptied. Where its root was, the stream says so: the root's trigger runs first,
-- and names the partitions whose own triggers follow in the same statement.
CREATE FUNCTION gauss_cdc.ddl_on_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spared text[] := string_to_array(current_setting('gauss_cdc.spared', true), ',');
    part gauss_cdc.ddl_partitions;
BEGIN
    IF EXISTS (SELECT FROM pg_class WHERE oid = TG_RELID AND relkind = 'p') THEN
        PERFORM set_config('gauss_cdc.spared', (
            SELECT string_agg(t.relid::oid::text, ',') FROM pg_partition_tree(TG_RELID) t
            JOIN pg_trigger g ON g.tgrelid = t.relid AND g.tgname = 'gauss_cdc_truncate'
            WHERE t.isleaf), true);
        RETURN NULL;
    END IF;
    IF TG_RELID::text = ANY (spared) THEN
        PERFORM set_config('gauss_cdc.spared',
                           array_to_string(array_remove(spared, TG_RELID::text), ','), true);
        RETURN NULL;
    END IF;
    SELECT * INTO part FROM gauss_cdc.ddl_partitions WHERE oid = TG_RELID;
    IF part.oid IS NULL OR NOT EXISTS (
        SELECT FROM gauss_cdc.ddl_publication o JOIN pg_publication p ON p.pubname = o.name
        WHERE p.pubviaroot) THEN
        RETURN NULL;  -- a table of its own: the stream says it
    END IF;
    PERFORM gauss_cdc.ddl_emit(jsonb_build_object(
        'version', 1, 'event', 'end', 'tag', 'TRUNCATE TABLE',
        'detached', jsonb_build_array(jsonb_build_array(
            part.oid::bigint, part.root::bigint, part.bound))));
    RETURN NULL;
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF (SELECT relpersistence = 't' FROM pg_class
        WHERE oid = pg_event_trigger_table_rewrite_oid()) THEN
        RETURN;  -- nobody tells of it, and the next statement must not be taken for it
    END IF;
    PERFORM set_config('gauss_cdc.rewritten', concat_ws(',',
        nullif(current_setting('gauss_cdc.rewritten', true), ''),
        pg_event_trigger_table_rewrite_oid() || ':' || pg_event_trigger_table_rewrite_reason()),
        true);
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone jsonb;
    altered oid[];
BEGIN
    SELECT jsonb_agg(jsonb_build_array(
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
    IF gone IS NULL OR TG_TAG NOT LIKE 'DROP %' THEN
        RETURN;
    END IF;
    -- Tables that stay, without a column, a key or a constraint of theirs.
    SELECT array_agg(DISTINCT c.oid) INTO altered
    FROM pg_event_trigger_dropped_objects() o
    JOIN pg_class c ON o.classid = 'pg_class'::regclass AND c.oid = o.objid AND o.objsubid > 0
    WHERE c.relkind IN ('r', 'p');
    DELETE FROM gauss_cdc.ddl_partitions p USING pg_event_trigger_dropped_objects() o
    WHERE o.object_type = 'table' AND (p.oid = o.objid OR p.root = o.objid);
    PERFORM gauss_cdc.ddl_emit(jsonb_build_object(
        'version', 1, 'event', 'drop', 'tag', TG_TAG, 'dropped', gone,
        'tables', (SELECT coalesce(jsonb_agg(gauss_cdc.ddl_shape(oid)), '[]')
                   FROM unnest(altered) AS oid)));
END $$;

CREATE FUNCTION gauss_cdc.ddl_on_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    c record;
    commands jsonb := '[]';
    touched oid[] := '{}';  -- tables
    types oid[] := '{}';
    schemas oid[] := '{}';
    roots oid[] := '{}';
    partitions jsonb := '{}';
    joined jsonb := '[]';  -- [table, has rows]
    has_rows boolean;
    publication gauss_cdc.ddl_publication;
    via_root boolean;
    is_for_all boolean;  -- NULL: there is no publication
    shown oid[] := '{}';  -- of the tables: those under whose names rows come
    tables jsonb := '[]';
    rewritten text := coalesce(current_setting('gauss_cdc.rewritten', true), '');
    one jsonb;
    this oid;
BEGIN
    IF TG_TAG IN ('GRANT', 'REVOKE', 'ALTER DEFAULT PRIVILEGES', 'REFRESH MATERIALIZED VIEW',
                  'CREATE PUBLICATION', 'ALTER PUBLICATION', 'CREATE SUBSCRIPTION',
                  'ALTER SUBSCRIPTION', 'SECURITY LABEL') THEN
        RETURN;
    END IF;
    FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
        CONTINUE WHEN c.schema_name IN ('pg_temp', 'gauss_cdc') OR c.schema_name LIKE 'pg_temp%'
            OR c.object_identity LIKE 'pg_temp%'
            OR c.object_type = 'trigger' AND c.object_identity LIKE 'gauss_cdc_truncate on %';
        this := CASE c.classid
            WHEN 'pg_class'::regclass THEN coalesce(
                (SELECT indrelid FROM pg_index WHERE indexrelid = c.objid),
                (SELECT oid FROM pg_class WHERE oid = c.objid AND relkind IN ('r', 'p')))
            WHEN 'pg_constraint'::regclass THEN
                (SELECT nullif(conrelid, 0::oid) FROM pg_constraint WHERE oid = c.objid)
            WHEN 'pg_attrdef'::regclass THEN
                (SELECT adrelid FROM pg_attrdef WHERE oid = c.objid)
            END;
        CONTINUE WHEN this IS NOT NULL
            AND (SELECT relpersistence = 't' FROM pg_class WHERE oid = this);
        IF TG_TAG <> 'COMMENT' THEN
            touched := touched || this;
        END IF;
        IF c.classid = 'pg_type'::regclass THEN
            types := types || c.objid;
        ELSIF c.object_type = 'composite type' THEN  -- its attributes
            types := types || (SELECT reltype FROM pg_class WHERE oid = c.objid);
        ELSIF c.classid = 'pg_namespace'::regclass AND TG_TAG <> 'COMMENT' THEN
            schemas := schemas || c.objid;
        END IF;
        CONTINUE WHEN c.in_extension;
        commands := commands || jsonb_build_array(jsonb_build_array(
            c.command_tag, c.object_type, c.schema_name, c.object_identity, c.objid::bigint,
            CASE WHEN TG_TAG = 'COMMENT' THEN
                     format('COMMENT ON %s %s IS %s', upper(CASE c.object_type WHEN 'table column'
                            THEN 'column' ELSE c.object_type END), c.object_identity,
                            coalesce(quote_literal(CASE WHEN c.objsubid > 0
                                     THEN col_description(c.objid, c.objsubid)
                                     ELSE obj_description(c.objid, c.classid::regclass::name) END),
                                     'NULL'))
                 ELSE gauss_cdc.ddl_definition(c.classid, c.objid, c.object_type) END));
    END LOOP;
    IF commands = '[]' AND touched = '{}' THEN
        RETURN;
    END IF;
    IF cardinality(types) > 0 THEN  -- tables of these types, and of types made of them
        touched := touched || ARRAY(
            WITH RECURSIVE made (oid) AS (
                SELECT unnest(types)
                UNION SELECT x.oid FROM made m CROSS JOIN LATERAL (
                    SELECT t.oid FROM pg_type t WHERE t.typbasetype = m.oid OR t.typelem = m.oid
                    UNION ALL SELECT r.reltype FROM pg_attribute a
                    JOIN pg_class r ON r.oid = a.attrelid AND r.relkind = 'c'
                    WHERE a.atttypid = m.oid AND NOT a.attisdropped) AS x)
            SELECT DISTINCT a.attrelid FROM made m JOIN pg_attribute a ON a.atttypid = m.oid
            WHERE a.attnum > 0 AND NOT a.attisdropped);
    END IF;
    IF cardinality(schemas) > 0 AND TG_TAG = 'ALTER SCHEMA' THEN
        touched := touched || ARRAY(SELECT oid FROM pg_class WHERE relnamespace = ANY (schemas));
    END IF;
    SELECT * INTO publication FROM gauss_cdc.ddl_publication;
    SELECT p.pubviaroot, p.puballtables INTO via_root, is_for_all
    FROM pg_publication p WHERE p.pubname = publication.name;
    via_root := coalesce(via_root, true);

    -- What inherits changes with its parent; partitions are their root, where it is published.
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = ANY (touched)) THEN
        touched := ARRAY(
            WITH RECURSIVE below (oid) AS (
                SELECT unnest(touched) UNION
                SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid)
            SELECT oid FROM below);
    END IF;
    IF TG_TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE TABLE AS', 'SELECT INTO') THEN
        FOREACH this IN ARRAY touched LOOP
            IF EXISTS (SELECT FROM pg_class
                       WHERE oid = this AND (relkind = 'p' OR relispartition AND relkind = 'r')) THEN
                this := pg_partition_root(this);
                roots := array_append(array_remove(roots, this), this);
            END IF;
        END LOOP;
        FOREACH this IN ARRAY roots LOOP
            one := gauss_cdc.ddl_repartition(this);
            partitions := jsonb_build_object(
                'attached', coalesce(partitions -> 'attached', '[]') || (one -> 'attached'),
                'detached', coalesce(partitions -> 'detached', '[]') || (one -> 'detached'));
            touched := touched || this || ARRAY(
                SELECT (d ->> 0)::oid FROM jsonb_array_elements(one -> 'detached') AS d
                WHERE EXISTS (SELECT FROM pg_class WHERE oid = (d ->> 0)::oid));
        END LOOP;
    END IF;

    IF cardinality(touched) > 1 THEN
        touched := ARRAY(SELECT DISTINCT t FROM unnest(touched) AS t ORDER BY t);
    END IF;
    FOREACH this IN ARRAY touched LOOP
        SELECT n.nspname, x.relname, x.relkind, x.relispartition, x.relpersistence INTO c
        FROM pg_class x JOIN pg_namespace n ON n.oid = x.relnamespace
        WHERE x.oid = this AND x.relkind IN ('r', 'p');
        CONTINUE WHEN NOT FOUND;
        -- Rows come under the root's name, or under those of its leaves.
        IF NOT c.relispartition AND via_root OR c.relkind = 'r' AND NOT via_root THEN
            shown := shown || this;
        END IF;
        -- A table that [tables] names joins the publication with the statement that makes it so.
        CONTINUE WHEN coalesce(is_for_all, true) OR c.relpersistence <> 'p'
            OR c.relispartition AND via_root OR c.relkind = 'p' AND NOT via_root
            OR c.nspname IN ('pg_catalog', 'information_schema', 'gauss_cdc')
            OR gauss_cdc.ddl_is_published(this, publication.name)
            OR NOT gauss_cdc.ddl_matches(c.nspname, c.relname);
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE %I.%I',
                       publication.name, c.nspname, c.relname);
        EXECUTE format('SELECT EXISTS (SELECT FROM %I.%I)', c.nspname, c.relname) INTO has_rows;
        joined := joined || jsonb_build_array(jsonb_build_array(this::bigint, has_rows));
    END LOOP;
    /*15*/ IF publication.name IS NOT NULL AND TG_TAG = 'CREATE SCHEMA' THEN
    /*15*/     FOR c IN SELECT nspname FROM pg_namespace n WHERE n.oid = ANY (schemas)
    /*15*/         AND EXISTS (SELECT FROM pg_publication p
    /*15*/                     WHERE p.pubname = publication.name AND NOT p.puballtables)
    /*15*/         AND EXISTS (SELECT FROM gauss_cdc.ddl_tables t WHERE NOT t.is_exclude
    /*15*/             AND coalesce(t.table_schema, n.nspname) = n.nspname AND t.table_name IS NULL)
    /*15*/         AND NOT EXISTS (SELECT FROM gauss_cdc.ddl_tables t WHERE t.is_exclude
    /*15*/             AND coalesce(t.table_schema, n.nspname) = n.nspname)
    /*15*/     LOOP
    /*15*/         EXECUTE format('ALTER PUBLICATION %I ADD TABLES IN SCHEMA %I',
    /*15*/                        publication.name, c.nspname);
    /*15*/         UPDATE gauss_cdc.ddl_publication SET schemas = ddl_publication.schemas || c.nspname::text;
    /*15*/     END LOOP;
    /*15*/ END IF;

    FOREACH this IN ARRAY shown LOOP
        one := gauss_cdc.ddl_shape(this);
        IF rewritten <> '' OR types <> '{}' THEN
            one := jsonb_set(one, '{empty}', to_jsonb(gauss_cdc.ddl_is_empty(this)));
        END IF;
        tables := tables || jsonb_build_array(one);
    END LOOP;
    PERFORM gauss_cdc.ddl_emit(partitions || jsonb_build_object(
        'version', 1, 'event', 'end', 'tag', TG_TAG, 'commands', commands,
        'via_root', via_root,
        'joined', joined,
        'rewritten', to_jsonb(string_to_array(rewritten, ',')),
        'tables', tables));
    IF rewritten <> '' THEN
        PERFORM set_config('gauss_cdc.rewritten', '', true);
    END IF;
END $$;

-- Ours only: nobody calls these but the triggers.
REVOKE ALL ON SCHEMA gauss_cdc FROM PUBLIC;

CREATE EVENT TRIGGER gauss_cdc_ddl_end ON ddl_command_end
    EXECUTE FUNCTION gauss_cdc.ddl_on_end();
CREATE EVENT TRIGGER gauss_cdc_ddl_drop ON sql_drop
    EXECUTE FUNCTION gauss_cdc.ddl_on_drop();
CREATE EVENT TRIGGER gauss_cdc_ddl_rewrite ON table_rewrite
    EXECUTE FUNCTION gauss_cdc.ddl_on_rewrite();
-- Replayed changes (session_replication_role = replica) are changes, too.
ALTER EVENT TRIGGER gauss_cdc_ddl_end ENABLE ALWAYS;
ALTER EVENT TRIGGER gauss_cdc_ddl_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER gauss_cdc_ddl_rewrite ENABLE ALWAYS;
