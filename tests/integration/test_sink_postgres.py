"""The sink contract, against a real PostgreSQL: by psycopg2, and as openGauss' sink speaks.

No openGauss runs here: its statements and its client meet a PostgreSQL.
"""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit, urlunsplit

import psycopg2
import pytest

from gauss_cdc.gauss_dbapi import connect
from producer.sources.dial import parse_dsn
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from schemas.control import Hole, LoadPhase, Origin
from schemas.tables import UNCHANGED, Column, TableId, TableSchema, UserType
from spark_consumers.errors import (
    Fenced,
    MissingColumn,
    MissingTable,
    NotExpressible,
    RowMissing,
    Superseded,
    TargetDown,
    TargetNotEmpty,
    TargetNotPermitted,
    TargetRefused,
)
from spark_consumers.job import Applier
from spark_consumers.sinks.postgres.products import OPENGAUSS
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.spark_consumers.feed import (
    Feed,
    Row,
    Tx,
    alter,
    delete,
    insert,
    table,
    truncate,
    update,
)

# PostgreSQL tells in another place which columns are generated.
AS_OPENGAUSS = replace(
    OPENGAUSS,
    columns=OPENGAUSS.columns.replace(
        """row_to_json(d)::text LIKE '%%"adgencol":"s"%%'""", "a.attgenerated = 's'"
    ),
)
ACCOUNT = table("account", "id integer, name text, note text")


only_postgresql = pytest.mark.parametrize("kind", ["postgres"], indirect=True)


