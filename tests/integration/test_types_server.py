"""A real server is the oracle: what it writes, encoded and decoded, it reads as the same value."""

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import psycopg2.extensions
import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.records.encode import TransactionConstants, compile_encoder
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.types import BY_OID, TypeOptions, gauss
from spark_consumers.decode import RowDecoder, split
from tests.schemas.types.values import CHOICES, CHOSEN, SAMPLES, Sample
from tests.versions import need

BOX_ARRAY = 1020
TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)

# Expressions of one random value, `g` being 1..3000.
RANDOM = {
    "smallint": "(random() * 65535 - 32768)::int::int2",
    "integer": "(random() * 4294967295 - 2147483648)::int8::int4",
    "bigint": "((random() - 0.5) * 2 ^ (random() * 63))::int8",
    "numeric": "((random() - 0.5) * 10 ^ (random() * 40 - 20)::int)::numeric",
    "numeric(20,7)": "((random() - 0.5) * 10 ^ (random() * 13))::numeric(20,7)",
    "numeric(7,0)": "((random() - 0.5) * 10 ^ (random() * 7)::int)::numeric(7,0)",
    "real": "((random() - 0.5) * 10.0 ^ (random() * 60 - 30)::int)::float4",
    "double precision": "((random() - 0.5) * 10.0 ^ (random() * 500 - 250)::int)::float8",
    "money": "((random() - 0.5) * 10 ^ (random() * 14))::numeric::money",
    "text":
        "(SELECT string_agg(chr(1 + (random() * 40000)::int), '') FROM generate_series(1, g % 9))",
    "date": "'0001-01-01'::date + (random() * 3652058)::int",
    "time without time zone": "'00:00'::time + random() * '24:00'::interval",
    "timestamp without time zone":
        "'2000-01-01'::timestamp + (random() - 0.2) * '6000 years'::interval",
    "timestamp(3) without time zone":
        "('2000-01-01'::timestamp + (random() - 0.2) * '6000 years'::interval)::timestamp(3)",
    "timestamp with time zone":
        "'2000-01-01+00'::timestamptz + (random() - 0.2) * '9000 years'::interval",
    "interval": "(random() - 0.5) * CASE g % 3 WHEN 0 THEN '900000 hours'::interval"
                " WHEN 1 THEN '40 days' ELSE '70 years' END",
    "bytea": "decode(substr(md5(g::text), 1, g % 16 * 2), 'hex')",
    "uuid": "gen_random_uuid()",
    "inet": "('0.0.0.0'::inet + (random() * 4294967295)::int8)",
    "point": "point(random() * 10 ^ (g % 20), random() / 10 ^ (g % 20))",
    "bit(9)": "(g % 512)::bit(9)",
    "bit varying": "substr((g % 512)::bit(9)::text, 1, g % 10)::varbit",
    "jsonb": "jsonb_build_object('g', random(), 't', md5(g::text))",
    "text[]": "ARRAY[md5(g::text), NULL, chr(1 + g % 300), '\"\\', '{' || g || '}']",
    "integer[]": "ARRAY[g, -g, NULL]",
    "numeric[]": "ARRAY[random()::numeric, g]",
    "daterange": "daterange('2020-01-01'::date + g % 99, '2021-01-01'::date + g % 99)",
}  # fmt: skip


@contextmanager
def connected(url: str) -> "Iterator[psycopg2.extensions.cursor]":
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cur:
        cur.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'")
        yield cur
    connection.close()


@pytest.fixture(params=["services", "other"])
def cursor(
    request: pytest.FixtureRequest, addresses: Addresses
) -> "Iterator[psycopg2.extensions.cursor]":
    """Temporary tables only: a database of its own takes seconds per test.

    Everything on two servers: the machine's, where there is one, and the fetched one.
    """
    is_ours = request.param == "services"
    url = addresses.postgres_url() if is_ours else request.getfixturevalue("other_postgres")
    with connected(url) as cur:
        yield cur


