"""Loads and schema changes, against a real PostgreSQL: whose tables and rows they may replace."""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

import psycopg2
import pytest
from psycopg2.extras import LoggingConnection

from schemas.control import LoadPhase, Origin
from schemas.tables import TableId, TableSchema, Unique
from spark_consumers.errors import (
    Fenced,
    MissingColumn,
    MissingTable,
    NotExpressible,
    TargetDown,
    TargetNotEmpty,
    TargetRefused,
)
from spark_consumers.loop.job import Applier
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.postgres_target import (
    ACCOUNT,
    Target,
    load,
    only_postgresql,
    rows,
    sink_of,
)
from tests.spark_consumers.feed import (
    Feed,
    alter,
    delete,
    insert,
    table,
    update,
)


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


def test_a_table_of_another_source_is_taken_once_its_applier_has_ended(target: Target) -> None:
    """It wrote on, into what was called exact for the one that took the table."""
    target.sink.ledger()
    target.run("INSERT INTO gauss_cdc.tables VALUES ('other', 'public', 'account')")
    lease = "INSERT INTO gauss_cdc.lease (source, holder, expires) VALUES ('other', 'it', {})"
    target.run(lease.format("clock_timestamp() + interval '1 hour'"))
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.END)
    target.sink.close()
    target.sink = target.new_sink(replace=True)
    taking = Applier(target.feed.read_cuts, target.read_rows, target.sink)

    with pytest.raises(TargetNotEmpty, match=r"whose `apply` runs .*source=other"):
        taking.drain()

    target.run("UPDATE gauss_cdc.lease SET expires = clock_timestamp()")
    assert taking.drain().state == "EXACT"


def test_who_lost_a_table_to_another_source_writes_to_it_no_more(
    new_database: Callable[[], str], kind: str
) -> None:
    """It was started again, and wrote into what was called exact for the other one."""
    one = Target(new_database(), kind)
    load(one, ACCOUNT, ["1", "a", "x"])
    one.sink.close()
    sink = sink_of(one.url, "other", kind, replace=True)
    feed = Feed(source="other")
    feed.start()
    feed.load(ACCOUNT, LoadPhase.BEGIN)
    feed.load(ACCOUNT, LoadPhase.END)
    assert Applier(feed.read_cuts, feed.read_rows, sink).drain().state == "EXACT"
    one.feed.commits([insert(ACCOUNT, "2", "b", "x")])
    one.sink = one.new_sink()
    again = Applier(one.feed.read_cuts, one.read_rows, one.sink)

    said = '{"public.account": "was taken by source other, with `apply --replace`"}'
    asked = "SELECT state, inexact FROM gauss_cdc.ledger WHERE source <> 'other'"
    assert one.query(asked) == [("LOADING", said)]
    with pytest.raises(TargetNotEmpty, match="another source took a table of this one"):
        again.drain()

    assert rows(one, "account") == []
    for ended in (one.sink, sink):
        ended.close()


def test_who_was_silent_while_its_table_was_taken_writes_to_it_no_more(
    new_database: Callable[[], str], kind: str
) -> None:
    """Its sessions were ended, as by a target's restart; its fence was the same as before."""
    one = Target(new_database(), kind)
    load(one, ACCOUNT, ["1", "a", "x"])
    feed = Feed(source="other")
    feed.start()
    feed.load(ACCOUNT, LoadPhase.BEGIN)
    feed.load(ACCOUNT, LoadPhase.END)
    sink = sink_of(one.url, "other", kind, replace=True)
    with closing(psycopg2.connect(one.url)) as holds, holds.cursor() as cursor:
        cursor.execute("SELECT keeper, worker FROM gauss_cdc.lease FOR UPDATE")  # not renewed
        for pid in filter(None, cursor.fetchone()):
            one.query(f"SELECT pg_terminate_backend({pid}, 60000)")
        assert Applier(feed.read_cuts, feed.read_rows, sink).drain().state == "EXACT"
    one.feed.commits([insert(ACCOUNT, "2", "b", "x")])

    with pytest.raises(Fenced):
        drain_again(one)

    assert rows(one, "account") == []
    for ended in (one.sink, sink):
        ended.close()


def drain_again(one: Target) -> None:
    """As `apply` does, try again where the connection was closed."""
    for _ in range(2):
        with suppress(TargetDown):
            one.drain()
    one.drain()