class Target:
    """A target database with one applier of one feed."""

    def __init__(self, url: str, kind: str, **options: object) -> None:
        self.url, self.feed, self.kind = url, Feed(), kind
        self.sink = self.new_sink(**options)
        self.applier = Applier(self.feed.read_cuts, self.feed.read_rows, self.sink)
        self.feed.start()

    def new_sink(self, url: str | None = None, **options: object) -> PostgresSink:
        url = url or self.url
        if self.kind == "postgres":
            return PostgresSink(url, self.feed.source, **options)
        arguments = partial(connect, parse_dsn(url), settings=SESSION_SETTINGS)
        return PostgresSink(arguments, self.feed.source, product=AS_OPENGAUSS, **options)

    def drain(self):
        return self.applier.drain()

    def apply(self, *rows):
        self.feed.commits(list(rows))
        return self.drain()

    def run(self, statement: str, *arguments: object) -> None:
        with psycopg2.connect(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(statement, arguments)
        conn.close()

    def query(self, statement: str) -> list[tuple]:
        with psycopg2.connect(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(statement)
            rows = cursor.fetchall()
        conn.close()
        return rows


@pytest.fixture(params=["postgres", "opengauss"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def target(new_database: Callable[[], str], kind: str) -> Iterator[Target]:
    one = Target(new_database(), kind)
    yield one
    one.sink.close()


def load(target: Target, schema, *rows) -> None:
    target.feed.load(schema, LoadPhase.BEGIN)
    if rows:
        target.feed.load(schema, LoadPhase.CHUNK, *rows)
    target.feed.load(schema, LoadPhase.END)
    target.drain()


def test_a_load_creates_the_table_and_commits_change_it(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"], ["2", "b", None])

    ledger = target.apply(
        insert(ACCOUNT, "3", "c\t\n\\", "z"), update(ACCOUNT, "1", "A", ...), delete(ACCOUNT, "2")
    )

    assert target.query("SELECT * FROM account ORDER BY id") == [
        (1, "A", "x"),
        (3, "c\t\n\\", "z"),
    ]
    assert (ledger.n, ledger.seq, ledger.state, ledger.inexact) == (5, 1, "EXACT", {})


def rows(target: Target, name: str) -> list[tuple]:
    return target.query(f"SELECT * FROM {name} ORDER BY 1, 2")


# -- what a row can go through


@only_postgresql
def test_a_key_that_the_target_checks_late_may_name_two_rows_for_a_moment(target: Target) -> None:
    target.run("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)")
    late = table("late", "id integer, v text", key="")
    load(target, late, ["1", "a"], ["2", "b"])

    target.apply(insert(late, "1", "twice"), Row(late, "d", ["1", "a"]))
    target.apply(insert(late, "2", "for a moment"), Row(late, "d", ["2", "for a moment"]))

    assert rows(target, "late") == [(1, "twice"), (2, "b")]


def test_a_table_may_be_called_as_sql_calls_the_row_that_was_refused(target: Target) -> None:
    excluded = table("excluded", "id integer, excluded text")
    load(target, excluded, ["1", "a"])

    target.apply(update(excluded, "1", "b"), insert(excluded, "2", "c"))

    assert rows(target, "excluded") == [(1, "b"), (2, "c")]


def test_unique_values_of_a_table_without_a_key_pass_each_other(target: Target) -> None:
    shift = table("shift", "n integer, v text", key="", unique="n")
    load(target, shift, ["1", "a"], ["2", "b"], ["3", "c"])

    # The source's constraint was DEFERRABLE: checked when all rows had moved.
    target.apply(
        *(Row(shift, "u", [str(n), v], [str(n + 1), v]) for n, v in ((1, "a"), (2, "b"), (3, "c"))),
        Row(shift, "u", ["2", "a"], ["9", "a"]),
        insert(shift, "2", "new"),
        Row(shift, "d", ["9", "a"]),
    )

    assert rows(target, "shift") == [(2, "new"), (3, "b"), (4, "c")]


def test_keys_change_and_swap_and_keep_what_was_not_sent(target: Target) -> None:
    load(target, ACCOUNT, ["1", "one", "long 1"], ["2", "two", "long 2"], ["3", "x", "long 3"])

    target.apply(
        update(ACCOUNT, "9", "one", ..., old="1"),
        update(ACCOUNT, "1", "two", ..., old="2"),
        update(ACCOUNT, "2", "one", ..., old="9"),
        update(ACCOUNT, "30", ..., ..., old="3"),
    )

    assert rows(target, "account") == [
        (1, "two", "long 2"),
        (2, "one", "long 1"),
        (30, "x", "long 3"),
    ]


@pytest.mark.parametrize("width", [1597, 1598, 1600])
def test_as_many_columns_as_a_table_can_have(target: Target, width: int) -> None:
    """From 1,598 on a staging table would have more."""
    wide = table("wide", "id integer, " + ", ".join(f"c{n} integer" for n in range(1, width)))
    rest = ["1"] * (width - 2)
    load(target, wide, ["1", "0", *rest], ["2", "0", *rest])

    target.apply(
        insert(wide, "3", "0", *rest),
        update(wide, "1", "7", *[...] * (width - 2)),
        update(wide, "20", "8", *[...] * (width - 2), old="2"),
        delete(wide, "3"),
    )

    assert target.query("SELECT id, c1, c2 FROM wide ORDER BY id") == [(1, 7, 1), (20, 8, 1)]


def test_a_row_that_only_the_target_could_know_and_does_not_is_reported(target: Target) -> None:
    load(target, ACCOUNT)
    target.feed.commits([update(ACCOUNT, "1", "a", ...)])

    with pytest.raises(RowMissing):
        target.drain()

    assert rows(target, "account") == []
    assert target.sink.ledger().seq == 0


def test_an_inexact_table_may_lack_rows(target: Target) -> None:
    load(target, ACCOUNT, ["2", "b", "y"])
    hole = Hole("public.account", "seen", "rows after DDL")
    target.feed.commits(
        Tx([update(ACCOUNT, "1", "a", ...), update(ACCOUNT, "2", "B", ...)], (hole,))
    )

    ledger = target.drain()

    assert rows(target, "account") == [(2, "B", "y")]
    assert (ledger.state, dict(ledger.inexact)) == (
        "LOADING",
        {"public.account": "seen: rows after DDL"},
    )


def test_truncation_in_the_middle(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "x"), truncate(ACCOUNT), insert(ACCOUNT, "3", "c", "x"))

    assert rows(target, "account") == [(3, "c", "x")]


def test_a_table_without_a_key_keeps_its_duplicates(target: Target) -> None:
    log = table("log", "a integer, b text, c json, d double precision", key="")
    load(target, log, *[["1", "x", '{"k": 1}', "NaN"]] * 3, ["2", None, None, None])
    full = ["1", "x", '{"k": 1}', "NaN"]

    target.apply(
        Row(log, "d", full),
        Row(log, "u", full, ["1", "changed", UNCHANGED, "0.5"]),
        insert(log, "3", "\\N", "[]", "1e300"),
        Row(log, "u", ["2", None, None, None], ["2", "now", None, None]),
    )

    assert target.query("SELECT a, b, c::text, d::text FROM log ORDER BY a, b") == [
        (1, "changed", '{"k": 1}', "0.5"),
        (1, "x", '{"k": 1}', "NaN"),
        (2, "now", None, None),
        (3, "\\N", "[]", "1e+300"),
    ]


def test_a_keyless_row_that_is_not_there_is_reported(target: Target) -> None:
    log = table("log", "a integer", key="")
    load(target, log)
    target.feed.commits([Row(log, "d", ["1"])])

    with pytest.raises(RowMissing):
        target.drain()


def test_values_of_every_kind_arrive_as_they_were_written(target: Target) -> None:
    kinds = {
        "bytea": "\\x00ff5c",
        "numeric(40,10)": "123456789012345678901234567890.0123456789",
        "timestamp with time zone": "2024-02-29 23:59:59.999999+00",
        "timestamp without time zone": "infinity",
        "interval": "1 year 2 mons -3 days +04:05:06.7",
        "text[]": '{a,"b,c",NULL,"\\"q\\\\"}',
        "jsonb": '{"a": [1, null]}',
        "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "inet": "10.0.0.0/8",
        "point": "(1.5,-2)",
        "character(5)": "ab   ",
        "double precision": "0.1",
        "money": "$1,234.50",
        "int4range": "[1,5)",
    }
    all_kinds = table("kinds", "id integer, x text", key="id")
    columns = (
        all_kinds.columns[0],
        *(Column(f"Col {at}", at, -1, kind) for at, kind in enumerate(kinds)),
    )
    all_kinds = TableSchema(TableId("public", 'Odd "name'), columns, ("id",))
    load(target, all_kinds)

    target.apply(insert(all_kinds, "1", *kinds.values()), insert(all_kinds, "2", *[None] * 14))
    target.apply(update(all_kinds, "2", *kinds.values()))

    cells = ", ".join(f'"Col {at}"::text' for at in range(14))
    expected = tuple(v.rstrip() if k.startswith("char") else v for k, v in kinds.items())
    target.run("ALTER ROLE postgres SET TimeZone = 'UTC'")
    assert target.query(f'SELECT {cells} FROM "Odd ""name"') == [expected, expected]


# -- constraints that the target has of its own


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def strict_target(new_database: Callable[[], str], kind: str, request) -> Iterator[Target]:
    one = Target(new_database(), kind, replica_role=request.param)
    yield one
    one.sink.close()


PARENT = table("parent", "id integer, code text")
CHILD = table("child", "id integer, parent integer, note text")


def family(target: Target, action: str = "", code: str = "UNIQUE") -> None:
    load(target, PARENT)
    load(target, CHILD)
    target.run(
        f"ALTER TABLE parent ADD CONSTRAINT code_key {code} (code);"
        f"ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent {action}"
        if code
        else f"ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent {action}"
    )
    target.applier = Applier(target.feed.read_cuts, target.feed.read_rows, target.sink)
    target.sink.close()
    target.apply(
        insert(PARENT, "1", "a"),
        insert(PARENT, "2", "b"),
        insert(CHILD, "10", "1", "long"),
        insert(CHILD, "20", "2", "long"),
    )


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_a_parent_is_not_emptied_for_a_load_when_its_loaded_children_would_go_too(
    strict_target: Target, action: str
) -> None:
    target = strict_target
    family(target, f"ON DELETE {action}")
    target.feed.load_again(PARENT, CHILD)
    target.drain()
    # What the parents of before let pass: children first.
    load(target, CHILD, ["10", "1", "new"])
    target.feed.load(PARENT, LoadPhase.BEGIN)

    if target.sink._wants_replica:
        target.drain()
        assert target.query("SELECT * FROM parent") == []
    else:
        with pytest.raises(NotExpressible, match="session_replication_role") as refused:
            target.drain()
        assert (refused.value.where["table"], refused.value.where["other"]) == (PARENT.id, CHILD.id)
    assert target.query("SELECT * FROM child") == [(10, 1, "new")]


def test_a_parent_takes_children_along_that_are_loaded_after_it(strict_target: Target) -> None:
    target = strict_target
    family(target, "ON DELETE CASCADE")
    target.feed.load_again(PARENT, CHILD)
    load(target, PARENT, ["1", "a"])
    load(target, CHILD, ["10", "1", "new"])

    assert target.query("SELECT * FROM child") == [(10, 1, "new")]
    assert target.drain().state == "EXACT"


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE", "ON DELETE RESTRICT"])
@pytest.mark.parametrize("code", ["", "UNIQUE"])
def test_parents_are_written_without_losing_children(
    strict_target: Target, action: str, code: str
) -> None:
    target = strict_target
    family(target, action, code)

    target.apply(update(PARENT, "1", "A"))
    assert rows(target, "child") == [(10, 1, "long"), (20, 2, "long")]

    target.apply(  # the child moves away, its parent goes; a parent changes its key
        update(CHILD, "10", "2", ...),
        delete(PARENT, "1"),
        insert(PARENT, "3", "c"),
        update(PARENT, "4", "b", old="2"),
        update(CHILD, "10", "4", ...),
        update(CHILD, "20", "4", ...),
    )
    assert rows(target, "parent") == [(3, "c"), (4, "b")]
    assert rows(target, "child") == [(10, 4, "long"), (20, 4, "long")]

    target.apply(delete(CHILD, "10"), delete(CHILD, "20"), delete(PARENT, "4"), delete(PARENT, "3"))
    assert rows(target, "child") == rows(target, "parent") == []


def test_unique_values_are_swapped_under_foreign_keys(strict_target: Target) -> None:
    target = strict_target
    family(target)

    target.apply(
        update(PARENT, "1", None), update(PARENT, "2", "a"), update(PARENT, "1", "b"),
        insert(PARENT, "3", "c"), update(PARENT, "3", "d"), insert(PARENT, "4", "c"),
    )  # fmt: skip

    assert rows(target, "parent") == [(1, "b"), (2, "a"), (3, "d"), (4, "c")]
    assert len(rows(target, "child")) == 2


def test_unique_values_without_references_are_swapped(strict_target: Target) -> None:
    target = strict_target
    plain = table("plain", "id integer, code text, pair integer", unique="code pair")
    load(target, plain, ["1", "a", "1"], ["2", "b", "2"], ["3", "c", "3"])
    target.run("ALTER TABLE plain ALTER code SET NOT NULL")

    target.apply(
        update(plain, "1", "x", "1"), update(plain, "2", "a", ...), update(plain, "1", "b", "1"),
        delete(plain, "3"), insert(plain, "4", "c", "3"),
    )  # fmt: skip

    assert rows(target, "plain") == [(1, "b", 1), (2, "a", 2), (4, "c", 3)]


def test_a_table_that_points_at_itself(strict_target: Target) -> None:
    target = strict_target
    tree = table("tree", "id integer, up integer")
    load(target, tree, ["1", None])
    target.run("ALTER TABLE tree ADD FOREIGN KEY (up) REFERENCES tree ON DELETE CASCADE")

    target.apply(insert(tree, "2", "1"), insert(tree, "3", "2"))
    target.apply(update(tree, "3", "1"), delete(tree, "2"))
    assert rows(target, "tree") == [(1, None), (3, 1)]

    target.apply(truncate(tree), insert(tree, "5", None))
    assert rows(target, "tree") == [(5, None)]


def test_truncated_parents_and_children(strict_target: Target) -> None:
    target = strict_target
    family(target)

    target.apply(truncate(PARENT), truncate(CHILD), insert(PARENT, "7", "z"))

    assert (rows(target, "parent"), rows(target, "child")) == ([(7, "z")], [])


@only_postgresql  # openGauss has no identity columns
def test_generated_and_identity_columns_of_the_target(target: Target) -> None:
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text,"
        " note text, up text GENERATED ALWAYS AS (upper(name)) STORED, extra text DEFAULT 'mine')"
    )
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "y"), update(ACCOUNT, "1", "c", ...))

    assert rows(target, "account") == [(1, "c", "x", "C", "mine"), (2, "b", "y", "B", "mine")]


def test_generated_columns_of_the_target_are_not_written(target: Target) -> None:
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY, name text, note text,"
        " up text GENERATED ALWAYS AS (upper(name)) STORED, extra text DEFAULT 'mine')"
    )
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "y"), update(ACCOUNT, "1", "c", ...))

    assert rows(target, "account") == [(1, "c", "x", "C", "mine"), (2, "b", "y", "B", "mine")]


