"""The tables, rows and changes that Debezium was recorded with: every type and every op."""

from typing import Final, NamedTuple

SCHEMA: Final = "rec"


class Cell(NamedTuple):
    """A column of table `every`, with two values of its type as SQL literals."""

    name: str
    type: str
    usual: str
    odd: str


def _column(name: str, kind: str, usual: str, odd: str | None = None) -> Cell:
    return Cell(name, kind, usual, usual if odd is None else odd)


COLUMNS: Final = (
    _column("c_smallint", "smallint", "7", "-32768"),
    _column("c_int", "int", "42", "2147483647"),
    _column("c_bigint", "bigint", "4200000000", "-9223372036854775808"),
    _column("c_oid", "oid", "16384", "4294967295"),
    _column("c_real", "real", "1.5", "1e-45"),
    _column("c_double", "float8", "0.1", "5e-324"),
    _column("c_bool", "bool", "true", "false"),
    _column("c_numeric", "numeric", "3.14", "-123456789012345678901234567890.000100"),
    _column("c_numeric_10_2", "numeric(10,2)", "12.5", "-99999999.99"),
    _column("c_numeric_5", "numeric(5)", "128", "-99999"),
    _column("c_numeric_3_m2", "numeric(3,-2)", "1200", "-99900"),
    _column("c_numeric_3_5", "numeric(3,5)", "0.00123", "-0.00999"),
    _column("c_numeric_50_10", "numeric(50,10)", "1", "-1234567890123456789012345678.5"),
    _column("c_money", "money", "'12.34'", "'-92233720368547758.08'"),
    _column("c_text", "text", "'plain'", "E'zwölf \\n € 金额 \\U0001F600'"),
    _column("c_varchar", "varchar", "'v'", "''"),
    _column("c_varchar_20", "varchar(20)", "'twenty'", "'  '"),
    _column("c_char_5", "char(5)", "'ab'", "''"),
    _column("c_name", "name", "'n'", "'Odd Name'"),
    _column("c_one_char", '"char"', "'x'", "'\"'"),
    _column("c_citext", "citext", "'MiXed'"),
    _column("c_uuid", "uuid", "'0190163d-8694-739b-aea5-966c26f8ad91'"),
    _column("c_xml", "xml", "'<a b=\"1\">x</a>'", "'<a/>'"),
    _column("c_json", "json", '\'{"b": 1,  "a": [1, 2]}\'', "'null'"),
    _column("c_jsonb", "jsonb", '\'{"b": 1,  "a": [1, 2]}\'', "'\"x\"'"),
    _column("c_hstore", "hstore", '\'"a"=>"1", "b"=>NULL\'', "''"),
    _column("c_ltree", "ltree", "'Top.Science.Astronomy'", "'a'"),
    _column("c_mood", "mood", "'ok'", "'it''s'"),
    _column("c_tsvector", "tsvector", "'fat:2 cat:3'", "'a'"),
    _column("c_tsquery", "tsquery", "'fat & rat'"),
    _column("c_bytea", "bytea", "'\\x0001ff'", "'\\x'"),
    _column("c_bit", "bit", "B'1'", "B'0'"),
    _column("c_bit_1", "bit(1)", "B'1'", "B'0'"),
    _column("c_bit_12", "bit(12)", "B'101010101010'", "B'000000000001'"),
    _column("c_bit_64", "bit(64)", f"B'{'10' * 32}'", f"B'{'1' * 64}'"),
    _column("c_varbit", "varbit", "B'1011'", "B'00000000000000001'"),
    _column("c_varbit_10", "varbit(10)", "B'1011'", "B'1'"),
    _column("c_date", "date", "'2024-02-29'", "'0001-01-01'"),
    _column("c_time", "time", "'12:34:56.789012'", "'00:00:00'"),
    *(_column(f"c_time_{p}", f"time({p})", "'12:34:56.789012'", "'23:59:59'") for p in range(7)),
    _column("c_timetz", "timetz", "'12:34:56.789012+00'", "'01:02:03+05:30'"),
    _column("c_timetz_2", "timetz(2)", "'12:34:56.789012+00'", "'23:00:00-08'"),
    _column("c_timestamp", "timestamp", "'2024-02-29 12:34:56.789012'", "'1969-12-31 23:59:59'"),
    *(
        _column(
            f"c_timestamp_{p}",
            f"timestamp({p})",
            "'2024-02-29 12:34:56.789012'",
            "'1969-12-31 23:59:59.123456'",
        )
        for p in range(7)
    ),
    _column(
        "c_timestamptz",
        "timestamptz",
        "'2024-02-29 12:34:56.789012+02'",
        "'1969-12-31 23:59:59+00'",
    ),
    *(
        _column(
            f"c_timestamptz_{p}",
            f"timestamptz({p})",
            "'2024-02-29 12:34:56.789012+02'",
            "'1969-12-31 23:59:59.1+00'",
        )
        for p in range(7)
    ),
    _column("c_interval", "interval", "'1 year 2 mons 3 days 04:05:06.789'", "'-00:00:00.000001'"),
    _column("c_interval_0", "interval(0)", "'1 day'", "'-1 mon'"),
    _column("c_interval_ym", "interval year to month", "'1 year 2 mons'", "'-3 years'"),
    _column("c_inet", "inet", "'192.168.0.1/24'", "'::1'"),
    _column("c_cidr", "cidr", "'10.0.0.0/8'", "'::/0'"),
    _column("c_macaddr", "macaddr", "'08:00:2b:01:02:03'"),
    _column("c_macaddr8", "macaddr8", "'08:00:2b:01:02:03:04:05'"),
    _column("c_point", "point", "'(1.5,-2)'", "'(1e300,0.1)'"),
    _column("c_lseg", "lseg", "'((0,0),(1,1))'"),
    _column("c_path", "path", "'((0,0),(1,1))'", "'[(0,0),(1,1)]'"),
    _column("c_box", "box", "'((1,1),(0,0))'"),
    _column("c_polygon", "polygon", "'((0,0),(1,0),(1,1))'"),
    _column("c_line", "line", "'{1,2,3}'"),
    _column("c_circle", "circle", "'<(0,0),5>'"),
    _column("c_int4range", "int4range", "'[1,10)'", "'empty'"),
    _column("c_int8range", "int8range", "'[1,10)'", "'(,)'"),
    _column("c_numrange", "numrange", "'[1.5,2.5]'"),
    _column("c_tsrange", "tsrange", "'[2024-01-01,2024-02-01)'"),
    _column("c_tstzrange", "tstzrange", "'[2024-01-01 00:00+00,2024-02-01 00:00+00)'"),
    _column("c_daterange", "daterange", "'[2024-01-01,2024-02-01)'", "'[2024-01-01,)'"),
    _column("c_int4multirange", "int4multirange", "'{[1,2),[5,9)}'", "'{}'"),
    _column("c_datemultirange", "datemultirange", "'{[2024-01-01,2024-02-01)}'"),
    _column("c_pg_lsn", "pg_lsn", "'16/B374D848'"),
    _column("c_xid", "xid", "'7'"),
    _column("c_xid8", "xid8", "'70000000000'"),
    _column("c_tid", "tid", "'(0,1)'"),
    _column("c_regclass", "regclass", "'pg_class'"),
    _column("c_regtype", "regtype", "'integer'"),
    _column("c_jsonpath", "jsonpath", "'$.a[*]'"),
    _column("c_pg_snapshot", "pg_snapshot", "'10:20:10,14,15'"),
    _column("c_positive", "positive", "5", "2147483647"),
    _column("c_short", "short", "'five'", "''"),
    _column("c_price", "price", "9.99", "-0.01"),
    _column("a_int", "int[]", "'{1,2,NULL}'", "'{}'"),
    _column("a_smallint", "smallint[]", "'{1,-2}'"),
    _column("a_bigint", "bigint[]", "'{1,4200000000}'"),
    _column("a_bool", "bool[]", "'{t,f,NULL}'"),
    _column("a_real", "real[]", "'{1.5,0.1}'"),
    _column("a_double", "float8[]", "'{1.5,0.1}'"),
    _column("a_numeric", "numeric[]", "'{1.5,-2,NULL}'"),
    _column("a_numeric_10_2", "numeric(10,2)[]", "'{1.5,-2}'"),
    _column("a_text", "text[]", '\'{a,"b,c",NULL,"NULL",""}\''),
    _column("a_varchar", "varchar(10)[]", "'{a,b}'"),
    _column("a_char", "char(3)[]", "'{a,b}'"),
    _column("a_uuid", "uuid[]", "'{0190163d-8694-739b-aea5-966c26f8ad91}'"),
    _column("a_date", "date[]", "'{2024-02-29,1970-01-01}'"),
    _column("a_timestamp", "timestamp[]", "'{2024-02-29 12:34:56.789012}'"),
    _column("a_timestamptz", "timestamptz[]", "'{2024-02-29 12:34:56.789012+02}'"),
    _column("a_time", "time[]", "'{12:34:56.789012}'"),
    _column("a_json", "json[]", "array['{\"a\": 1}'::json]"),
    _column("a_jsonb", "jsonb[]", "array['{\"a\": 1}'::jsonb]"),
    _column("a_inet", "inet[]", "'{192.168.0.1}'"),
    _column("a_mood", "mood[]", "'{ok,sad}'"),
    _column("a_bytea", "bytea[]", "array['\\x00ff'::bytea]"),
    _column("a_interval", "interval[]", "'{1 day}'"),
    _column("a_oid", "oid[]", "'{1,2}'"),
    _column("a_money", "money[]", "'{1.50}'"),
    _column("a_hstore", "hstore[]", "array['a=>1'::hstore]"),
    _column("a_int4range", "int4range[]", "'{\"[1,2)\"}'"),
    _column("a_point", "point[]", "'{\"(1,2)\"}'"),
    _column("a_bit", "bit(3)[]", "'{101}'"),
    _column("a_positive", "positive[]", "'{5}'"),
    _column("c_varbit_1", "varbit(1)", "B'1'", "B'0'"),
    _column("a_xml", "xml[]", "array['<a/>'::xml]"),
    _column("a_name", "name[]", "'{n}'"),
    _column("a_varbit", "varbit[]", "'{101}'"),
    _column("a_ltree", "ltree[]", "'{a.b}'"),
    _column("a_elsewhere", "int[]", "'[0:1]={5,6}'"),
    _column("a_square", "int[]", "'{{1,2},{3,4}}'"),
)

