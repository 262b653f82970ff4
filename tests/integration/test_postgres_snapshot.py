"""Tables read under one snapshot, on a real server that ends sessions."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

from gauss_cdc_lab.services.process import poll
from producer.core.changes import Cells
from producer.core.ports import ShutdownRequested
from producer.errors import ConnectionLost, SourceError, TableChanging
from producer.sources import meaning as names
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog, snapshot
from producer.sources.postgres.snapshot import SnapshotReading
from schemas.tables import TableId
from tests.services_fixtures import execute

# Six megabytes: more than sockets hold.
BIG = """
CREATE TABLE big (id int PRIMARY KEY, v text);
INSERT INTO big SELECT n, repeat(chr(97 + mod(n, 26)), 700) FROM generate_series(1, 20000) n;
"""
TABLES = """
CREATE TABLE a_empty (id int PRIMARY KEY);
CREATE TABLE b_keyless (v text, n int);
INSERT INTO b_keyless SELECT 'same', mod(n, 3) FROM generate_series(1, 5000) n;
CREATE COLLATION nobodys (provider = icu, locale = 'de-u-kn', deterministic = false);
CREATE TABLE c_text (k text COLLATE nobodys PRIMARY KEY, v text);
INSERT INTO c_text SELECT 'ä' || n, E'tab\\t\\\\ and\\nline' FROM generate_series(1, 5000) n;
CREATE TABLE d_parent (id int PRIMARY KEY);
CREATE TABLE d_child () INHERITS (d_parent);
INSERT INTO d_parent SELECT generate_series(1, 3000);
INSERT INTO d_child SELECT generate_series(1, 3000);
CREATE TABLE e_parts (id int, at int) PARTITION BY RANGE (id);
CREATE TABLE e_low PARTITION OF e_parts FOR VALUES FROM (0) TO (3000);
CREATE TABLE e_high PARTITION OF e_parts FOR VALUES FROM (3000) TO (9000) PARTITION BY LIST (at);
CREATE TABLE e_odd (at int, id int);
ALTER TABLE e_high ATTACH PARTITION e_odd FOR VALUES IN (1);
CREATE TABLE e_none PARTITION OF e_high FOR VALUES IN (2);
INSERT INTO e_parts SELECT n, 1 FROM generate_series(0, 6000) n;
CREATE TABLE f_bare (); INSERT INTO f_bare SELECT FROM generate_series(1, 3);
"""
NAMES = ("a_empty", "b_keyless", "c_text", "d_parent", "e_parts", "f_bare")
CHANGES = """
DELETE FROM b_keyless WHERE n = 1; UPDATE c_text SET v = 'new';
INSERT INTO d_parent SELECT generate_series(5000, 9000); UPDATE e_parts SET id = 0 WHERE id < 3000;
"""
Rows = dict[TableId, list[tuple[bytes | None, ...]]]


def tables(names: Sequence[str]) -> list[TableId]:
    return [TableId.of(name) if "." in name else TableId("public", name) for name in names]


RENAMED = "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'"
UNDONE = "ALTER TYPE mood RENAME VALUE 'glad' TO 'sad'"


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute(statement)
        return cursor.fetchall()


@contextmanager
def opened(url: str, names: Sequence[str]) -> Iterator[SnapshotReading]:
    """A reading under a snapshot whose first session is gone, as at a point."""
    arguments = parse_dsn(url)
    with closing(catalog.connect(arguments)) as now:
        with closing(catalog.connect(arguments)) as first, first.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()")
            imported = snapshot.imported(arguments, cursor.fetchone()[0])
            holder = imported.__enter__()
        try:
            snapshot.hold(holder, now, tables(names))
            yield SnapshotReading(holder, now, are_held=True)
        finally:
            imported.__exit__(None, None, None)


def read(
    reading: SnapshotReading, names: Sequence[str], meanwhile: Callable[[], None] = lambda: None
) -> Rows:
    """All rows, sorted; `meanwhile` is called once, behind the first ones."""
    found: Rows = {}
    called: list[None] = []
    for shape in reading.shapes(tables(names)):
        rows = found.setdefault(shape.id, [])

        def take(some: Sequence[Cells], rows: list[Any] = rows) -> None:
            rows.extend(map(tuple, some))
            if not called:
                called.append(None)
                meanwhile()

        reading.copy_rows(shape.id, shape.columns, take)
        rows.sort(key=repr)
    return found


def test_every_row_of_every_table_is_read_once(postgres_url: str) -> None:
    execute(postgres_url, TABLES)

    with opened(postgres_url, NAMES) as reading:
        execute(postgres_url, CHANGES)
        found = read(reading, NAMES)

    counts = {table.name: len(rows) for table, rows in found.items()}
    assert counts == dict(zip(NAMES, (0, 5000, 5000, 3000, 6001, 3), strict=True))
    kinds = Counter(row[1] for row in found[TableId("public", "b_keyless")])
    assert sorted(kinds.values()) == [1666, 1667, 1667]


def test_a_table_that_becomes_a_partition_later_is_none_of_the_snapshots(postgres_url: str) -> None:
    """ATTACH does not wait for a reader, whose statements see partitions as they are by then."""
    later = "CREATE TABLE e_later (id int, at int); INSERT INTO e_later VALUES (9000, 1)"
    execute(postgres_url, f"{TABLES}; {later}")
    attach = "ALTER TABLE e_parts ATTACH PARTITION e_later FOR VALUES FROM (9000) TO (9999)"

    with opened(postgres_url, NAMES) as reading:
        execute(postgres_url, attach)
        found = read(reading, NAMES)

    assert len(found[TableId("public", "e_parts")]) == 6001
    assert (b"9000", b"1") not in found[TableId("public", "e_parts")]


def test_a_table_that_ddl_waits_for_is_read_to_its_end(postgres_url: str) -> None:
    """A second session would wait behind the DROP, which waits for the one that holds the table."""
    execute(postgres_url, BIG)
    dropper = threading.Thread(target=execute, args=(postgres_url, "DROP TABLE big"))

    def drop() -> None:
        dropper.start()
        waits = "SELECT count(*) FROM pg_locks WHERE relation = 'big'::regclass AND NOT granted"
        assert poll(lambda: ask(postgres_url, waits) == [(1,)], 60)

    with opened(postgres_url, ["big"]) as reading:
        rows = read(reading, ["big"], drop)
        assert dropper.is_alive()
    dropper.join(60)

    assert len(set(rows[TableId("public", "big")])) == 20000
    assert ask(postgres_url, "SELECT to_regclass('big')") == [(None,)]


@pytest.mark.parametrize("statements", [[RENAMED], [RENAMED, UNDONE]])
def test_a_label_that_is_renamed_meanwhile_is_not_read_by_its_new_name(
    postgres_url: str, statements: list[str]
) -> None:
    """The stream renames it at its place; a target has no such label before."""
    execute(
        postgres_url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (m mood[], n int); "
        "CREATE TABLE big (id int PRIMARY KEY, v pair); INSERT INTO big SELECT n,"
        " ROW(array_fill('sad'::mood, '{100}'), n)::pair FROM generate_series(1, 20000) n",
    )

    def rename() -> None:
        execute(postgres_url, "ALTER TYPE mood ADD VALUE 'more'")
        for statement in statements:
            execute(postgres_url, statement)

    seen: list[Cells] = []
    with opened(postgres_url, ["big"]) as reading:
        (shape,) = reading.shapes(tables(["big"]))

        def take(some: Sequence[Cells]) -> None:
            if not seen:
                rename()
            seen.extend(some)

        with pytest.raises(TableChanging, match="label"):
            reading.copy_rows(shape.id, shape.columns, take)

    assert seen
    assert not any(b"glad" in (row[1] or b"") for row in seen)


def test_a_holder_that_ended_protected_nothing(postgres_url: str) -> None:
    execute(postgres_url, BIG)

    with opened(postgres_url, ["big"]) as reading:
        end = f"SELECT pg_terminate_backend({reading.connection.info.backend_pid})"
        with pytest.raises(ConnectionLost):
            read(reading, ["big"], lambda: execute(postgres_url, end))


def test_a_stop_leaves_no_session_behind(postgres_url: str) -> None:
    execute(postgres_url, BIG)

    def stop() -> None:
        raise ShutdownRequested

    with pytest.raises(ShutdownRequested), opened(postgres_url, ["big"]) as reading:
        read(reading, ["big"], stop)

    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert poll(lambda: ask(postgres_url, others) == [(1,)], 60)


SWAPPED = """
ALTER SCHEMA public RENAME TO moved;
CREATE SCHEMA public; CREATE SEQUENCE public.calls;
CREATE FUNCTION public.call() RETURNS bool LANGUAGE sql AS $$ SELECT nextval('public.calls') > 0 $$;
CREATE VIEW public.big AS SELECT ctid, id, v FROM moved.big WHERE public.call();
"""


def test_a_view_in_a_tables_place_is_not_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a table keeps its name, and not that of its schema."""
    execute(postgres_url, BIG)
    before = names.meaning

    def meaning(asks: Any, table: TableId) -> names.Meant | None:
        found = before(asks, table)
        if asks._connection is now:
            monkeypatch.undo()
            execute(postgres_url, SWAPPED)
        return found

    with opened(postgres_url, ["big"]) as reading:
        shapes, now = reading.shapes(tables(["big"])), reading._now
        monkeypatch.setattr(names, "meaning", meaning)

        with pytest.raises(SourceError, match="view"):
            reading.copy_rows(shapes[0].id, shapes[0].columns, lambda _: None)

    assert ask(postgres_url, "SELECT is_called FROM public.calls") == [(False,)]


