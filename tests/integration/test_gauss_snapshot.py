"""A first load by our own client, under a slot's snapshot, in the database's encoding."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import psycopg2
import pytest
from psycopg2 import sql

from gauss_cdc_lab.services import Addresses
from producer.core.changes import Cells
from producer.errors import SourceError, TableChanging
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.snapshot import GaussReading
from producer.sources.postgres import snapshot
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from producer.sources.postgres.snapshot import SnapshotReading
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from producer.wire.replication import WalMessage
from schemas.errors import Verdict
from schemas.tables import TableId
from tests.services_fixtures import drop_database

TABLE = TableId("public", 'Odd "name" \\')
NAME = sql.Identifier(*TABLE)


def run(url: str, *statements: str | sql.Composable) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


def session(url: str) -> Callable[[], GaussConnection]:
    return partial(
        GaussConnection.open, parse_dsn(url), replication=False, settings=SESSION_SETTINGS
    )


@pytest.fixture
def slot(postgres_url: str, topic_prefix: str) -> Iterator[Callable[[], str]]:
    """Call it to make a slot; gives the name of its snapshot, which lives to the test's end."""
    with ReplicationConnection.open(parse_dsn(postgres_url)) as connection:
        yield lambda: connection.create_slot(topic_prefix, "pgoutput", temporary=True).snapshot


def rows_of(reading: GaussReading, table: TableId) -> list[Cells]:
    rows: list[Cells] = []
    (shape,) = reading.shapes([table])
    reading.copy_rows(table, shape.columns, rows.extend)
    return rows