# Values that the Avro type of their column cannot hold, or can only just hold.
FAR: Final = (
    "infinity', 'infinity', '24:00', 'infinity', 'infinity', 'infinity', 'Infinity', 'NaN",
    "-infinity', '-infinity', '00:00', '-infinity', '-infinity', '-infinity', '-Infinity', '-0",
    (
        "0044-03-15 BC', '0044-03-15 BC', '23:59:59.999999', '0044-03-15 12:00 BC',"
        " '0044-03-15 12:00 BC', '0044-03-15 12:00+00 BC', 'NaN', '1e-45"
    ),
    (
        "5874897-12-31', '12345-06-07', '24:00:00', '294276-12-31 23:59:59.999999',"
        " '12345-06-07 01:02:03.5', '12345-06-07 01:02:03.5+00', '1e308', '3e38"
    ),
    (
        "4713-01-01 BC', '0001-01-01 BC', '00:00:00.000001', '4713-01-01 00:00 BC',"
        " '0001-12-31 23:59:59 BC', '0001-12-31 23:59:59+00 BC', '-0', '-Infinity"
    ),
)

# Long values that an update leaves alone are not sent: what stands for them, by type.
UNSENT: Final = (
    ("smallints", "smallint[]", "(SELECT array_agg(g::smallint) FROM generate_series(1, 2000) g)"),
    ("bigints", "bigint[]", "(SELECT array_agg(g::bigint) FROM generate_series(1, 2000) g)"),
    ("doubles", "float8[]", "(SELECT array_agg(g / 3.0) FROM generate_series(1, 2000) g)"),
    ("bools", "bool[]", "(SELECT array_agg(g % 2 = 0) FROM generate_series(1, 9000) g)"),
    ("numerics", "numeric[]", "(SELECT array_agg(g / 3.0) FROM generate_series(1, 2000) g)"),
    (
        "dates",
        "date[]",
        "(SELECT array_agg(date '2000-01-01' + g) FROM generate_series(1, 2000) g)",
    ),
    (
        "stamps",
        "timestamp[]",
        "(SELECT array_agg(timestamp '2000-01-01') FROM generate_series(1, 2000))",
    ),
    (
        "zoned",
        "timestamptz[]",
        "(SELECT array_agg(timestamptz '2000-01-01') FROM generate_series(1, 2000))",
    ),
    ("uuids", "uuid[]", "(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 2000))"),
    ("byteas", "bytea[]", "(SELECT array_agg('\\x00ff'::bytea) FROM generate_series(1, 2000))"),
    ("jsons", "jsonb[]", "(SELECT array_agg('{}'::jsonb) FROM generate_series(1, 2000))"),
    ("varchars", "varchar[]", "array[repeat('v', 9000)]"),
    ("moods", "mood[]", "(SELECT array_agg('ok'::mood) FROM generate_series(1, 2000))"),
    ("big_numeric", "numeric", "repeat('7', 9000)::numeric"),
    ("big_bits", "varbit", "repeat('1', 40000)::varbit"),
    ("tags", "hstore", "hstore('k', repeat('h', 9000))"),
    ("tree", "ltree", "repeat('a', 250)::ltree"),
    ("markup", "xml", "('<a>' || repeat('x', 9000) || '</a>')::xml"),
    (
        "words",
        "tsvector",
        "array_to_tsvector((SELECT array_agg('w' || g) FROM generate_series(1, 2000) g))",
    ),
    ("citext", "citext", "repeat('C', 9000)"),
    ("oids", "oid[]", "(SELECT array_agg(g::oid) FROM generate_series(1, 2000) g)"),
    ("inets", "inet[]", "(SELECT array_agg('10.0.0.1'::inet) FROM generate_series(1, 2000))"),
    (
        "macs",
        "macaddr[]",
        "(SELECT array_agg('08:00:2b:01:02:03'::macaddr) FROM generate_series(1, 2000))",
    ),
    ("citexts", "citext[]", "array[repeat('C', 9000)::citext]"),
    ("hstores", "hstore[]", "array[hstore('k', repeat('h', 9000))]"),
    (
        "ranges",
        "int4range[]",
        "(SELECT array_agg(int4range(1, g + 1)) FROM generate_series(1, 2000) g)",
    ),
    ("times", "timetz[]", "(SELECT array_agg('12:00+00'::timetz) FROM generate_series(1, 2000))"),
    ("bits", "bit(40000)", "repeat('1', 40000)::bit(40000)"),
)

