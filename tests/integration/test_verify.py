"""Rows of two snapshots, with the changes between them given: PostgreSQL alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg2
import pytest

from gauss_cdc.verify.report import Outcome, RowKind, TableReport
from gauss_cdc.verify.request import Request, Sample, VerifyObserver
from gauss_cdc.verify.rounds import SnapshotPair
from gauss_cdc.verify.servers import ServerPair
from gauss_cdc.verify.sides import ComparedServer, TargetSession, settled
from gauss_cdc.verify.text import ComparedColumn, RowText, Spelling
from gauss_cdc.verify.window import Window
from producer.sources import session_settings
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.snapshot import stream_shapes
from schemas.tables import UNCHANGED, TableId
from spark_consumers.model import Change, Ledger
from spark_consumers.sinks.postgres.catalog import read_tables
from spark_consumers.sinks.postgres.products import POSTGRES
from spark_consumers.sinks.postgres.tables import narrow_columns

T = TableId("public", "t")
NAMES = ("id", "a", "b")
TABLE = "CREATE TABLE t (id int PRIMARY KEY, a text, b numeric)"
ROWS = "INSERT INTO t SELECT g, 'a' || g, g FROM generate_series(1, 300) g"


@contextmanager
def server(url: str, *, is_source: bool) -> Iterator[ComparedServer]:
    with closing(psycopg2.connect(url)) as first, closing(psycopg2.connect(url)) as second:
        reading, now = TargetSession(first), TargetSession(second)
        for session in (reading, now):
            session.connection.autocommit = True
            settled(session, session_settings.POSTGRES)
        reading.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reading.query("SELECT 1")
        yield ComparedServer(reading, now, is_source=is_source)


def run(url: str, *statements: str) -> None:
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def compared(
    source: str,
    target: str,
    *changes: Change,
    table: TableId = T,
    sample: Sample | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> TableReport:
    """Compare a table; `changes` are what the target holds and the source's snapshot does not."""
    watch = VerifyObserver(print, lambda *_: None, threading.Event().wait)
    with (
        server(source, is_source=True) as ours,
        server(target, is_source=False) as theirs,
        closing(catalog.connect(parse_dsn(source))) as asked,
    ):
        (shape,) = stream_shapes(catalog.table_schemas(asked, [table]))
        with theirs.reading.connection.cursor() as cursor:
            there = read_tables(cursor, [table])
            narrow = [*narrow_columns(cursor, POSTGRES, there[table], shape)] if there else []
        meanwhile()
        window = Window(len(changes), {table: list(changes)} if changes else {})
        request = Request(sample=sample or Sample())
        ledger = Ledger("s", epoch=1, seq=9)
        servers = ServerPair(request, watch, ours, theirs, ledger, there.get, lambda *_: narrow)
        return SnapshotPair(servers, window).compare(shape)


def change(op: str, before=None, after=None) -> Change:
    return Change(9, 0, op, NAMES, before, after)


@pytest.fixture
def pair(new_database) -> tuple[str, str]:
    source, target = new_database(), new_database()
    for url in (source, target):
        run(url, TABLE, ROWS)
    return source, target


def test_a_lost_update_is_found_although_both_snapshots_show_the_same_row(pair) -> None:
    found = compared(*pair, change("u", None, ["7", "new", "7"]))

    assert [(row.kind, row.key, row.columns) for row in found.rows] == [
        (RowKind.CHANGED, ("7",), ("a",))
    ]