# What 13 and 14 do not take: scales outside of the precision, and intervals of 2^63 microseconds.
OF_15 = {"numeric(3,5)", "numeric(3,-2)", "interval"}


@pytest.fixture(autouse=True)
def _is_taken(request: pytest.FixtureRequest) -> None:
    if {"sample", "cursor"} <= {*request.fixturenames}:
        server = request.getfixturevalue("cursor").connection.server_version
        if request.getfixturevalue("sample").type_name in OF_15:
            need(server, 15, "values of this sample")


def column_of(cursor: "psycopg2.extensions.cursor", type_name: str) -> Column:
    """A column as the catalog describes it."""
    cursor.execute(f"CREATE TEMP TABLE of_type (v {type_name})")
    cursor.execute(
        "SELECT atttypid::int8, atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'of_type'::regclass AND attname = 'v'"
    )
    oid, mod, name = cursor.fetchone()
    cursor.execute("DROP TABLE of_type")
    return Column("v", oid, mod, name)


def travelled(column: Column, texts: list[str], options: TypeOptions) -> list[str]:
    """Each text through producer and consumer."""
    table = TableSchema(TableId("s", "t"), (column,))
    envelope = EnvelopeOptions(types=options)
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d", options=envelope)
    decoder = RowDecoder(envelope_schema("p", table, envelope))
    out = []
    for ordinal, text in enumerate(texts):
        value = encoder.encode("c", "", None, [text.encode()], TX, 1, ordinal)
        after = decoder.decode(split(value)[1]).after
        assert after is not None
        out.append(after[0])
    return out


def written(value: str, percent: str = "%") -> str:
    """SQL of the text that the type's output function writes; `::text` differs for some."""
    return f"format('{percent}s', {value})"


def check(cursor: "psycopg2.extensions.cursor", type_name: str, texts: list[str]) -> None:
    """The server reads what arrived as the value that left: it writes it the same way."""
    compare(cursor, type_name, column_of(cursor, type_name), texts, TypeOptions())


def compare(
    cursor: "psycopg2.extensions.cursor",
    type_name: str,
    column: Column,
    texts: list[str],
    options: TypeOptions,
) -> None:
    arrived = travelled(column, texts, options)
    cursor.execute(
        f"SELECT sent, got FROM unnest(%s::text[], %s::text[]) AS pairs(sent, got)"
        f" WHERE {written(f'got::{type_name}', '%%')} IS DISTINCT FROM sent",
        (texts, arrived),
    )
    assert cursor.fetchall() == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
def test_samples(cursor: "psycopg2.extensions.cursor", sample: Sample) -> None:
    column = column_of(cursor, sample.type_name)
    assert (column.type_oid, column.type_mod) == (sample.oid, sample.type_mod)
    cursor.execute(
        "SELECT x FROM unnest(%s::text[]) AS x"
        f" WHERE {written(f'x::{sample.type_name}', '%%')} <> x",
        (list(sample.texts),),
    )
    assert cursor.fetchall() == [], "not what the server writes"

    check(cursor, sample.type_name, list(sample.texts))


@pytest.mark.parametrize("type_name", RANDOM)
def test_random_values(cursor: "psycopg2.extensions.cursor", type_name: str) -> None:
    value = written(f"({RANDOM[type_name]})::{type_name}")
    cursor.execute(f"SELECT {value} FROM generate_series(1, 3000) g")
    texts = [text for (text,) in cursor.fetchall()]

    check(cursor, type_name, texts)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/St_Johns", "Europe/Amsterdam"])
def test_instants_of_any_session_zone(cursor: "psycopg2.extensions.cursor", zone: str) -> None:
    cursor.execute(f"SET TimeZone = '{zone}'")
    value = written(RANDOM["timestamp with time zone"])
    cursor.execute(f"SELECT {value} FROM generate_series(1, 3000) g")
    texts = [text for (text,) in cursor.fetchall()]

    check(cursor, "timestamp with time zone", texts)