# NOT NULL with a default, which Debezium puts into its schemas; and what defaults may look like.
DEFAULTS: Final = (
    ("d_smallint", "smallint NOT NULL DEFAULT 3"),
    ("d_int", "int NOT NULL DEFAULT 42"),
    ("d_bigint", "bigint NOT NULL DEFAULT -7"),
    ("d_real", "real NOT NULL DEFAULT 1.5"),
    ("d_double", "float8 NOT NULL DEFAULT '0.1'"),
    ("d_bool", "bool NOT NULL DEFAULT true"),
    ("d_numeric", "numeric NOT NULL DEFAULT 1.25"),
    ("d_numeric_10_2", "numeric(10,2) NOT NULL DEFAULT 1.5"),
    ("d_text", "text NOT NULL DEFAULT 'it''s'"),
    ("d_varchar", "varchar(9) NOT NULL DEFAULT 'v'"),
    ("d_char", "char(3) NOT NULL DEFAULT 'c'"),
    ("d_uuid", "uuid NOT NULL DEFAULT '0190163d-8694-739b-aea5-966c26f8ad91'"),
    ("d_uuid_made", "uuid NOT NULL DEFAULT gen_random_uuid()"),
    ("d_json", "jsonb NOT NULL DEFAULT '{}'"),
    ("d_bytea", "bytea NOT NULL DEFAULT '\\x00ff'"),
    ("d_bit_8", "bit(8) NOT NULL DEFAULT B'10101010'"),
    ("d_date", "date NOT NULL DEFAULT '2024-02-29'"),
    ("d_time", "time NOT NULL DEFAULT '12:34:56'"),
    ("d_timestamp", "timestamp NOT NULL DEFAULT '2024-02-29 12:34:56.5'"),
    ("d_timestamp_3", "timestamp(3) NOT NULL DEFAULT '2024-02-29 12:34:56.5'"),
    ("d_timestamptz", "timestamptz NOT NULL DEFAULT '2024-02-29 12:34:56.5+00'"),
    ("d_now", "timestamptz NOT NULL DEFAULT now()"),
    ("d_interval", "interval NOT NULL DEFAULT '1 day'"),
    ("d_mood", "mood NOT NULL DEFAULT 'ok'"),
    ("d_inet", "inet NOT NULL DEFAULT '10.0.0.1'"),
    ("d_point", "point NOT NULL DEFAULT '(1,2)'"),
    ("d_array", "int[] NOT NULL DEFAULT '{1,2}'"),
    ("d_money", "money NOT NULL DEFAULT 1.5"),
    ("d_sum", "int NOT NULL DEFAULT 1 + 2"),
    ("d_serial", "serial"),
    ("d_identity", "int GENERATED BY DEFAULT AS IDENTITY"),
    ("n_int", "int DEFAULT 5"),
    ("n_text", "text DEFAULT 'maybe'"),
    ("n_null", "text DEFAULT NULL"),
    ("n_now", "timestamp DEFAULT now()"),
    ("r_int", "int NOT NULL"),
    ("r_text", "text NOT NULL"),
    ("r_numeric", "numeric NOT NULL"),
    ("r_numeric_10_2", "numeric(10,2) NOT NULL"),
    ("r_timestamptz", "timestamptz NOT NULL"),
    ("r_timestamp", "timestamp NOT NULL"),
    ("r_date", "date NOT NULL"),
    ("r_uuid", "uuid NOT NULL"),
    ("r_jsonb", "jsonb NOT NULL"),
    ("r_bytea", "bytea NOT NULL"),
    ("r_bool", "bool NOT NULL"),
    ("r_double", "float8 NOT NULL"),
    ("r_bit_8", "bit(8) NOT NULL"),
    ("r_timetz", "timetz NOT NULL"),
    ("r_interval", "interval NOT NULL"),
    ("r_point", "point NOT NULL"),
    ("r_array", "text[] NOT NULL"),
    ("r_mood", "mood NOT NULL"),
)
_REQUIRED: Final = (
    "1, 'r', 1.5, 2.5, '2024-02-29 00:00+00', '2024-02-29', '2024-02-29',"
    " '0190163d-8694-739b-aea5-966c26f8ad91', '{}', '\\x01', true, 0.5, B'00000001',"
    " '01:02:03+00', '1 hour', '(3,4)', '{a}', 'sad'"
)

