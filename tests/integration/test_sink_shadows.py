"""Tables that are loaded again beside the rows that readers see, on a real PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from schemas.control import LoadPhase, Topic
from schemas.tables import TableId
from spark_consumers.errors import TargetRefused
from tests.integration.postgres_target import ACCOUNT, Target, load, only_postgresql, rows
from tests.integration.test_sink_parts import LOG, A, Fed
from tests.spark_consumers.feed import alter, delete, insert, table, truncate, update

OLD = [["1", "a", "x"], ["2", "b", "y"], ["3", "c", "z"]]
NEW = [["1", "a", "x"], ["2", "B", "y"], ["4", "d", None]]
SEEN = [(1, "a", "x"), (2, "b", "y"), (3, "c", "z")]
THEN = [(1, "a", "x"), (2, "B", "y"), (4, "d", None)]


def tell(target: Target, *loads: tuple[Any, LoadPhase, list[list[str | None]]]) -> dict[str, str]:
    """Apply records of loads; what the ledger says then."""
    for schema, phase, chunk in loads:
        target.feed.load(schema, phase, *chunk)
    return dict(target.drain().inexact)


def begin(target: Target, schema: Any, *chunk: list[str | None]) -> dict[str, str]:
    return tell(target, (schema, LoadPhase.BEGIN, []), (schema, LoadPhase.CHUNK, [*chunk]))


def end(target: Target, schema: Any) -> dict[str, str]:
    return tell(target, (schema, LoadPhase.END, []))


def shadows(target: Target) -> list[tuple]:
    return target.query("SELECT relname FROM pg_class WHERE relname LIKE 'shadow\\_%'")


@contextmanager
def snapshot(target: Target) -> Iterator[Callable[[str], list[tuple]]]:
    """A reader that keeps the snapshot of its first question."""
    with closing(psycopg2.connect(target.url)) as reader, reader.cursor() as cursor:
        reader.set_session(isolation_level="REPEATABLE READ")

        def ask(statement: str) -> list[tuple]:
            cursor.execute(statement)
            return cursor.fetchall()

        yield ask


def test_readers_have_the_older_rows_until_the_load_ends(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    target.run(
        "CREATE VIEW names AS SELECT name FROM account;"
        "CREATE INDEX by_name ON account (name); GRANT SELECT ON account TO PUBLIC;"
        "ALTER TABLE account ADD extra text DEFAULT 'new', ADD twice int"
        " GENERATED ALWAYS AS (id * 2) STORED; UPDATE account SET extra = 'kept'"
    )
    there = "SELECT id, name, note FROM account ORDER BY 1"
    written = "SELECT xmin::text FROM account WHERE id = 1"
    facts = "SELECT oid, relacl::text FROM pg_class WHERE relname IN ('account', 'by_name')"
    before, is_one = target.query(facts), target.query(written)

    with snapshot(target) as of_before:
        assert of_before(there) == SEEN
        assert begin(target, ACCOUNT, *NEW[:1]) == {
            "public.account": "loading; readers see commit 1/0"
        }
        assert target.query(there) == SEEN
        tell(target, (ACCOUNT, LoadPhase.CHUNK, NEW[1:]))
        assert target.query(there) == SEEN
        assert end(target, ACCOUNT) == {}
        assert of_before(there) == SEEN

    assert target.query(there) == THEN
    assert target.query("SELECT extra, twice FROM account ORDER BY id") == [
        ("kept", 2), ("kept", 4), ("new", 8)
    ]  # fmt: skip
    assert target.query("SELECT * FROM names ORDER BY 1") == [("B",), ("a",), ("d",)]
    assert target.query(facts) == before
    assert target.query(written) == is_one  # a row that does not differ is not written
    assert shadows(target) == []
    target.apply(update(ACCOUNT, "4", "D", ...))
    assert target.query(there)[-1] == (4, "D", None)


def test_a_column_may_be_null_again_from_a_load_on(target: Target) -> None:
    """It left the key, and no statement told that it may: triggers were off, or there are none."""
    firm = replace(
        ACCOUNT, columns=tuple(replace(c, nullable=c.name == "note") for c in ACCOUNT.columns)
    )
    keyed = replace(firm, key=("id", "name"))
    load(target, keyed, *OLD)
    target.apply(alter(keyed, firm))

    assert begin(target, ACCOUNT, ["1", None, "x"]) != {}
    assert end(target, ACCOUNT) == {}

    assert target.query("SELECT id, name, note FROM account ORDER BY 1") == [(1, None, "x")]


def test_the_stream_changes_the_rows_of_the_load(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    more = table("account", "id integer, name text, note text, more integer")
    more = replace(more, columns=(*more.columns[:3], replace(more.columns[3], missing="7")))
    begin(target, ACCOUNT, *NEW)

    target.apply(delete(ACCOUNT, "1"), insert(ACCOUNT, "5", "e", "w"))
    ledger = target.apply(update(ACCOUNT, "2", "BB", ...), update(ACCOUNT, "9", "d", ..., old="4"))
    assert ledger.inexact == {"public.account": "loading; readers see commit 1/0"}
    assert rows(target, "account") == SEEN
    target.apply(alter(ACCOUNT, more), update(more, "5", "E", "w", "8"))
    assert rows(target, "account") == [(*row, 7) for row in SEEN]
    now = replace(more, id=TableId("public", "konto"))
    ledger = target.apply(alter(more, now), update(now, "5", "EE", "w", "9"))
    assert ledger.inexact == {"public.konto": "loading; readers see commit 1/0"}
    assert rows(target, "konto") == [(*row, 7) for row in SEEN]

    assert end(target, now) == {}
    assert rows(target, "konto") == [(2, "BB", "y", 7), (5, "EE", "w", 9), (9, "d", None, 7)]
    assert shadows(target) == []


def test_a_load_that_begins_again_has_no_rows_of_the_one_before(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    begin(target, ACCOUNT, ["8", "h", "h"])
    target.apply(insert(ACCOUNT, "9", "i", "i"), truncate(ACCOUNT))
    assert rows(target, "account") == SEEN

    mark = begin(target, ACCOUNT, *NEW)

    assert mark == {"public.account": "loading; readers see commit 1/0"}
    assert rows(target, "account") == SEEN
    end(target, ACCOUNT)
    assert rows(target, "account") == THEN


def test_an_epoch_loads_beside_the_rows_of_the_one_before(target: Target) -> None:
    """Columns came and went in between: the table, with what shows it, is not made again."""
    load(target, ACCOUNT, *OLD)
    target.apply(update(ACCOUNT, "3", "C", "z"))
    target.run("CREATE VIEW names AS SELECT id, name FROM account")
    other = table("account", "id integer, name text, email text")
    target.feed.topics = {"bank.public.account": Topic("1", 1)}
    target.feed.state()
    target.feed.load_again(other)
    assert target.drain().inexact == {"public.account": "not loaded; readers see commit 1/1"}

    mark = begin(target, other, ["1", "a", "a@x"], ["2", "B", "b@x"])

    assert mark == {"public.account": "loading; readers see commit 1/1"}
    assert target.query("SELECT * FROM names ORDER BY 1") == [(1, "a"), (2, "b"), (3, "C")]
    assert end(target, other) == {}
    assert target.query("SELECT * FROM names ORDER BY 1") == [(1, "a"), (2, "B")]
    assert target.query("SELECT id, name, email FROM account ORDER BY 1") == [
        (1, "a", "a@x"), (2, "B", "b@x")
    ]  # fmt: skip


def test_rows_without_a_key_keep_their_number(target: Target) -> None:
    bag = table("bag", "id integer, v text", key="")
    load(target, bag, ["1", "a"], ["1", "a"], ["2", None])
    begin(target, bag, ["1", "a"], ["2", None], ["2", None])
    target.apply(delete_all(bag, "1", "a"), insert(bag, "3", "c"))
    assert rows(target, "bag") == [(1, "a"), (1, "a"), (2, None)]

    end(target, bag)

    assert rows(target, "bag") == [(2, None), (2, None), (3, "c")]


def delete_all(of: Any, *cells: str) -> Any:
    return replace(insert(of), op="d", before=[*cells], after=None)


def test_values_that_are_equal_and_not_the_same_are_exchanged(target: Target) -> None:
    kinds = table("kinds", "id numeric, n numeric, j json, f double precision, t interval")
    load(target, kinds, ["1.0", "1.0", '{"a":1}', "0.1", "24:00:00"], ["2", *[None] * 4])
    begin(target, kinds, ["1.00", "1.00", '{"a": 1}', "0.10000000000000003", "1 day"],
          ["2", *[None] * 4])  # fmt: skip

    end(target, kinds)

    texts = "SELECT id::text, n::text, j::text, f = 0.10000000000000003, t::text FROM kinds"
    assert target.query(f"{texts} ORDER BY id") == [
        ("1.00", "1.00", '{"a": 1}', True, "1 day"),
        ("2", *[None] * 4),
    ]


@only_postgresql
def test_identity_columns_and_late_keys_are_exchanged(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    target.run(
        "ALTER TABLE account ADD UNIQUE (name) DEFERRABLE, DROP CONSTRAINT account_pkey,"
        " ADD PRIMARY KEY (id) DEFERRABLE"
    )
    begin(target, ACCOUNT, *NEW)
    end(target, ACCOUNT)
    assert rows(target, "account") == THEN

    always = table("always", "id integer, n integer")
    load(target, always, ["1", "1"])
    target.run("ALTER TABLE always ALTER n SET NOT NULL, ALTER n ADD GENERATED ALWAYS AS IDENTITY")
    begin(target, always, ["1", "2"], ["2", "1"])
    end(target, always)
    assert rows(target, "always") == [(1, 2), (2, 1)]


def test_what_the_target_does_not_take_leaves_the_older_rows(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    target.run("ALTER TABLE account ALTER note SET NOT NULL")
    begin(target, ACCOUNT, *NEW)
    target.feed.load(ACCOUNT, LoadPhase.END)

    with pytest.raises(TargetRefused, match="note"):
        target.drain()

    assert rows(target, "account") == SEEN
    target.run("ALTER TABLE account ALTER note DROP NOT NULL")
    target.drain()
    assert rows(target, "account") == THEN


@pytest.mark.parametrize("where", ["ledger locked", "rows applied", "ledger moved", "committed"])
def test_a_crash_leaves_the_older_rows_or_the_newer(
    new_database: Callable[[], str], kind: str, where: str
) -> None:
    killed: list[str] = []
    found: list[list[tuple]] = []

    def kill(step: str) -> None:
        if where == step and killed == ["armed"]:
            killed.append(step)
            target.run(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            found.append(rows(target, "account"))

    target = Target(new_database(), kind, on_step=kill)
    load(target, ACCOUNT, *OLD)
    begin(target, ACCOUNT, *NEW)
    killed.append("armed")

    assert end(target, ACCOUNT) == {}

    assert killed == ["armed", where]
    assert found == [THEN if where == "committed" else SEEN]
    assert rows(target, "account") == THEN
    assert shadows(target) == []
    target.sink.close()


def test_tables_that_cannot_keep_their_rows_say_so(new_database: Callable[[], str]) -> None:
    target = Target(new_database(), "postgres", replica_role=False)  # foreign keys act
    child = table("child", "id integer, account integer")
    load(target, ACCOUNT, *OLD)
    load(target, child)
    target.run("ALTER TABLE child ADD FOREIGN KEY (account) REFERENCES account")
    assert begin(target, ACCOUNT, *NEW[:1]) == {"public.account": "loading"}
    assert rows(target, "account") == THEN[:1]
    target.sink.close()


def test_a_table_that_goes_takes_its_shadow_along(target: Target) -> None:
    load(target, ACCOUNT, *OLD)
    begin(target, ACCOUNT, *NEW)

    assert target.apply(alter(ACCOUNT, None)).inexact == {}

    assert shadows(target) == []
    assert target.query("SELECT * FROM gauss_cdc.shadows") == []


def test_parts_of_commits_go_beside_those_that_readers_see(
    new_database: Callable[[], str],
) -> None:
    fed = Fed(new_database())
    for schema in (A, LOG):
        fed.load(schema, ["1", "one"], ["2", "two"], ["3", None])
        fed.feed.load(schema, LoadPhase.BEGIN)
        fed.feed.load(schema, LoadPhase.CHUNK, ["1", "one"], ["2", "TWO"], ["4", "four"])
    fed.applier.drain()
    before = [(1, "one"), (2, "two"), (3, None)]
    assert fed.rows("a") == fed.rows("log") == before
    fed.apply(
        [update(A, "4", "FOUR"), delete(A, "1"), insert(A, "5", "five")],
        [insert(LOG, "5", "five"), delete_all(LOG, "1", "one")],
    )
    assert fed.rows("a") == fed.rows("log") == before

    for schema in (A, LOG):
        fed.feed.load(schema, LoadPhase.END)
    assert fed.applier.drain().inexact == {}

    assert fed.rows("a") == [(2, "TWO"), (4, "FOUR"), (5, "five")]
    assert fed.rows("log") == [(2, "TWO"), (4, "four"), (5, "five")]
    fed.sink.close()


def test_a_load_whose_rows_do_not_meet_its_own_unique_index_goes_on_without_it(
    target: Target,
) -> None:
    """The source's index is on what was altered below it, and its rows are alike by now."""
    load(target, ACCOUNT, *OLD)
    unique = table("account", "id integer, name text, note text", unique="name")
    for phase in (LoadPhase.BEGIN, LoadPhase.CHUNK, LoadPhase.END):
        chunk = [["1", "a", "x"], ["4", "a", "y"]] if phase is LoadPhase.CHUNK else []
        target.feed.load(unique, phase, *chunk)

    assert dict(target.drain().inexact) == {}  # one step

    assert rows(target, "account") == [(1, "a", "x"), (4, "a", "y")]
    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'account'::regclass"
    assert target.query(indexes) == [(1,)]