def test_triggers_of_the_target_do_not_run_in_a_copy(target: Target) -> None:
    load(target, ACCOUNT)
    target.run(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''no''; END';"
        "CREATE TRIGGER no BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION no()"
    )

    target.apply(insert(ACCOUNT, "1", "a", "x"))

    assert len(rows(target, "account")) == 1


def test_a_refusal_names_the_constraint_and_no_value(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("ALTER TABLE account ADD CONSTRAINT short CHECK (length(name) < 5)")
    target.feed.commits([insert(ACCOUNT, "1", "secret value", "x")])

    # openGauss does not say which constraint, but in a text that may hold values.
    what = "short" if target.kind == "postgres" else "sqlstate=23514"
    with pytest.raises(TargetRefused, match=what) as refused:
        target.drain()

    assert "secret" not in str(refused.value)
    target.run("ALTER TABLE account DROP CONSTRAINT short")
    assert target.drain().seq == 1


def test_a_value_that_does_not_fit_names_table_and_column(
    new_database: Callable[[], str],
) -> None:
    target = Target(new_database(), "postgres")
    load(target, ACCOUNT)
    target.run("ALTER TABLE account ALTER note TYPE integer USING 0")
    target.feed.commits([insert(ACCOUNT, "1", "a", "secret: note")])

    with pytest.raises(TargetRefused) as refused:
        target.drain()

    said = str(refused.value)
    assert "invalid text representation" in said
    assert "table=public.account, column=note" in said
    assert "secret" not in said
    target.sink.close()


def test_a_missing_column_or_table_says_which(new_database: Callable[[], str]) -> None:
    target = Target(new_database(), "postgres")
    load(target, ACCOUNT)
    target.run("ALTER TABLE account DROP COLUMN note")
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])
    with pytest.raises(MissingColumn, match="note"):
        target.drain()
    target.run("DROP TABLE account")
    with pytest.raises(MissingTable, match=r"public\.account"):
        target.drain()
    target.sink.close()