TABLES: Final = (
    "every", "defaults", "pair", "toasted", "toasted_full", "keyless", "by_index",
    "emptied", "emptied_too", "shapeless", "Order Lines", "far", "unsent",
    "by_numeric", "by_unique", "parent", "child", "parted",
)  # fmt: skip

SETUP: Final = f"""
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE SCHEMA {SCHEMA};
SET search_path = {SCHEMA}, public;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s');
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE DOMAIN short AS varchar(5);
CREATE DOMAIN price AS numeric(8,2);
CREATE TYPE couple AS (a int, b text);
CREATE TABLE every (id int PRIMARY KEY, {", ".join(f"{c.name} {c.type}" for c in COLUMNS)});
CREATE TABLE defaults (id int PRIMARY KEY, {", ".join(f"{n} {kind}" for n, kind in DEFAULTS)});
CREATE TABLE pair (b text, a int, v text, PRIMARY KEY (a, b));
CREATE TABLE toasted (id int PRIMARY KEY, n int, words text, raw bytea, doc jsonb, list text[],
    numbers int[], must text NOT NULL);
ALTER TABLE toasted ALTER words SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL,
    ALTER doc SET STORAGE EXTERNAL, ALTER list SET STORAGE EXTERNAL,
    ALTER numbers SET STORAGE EXTERNAL, ALTER must SET STORAGE EXTERNAL;
CREATE TABLE toasted_full (id int PRIMARY KEY, n int, words text);
ALTER TABLE toasted_full ALTER words SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE keyless (n int, v text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL, v text);
CREATE UNIQUE INDEX by_code ON by_index (code);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code;
CREATE TABLE emptied (id int PRIMARY KEY);
CREATE TABLE emptied_too (id int PRIMARY KEY);
CREATE TABLE shapeless (id int PRIMARY KEY, both_of couple, many couple[]);
CREATE TABLE unsent (id int PRIMARY KEY, n int, {", ".join(f"{c} {t}" for c, t, _ in UNSENT)});
ALTER TABLE unsent {", ".join(f"ALTER {c} SET STORAGE EXTERNAL" for c, _, _ in UNSENT)};
CREATE TABLE by_numeric (k numeric PRIMARY KEY, must numeric(8,2) NOT NULL, v text);
CREATE TABLE by_unique (a int UNIQUE, v text);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (n int) INHERITS (parent);
CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE far (id int PRIMARY KEY, day date, day_2 date, clock time, stamp timestamp,
    stamp_3 timestamp(3), zoned timestamptz, big float8, small real);
CREATE TABLE "Order Lines" ("Line Id" int PRIMARY KEY, "单价" numeric(10,2), "2nd" text,
    "a.b" text, "with-dash" text, under_score text);
"""

