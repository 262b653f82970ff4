"""Readings that keep to the SQL of 9.2, by simple queries, against those made for PostgreSQL."""

from collections.abc import Iterator

import psycopg2
import pytest

from producer.errors import SourceError
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from schemas.tables import ReplicaIdentity, TableId, TableSchema, Unique

SHAPES = """
    CREATE SCHEMA s;
    CREATE SCHEMA "it's \\ odd";
    CREATE TYPE s.mood AS ENUM ('sad', 'it''s, ok', '');
    CREATE DOMAIN s.price AS numeric(10,2) NOT NULL;
    CREATE DOMAIN s.low_price AS s.price CHECK (VALUE < 10);
    CREATE TYPE s.pair AS (a int, b s.mood[]);
    CREATE TYPE s.span AS RANGE (subtype = s.price);
    CREATE TABLE s.types (a s.mood, b s.mood[], c s.low_price, d s.low_price[], e s.pair,
        f s.span, g int[], h timestamp(3)[], i bit(5), j interval day to second(3), k "char",
        l character varying(9), m char(3));
    CREATE TABLE s.shape (gone int, b int, a int, "Naïve ""q"" \\" text NOT NULL DEFAULT 'x',
        id int GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (1 + 1) STORED,
        more int, PRIMARY KEY (b, a) INCLUDE (more));
    ALTER TABLE s.shape DROP gone;
    ALTER TABLE s.shape ADD late text DEFAULT 'it''s {a,"b"}', ADD made timestamptz DEFAULT now();
    CREATE UNIQUE INDEX whole ON s.shape (more, a);
    CREATE UNIQUE INDEX partial ON s.shape (a) WHERE a > 0;
    CREATE UNIQUE INDEX expression ON s.shape ((a + 1));
    CREATE INDEX plain ON s.shape (a);
    CREATE TABLE s.nothing ();
    CREATE TABLE s.full (v int, id int PRIMARY KEY, g int GENERATED ALWAYS AS (1) STORED);
    ALTER TABLE s.full REPLICA IDENTITY FULL;
    CREATE TABLE s.by_index (v int NOT NULL, id int PRIMARY KEY);
    CREATE UNIQUE INDEX by_v ON s.by_index (v);
    ALTER TABLE s.by_index REPLICA IDENTITY USING INDEX by_v;
    CREATE TABLE "it's \\ odd"."t'; DROP TABLE s.full; --" (x int PRIMARY KEY);
    CREATE TABLE s.parts (a int) PARTITION BY RANGE (a);
    CREATE TABLE s.part PARTITION OF s.parts FOR VALUES FROM (0) TO (9);
    CREATE UNLOGGED TABLE s.unlogged (a int);
    CREATE VIEW s.view AS SELECT 1;
    CREATE SCHEMA snapshot;
    CREATE TABLE snapshot.tables_snap_timestamp (a int);
    CREATE SCHEMA gauss_cdc;
    CREATE TABLE gauss_cdc.ours (a int);
"""
TABLES = [
    TableId("s", name) for name in ("types", "shape", "nothing", "full", "by_index", "parts")
] + [TableId("it's \\ odd", "t'; DROP TABLE s.full; --")]


@pytest.fixture
def url(postgres_url: str) -> str:
    connection = psycopg2.connect(postgres_url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(SHAPES)
    connection.close()
    return postgres_url


@pytest.fixture
def session(url: str) -> Iterator[ReplicationConnection]:
    with ReplicationConnection.open(parse_dsn(url), replication=False) as connection:
        yield connection


def by_psycopg2(url: str, tables: list[TableId]) -> list[TableSchema]:
    connection = catalog.connect(parse_dsn(url))
    try:
        return catalog.table_schemas(connection, tables)
    finally:
        connection.close()


def test_shapes_are_those_that_the_other_reading_gives(
    url: str, session: ReplicationConnection
) -> None:
    shapes = gauss_catalog.table_schemas(session, TABLES)

    assert [shape.id for shape in shapes] == TABLES
    assert shapes == by_psycopg2(url, TABLES)
    of_shape = shapes[1]
    assert (of_shape.key, of_shape.identity_columns) == (("b", "a"), ("b", "a"))
    assert of_shape.unique == (Unique("whole", ("more", "a")),)
    assert of_shape.names() == ("b", "a", 'Naïve "q" \\', "id", "twice", "more", "late", "made")
    assert shapes[3].replica_identity is ReplicaIdentity.FULL
    assert shapes[4].identity_columns == ("v",)


def test_the_same_answers_come_from_the_session_that_will_stream(url: str) -> None:
    """openGauss' walsender takes SQL as well, by simple queries only; so does PostgreSQL's."""
    with ReplicationConnection.open(parse_dsn(url)) as walsender:
        assert gauss_catalog.table_schemas(walsender, TABLES) == by_psycopg2(url, TABLES)


def test_a_table_that_is_not_there(session: ReplicationConnection) -> None:
    gone = TableId("s", "gone")

    with pytest.raises(SourceError, match=r"s\.gone"):
        gauss_catalog.table_schemas(session, [TABLES[0], gone])
    assert gauss_catalog.table_schema_or_none(session, gone) is None
    assert gauss_catalog.table_schema_or_none(session, TABLES[2]) is not None
    assert gauss_catalog.table_schemas(session, []) == []


def test_patterns_become_tables_without_the_servers_own(session: ReplicationConnection) -> None:
    assert set(gauss_catalog.expand(session, ["*.*"])) == set(TABLES)
    assert gauss_catalog.expand(session, ["s.*"], ["s.types", "*.shape", "s.parts"]) == [
        TableId("s", "by_index"),
        TableId("s", "full"),
        TableId("s", "nothing"),
    ]
    for absent in ("s.view", "s.unlogged", "snapshot.tables_snap_timestamp", "gauss_cdc.ours"):
        assert gauss_catalog.expand(session, [absent]) == []


def test_types_and_settings_are_named(session: ReplicationConnection) -> None:
    asked = gauss_catalog.settings(session, ["wal_level", "max_replication_slots", "it's none"])

    assert gauss_catalog.type_name(session, 1700, (12 << 16 | 2) + 4) == "numeric(12,2)"
    assert gauss_catalog.type_name(session, 4_000_000_000, -1) == ""
    assert gauss_catalog.type_name(session, 28, -1) == "xid"  # of 32 bits here
    assert (asked.keys(), asked["wal_level"]) == ({"wal_level", "max_replication_slots"}, "logical")


def test_many_tables_are_asked_for_in_pieces(url: str, session: ReplicationConnection) -> None:
    session.query(
        "DO $$ BEGIN FOR n IN 1..1100 LOOP EXECUTE format("
        "'CREATE TABLE s.many_%s (id int PRIMARY KEY, v text)', n); END LOOP; END $$"
    )
    tables = gauss_catalog.expand(session, ["s.*"])

    assert len(tables) == 1106
    assert gauss_catalog.table_schemas(session, tables) == by_psycopg2(url, tables)