def test_a_missing_right_comes_with_the_statement_that_gives_it(
    new_database: Callable[[], str],
) -> None:
    target = Target(new_database(), "postgres")
    role = f"r_{target.url.rpartition('/')[2]}"
    target.run(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}")
    target.run(f'GRANT CREATE ON DATABASE "{target.url.rpartition("/")[2]}" TO {role}')
    owner, target.url = target.url, target.url.replace("postgres@", f"{role}@")
    target.sink.close()
    target.sink = target.new_sink(replica_role=False)
    target.applier = Applier(target.feed.read_cuts, target.feed.read_rows, target.sink)
    load(target, ACCOUNT)
    target.url = owner
    target.run("ALTER TABLE account OWNER TO CURRENT_USER")
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    try:
        with pytest.raises(TargetNotPermitted) as refused:
            target.drain()

        assert "permission denied" in refused.value.what
        assert refused.value.where["table"] == ACCOUNT.id
        assert f'ALTER TABLE "public"."account" OWNER TO "{role}"' in refused.value.hint
        target.run(refused.value.hint.partition(": ")[2])
        assert target.drain().seq == 1
    finally:
        target.sink.close()
        target.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


# -- schema changes


def test_ddl_in_the_middle_of_a_commit_is_applied_in_its_place(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    wide = table("account", "id integer, name text, note text, more integer")
    wide = replace(wide, columns=(*wide.columns[:3], replace(wide.columns[3], missing="7")))
    slim = table("account", "id integer, name text, more integer")

    ledger = target.apply(
        insert(ACCOUNT, "2", "b", "y"),
        alter(ACCOUNT, wide),
        insert(wide, "3", "c", "z", "1"),
        alter(wide, slim),
        update(slim, "1", "A", ...),
    )

    assert rows(target, "account") == [(1, "A", 7), (2, "b", 7), (3, "c", 1)]
    assert ledger.seq == 1
    target.apply(insert(slim, "4", "d", None))
    assert len(rows(target, "account")) == 4


def test_tables_come_and_go_in_the_stream(target: Target) -> None:
    target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))
    assert len(rows(target, "account")) == 1

    other = replace(ACCOUNT, id=TableId("moved", "konto"))
    target.apply(alter(ACCOUNT, other), insert(other, "2", "b", "y"))
    assert len(rows(target, "moved.konto")) == 2

    target.apply(alter(other, None))
    assert target.query("SELECT to_regclass('moved.konto'), table_name FROM gauss_cdc.tables") == []


def test_what_is_lost_by_ddl_marks_the_table(target: Target) -> None:
    load(target, ACCOUNT)
    lossy = replace(alter(ACCOUNT, ACCOUNT), lossy="values were computed at the source")

    ledger = target.apply(lossy)
    later = target.apply(insert(ACCOUNT, "1", "a", "x"))

    assert ledger.inexact == later.inexact == {"public.account": lossy.lossy}
    assert later.state == "LOADING"


# -- loads


def test_a_table_with_rows_is_not_loaded_over(target: Target) -> None:
    target.run("CREATE TABLE account (id integer PRIMARY KEY, name text, note text)")
    target.run("INSERT INTO account VALUES (1, 'mine', '')")
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)

    with pytest.raises(TargetNotEmpty):
        target.drain()

    assert len(rows(target, "account")) == 1
    replacing = target.new_sink(replace=True)
    target.sink.close()
    Applier(target.feed.read_cuts, target.feed.read_rows, replacing).drain()
    assert rows(target, "account") == []
    replacing.close()