TWO = """
CREATE SCHEMA one; CREATE SCHEMA two;
CREATE TABLE one.t (id int PRIMARY KEY, v text); CREATE TABLE two.t (id int PRIMARY KEY, v text);
INSERT INTO one.t SELECT n, 'one' FROM generate_series(1, 3000) n;
INSERT INTO two.t SELECT n, 'two' FROM generate_series(1, {rows}) n;
"""
SWAP = (
    "ALTER SCHEMA one RENAME TO away; ALTER SCHEMA two RENAME TO one;"
    "ALTER SCHEMA away RENAME TO two"
)


@pytest.mark.parametrize("statement", [SWAP, "ALTER SCHEMA two RENAME TO away"])
def test_a_schema_that_is_renamed_meanwhile_is_noticed(postgres_url: str, statement: str) -> None:
    execute(postgres_url, TWO.format(rows=3000))
    both = ["one.t", "two.t"]
    renamed = pytest.raises(TableChanging, match="schema was renamed")
    with opened(postgres_url, both) as reading, renamed:
        read(reading, both, lambda: execute(postgres_url, statement))


def test_a_table_whose_file_has_no_block_is_not_asked_for_rows(postgres_url: str) -> None:
    """Nobody empties a held table, and what is written to it by now is none of the snapshot's."""
    gone = "CREATE TABLE g_gone (id int); INSERT INTO g_gone SELECT 1"
    execute(postgres_url, f"{TABLES}; {gone}")
    some = [*NAMES, "e_none", "g_gone"]

    with opened(postgres_url, some) as reading:
        execute(postgres_url, "DELETE FROM g_gone")
        empty = [t for t in tables(some) if reading.is_empty(t)]
        execute(postgres_url, "INSERT INTO a_empty VALUES (1); INSERT INTO e_none VALUES (4000, 2)")
        found = read(reading, some)

    assert empty == tables(["a_empty", "e_none"])
    assert [len(found[t]) for t in tables(["a_empty", "e_none", "g_gone"])] == [0, 0, 1]