_NAMES: Final = ", ".join(c.name for c in COLUMNS)


def _every(id_: int, values: str) -> str:
    return f"INSERT INTO every (id, {_NAMES}) VALUES ({id_}, {values})"


USUAL: Final = ", ".join(c.usual for c in COLUMNS)
ODD: Final = ", ".join(c.odd for c in COLUMNS)
_DEFAULTED: Final = ", ".join(name for name, _ in DEFAULTS if name.startswith("r_"))

# Rows that are there before the slot: they come as `r`.
BEFORE: Final = (
    _every(1, USUAL),
    "INSERT INTO every (id) VALUES (2)",
    f"INSERT INTO defaults (id, {_DEFAULTED}) VALUES (1, {_REQUIRED})",
    "INSERT INTO pair VALUES ('x', 1, 'one')",
    (
        "INSERT INTO toasted SELECT 1, 0, repeat('w', 3000), decode(repeat('00ff', 3000), 'hex'),"
        " to_jsonb(repeat('j', 3000)), array[repeat('l', 3000)],"
        " (SELECT array_agg(g) FROM generate_series(1, 1000) g), repeat('m', 3000)"
    ),
    "INSERT INTO toasted_full VALUES (1, 0, repeat('w', 3000))",
    "INSERT INTO emptied VALUES (1)",
    "INSERT INTO shapeless VALUES (1, (1, 'a'), array[(2, 'b')::couple])",
    f"INSERT INTO unsent SELECT 1, 0, {', '.join(value for _, _, value in UNSENT)}",
    """INSERT INTO "Order Lines" VALUES (1, 2.50, 's', 'd', 'h', 'u')""",
    "INSERT INTO by_numeric VALUES (1.50, 0.5, 'a'), (100.00, 1, 'b')",
    "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 2)",
    "INSERT INTO parted VALUES (1, 'old')",
)