@pytest.mark.parametrize("chunks", [0, 1])
def test_rows_written_while_a_load_stands_still_are_not_taken_for_the_sources(
    target: Target, chunks: int
) -> None:
    """A chunk failed, the table was mended, somebody wrote a row, `apply` was started again."""
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY, name text,"
        " note text, CONSTRAINT mine CHECK (name <> 'b'))"
    )
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    if chunks:
        target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "8", "x"])
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["2", "b", "x"])
    target.feed.load(ACCOUNT, LoadPhase.END)
    with pytest.raises(TargetRefused):
        target.drain()
    target.run("ALTER TABLE account DROP CONSTRAINT mine")
    target.run("INSERT INTO account VALUES (7, 'not the source''s', '')")
    target.sink.close()
    target.sink = target.new_sink()
    again = Applier(target.feed.read_cuts, target.feed.read_rows, target.sink)

    with pytest.raises(TargetNotEmpty, match=f"rows={chunks + 1}"):
        again.drain()

    assert target.sink.ledger().state == "LOADING"
    target.run("DELETE FROM account WHERE id = 7")
    assert again.drain().state == "EXACT"
    assert [row[0] for row in rows(target, "account")] == [1, 2][1 - chunks :]


def test_a_table_of_another_type_is_refused_when_the_load_begins(target: Target) -> None:
    """And then nobody's rows are taken for the source's."""
    target.run("CREATE TABLE account (id integer PRIMARY KEY, name integer, note text)")
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "b", "x"])
    target.feed.load(ACCOUNT, LoadPhase.END)
    with pytest.raises(NotExpressible, match="source=text, target=integer"):
        target.drain()
    target.run("ALTER TABLE account ALTER name TYPE text")
    target.run("INSERT INTO account VALUES (7, 'not the source''s', '')")
    with pytest.raises(TargetNotEmpty):
        target.drain()

    target.run("DELETE FROM account")

    assert target.drain().state == "EXACT"
    assert rows(target, "account") == [(1, "b", "x")]


def test_rows_written_before_the_first_chunk_are_replaced_as_asked_for(target: Target) -> None:
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.drain()
    target.run("INSERT INTO account VALUES (7, 'not the source''s', '')")
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a", "x"])
    target.feed.load(ACCOUNT, LoadPhase.END)
    target.sink.close()
    target.sink = target.new_sink(replace=True)

    Applier(target.feed.read_cuts, target.feed.read_rows, target.sink).drain()

    assert rows(target, "account") == [(1, "a", "x")]


@pytest.mark.parametrize(
    "change", ["INSERT INTO account VALUES (7, '', '')", "DELETE FROM account"]
)
def test_a_table_is_exact_only_with_the_rows_of_its_load(target: Target, change: str) -> None:
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a", "x"])
    target.drain()
    target.run(change)
    target.feed.load(ACCOUNT, LoadPhase.END)

    with pytest.raises(TargetNotEmpty, match="accept-gap"):
        target.drain()

    assert target.sink.ledger().state == "LOADING"


def test_a_load_that_begins_again_replaces_what_was_there(target: Target) -> None:
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a", "x"])
    assert target.drain().state == "LOADING"

    load(target, ACCOUNT, ["2", "b", "x"])

    assert rows(target, "account") == [(2, "b", "x")]
    assert target.sink.ledger().state == "EXACT"


def test_a_load_that_begins_again_takes_the_shape_of_by_now(target: Target) -> None:
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a", "x"])
    target.drain()
    now = table("account", "id integer, name text, email text")  # note went, email came

    load(target, now, ["2", "b", "b@x"])

    assert target.query("SELECT id, name, email FROM account") == [(2, "b", "b@x")]
    assert [*rows(target, "account")[0]] == [2, "b", "b@x"]


@pytest.mark.parametrize(
    ("there", "error"),
    [
        ("id integer PRIMARY KEY, name text", MissingColumn),
        ("id integer, name text PRIMARY KEY, note text", NotExpressible),
    ],
)
def test_a_table_of_another_shape_is_refused(target: Target, there: str, error) -> None:
    target.run(f"CREATE TABLE account ({there})")
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)

    with pytest.raises(error):
        target.drain()


def test_rows_of_a_table_that_is_not_there_are_refused(target: Target) -> None:
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    with pytest.raises(MissingTable):
        target.drain()