def test_what_the_target_already_holds_of_later_commits_is_no_difference(pair) -> None:
    source, target = pair
    run(
        target,
        "UPDATE t SET a = 'new' WHERE id = 7",
        "UPDATE t SET id = 1007, b = 1.50 WHERE id = 8",
        "DELETE FROM t WHERE id = 9",
        "INSERT INTO t VALUES (500, NULL, 'NaN')",
    )

    found = compared(
        source,
        target,
        change("u", None, ["7", "new", UNCHANGED]),  # the source's snapshot has the rest
        change("u", ["8", UNCHANGED, UNCHANGED], ["1007", UNCHANGED, "1.50"]),
        change("d", ["9", UNCHANGED, UNCHANGED]),
        change("c", None, ["500", None, "NaN"]),
        change("c", None, ["501", None, "1"]),
        change("d", ["501", UNCHANGED, UNCHANGED]),
    )

    assert found.outcome is Outcome.EQUAL, found
    assert (found.settled, found.source_rows, found.target_rows) == (6, 300, 300)


def test_of_changed_rows_what_a_stranger_did_is_still_found(pair) -> None:
    source, target = pair
    run(target, "UPDATE t SET b = 0 WHERE id = 7", "DELETE FROM t WHERE id IN (8, 20)")

    found = compared(
        source,
        target,
        change("u", None, ["7", "a7", "7"]),
        change("u", None, ["8", "a8", "8"]),
        change("d", ["30", UNCHANGED, UNCHANGED]),
    )

    assert {(row.kind, row.key) for row in found.rows} == {
        (RowKind.CHANGED, ("7",)),
        (RowKind.MISSING, ("8",)),
        (RowKind.MISSING, ("20",)),
        (RowKind.EXTRA, ("30",)),
    }


def test_a_key_that_stands_twice_is_found_also_if_its_row_changed(new_database) -> None:
    source, target = new_database(), new_database()
    run(source, TABLE, ROWS)
    run(target, TABLE.replace(" PRIMARY KEY", ""), ROWS, "INSERT INTO t VALUES (7, 'a7', 7)")
    run(target, "INSERT INTO t VALUES (8, 'else', 8)")

    changes = [change("u", None, [str(n), f"a{n}", str(n)]) for n in (7, 8, 9)]
    found = compared(source, target, *changes)

    assert {(row.kind, row.key) for row in found.rows} == {
        (RowKind.EXTRA, ("7",)), (RowKind.EXTRA, ("8",))
    }  # fmt: skip
    assert found.counts == {RowKind.EXTRA: 2}


def test_rows_without_a_key_are_counted_with_those_that_come_and_go(new_database) -> None:
    source, target = new_database(), new_database()
    for url in (source, target):
        run(url, "CREATE TABLE t (id int, a text, b numeric)", ROWS, ROWS)
    gone, come = ["5", "a5", "5"], ["5", "a5", "5.0"]
    run(
        target,
        "DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE id = 5)",
        "INSERT INTO t VALUES (5, 'a5', 5.0)",
    )

    equal = compared(source, target, change("u", gone, come))
    wrong = compared(source, target, change("u", gone, come), change("d", gone))
    unsaid = compared(source, target, change("d", ["5", UNCHANGED, UNCHANGED]))

    assert equal.outcome is Outcome.EQUAL, equal
    assert wrong.counts == {RowKind.EXTRA: 1}
    assert (unsaid.outcome, unsaid.is_passing) == (Outcome.UNDECIDED, True)


def test_a_table_that_was_emptied_behind_the_snapshot_is_not_decided(pair) -> None:
    source, target = pair

    found = compared(source, target, meanwhile=lambda: run(target, "TRUNCATE t"))

    assert found.outcome is Outcome.UNDECIDED
    assert found.undecided == "it was emptied, rewritten or altered meanwhile"


def test_a_column_that_is_not_copied_is_named(pair) -> None:
    source, target = pair
    run(source, "ALTER TABLE t ADD made int GENERATED ALWAYS AS (1 + 1) STORED")

    report = compared(source, target)

    assert report.outcome is Outcome.EQUAL
    assert report.notes == ["columns that are not copied: made"]


def test_a_table_that_the_target_lacks_has_all_its_rows_missing(pair) -> None:
    source, target = pair
    run(target, "DROP TABLE t")

    assert compared(source, target).counts == {RowKind.MISSING: 300}