# Each is one transaction.
CHANGES: Final = (
    _every(3, USUAL),
    _every(4, ODD),
    "INSERT INTO every (id) VALUES (5)",
    "UPDATE every SET c_int = -1 WHERE id = 3",
    "DELETE FROM every WHERE id = 4",
    f"INSERT INTO defaults (id, {_DEFAULTED}) VALUES (2, {_REQUIRED})",
    "DELETE FROM defaults WHERE id = 2",
    "UPDATE pair SET v = 'uno'",
    "UPDATE pair SET a = 2",
    "INSERT INTO pair VALUES ('x', 3, NULL); DELETE FROM pair WHERE a = 3",
    "UPDATE toasted SET n = 1",
    "UPDATE toasted SET id = 2",
    "UPDATE toasted_full SET n = 1",
    "UPDATE unsent SET n = 1",
    "INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    "UPDATE keyless SET v = 'b' WHERE n = 2",
    "DELETE FROM keyless WHERE n = 2",
    "INSERT INTO by_index VALUES (1, 'c', 'v')",
    "UPDATE by_index SET v = 'w'",
    "UPDATE by_index SET code = 'd'",
    "DELETE FROM by_index",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (2); INSERT INTO emptied_too VALUES (2)",
    "TRUNCATE emptied, emptied_too RESTART IDENTITY CASCADE",
    "INSERT INTO shapeless VALUES (2, (3, NULL), NULL)",
    """INSERT INTO "Order Lines" VALUES (2, 3, 't', 'e', 'i', 'v')""",
    "UPDATE by_numeric SET k = 1.5 WHERE k = 1.5",
    "UPDATE by_numeric SET v = 'c' WHERE k = 100",
    "DELETE FROM by_numeric WHERE k = 100",
    "INSERT INTO by_unique VALUES (1, 'a'), (NULL, 'b')",
    "INSERT INTO child VALUES (3, 3)",
    "INSERT INTO parted VALUES (2, 'new')",
    *(f"INSERT INTO far VALUES ({n}, '{values}')" for n, values in enumerate(FAR)),
    "SELECT pg_logical_emit_message(true, 'greeting', 'hello'); UPDATE pair SET v = 'dos'",
    "SELECT pg_logical_emit_message(false, 'lonely', '\\x00ff'::bytea)",
    "ALTER TABLE pair ADD COLUMN more int DEFAULT 9; UPDATE pair SET more = 10",
)
LAST: Final = "INSERT INTO emptied VALUES (999)"  # the recorder waits for it