def test_columns_that_the_target_lacks_are_named(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("ALTER TABLE account DROP note")
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    with pytest.raises(MissingColumn, match="note"):
        target.drain()


# -- types of users


MOOD = UserType("e", "mood", labels=("sad", "ok"))
PRICE = UserType("d", "price", "numeric(10,2)", 1700, (10 << 16 | 2) + 4)
OF_USERS = TableSchema(
    TableId("public", "of_users"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("m", 90001, -1, "public.mood", user_type=MOOD),
        Column("ms", 90002, -1, "public.mood[]",
               user_type=UserType("a", "_mood", "public.mood", 90001, of=MOOD)),
        Column("p", 90003, -1, "public.price", user_type=PRICE),
        Column("ps", 90004, -1, "public.price[]",
               user_type=UserType("a", "_price", "public.price", 90003, of=PRICE)),
        Column("c", 90005, -1, 'public."odd/pair 50%"', user_type=UserType("c", "odd/pair 50%")),
        Column("h", 90006, -1, "public.hstore", user_type=UserType("b", "hstore")),
        Column("gone", 90007),
    ),
    ("id",),
)  # fmt: skip
VALUES = ["1", "ok", "{sad,NULL,ok}", "1.50", "{2.25}", "(1,x)", '"a"=>"1"', "any"]


def types_of(target: Target) -> list[str]:
    return [
        kind
        for (kind,) in target.query(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0"
            " AND attrelid = 'of_users'::regclass ORDER BY attnum"
        )
    ]


def texts_of(target: Target) -> list[str | None]:
    columns = ", ".join(f"format('%s', {c.name})" for c in OF_USERS.columns)
    return list(target.query(f"SELECT {columns} FROM of_users")[0])


def test_without_the_sources_types_columns_become_what_holds_the_values(target: Target) -> None:
    load(target, OF_USERS, VALUES)

    assert types_of(target) == [
        "integer", "text", "text[]", "numeric(10,2)", "numeric(10,2)[]", "text", "text", "text",
    ]  # fmt: skip
    assert texts_of(target) == VALUES


@only_postgresql  # openGauss has no domains
def test_with_the_sources_types_columns_have_them(target: Target) -> None:
    target.run("CREATE SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext")
    target.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    target.run("CREATE DOMAIN price AS numeric(10,2) NOT NULL CHECK (VALUE > 0)")
    target.run('CREATE TYPE "odd/pair 50%%" AS (a int, b text)')
    load(target, OF_USERS, VALUES)

    assert types_of(target)[1:7] == [
        "mood", "mood[]", "price", "price[]", '"odd/pair 50%"', "ext.hstore",
    ]  # fmt: skip
    assert texts_of(target) == VALUES

    new = [..., "sad", "{}", ..., "{3.00}", "(2,y)", ""]
    target.apply(update(OF_USERS, "1", *new[1:], ...))
    assert texts_of(target) == ["1", "sad", "{}", "1.50", "{3.00}", "(2,y)", "", "any"]


def test_a_keyless_row_is_the_one_that_reads_the_same(target: Target) -> None:
    keyless = table("keyless", "n numeric, f double precision", key="")
    load(target, keyless, ["1.0", "0"], ["1.00", "-0"], ["1.00", "0"])

    target.apply(Row(keyless, "d", ["1.00", "0"]))

    found = target.query("SELECT n::text, f::text FROM keyless ORDER BY 1, 2")
    assert found == [("1.0", "0"), ("1.00", "-0")]


@pytest.mark.parametrize(
    ("type_name", "old", "new"),
    [
        ("point", "(1,2)", "(3,4)"),
        ("box[]", "{(1,1),(0,0)}", "{(2,2),(0,0)}"),
        ("box", "(1,1),(0,0)", "(2,2),(1,1)"),  # of the same area
        ("json", "{}", '{"a": 1}'),
        ("xid", "7", "8"),
    ],
)
def test_a_keyless_row_of_a_type_without_equality(
    target: Target, type_name: str, old: str, new: str
) -> None:
    keyless = replace(
        table("keyless", "id integer, v text", key=""),
        columns=(Column("per%cent", 1, -1, type_name), Column('q"', 23, -1, "integer")),
    )
    load(target, keyless, [old, "1"], [new, "2"])

    target.apply(Row(keyless, "u", [old, "1"], [new, "3"]), Row(keyless, "d", [new, "2"]))

    rows = target.query('SELECT format(\'%s\', k."per%cent"), k."q""" FROM keyless k')
    assert rows == [(new, 3)]


def test_a_composite_of_nulls_is_not_null(target: Target) -> None:
    target.run("CREATE TYPE pair AS (a int, b int)")
    pair = Column("p", 90005, -1, "public.pair", user_type=UserType("c", "pair"))
    keyless = replace(table("keyless", "id integer", key=""), columns=(pair,))
    load(target, keyless, ["(,)"], [None], ["(,)"])

    target.apply(Row(keyless, "d", [None]), Row(keyless, "u", ["(,)"], ["(1,)"]))

    assert target.query("SELECT format('%s', p) FROM keyless ORDER BY 1") == [("(,)",), ("(1,)",)]


# -- crashes, rivals, unknown outcomes


def backend(target: Target) -> None:
    """Kill the applier's server process."""
    target.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize("where", ["ledger locked", "rows applied", "ledger moved", "committed"])
def test_a_crash_inside_a_step_is_as_if_it_had_not_begun(
    new_database: Callable[[], str], kind: str, where: str
) -> None:
    killed: list[str] = []

    def kill(step: str) -> None:
        if step == where and not killed and target.feed.seq:
            killed.append(step)
            backend(target)

    target = Target(new_database(), kind, on_step=kill)
    load(target, ACCOUNT, ["1", "a", "x"])

    ledger = target.apply(insert(ACCOUNT, "2", "b", "y"))
    target.apply(insert(ACCOUNT, "3", "c", "z"))

    assert killed == [where]
    assert ledger.seq == 1
    assert len(rows(target, "account")) == 3
    target.sink.close()


def test_a_second_applier_waits_and_then_takes_over(target: Target) -> None:
    load(target, ACCOUNT)
    waits: list[str] = []
    told, done = threading.Event(), threading.Event()
    second = target.new_sink(on_wait=lambda text: (waits.append(text), told.set()))
    thread = threading.Thread(target=lambda: (second.ledger(), done.set()))
    thread.start()
    assert told.wait(30)
    assert not done.is_set()

    target.sink.close()

    assert done.wait(30)
    thread.join()
    assert len(waits) == 1
    assert second.ledger().fence == 2
    second.close()


def test_a_waiting_applier_names_the_holder_of_the_target(target: Target) -> None:
    load(target, ACCOUNT)
    told = threading.Event()
    waits: list[str] = []
    second = target.new_sink(on_wait=lambda text: (waits.append(text), told.set()))
    thread = threading.Thread(target=second.ledger)
    thread.start()
    assert told.wait(60)
    target.sink.close()
    thread.join()
    second.close()

    assert re.search(
        r"holds the target, pid \d+ \(user postgres, application \S+, from 127\.0\.0\.1, "
        r"\w+, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)",
        waits[0],
    )


@pytest.mark.parametrize(
    "lock",
    ["LOCK TABLE account IN ACCESS EXCLUSIVE MODE", "UPDATE account SET note = 'se-cret'"],
)
def test_a_step_that_waits_says_for_whom(
    new_database: Callable[[], str], kind: str, lock: str
) -> None:
    waits: list[str] = []
    told = threading.Event()
    target = Target(new_database(), kind, on_wait=lambda text: (waits.append(text), told.set()))
    target.sink._waits._patience = 0.0
    load(target, ACCOUNT, ["1", "a", "x"])
    with contextlib.closing(psycopg2.connect(target.url, application_name="an analyst")) as other:
        with other.cursor() as cursor:
            cursor.execute(lock)
        thread = threading.Thread(target=target.apply, args=(update(ACCOUNT, "1", "A", ...),))
        thread.start()
        assert told.wait(60)
        other.rollback()
        thread.join()
        pid = other.info.backend_pid

    assert rows(target, "account") == [(1, "A", "x")]
    assert re.search(rf"for a lock on (public\.)?account, held by pid {pid} \(user pos", waits[0])
    assert "application an analyst" in waits[0]
    assert "idle in transaction, since 20" in waits[0]
    assert "se-cret" not in waits[0]
    target.sink.close()


@only_postgresql
def test_a_lock_that_is_not_given_is_let_go_and_tried_again(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    with target.sink._transaction() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("30s",)
        cursor.execute("SET lock_timeout = '50ms'")
    with contextlib.closing(psycopg2.connect(target.url)) as other:
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(TargetDown, match="a lock at the target was not given in time"):
            target.apply(update(ACCOUNT, "1", "A", ...))

        other.rollback()
    target.drain()
    assert rows(target, "account") == [(1, "A", "x")]


@only_postgresql
def test_limits_of_the_dsn_stay_and_a_lost_applier_is_noticed(new_database, target: Target) -> None:
    url = f"{target.url}?options=-c%20lock_timeout%3D7s"
    sink = target.new_sink(url=url)
    target.sink.close()
    sink.ledger()
    with sink._transaction() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings"
            " WHERE name = 'lock_timeout' OR name LIKE 'tcp_%' ORDER BY name"
        )
        found = dict(cursor.fetchall())
    sink.close()

    assert found == {
        "lock_timeout": "7000",
        "tcp_keepalives_count": "3",
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_user_timeout": "60000",
    }


def test_who_lost_the_fence_gives_up(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("UPDATE gauss_cdc.ledger SET fence = fence + 1")  # as a second applier's start
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    with pytest.raises(Fenced):
        target.drain()

    assert rows(target, "account") == []


def test_the_ledger_is_locked_while_a_step_is_under_way(
    new_database: Callable[[], str], kind: str
) -> None:
    """Two appliers that both think that they hold the fence: one lock orders their steps."""
    found: list[str] = []

    def look(step: str) -> None:
        if step != "rows applied" or not target.feed.seq or found:
            return
        other = psycopg2.connect(target.url)
        with other, other.cursor() as cursor:
            try:
                cursor.execute("SELECT 1 FROM gauss_cdc.ledger FOR UPDATE NOWAIT")
                found.append("free")
            except psycopg2.errors.LockNotAvailable:
                found.append("locked")
        other.close()

    target = Target(new_database(), kind, on_step=look)
    load(target, ACCOUNT)
    target.apply(insert(ACCOUNT, "1", "a", "x"))

    assert found == ["locked"]
    target.sink.close()


def test_a_ledger_that_moved_is_read_again(target: Target) -> None:
    load(target, ACCOUNT)
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])
    (segment,) = target.feed.segments(target.sink.ledger())
    rows_of = target.feed.read_rows(segment)
    target.sink.step(segment, target.sink.stage(segment, rows_of))

    with pytest.raises(Superseded):
        target.sink.step(segment, target.sink.stage(segment, rows_of))

    assert target.drain().seq == 1
    assert len(rows(target, "account")) == 1