@pytest.mark.parametrize("replaces", [False, True])
def test_a_name_that_another_source_has_is_not_taken_by_a_renaming(
    new_database: Callable[[], str], kind: str, replaces: bool
) -> None:
    """Its table was dropped there: two sources wrote to the renamed one, each called exact."""
    one = Target(new_database(), kind, replace=replaces)
    load(one, NOTES)
    sink = sink_of(one.url, "other", kind)
    feed = Feed(source="other")
    feed.start()
    feed.load(ACCOUNT, LoadPhase.BEGIN)
    feed.load(ACCOUNT, LoadPhase.END)
    Applier(feed.read_cuts, feed.read_rows, sink).drain()
    one.run("DROP TABLE account")
    one.feed.commits([alter(NOTES, replace(NOTES, id=ACCOUNT.id))])

    with pytest.raises(TargetNotEmpty, match="another source's at the target"):
        one.drain()

    sink.close()
    if replaces:
        assert one.drain().state == "EXACT"
        marked = one.query("SELECT inexact FROM gauss_cdc.ledger WHERE source = 'other'")
        assert "was taken" in marked[0][0]
        assert one.query("SELECT source, table_name FROM gauss_cdc.tables") == [("bank", "account")]
    one.sink.close()


@pytest.mark.parametrize("replaces", [False, True])
def test_a_table_that_another_source_took_meanwhile_is_refused(
    new_database: Callable[[], str], kind: str, replaces: bool
) -> None:
    """Who has which table was read once: two sources wrote to an empty one, each called exact."""
    one = Target(new_database(), kind)
    sink = sink_of(one.url, "other", kind, replace=replaces)
    feed = Feed(source="other")
    feed.start()
    feed.load(NOTES, LoadPhase.BEGIN)
    feed.load(NOTES, LoadPhase.END)
    other = Applier(feed.read_cuts, feed.read_rows, sink)
    other.drain()
    load(one, ACCOUNT)
    feed.load(ACCOUNT, LoadPhase.BEGIN)

    with pytest.raises(TargetNotEmpty, match="another source's at the target"):
        other.drain()

    for ended in (one.sink, sink):
        ended.close()


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
    target.drain()
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["2", "b", "x"])
    target.feed.load(ACCOUNT, LoadPhase.END)
    with pytest.raises(TargetRefused):
        target.drain()
    target.run("ALTER TABLE account DROP CONSTRAINT mine")
    target.run("INSERT INTO account VALUES (7, 'not the source''s', '')")
    target.sink.close()
    target.sink = target.new_sink()
    again = Applier(target.feed.read_cuts, target.read_rows, target.sink)

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

    Applier(target.feed.read_cuts, target.read_rows, target.sink).drain()

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


@pytest.mark.parametrize("columns", ["id bigint, name text, note text",
                                     "id integer, name integer, note text"])  # fmt: skip
@pytest.mark.parametrize("has_ended", [True, False])
def test_a_load_that_begins_again_takes_the_types_of_by_now(
    target: Target, columns: str, *, has_ended: bool
) -> None:
    """Nothing told of the change: the triggers could not describe it."""
    target.feed.load(ACCOUNT, LoadPhase.BEGIN)
    target.feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a", "x"])
    if has_ended:
        target.feed.load(ACCOUNT, LoadPhase.END)
    target.drain()

    load(target, table("account", columns), ["2", "3", "x"])

    assert target.sink.ledger().state == "EXACT"
    assert target.query("SELECT id::text, name::text FROM account") == [("2", "3")]


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