MANY_TYPES = """
    CREATE TABLE public.t (a bool, b "char", c char(5), d varchar, e bytea, f numeric, g float8,
        h timestamptz, i interval, j text[], k bit(3), l money, m regclass, n jsonb, o point)
"""
VALUES = """
    INSERT INTO public.t VALUES
    (true, 'x', 'ab', '', '\\x00ff', 'NaN', -0.0, '2024-01-01 12:00+08', '1 mon -1 day',
     ARRAY['', 'NULL', NULL, 'a"b', '\\', E'\\n'], '101', 12.5, 'pg_class', '{"a": "\\\\"}',
     '(1,2)'),
    (false, NULL, '"', E'"\\t\\n\\\\,"', '\\x', 0.1, 'infinity', 'infinity', '0', '{}', '000',
     -1, 'pg_type', 'null', NULL),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


def test_cells_are_those_of_the_load_from_postgresql(
    postgres_url: str, slot: Callable[[], str]
) -> None:
    run(postgres_url, MANY_TYPES, VALUES)
    table = TableId("public", "t")
    exported = slot()

    with gauss_snapshot.imported(session(postgres_url), exported) as reading:
        rows = rows_of(reading, table)

    theirs: list[Cells] = []
    with snapshot.imported(parse_dsn(postgres_url), exported) as connection:
        reading = SnapshotReading(connection, connection)
        (shape,) = reading.shapes([table])
        reading.copy_rows(table, shape.columns, theirs.extend)
    assert rows == theirs
    assert rows[0][:5] == [b"t", b"x", b"ab   ", b"", b"\\x00ff"]
    assert rows[2] == [None] * 15


def test_a_label_that_is_renamed_meanwhile_is_not_read_by_its_new_name(
    postgres_url: str, slot: Callable[[], str]
) -> None:
    run(
        postgres_url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE public.big (id int PRIMARY KEY, v mood[])",
        "INSERT INTO public.big"
        " SELECT n, array_fill('sad'::mood, '{100}') FROM generate_series(1, 20000) n",
    )
    seen: list[Cells] = []
    with gauss_snapshot.imported(session(postgres_url), slot()) as reading:
        (shape,) = reading.shapes([table := TableId("public", "big")])

        def take(some: Sequence[Cells]) -> None:
            if not seen:
                run(postgres_url, "ALTER TYPE mood ADD VALUE 'more'")
                run(postgres_url, "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'")
            seen.extend(some)

        with pytest.raises(TableChanging, match="label"):
            reading.copy_rows(table, shape.columns, take)

    assert seen
    assert not any(b"glad" in (row[1] or b"") for row in seen)


@pytest.mark.parametrize("rows", [0, 3000])
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER SCHEMA one RENAME TO away; ALTER SCHEMA two RENAME TO one",
        "ALTER SCHEMA one RENAME TO away",
    ],
)
def test_a_schema_that_is_renamed_meanwhile_is_noticed(
    postgres_url: str, slot: Callable[[], str], statement: str, moment: str, rows: int, monkeypatch
) -> None:
    """A lock on a table keeps its name, and not that of its schema: another one is copied."""
    for schema in ("one", "two"):
        run(
            postgres_url,
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.t (id int PRIMARY KEY, v text)",
            f"INSERT INTO {schema}.t SELECT n, '{schema}' FROM generate_series(1, {rows}) n",
        )
    before = GaussReading._only

    def only(reading: GaussReading, table: TableId) -> str:
        run(postgres_url, statement)
        return before(reading, table)

    with gauss_snapshot.imported(session(postgres_url), slot()) as reading:
        (shape,) = reading.shapes([table := TableId("one", "t")])
        if moment == "before":
            run(postgres_url, statement)
        else:
            monkeypatch.setattr(GaussReading, "_only", only)
        came: list[Cells] = []
        with pytest.raises(TableChanging, match=r"schema was renamed|altered after"):
            reading.copy_rows(table, shape.columns, came.extend)
    assert not came


def test_only_what_the_snapshot_saw_is_read(postgres_url: str, slot: Callable[[], str]) -> None:
    run(
        postgres_url,
        # Autovacuum would look, too, and an estimate is what was found last, whatever the snapshot.
        sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) STORED)"
                " WITH (autovacuum_enabled = false)")
        .format(NAME),
        sql.SQL("INSERT INTO {} SELECT g FROM generate_series(1, 3000) g").format(NAME),
        sql.SQL("ANALYZE {}").format(NAME),
    )  # fmt: skip
    exported = slot()
    run(postgres_url, sql.SQL("INSERT INTO {} VALUES (3001)").format(NAME))

    with gauss_snapshot.imported(session(postgres_url), exported) as reading:
        rows = rows_of(reading, TABLE)
        expected = reading.estimated_rows(TABLE)

    assert sorted(int(row[0] or 0) for row in rows if isinstance(row[0], bytes)) == [
        *range(1, 3001)
    ]
    assert all(row[0] == row[1] for row in rows)
    assert (expected, reading.encoding) == (3000, "UTF8")


def test_a_column_dropped_after_the_snapshot_begins_the_load_again(
    postgres_url: str, slot: Callable[[], str]
) -> None:
    run(postgres_url, "CREATE TABLE public.altered (id int PRIMARY KEY, name text)")
    exported = slot()
    with gauss_snapshot.imported(session(postgres_url), exported) as reading:
        table = TableId("public", "altered")
        (shape,) = reading.shapes([table])
        run(postgres_url, "ALTER TABLE public.altered DROP COLUMN name")
        with pytest.raises(TableChanging) as caught:
            reading.copy_rows(table, shape.columns, lambda _: None)

    assert caught.value.verdict is Verdict.RETRY


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE b",
        "ALTER TABLE b ALTER v TYPE int USING v + 1",
        "ALTER TABLE b ADD COLUMN n int",
        "TRUNCATE p_0",
    ],
)
def test_a_table_that_was_emptied_or_altered_after_the_snapshot_is_not_held(
    statement: str, postgres_url: str, slot: Callable[[], str]
) -> None:
    run(
        postgres_url,
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY, v int); INSERT INTO b VALUES (1, 1)",
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (9); INSERT INTO p VALUES (1)",
    )
    tables = [TableId("public", name) for name in "abp"]
    exported = slot()
    open_session = session(postgres_url)
    with open_session() as now:
        with gauss_snapshot.imported(open_session, exported) as reading:
            run(postgres_url, "INSERT INTO b VALUES (2, 2)")  # rows may change
            assert len(gauss_snapshot.hold(reading, now, tables)) == 3
        run(postgres_url, statement)
        with (
            gauss_snapshot.imported(open_session, exported) as reading,
            pytest.raises(TableChanging) as caught,
        ):
            gauss_snapshot.hold(reading, now, tables)

    assert caught.value.where["table"] == TableId("public", "p" if "p_0" in statement else "b")
    assert caught.value.verdict is Verdict.RETRY


def test_partitions_are_read_with_their_table_and_children_without_their_parent(
    postgres_url: str, slot: Callable[[], str]
) -> None:
    run(
        postgres_url,
        "CREATE TABLE public.root (a int) PARTITION BY RANGE (a)",
        "CREATE TABLE public.part PARTITION OF public.root FOR VALUES FROM (0) TO (9)",
        "INSERT INTO public.root VALUES (1)",
        "CREATE TABLE public.parent (a int)",
        "CREATE TABLE public.child () INHERITS (public.parent)",
        "INSERT INTO public.parent VALUES (2)",
        "INSERT INTO public.child VALUES (3)",
        "CREATE TABLE public.nothing ()",
        "INSERT INTO public.nothing DEFAULT VALUES",
    )

    with gauss_snapshot.imported(session(postgres_url), slot()) as reading:
        read = {
            name: rows_of(reading, TableId("public", name))
            for name in ("root", "parent", "child", "nothing")
        }

    assert read == {"root": [[b"1"]], "parent": [[b"2"]], "child": [[b"3"]], "nothing": [[]]}


def test_a_snapshot_that_is_gone_is_an_error(postgres_url: str) -> None:
    with (
        pytest.raises(SourceError),
        gauss_snapshot.imported(session(postgres_url), "00000003-0000001B-1"),
    ):
        pass


def test_a_session_is_closed_when_a_load_is_given_up(
    postgres_url: str, slot: Callable[[], str]
) -> None:
    run(postgres_url, "CREATE TABLE public.t AS SELECT g FROM generate_series(1, 200000) g")

    class Left(Exception):
        pass

    def leave(_: list[Cells]) -> None:
        raise Left

    with pytest.raises(Left):  # noqa: SIM117, PT012  the load ends inside
        with gauss_snapshot.imported(session(postgres_url), slot()) as reading:
            (shape,) = reading.shapes([TableId("public", "t")])
            reading.copy_rows(shape.id, shape.columns, leave)


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("UTF8", "naïve 金额 🐘".encode()),
        ("LATIN1", b"na\xefve"),
        ("EUC_CN", "金额".encode("gb2312")),
        ("SQL_ASCII", b"\x81\x5c\xff \xc4\xe3"),
    ],
)
def test_a_load_gives_the_bytes_that_a_stream_sends(
    addresses: Addresses, encoding: str, raw: bytes
) -> None:
    """A walsender converts nothing: a row of test_decoding holds the database's own bytes."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    run(
        addresses.postgres_url(),
        f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0",
    )
    url = addresses.postgres_url(name)
    arguments = parse_dsn(url)
    try:
        with (
            ReplicationConnection.open(arguments) as stream,
            ReplicationConnection.open(arguments) as later,
        ):
            stream.create_slot(f"{name}_s", "test_decoding", temporary=True)
            run(
                url,
                "CREATE TABLE public.t (v text)",
                sql.SQL("INSERT INTO public.t VALUES (convert_from({}, {}))").format(
                    sql.Literal(psycopg2.Binary(raw)), sql.Literal(encoding)
                ),
            )
            made = later.create_slot(f"{name}_t", "test_decoding", temporary=True)
            with gauss_snapshot.imported(session(url), made.snapshot) as reading:
                rows = rows_of(reading, TableId("public", "t"))
            stream.start(f"{name}_s", {})
            sent = [payload for _, _, payload in received_row(stream)]
    finally:
        drop_database(addresses.postgres_url(), name)

    assert (rows, reading.encoding) == ([[raw]], encoding)
    assert sent == [b"table public.t: INSERT: v[text]:'" + raw + b"'"]


def received_row(stream: ReplicationConnection) -> list[WalMessage]:
    """Wait for the first row."""
    while True:
        if rows := [m for m in stream.receive(60).messages if m[2].startswith(b"table ")]:
            return rows