def test_a_commit_whose_outcome_is_unknown_is_not_applied_twice(
    new_database: Callable[[], str], kind: str
) -> None:
    url = new_database()
    with Proxy(url) as proxy:
        target = Target(url, kind)
        log = table("log", "a integer", key="")
        target.sink = target.new_sink(proxy.url, on_step=proxy.on_step)
        target.applier = Applier(target.feed.read_cuts, target.feed.read_rows, target.sink)
        load(target, log)

        for at, lost in enumerate(["answer", "request"]):
            proxy.lose = lost
            target.apply(insert(log, str(at)))

        assert proxy.lost == 2
        assert rows_one(target, "log") == [(0,), (1,)]
        target.sink.close()


def rows_one(target: Target, name: str) -> list[tuple]:
    return target.query(f"SELECT * FROM {name} ORDER BY 1")


def test_a_target_restored_from_a_backup_goes_on_from_its_own_ledger(
    new_database: Callable[[], str], kind: str
) -> None:
    target = Target(new_database(), kind)
    log = table("log", "a integer", key="")
    load(target, log)
    target.apply(insert(log, "1"))
    target.run(
        "CREATE TABLE backup_log AS TABLE log; CREATE TABLE backup AS TABLE gauss_cdc.ledger"
    )
    target.apply(insert(log, "2"))
    target.sink.close()
    target.run(
        "TRUNCATE log, gauss_cdc.ledger; INSERT INTO log TABLE backup_log;"
        "INSERT INTO gauss_cdc.ledger TABLE backup"
    )

    again = target.new_sink()
    ledger = Applier(target.feed.read_cuts, target.feed.read_rows, again).drain()

    assert ledger.seq == 2
    assert rows_one(target, "log") == [(1,), (2,)]
    again.close()


@pytest.mark.parametrize(
    "how",
    [
        "postgresql://127.0.0.1:1/none",
        partial(connect, parse_dsn("postgresql://nobody@127.0.0.1:1/none")),
    ],
    ids=["postgres", "opengauss"],
)
def test_an_unreachable_target_may_be_tried_again(how) -> None:
    sink = PostgresSink(how, "bank")

    with pytest.raises(TargetDown):
        sink.ledger()