def test_an_interrupted_load_of_a_dropped_table_does_not_stop_a_rename(target: Target) -> None:
    a, b = table("a", "id integer, v text"), table("b", "id integer, v text")
    for one in (b, a):
        target.feed.load(one, LoadPhase.BEGIN)
        target.feed.load(one, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
        if one is b:
            target.apply(alter(b, None, tag="DROP TABLE"))

    target.apply(alter(a, b))

    load(target, b, ["1", "x"], ["2", "y"])
    assert rows(target, "b") == [(1, "x"), (2, "y")]


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
            with pytest.raises(TargetRefused, match=r"view public\.seen depends on") as raised:
                target.apply(alter(ACCOUNT, slim))
            assert "drop what is named" in raised.value.hint
        else:
            target.apply(alter(ACCOUNT, slim), insert(slim, "2", "b"))
            target.run("CREATE VIEW seen AS SELECT * FROM account")
            target.apply(alter(slim, None))
            assert target.query("SELECT to_regclass('seen')") == [(None,)]
        target.sink.close()


def test_a_view_of_others_over_an_altered_column_is_named(target: Target) -> None:
    target.apply(alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x"))
    target.run("CREATE VIEW seen AS SELECT * FROM account")
    wide = table("account", "id bigint, name text, note text")

    with pytest.raises(NotExpressible, match=r'view public\.seen depends on column "id"'):
        target.apply(alter(ACCOUNT, wide))

    target.run("DROP VIEW seen")
    target.apply(insert(wide, "2", "b", "y"))
    assert target.query("SELECT id, note FROM account ORDER BY id") == [(1, "x"), (2, "y")]


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


NOTES = table("notes", "id integer, name text")
EVIL = (
    "CREATE FUNCTION evil(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
    " $$BEGIN PERFORM nextval('public.ran'); RETURN x; END$$"
)


def test_code_of_the_source_does_not_run_at_the_target_unless_it_is_trusted(
    new_database: Callable[[], str],
) -> None:
    """As a user of the source who makes what calls his own function, and one who forges records."""
    reported = replace(alter(None, ACCOUNT), after=None, origin=Origin.TRIGGER)
    attacks = [
        replace(reported, tag=f"CREATE {kind.upper()}", kind=kind, identity="x", canonical=text)
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


def test_what_is_asked_of_a_target_grows_little_with_its_tables(
    new_database: Callable[[], str],
) -> None:
    """A load of empty tables, then a schema change of one of many."""
    url, said = new_database(), Said()

    def connect() -> LoggingConnection:
        made = psycopg2.connect(url, connection_factory=LoggingConnection)
        made.initialize(said)
        return made

    target = Target(url, "postgres")
    target.sink.close()
    target.sink = PostgresSink(connect, target.feed.source)
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
    tables = [table(f"t{n}", "id integer, v text") for n in range(60)]  # more than one step's
    target.drain()

    said.clear()
    for phase in (LoadPhase.BEGIN, LoadPhase.END):
        for one in tables:
            target.feed.load(one, phase)
    assert target.drain().state == "EXACT"
    assert said.number("SELECT ") < 1.5 * len(tables)
    assert len(said) < 9 * len(tables)

    def change_all(key: str, tables: list[TableSchema]) -> None:
        said.clear()
        target.apply(*[insert(one, key, *"v" * (len(one.columns) - 1)) for one in tables])
        target.apply(*[update(one, key, *"w" * (len(one.columns) - 1)) for one in tables])

    change_all("1", tables)
    assert said.number("CREATE TEMP TABLE ") == len(tables)
    wider = table("t7", "id integer, v text, more text")
    target.apply(alter(tables[7], wider))
    tables[7] = wider
    change_all("2", tables)
    assert said.number("CREATE TEMP TABLE ") == 1
    assert said.number("SELECT ") < len(tables) / 2
    assert rows(target, "t7") == [(1, "w", None), (2, "w", "w")]
    assert rows(target, "t8") == [(1, "w"), (2, "w")]
    target.sink.close()


class Said(list[str]):
    """The statements of a connection, as psycopg2 logs them into a file."""

    def write(self, line: str) -> None:
        self.append(line)

    def number(self, beginning: str) -> int:
        return sum(line.lstrip().startswith(beginning) for line in self)


def test_a_table_moves_past_what_its_new_schema_has_of_its_names(target: Target) -> None:
    account = replace(ACCOUNT, unique=(Unique("by_name", ("name",)),))
    target.run(
        "CREATE SCHEMA two; CREATE TABLE two.account (id int PRIMARY KEY); CREATE SCHEMA three;"
        "CREATE TABLE three.other (id int CONSTRAINT account_pkey PRIMARY KEY);"
        "CREATE INDEX by_name ON three.other (id)"
    )
    load(target, account, ["1", "a", "x"])
    other = replace(account, id=TableId("two", "other"))
    target.apply(alter(account, other), insert(other, "2", "b", "y"))
    assert target.query("SELECT id FROM two.other ORDER BY id") == [(1,), (2,)]
    assert target.query("SELECT to_regclass('two.by_name') IS NULL") == [(False,)]

    third = replace(account, id=TableId("three", "account"))
    target.apply(alter(other, third), insert(third, "3", "b", "z"))
    assert target.query("SELECT id FROM three.account ORDER BY id") == [(1,), (2,), (3,)]

    target.apply(alter(third, account), update(account, "3", "C", "z"), delete(account, "1"))
    assert rows(target, "account") == [(2, "b", "y"), (3, "C", "z")]