def test_extensions(postgres_url: str) -> None:
    with connected(postgres_url) as cursor:
        for name in ("citext", "ltree"):
            cursor.execute(f"CREATE EXTENSION {name}")
            check(cursor, name, ["Top.Science", ""])


# Types of pg_catalog that no value of a column has: nobody can write one.
WITHOUT_INPUT = {
    "pg_node_tree": "input refused: expressions of the catalog",
    "pg_ndistinct": "input refused: extended statistics",
    "pg_dependencies": "input refused: extended statistics",
    "pg_mcv_list": "input refused: extended statistics",
    "pg_brin_bloom_summary": "input refused: inside of an index",
    "pg_brin_minmax_multi_summary": "input refused: inside of an index",
    "gtsvector": "input refused: inside of an index",
}


def test_every_type_of_the_server_is_in_the_table_or_cannot_be_written(
    cursor: "psycopg2.extensions.cursor",
) -> None:
    cursor.execute(
        """
        SELECT t.oid::int8, format_type(t.oid, NULL), e.typname
        FROM pg_type t LEFT JOIN pg_type e ON e.typarray = t.oid
        WHERE t.typtype IN ('b', 'r', 'm') AND t.oid < 16384
          AND t.typnamespace = 'pg_catalog'::regnamespace
          -- composites of the catalog's own tables are no types of columns
          AND coalesce(e.typtype NOT IN ('c', 'p'), true)
        """
    )
    rows = cursor.fetchall()
    assert len(rows) > 150
    missing = {name for oid, name, element in rows if oid not in BY_OID}
    excused = {name for _, name, element in rows if {name, element} & WITHOUT_INPUT.keys()}

    assert missing <= excused
    for name in WITHOUT_INPUT.keys() & {name for _, name, _ in rows}:
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match=r"cannot accept|not impl"):
            cursor.execute(f"SELECT 'x'::{name}")


def test_a_table_entry_has_the_servers_name_and_array(
    cursor: "psycopg2.extensions.cursor",
) -> None:
    ours = {
        oid: entry
        for oid, entry in BY_OID.items()
        if entry.name not in {of.name for of in gauss.TYPES} and entry.element is None
    }
    cursor.execute(
        "SELECT oid::int8, format_type(oid, NULL), typarray::int8, typdelim FROM pg_type"
        " WHERE oid = ANY (%s)",
        (list(ours),),
    )
    said = {oid: rest for oid, *rest in cursor.fetchall()}
    newer = {oid for oid in ours if oid not in said}

    assert newer <= {4192, 4451, 4532, 4533, 4534, 4535, 4536, 5038, 5069}  # of 13, 14
    for oid, (name, array, delimiter) in said.items():
        assert ours[oid].name == name
        if array and delimiter == ",":
            assert ours[oid].array_oid == array


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if BY_OID[s.oid].element is None and s.oid != BOX_ARRAY],
    ids=lambda sample: sample.type_name,
)
def test_arrays_of_every_type_in_every_form(
    cursor: "psycopg2.extensions.cursor", sample: Sample
) -> None:
    kind, texts = sample.type_name, [text for text in sample.texts if len(text) < 1000]
    forms = (
        "ARRAY(SELECT x::{0} FROM unnest(%(t)s::text[]) AS x)",
        "ARRAY(SELECT x::{0} FROM unnest(%(t)s::text[]) AS x) || NULL::{0}",
        "ARRAY[[(%(t)s::text[])[1]::{0}], [NULL]]",
        "array_fill((%(t)s::text[])[1]::{0}, '{{2,2}}', '{{-1,7}}')",
        "'{{}}'",
    )
    written_by_it = []
    for form in forms:
        cursor.execute(f"SELECT format('%%s', ({form.format(kind)})::{kind}[])", {"t": texts})
        written_by_it.append(cursor.fetchone()[0])
    for options in {TypeOptions(), *(o for o, names in CHOICES if re.match(names, kind))}:
        compare(cursor, f"{kind}[]", column_of(cursor, f"{kind}[]"), written_by_it, options)