@pytest.mark.parametrize(("kind", "state"), [("regclass", "42P01"), ("regtype", "42704")])
def test_a_value_that_names_what_the_target_lacks_is_not_said(
    kind: str, state: str, new_database
) -> None:
    """The server's message repeats it."""
    source, target = new_database(), new_database()
    run(
        source, "CREATE TABLE t (id int PRIMARY KEY, a varchar)", "INSERT INTO t VALUES (1, 'cell')"
    )
    run(target, f"CREATE TABLE t (id int PRIMARY KEY, a {kind})")

    found = compared(source, target)

    assert found.outcome is Outcome.UNDECIDED
    assert "cell" not in found.undecided
    assert found.undecided.endswith(f"(sqlstate={state})")


def test_a_target_with_wider_types_and_another_order_of_columns_is_equal(new_database) -> None:
    source, target = new_database(), new_database()
    run(
        source,
        "CREATE TABLE t (id int PRIMARY KEY, a character(5), b numeric(10,1), c real, d boolean)",
        "INSERT INTO t SELECT g, 'x' || g, g / 3.0, g / 7.0, g % 2 = 0"
        " FROM generate_series(1, 50) g",
        "INSERT INTO t VALUES (-1, NULL, 'NaN', '-0', NULL), (-2, '', 0, 'infinity', true)",
    )
    run(
        target,
        "CREATE TABLE t (c double precision, b numeric(13,4), d text, own int DEFAULT 1,"
        " id bigint PRIMARY KEY, a character varying(9))",
    )
    with closing(psycopg2.connect(source)) as ours, ours.cursor() as cursor:
        cursor.execute("SELECT id, concat(a), b::text, c::text, concat(d), a IS NULL FROM t")
        for id_, a, b, c, d, is_null in cursor.fetchall():
            values = [id_, None if is_null else a, b, c, d or None]
            with closing(psycopg2.connect(target)) as theirs, theirs, theirs.cursor() as writing:
                writing.execute(
                    "INSERT INTO t (id, a, b, c, d) VALUES (%s, %s, %s, %s, %s)", values
                )

    assert compared(source, target).outcome is Outcome.EQUAL


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "there"),
    [
        ("numeric(10,4)", "numeric(10,2)", "1.2345", "1.23"),
        ("double precision", "real", "0.1234567890123", "0.12345679"),
        ("timestamp", "timestamp(0)", "2026-01-01 00:00:00.4", "2026-01-01 00:00:00"),
        ("timestamp", "date", "2026-01-01 12:00:00", "2026-01-01"),
    ],
)
def test_a_value_that_the_targets_type_rounds_is_not_equal(
    new_database, ours: str, theirs: str, value: str, there: str
) -> None:
    """The source's text is read by that type before it is compared."""
    source, target = new_database(), new_database()
    for url, kind, cell in ((source, ours, value), (target, theirs, there)):
        run(
            url,
            f"CREATE TABLE t (id int PRIMARY KEY, a {kind})",
            f"INSERT INTO t VALUES (1, '{cell}'), (2, NULL)",
        )

    cut = compared(source, target)
    run(target, "DELETE FROM t WHERE id = 2")
    lost = compared(source, target)

    assert cut.outcome is Outcome.UNDECIDED
    assert cut.undecided.startswith("types of the target do not hold the source's values: a (")
    assert not cut.is_passing
    assert lost.counts == {RowKind.MISSING: 1}


def test_a_text_that_the_target_cuts_is_another_one(new_database) -> None:
    source, target = new_database(), new_database()
    run(source, "CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'abcd')")
    run(target, "CREATE TABLE t (id int PRIMARY KEY, a character varying(3))",
        "INSERT INTO t VALUES (1, 'abc')")  # fmt: skip

    found = compared(source, target)

    assert found.outcome is Outcome.DIFFERENT
    assert found.counts == {RowKind.CHANGED: 1}