class Proxy:
    """A TCP proxy that cuts the connection around one COMMIT."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{port}"))
        self.lose = ""
        self.lost = 0
        self._armed = False

    def on_step(self, step: str) -> None:
        self._armed = bool(self.lose) and step == "ledger moved"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65_536):
                if self._armed and is_request and self.lose == "request":
                    break
                if self._armed and not is_request and self.lose == "answer":
                    break
                sink.sendall(block)
            else:
                self._close(source, sink)
                return
            self.lost += 1
            self.lose, self._armed = "", False
            self._close(source, sink)

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_name_is_taken_over_from_a_table_that_left_the_stream(target: Target) -> None:
    """It was made UNLOGGED and dropped: nobody told of its end."""
    other = table("fresh", "id integer, flag boolean")
    target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))
    target.apply(alter(None, other), insert(other, "7", "t"))
    target.feed.commits([replace(alter(ACCOUNT, ACCOUNT), lossy="is not in the log any more")])
    assert target.drain().inexact == {"public.account": "is not in the log any more"}

    renamed = replace(other, id=ACCOUNT.id)
    ledger = target.apply(alter(other, renamed), insert(renamed, "8", "f"))
    assert target.query("SELECT * FROM account ORDER BY id") == [(7, True), (8, False)]
    assert (ledger.state, ledger.inexact) == ("EXACT", {})

    ledger = target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "2", "b", "y"))
    assert target.query("SELECT * FROM account") == [(2, "b", "y")]
    assert ledger.state == "EXACT"


@only_postgresql
def test_a_table_may_have_no_columns_for_a_while(target: Target) -> None:
    bare = TableSchema(ACCOUNT.id, ())
    target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))

    target.apply(alter(ACCOUNT, bare), insert(bare))
    assert target.query("SELECT count(*) FROM account") == [(2,)]
    target.apply(delete(bare), delete(bare), alter(bare, ACCOUNT), insert(ACCOUNT, "2", "b", "y"))

    assert target.query("SELECT * FROM account") == [(2, "b", "y")]


def test_views_that_we_made_go_with_what_they_show(new_database: Callable[[], str]) -> None:
    """At the source it was DROP … CASCADE, or a view that was dropped before it could be told."""
    slim = replace(ACCOUNT, columns=ACCOUNT.columns[:2])
    for ddl, dies in (("all", False), ("tables", True)):
        target = Target(new_database(), "postgres", ddl=ddl)
        target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))
        target.run("CREATE VIEW seen AS SELECT * FROM account")
        if dies:
            with pytest.raises(TargetRefused):
                target.apply(alter(ACCOUNT, slim))
        else:
            target.apply(alter(ACCOUNT, slim), insert(slim, "2", "b"))
            target.run("CREATE VIEW seen AS SELECT * FROM account")
            target.apply(alter(slim, None))
            assert target.query("SELECT to_regclass('seen')") == [(None,)]
        target.sink.close()


def test_views_go_where_the_table_is_not_exact_and_its_rows_stay(
    new_database: Callable[[], str],
) -> None:
    slim = replace(ACCOUNT, columns=ACCOUNT.columns[:2])
    target = Target(new_database(), "postgres", ddl="all")
    target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))
    target.apply(replace(alter(ACCOUNT, ACCOUNT), lossy="values were computed at the source"))
    target.run("CREATE VIEW seen AS SELECT * FROM account")

    target.apply(alter(ACCOUNT, slim))

    assert target.query("SELECT id, name, to_regclass('seen') FROM account") == [(1, "a", None)]
    target.sink.close()


EVIL = (
    "CREATE FUNCTION evil(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
    " $$BEGIN PERFORM nextval('public.ran'); RETURN x; END$$"
)


def test_code_of_the_source_does_not_run_at_the_target_unless_it_is_trusted(
    new_database: Callable[[], str],
) -> None:
    """As a user of the source who makes what calls his own function, and one who forges records."""
    told = replace(alter(None, ACCOUNT), after=None, origin=Origin.TRIGGER)
    attacks = [
        replace(told, tag=f"CREATE {kind.upper()}", kind=kind, identity="x", canonical=text)
        for kind, text in (
            ("function", EVIL),
            ("index", "CREATE INDEX i ON public.account USING btree ((public.evil(1)))"),
            ("view", "CREATE VIEW v AS SELECT 1; SELECT nextval('ran')"),
            ("view", "CREATE VIEW w AS SELECT 1; COMMIT; SELECT nextval('ran')"),
            ("schema", "CREATE SCHEMA s CREATE TABLE mine (a int)"),
        )
    ]  # fmt: skip
    called = replace(ACCOUNT.columns[1], default="public.evil(4)::text")
    default = alter(ACCOUNT, replace(ACCOUNT, columns=(ACCOUNT.columns[0], called)))
    for code in (False, True):
        notes: list[str] = []
        target = Target(new_database(), "postgres", ddl="all", code=code, on_note=notes.append)
        target.run("CREATE SEQUENCE ran")
        target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))

        target.apply(*attacks[:1])
        target.apply(*attacks[1:])
        target.apply(replace(default, origin=Origin.TRIGGER))

        assert target.query("SELECT is_called FROM ran") == [(code,)]
        assert target.query("SELECT to_regclass('i') IS NOT NULL") == [(code,)]
        assert target.query("SELECT to_regproc('evil') IS NOT NULL") == [(code,)]
        left = [n for n in notes if "[ddl] code = true" in n]
        assert len(left) == (0 if code else 6)
        assert code or "(6 of this kind" in left[-1]
        assert target.sink.ledger().state == "EXACT"
        target.sink.close()