# What PostgreSQL makes of the types of its own that others are made of.
MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s \"ok\"')",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN cheap AS price CHECK (VALUE < 100)",
    "CREATE DOMAIN days AS date[]",
    "CREATE TYPE pair AS (a int, b text, c mood)",
    "CREATE TYPE span AS RANGE (subtype = mood)",
    "CREATE EXTENSION hstore",
    "CREATE EXTENSION citext",
    "CREATE EXTENSION ltree",
    "CREATE EXTENSION cube",
    "CREATE EXTENSION isn",
)
OF_USERS = {
    "mood": ("sad", 'it\'s "ok"'),
    "mood[]": ('{sad,NULL,"so so","it\'s \\"ok\\""}', "{}", "{{sad},{sad}}", "[0:0]={sad}"),
    "price": ("1.50", "NaN"),
    "price[]": ("{1.50,NULL}", "{NaN}"),
    "cheap": ("-99.00",),
    "cheap[]": ("{1.00,2.00}",),
    "days": ("{2024-05-01,NULL}", "{infinity}", "{{2024-05-01}}"),
    "days[]": ('{"{2024-05-01,NULL}",NULL}', '{"{infinity}"}'),
    "pair": ('(1,"a b","so so")', "(,,)", '(-1,"""","it\'s ""ok""")'),
    "pair[]": ('{"(1,a,sad)",NULL}',),
    "span": ('[sad,"so so")', "empty"),
    "span[]": ('{"[sad,\\"so so\\")",empty}',),
    "span_multirange": ('{[sad,"so so")}', "{}"),
    "hstore": ('"a"=>"1", "b"=>NULL', "", '"金\\"\\\\"=>"x, =>"'),
    "hstore[]": ('{"\\"a\\"=>\\"1\\"",NULL}',),
    "citext": ("MiXed", ""),
    "citext[]": ("{MiXed}",),
    "ltree": ("Top.Science", ""),
    "ltree[]": ("{Top.Science}",),
    "cube": ("(1, 2),(3, 4)",),
    "isbn": ("0-393-04002-X",),
}


def test_types_of_users_come_back(postgres_url: str) -> None:
    connection = catalog.connect(parse_dsn(postgres_url))
    with connected(postgres_url) as cursor, contextlib.closing(connection):
        for statement in MADE:
            cursor.execute(statement)
        columns = ", ".join(f"c{n} {name}" for n, name in enumerate(OF_USERS))
        cursor.execute(f"CREATE TABLE of_users ({columns})")
        (table,) = catalog.table_schemas(connection, [TableId("public", "of_users")])
        for column, (type_name, texts) in zip(table.columns, OF_USERS.items(), strict=True):
            for chosen in (TypeOptions(), TypeOptions(hstore_handling="map")):
                compare(cursor, type_name, column, list(texts), chosen)


@pytest.mark.parametrize(
    ("options", "sample"),
    [pytest.param(o, s, id=f"{choice}: {s.type_name}") for choice, o, s in CHOSEN],
)
def test_each_choice_of_types_comes_back(
    cursor: "psycopg2.extensions.cursor", options: TypeOptions, sample: Sample
) -> None:
    column = column_of(cursor, sample.type_name)
    compare(cursor, sample.type_name, column, list(sample.texts), options)


@pytest.mark.parametrize(
    ("options", "type_name"),
    [
        pytest.param(choice, type_name, id=f"{choice.chosen()}: {type_name}")
        for choice, names in CHOICES
        for type_name in RANDOM
        if re.match(names, type_name)
    ],
)
def test_random_values_of_each_choice_come_back(
    cursor: "psycopg2.extensions.cursor", options: TypeOptions, type_name: str
) -> None:
    value = written(f"({RANDOM[type_name]})::{type_name}")
    cursor.execute(f"SELECT {value} FROM generate_series(1, 1000) g")
    texts = [text for (text,) in cursor.fetchall()]
    compare(cursor, type_name, column_of(cursor, type_name), texts, options)