def test_a_value_that_no_type_of_the_target_holds_is_not_said(new_database) -> None:
    source, target = new_database(), new_database()
    run(source, "CREATE TABLE t (id int PRIMARY KEY, a numeric)", "INSERT INTO t VALUES (1, 4.2)")
    run(target, "CREATE TABLE t (id int PRIMARY KEY, a int)")

    found = compared(source, target)

    assert found.undecided == "a value of the source is none of the target's type (sqlstate=22P02)"


@pytest.mark.parametrize("has_num_nulls", [False, True])
def test_rows_in_a_column_print_differently_whatever_of_them_is_null(
    has_num_nulls: bool, new_database
) -> None:
    """Of a row with any NULL neither IS NULL nor IS NOT NULL is true."""
    url = new_database()
    run(url, "CREATE TYPE pair AS (a int, b text)", "CREATE DOMAIN word AS text")
    rows = (
        "(SELECT id, p::pair, w::word FROM (VALUES (1, '(1,)', ''), (2, '(,x)', NULL),"
        " (3, '(1,x)', 'w'), (4, '(,)', NULL), (5, NULL, NULL)) AS r (id, p, w)) AS v"
    )
    columns = [ComparedColumn(n, t, t) for n, t in (("p", "public.pair"), ("w", "public.word"))]
    text = RowText((*columns,), (), Spelling(has_num_nulls=has_num_nulls), is_source=True)

    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {text.cells(columns, 'v')} FROM {rows} ORDER BY v.id")
        printed = cursor.fetchall()

    assert [pair for pair, _ in printed] == ["(1,)", "(,x)", "(1,x)", "(,)", None]
    assert [word for _, word in printed] == ["", None, "w", None, None]


def test_a_character_is_one_value_whichever_server_pads_it(new_database) -> None:
    """openGauss counts bytes: of two characters of three bytes each it has two blanks."""
    url, column = new_database(), ComparedColumn("c", "character(8)", "character(8)")
    source, target = (
        RowText((column,), (), Spelling(has_gauss=True), is_source=side) for side in (True, False)
    )
    run(url, "CREATE TABLE t (id int PRIMARY KEY, c character(8))",
        "INSERT INTO t VALUES (1, '中文  '), (2, ''), (3, NULL), (4, 'a b')")  # fmt: skip
    sent = "(VALUES (1, '中文  '), (2, '        '), (3, NULL), (4, 'a b     ')) AS v (id, c)"

    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {source.cell(column, 'v.c')}, {target.cell(column, 't.c')}"
            f" FROM {sent} JOIN t ON t.id = v.id ORDER BY v.id"
        )
        printed = cursor.fetchall()

    assert printed == [(text, text) for text in ("中文 ", " ", None, "a b ")]


def test_ranges_and_samples_hold_the_same_rows_at_both_servers(new_database) -> None:
    source, target = new_database(), new_database()
    for url in (source, target):
        run(
            url,
            "CREATE TABLE t (id bigint, at timestamptz, a text, PRIMARY KEY (id, at))",
            "INSERT INTO t SELECT g % 300, '0040-01-01 BC'::timestamptz + g * interval '1 day', g"
            " FROM generate_series(1, 120000) g",
            "INSERT INTO t VALUES (1, '-infinity', ''), (299, 'infinity', NULL)",
            "ANALYZE t",
        )
    run(target, "UPDATE t SET a = 'x' WHERE at = 'infinity'", "DELETE FROM t WHERE a = '70000'")

    whole = compared(source, target)
    part = compared(source, target, sample=Sample(rows=6000))

    assert whole.counts == {RowKind.CHANGED: 1, RowKind.MISSING: 1}
    assert (whole.source_rows, whole.target_rows) == (120_002, 120_001)
    assert 4500 < part.source_rows < 7500
    assert part.source_rows - part.target_rows <= 1
