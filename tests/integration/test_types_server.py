"""A real server is the oracle: what it writes, encoded and decoded, it reads as the same value."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import psycopg2.extensions
import pytest

from gauss_cdc.services import Addresses
from producer.core.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.avro_wire import RowDecoder, split
from tests.schemas.types.values import SAMPLES, Sample

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


@pytest.fixture
def cursor(addresses: Addresses) -> "Iterator[psycopg2.extensions.cursor]":
    """Temporary tables only: a database of its own takes seconds per test."""
    with connected(addresses.postgres_url()) as cur:
        yield cur


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


def travelled(column: Column, texts: list[str]) -> list[str]:
    """Each text through producer and consumer."""
    table = TableSchema(TableId("s", "t"), (column,))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    decoder = RowDecoder(envelope_schema("p", table))
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
    column = column_of(cursor, type_name)
    arrived = travelled(column, texts)
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


def test_every_built_in_type_of_a_column_is_in_the_table_or_known_to_be_left_out(
    cursor: "psycopg2.extensions.cursor",
) -> None:
    cursor.execute(
        "SELECT oid::int8, format_type(oid, NULL) FROM pg_type WHERE oid < 16384 AND typtype IN"
        " ('b', 'r', 'm') AND typnamespace = 'pg_catalog'::regnamespace ORDER BY oid"
    )
    from schemas.types import BY_OID

    missing = {name for oid, name in cursor.fetchall() if oid not in BY_OID}

    inside = {  # of the catalog itself, or not storable
        "aclitem", "gtsvector", "int2vector", "oidvector", "pg_brin_bloom_summary",
        "pg_brin_minmax_multi_summary", "pg_dependencies", "pg_mcv_list", "pg_ndistinct",
        "pg_node_tree", "refcursor", "regcollation", "regconfig", "regdictionary", "regnamespace",
        "regoper", "regoperator", "regrole",
    }  # fmt: skip
    assert {name for name in missing if not name.endswith("[]")} <= inside
