"""Readings of the catalog of a real server."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.catalog.catalog_rows import as_sent
from producer.errors import NotPermitted, SourceError
from producer.options import Options
from producer.sources.postgres import catalog, catalog_look, publications
from producer.sources.postgres.captured import Captured, captured, captured_tables
from producer.sources.postgres.checks import check_table
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from schemas.findings import Level
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType
from tests.services_fixtures import databases, execute


@pytest.fixture
def db(postgres_url: str) -> Iterator[Any]:
    connection = catalog.connect(parse_dsn(postgres_url))
    yield connection
    connection.close()


def run(db: Any, *statements: str) -> None:
    with db.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def shape(db: Any, name: str) -> TableSchema:
    (schema,) = catalog.table_schemas(db, [TableId("public", name)])
    return schema


def test_the_session_has_the_streams_settings(db: Any) -> None:
    with db.cursor() as cursor:
        cursor.execute(
            "SELECT '2024-02-29 12:00+01'::timestamptz::text, current_setting('search_path')"
        )
        row = cursor.fetchone()

    assert row == ("2024-02-29 11:00:00+00", "pg_catalog, pg_temp")


def test_the_server_is_described(db: Any) -> None:
    server = catalog.server_info(db)

    assert server.version >= 140000
    assert (server.encoding, server.wal_level, server.in_recovery) == ("UTF8", "logical", False)
    assert server.max_replication_slots > server.slots_used
    assert (server.is_superuser, server.may_create) == (True, True)


def test_a_slot_is_described(db: Any, postgres_url: str, topic_prefix: str) -> None:
    with ReplicationConnection.open(parse_dsn(postgres_url)) as connection:
        created = connection.create_slot(topic_prefix, "pgoutput", temporary=True)
        slot = catalog.slot_state(db, topic_prefix)

    assert slot is not None
    assert (slot.plugin, slot.database) == ("pgoutput", parse_dsn(postgres_url).dbname)
    assert slot.confirmed_flush == created.consistent_point
    assert (slot.active_pid, slot.is_invalid) == (connection.backend_pid, False)
    assert catalog.slot_state(db, "nobody_made_it") is None


def test_columns_are_described_in_stream_order(db: Any) -> None:
    run(
        db,
        "CREATE DOMAIN public.positive AS int NOT NULL",
        "CREATE TABLE public.t (gone int, n numeric(10,2), id int GENERATED ALWAYS AS IDENTITY,"
        " twice int GENERATED ALWAYS AS (1 + 1) STORED, p public.positive, PRIMARY KEY (id))",
        "ALTER TABLE public.t DROP gone",
    )

    assert shape(db, "t").columns == (
        Column("n", 1700, 655366, "numeric(10,2)"),
        Column("id", 23, -1, "integer", nullable=False, identity="a"),
        Column("twice", 23, -1, "integer", generated="s"),
        Column(
            "p", shape(db, "t").columns[3].type_oid, -1, "public.positive", nullable=False,
            user_type=UserType("d", "positive", "integer", 23),
        ),
    )  # fmt: skip


def test_types_of_this_database_are_identified_by_what_they_are_made_of(db: Any) -> None:
    run(
        db,
        "CREATE TYPE public.mood AS ENUM ('sad', 'it''s, ok')",
        "ALTER TYPE public.mood ADD VALUE 'first' BEFORE 'sad'",
        "CREATE DOMAIN public.price AS numeric(10,2)",
        "CREATE DOMAIN public.low_price AS public.price CHECK (VALUE < 10)",
        "CREATE DOMAIN public.days AS date[]",
        "CREATE TYPE public.pair AS (a int, b text)",
        "CREATE TYPE public.span AS RANGE (subtype = public.price)",
        "CREATE TABLE public.t (a public.mood, b public.mood[], c public.low_price,"
        " d public.low_price[], e public.days, f public.pair, g public.span, h int[])",
    )

    mood = UserType("e", "mood", labels=("first", "sad", "it's, ok"))
    price = UserType("d", "price", "numeric(10,2)", 1700, (10 << 16 | 2) + 4)
    columns = {c.name: c.user_type for c in shape(db, "t").columns}
    oids = {c.name: c.type_oid for c in shape(db, "t").columns}
    low = replace(columns["c"], type_oid=0)

    assert columns["a"] == mood
    assert columns["b"] == UserType("a", "_mood", "public.mood", oids["a"], of=mood)
    assert low == UserType("d", "low_price", "public.price", 0, of=price)
    assert columns["d"] == UserType("a", "_low_price", "public.low_price", oids["c"],
                                    of=columns["c"])  # fmt: skip
    assert columns["e"] == UserType("d", "days", "date[]", 1182)
    assert columns["f"] == UserType("c", "pair", labels=("1:23:-1", "2:25:-1"))
    span = columns["g"]
    assert span is not None
    assert replace(span, type_oid=0) == UserType("r", "span", of=price)
    assert columns["h"] is None


@pytest.mark.parametrize(
    ("definition", "missing"),
    [
        ("text DEFAULT 'it''s {a,\"b\"}'", 'it\'s {a,"b"}'),
        ("int DEFAULT 7 NOT NULL", "7"),
        ("int[] DEFAULT '{1,NULL}'", "{1,NULL}"),
        ("text[] DEFAULT '{\"a,b\"}'", '{"a,b"}'),
        ("box DEFAULT '(2,2),(1,1)'", "(2,2),(1,1)"),
        ("timestamptz DEFAULT '2020-01-01 00:00+01'", "2019-12-31 23:00:00+00"),
        ("text DEFAULT ''", ""),
        ("text", None),
    ],
)
def test_old_rows_have_the_value_a_column_came_with(
    db: Any, definition: str, missing: str | None
) -> None:
    run(
        db,
        "CREATE TABLE public.t (id int)",
        "INSERT INTO public.t VALUES (1)",
        f"ALTER TABLE public.t ADD v {definition}",
    )

    assert shape(db, "t").columns[1].missing == missing


def test_a_type_has_a_name_without_a_column(db: Any) -> None:
    numeric_12_2 = (12 << 16 | 2) + 4

    assert catalog.type_name(db, 1700, numeric_12_2) == "numeric(12,2)"
    assert catalog.type_name(db, 1184, -1) == "timestamp with time zone"
    assert catalog.type_name(db, 4_000_000_000, -1) == ""


def test_a_type_of_users_has_no_name_without_a_column_that_says_what_it_is(db: Any) -> None:
    run(db, "CREATE TYPE public.mood AS ENUM ('so')")
    with db.cursor() as cursor:
        cursor.execute("SELECT 'public.mood'::regtype::oid::bigint")
        [(oid,)] = cursor.fetchall()

    assert catalog.type_name(db, oid, -1) == ""


def test_the_table_of_an_oid_has_the_name_of_now(db: Any) -> None:
    run(
        db,
        "CREATE TABLE public.t (id int)",
        "CREATE UNLOGGED TABLE public.u (id int)",
    )
    oid = shape(db, "t").oid
    with db.cursor() as cursor:
        cursor.execute("SELECT 'public.u'::regclass::oid::bigint")
        [(unlogged,)] = cursor.fetchall()
    run(db, "ALTER TABLE public.t RENAME TO v")

    assert catalog.table_name(db, oid) == TableId("public", "v")
    assert catalog.table_name(db, unlogged) is None

    run(db, "DROP TABLE public.v")
    assert catalog.table_name(db, oid) is None


def test_keys_stand_in_key_order_and_only_plain_whole_indexes_count(db: Any) -> None:
    run(
        db,
        "CREATE TABLE public.t (a int, b int, c int NOT NULL, PRIMARY KEY (b, a) INCLUDE (c))",
        "CREATE UNIQUE INDEX whole ON public.t (c, a)",
        "CREATE UNIQUE INDEX partial ON public.t (c) WHERE c > 0",
        "CREATE UNIQUE INDEX expression ON public.t ((c + 1))",
        "CREATE INDEX plain ON public.t (c)",
    )

    table = shape(db, "t")

    assert table.key == ("b", "a")
    assert table.unique == (Unique("whole", ("c", "a")),)
    assert table.identity_columns == ("a", "b")


@pytest.mark.parametrize(
    ("identity", "letter", "columns"),
    [
        ("DEFAULT", "d", ("id",)),
        ("NOTHING", "n", ()),
        ("FULL", "f", ("v", "id")),
        ("USING INDEX i", "i", ("v",)),
    ],
)
def test_old_rows_carry_what_the_replica_identity_says(
    db: Any, identity: str, letter: str, columns: tuple[str, ...]
) -> None:
    run(
        db,
        "CREATE TABLE public.t (v int NOT NULL, id int PRIMARY KEY,"
        " g int GENERATED ALWAYS AS (1) STORED)",
        "CREATE UNIQUE INDEX i ON public.t (v)",
        f"ALTER TABLE public.t REPLICA IDENTITY {identity}",
    )

    table = shape(db, "t")

    assert table.replica_identity is ReplicaIdentity(letter)
    assert table.identity_columns == columns


def test_shapes_come_in_the_order_asked_for_and_must_exist(db: Any) -> None:
    run(db, "CREATE TABLE public.a ()", 'CREATE TABLE public."账户.A" (x int)')
    asked = [TableId("public", "账户.A"), TableId("public", "a")]

    assert [table.id for table in catalog.table_schemas(db, asked)] == asked
    assert catalog.table_schemas(db, asked)[1].columns == ()
    assert catalog.table_schemas(db, []) == []
    with pytest.raises(SourceError, match=r"public\.none"):
        catalog.table_schemas(db, [TableId("public", "none")])


def test_patterns_become_tables(db: Any) -> None:
    run(
        db,
        "CREATE SCHEMA s",
        "CREATE SCHEMA gauss_cdc",
        "CREATE TABLE public.t1 ()",
        "CREATE TABLE public.t2 ()",
        "CREATE TABLE s.t1 ()",
        "CREATE TABLE gauss_cdc.t1 ()",
        'CREATE TABLE s."odd.Name" ()',
        "CREATE UNLOGGED TABLE s.unlogged ()",
        "CREATE VIEW s.view AS SELECT 1",
    )

    def expand(include: list[str], exclude: list[str] | None = None) -> list[str]:
        return [str(table) for table in catalog.expand(db, include, exclude or [])]

    assert expand(["public.*"]) == ["public.t1", "public.t2"]
    assert expand(["*.t1"]) == ["public.t1", "s.t1"]
    assert expand(["*.*"], ["public.*"]) == ['s."odd.Name"', "s.t1"]
    assert expand(['s."odd.Name"', "s.t1"], ["s.t1"]) == ['s."odd.Name"']
    assert expand(["nowhere.*"]) == []
    for absent in ("s.none", "s.view", "s.unlogged", "gauss_cdc.t1", "pg_catalog.pg_class"):
        assert expand([absent]) == []


def test_a_partition_is_represented_by_its_root(db: Any) -> None:
    run(
        db,
        "CREATE TABLE public.p (a int) PARTITION BY RANGE (a)",
        "CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (9)",
    )

    assert catalog.expand(db, ["public.*"]) == [TableId("public", "p")]
    assert catalog.expand(db, ["public.*"], ["public.p"]) == [TableId("public", "p1")]


def test_the_advice_for_a_table_without_a_key_does_not_make_its_updates_fail(
    db: Any, postgres_url: str
) -> None:
    run(
        db,
        "CREATE TABLE public.keyed (a int PRIMARY KEY)",
        "CREATE TABLE public.bare (a int)",
        "CREATE TABLE public.whole (a int)",
        "ALTER TABLE public.whole REPLICA IDENTITY FULL",
    )
    options = Options(parse_dsn(postgres_url), "slot", "pub", "p", {}, "")
    tables = [TableId("public", name) for name in ("keyed", "bare", "whole")]

    keyed, bare, whole = catalog_look.how_captured(db, options, tables, is_ours=False)
    assert ["REPLICA IDENTITY FULL" in said for said in (keyed, bare, whole)] == [0, 1, 0]
    assert all("ALTER PUBLICATION" in said for said in (keyed, bare, whole))
    _, bare, _ = catalog_look.how_captured(db, options, tables, is_ours=True)
    assert "REPLICA IDENTITY FULL" in bare
    assert "ALTER PUBLICATION" not in bare
    gone = [*tables, TableId("public", "gone")]
    assert len(catalog_look.how_captured(db, options, gone, is_ours=True)) == 4


def test_partitions_are_captured_where_the_publication_has_not_their_root(
    db: Any, postgres_url: str
) -> None:
    run(
        db,
        "CREATE TABLE public.p (a int) PARTITION BY RANGE (a)",
        "CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE public.p2 PARTITION OF public.p FOR VALUES FROM (9) TO (19)",
        "CREATE TABLE public.t (a int)",
        "CREATE SCHEMA gauss_cdc",
        "CREATE TABLE gauss_cdc.own (a int)",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    options = Options(parse_dsn(postgres_url), "slot", "pub", "p", {}, "")
    p, p1, p2, t = (TableId("public", name) for name in ("p", "p1", "p2", "t"))

    assert captured(db, options) == Captured((p1, p2, t), (p,), (), ())
    partly = replace(options, exclude=("public.p2",))
    assert captured(db, partly) == Captured((p1, t), (), (p,), ())
    notes: list[str] = []
    assert captured_tables(db, replace(options, include=("public.p",)), notes.append) == []
    assert ["public.p " in note and "not captured" in note for note in notes] == [True]

    run(db, "ALTER PUBLICATION pub SET (publish_via_partition_root = true)")
    assert captured(db, options) == Captured((p, t), (), (), ())


def test_a_key_that_is_checked_late_or_made_by_the_server_names_no_row(db: Any) -> None:
    run(
        db,
        "CREATE TABLE public.late (a int PRIMARY KEY DEFERRABLE, b int UNIQUE DEFERRABLE)",
        "CREATE TABLE public.made (a int NOT NULL, b int GENERATED ALWAYS AS (a + 1) STORED,"
        " c int UNIQUE, UNIQUE (c, b), PRIMARY KEY (b))",
    )

    late, made = shape(db, "late"), shape(db, "made")

    assert late.key == ()
    assert {u.columns for u in late.unique} == {("a",), ("b",)}
    assert made.key == ("b",)
    assert (as_sent(made).key, as_sent(made).identity_columns) == ((), ())
    assert [u.columns for u in as_sent(made).unique] == [("c",)]
    assert as_sent(made).names() == ("a", "c")
    assert Level.ERROR in {finding.level for finding in check_table(made)}
    assert "generated columns are not sent by the source, and not copied: b" in [
        finding.what for finding in check_table(made) if finding.level is Level.NOTE
    ]

    run(db, "ALTER TABLE public.made REPLICA IDENTITY FULL")
    assert Level.ERROR not in {finding.level for finding in check_table(shape(db, "made"))}


def test_columns_whose_values_are_names_of_objects_are_said(db: Any) -> None:
    """A rename changes what they read, in rows that nobody wrote."""
    run(db, "CREATE TABLE public.named (id int PRIMARY KEY, a regclass, b regrole[], c xml)")

    found = [one.what for one in check_table(shape(db, "named")) if one.level is Level.WARNING]

    assert [what.split(",")[:2] for what in found] == [
        ["values of a", " b name objects of the source"]
    ]


def test_a_publication_holds_exactly_its_tables(db: Any) -> None:
    run(db, "CREATE TABLE public.b ()", "CREATE TABLE public.a ()")
    a, b = TableId("public", "a"), TableId("public", "b")

    assert publications.publication(db, 'My "pub"') is None
    publications.create_publication(
        db, 'My "pub"', [b, a], {"publish": "insert, update", "publish_via_partition_root": "true"}
    )
    found = publications.publication(db, 'My "pub"')
    assert found is not None
    assert (found.name, found.tables, found.all_tables) == ('My "pub"', (a, b), False)
    assert (found.actions, found.via_root) == (frozenset({"insert", "update"}), True)
    assert (found.whole, found.partly) == (
        (),
        dict.fromkeys((a, b), "publishes only insert, update"),
    )


def test_the_databases_refusals_become_ours(db: Any) -> None:
    run(db, "CREATE TABLE public.a ()")
    publications.create_publication(db, "p", [TableId("public", "a")])

    with pytest.raises(SourceError, match="sqlstate=42710"):
        publications.create_publication(db, "p", [])
    run(db, "SET ROLE pg_monitor")
    with pytest.raises(NotPermitted):
        publications.create_publication(db, "q", [])


def test_a_publication_that_leaves_rows_or_columns_out_is_reported(new_database) -> None:
    connection = psycopg2.connect(new_database())
    connection.autocommit = True
    if connection.server_version < 150000:
        pytest.skip("row filters came with PostgreSQL 15")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        cursor.execute("CREATE PUBLICATION p FOR TABLE a, TABLE b WHERE (id > 5)")

    found = publications.publication(connection, "p")

    assert found is not None
    assert found.partly == {TableId("public", "b"): "has a WHERE for it"}
    assert found.whole == (TableId("public", "a"),)


@pytest.mark.since(13, "publications of roots")
@pytest.mark.parametrize("published", ["ALL TABLES", "TABLE plain, good, deep, far, other"])
def test_roots_whose_partitions_send_something_else_are_reported(db: Any, published: str) -> None:
    run(
        db,
        "SET search_path = public",
        "CREATE TABLE plain (id int PRIMARY KEY)",
        *(
            f"CREATE TABLE {name} (id int) PARTITION BY LIST (id)"
            for name in ("good", "far", "other")
        ),
        "CREATE TABLE deep PARTITION OF other FOR VALUES IN (2, 3) PARTITION BY LIST (id)",
        "CREATE TABLE deep_1 PARTITION OF deep FOR VALUES IN (2)",
        "CREATE TABLE good_1 PARTITION OF good FOR VALUES IN (1)",
        "ALTER TABLE good REPLICA IDENTITY FULL; ALTER TABLE good_1 REPLICA IDENTITY FULL",
        "ALTER TABLE deep_1 REPLICA IDENTITY FULL",
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER s FOREIGN DATA WRAPPER nothing",
        "CREATE FOREIGN TABLE far_1 PARTITION OF far FOR VALUES IN (1) SERVER s",
        f"CREATE PUBLICATION p FOR {published} WITH (publish_via_partition_root)",
        "CREATE PUBLICATION leaves FOR TABLE plain, other",
        "CREATE PUBLICATION below FOR TABLE deep WITH (publish_via_partition_root)",
    )

    found, leaves, below = (publications.publication(db, n) for n in ("p", "leaves", "below"))

    assert found is not None
    assert leaves is not None
    assert below is not None
    whose = (
        "has it with deep_1, whose replica identity is not that of its root: old rows cannot be"
        " found"
    )
    assert {table.name: why for table, why in found.partly.items()} == {
        "far": "has it with the foreign partition far_1, whose changes are not sent",
        "other": whose,
    }
    assert leaves.partly == {}
    assert below.partly == {TableId("public", "deep"): whose}


@pytest.mark.since(15, "schemas in publications, and partitions that the view leaves to their root")
@pytest.mark.parametrize("via_root", [True, False])
@pytest.mark.parametrize(
    "what",
    [
        "ALL TABLES",
        "TABLE plain, root",
        "TABLE root, deep_1, other.leaf",
        "TABLE deep",
        "TABLES IN SCHEMA public",
        "TABLES IN SCHEMA other, TABLE deep",
        "TABLES IN SCHEMA other, public",
    ],
)
def test_a_publication_has_the_tables_of_the_servers_view(
    db: Any, what: str, via_root: bool
) -> None:
    run(
        db,
        "CREATE SCHEMA other; SET search_path = public",
        "CREATE TABLE plain (id int); CREATE TEMP TABLE gone (id int)",
        "CREATE TABLE heir () INHERITS (plain); CREATE VIEW seen AS SELECT FROM plain",
        "CREATE UNLOGGED TABLE loose (id int); CREATE TABLE other.alone (id int)",
        "CREATE TABLE root (id int) PARTITION BY LIST (id)",
        "CREATE TABLE other.leaf PARTITION OF root FOR VALUES IN (1)",
        "CREATE TABLE deep PARTITION OF root FOR VALUES IN (2, 3) PARTITION BY LIST (id)",
        "CREATE TABLE deep_1 PARTITION OF deep FOR VALUES IN (2)",
        f"CREATE PUBLICATION p FOR {what} WITH (publish_via_partition_root = {via_root})",
    )
    with db.cursor() as cursor:
        cursor.execute("SELECT schemaname, tablename FROM pg_publication_tables")
        theirs = sorted(TableId(*table) for table in cursor.fetchall())

    found = publications.publication(db, "p")

    assert found is not None
    assert theirs
    assert list(found.tables) == theirs


def test_a_publication_is_read_while_its_tables_are_altered(newest_server: Addresses) -> None:
    """From 16 on the server's view waits for them: `run` would stand still for a migration."""
    with databases(newest_server) as make, closing(psycopg2.connect(url := make())) as other:
        execute(url, "CREATE TABLE a (id int PRIMARY KEY)")
        execute(url, "CREATE PUBLICATION p FOR ALL TABLES")
        with closing(catalog.connect(parse_dsn(url))) as connection:
            run(connection, "SET statement_timeout = '10s'")
            with other.cursor() as cursor:
                cursor.execute("ALTER TABLE a ADD v int")

            found = publications.publication(connection, "p")

        assert found is not None
        assert found.tables == (TableId("public", "a"),)
