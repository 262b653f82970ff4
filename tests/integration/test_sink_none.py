"""`[ddl] apply = "none"`: the owner of the target alters it, and its rows are not called exact."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from schemas.control import LoadPhase, Moved, Origin
from schemas.tables import Column, TableId, TableSchema, UserType
from spark_consumers.cuts.ledger import LEFT_OUT
from spark_consumers.errors import NotExpressible
from tests.integration.postgres_target import Target, load
from tests.spark_consumers.feed import alter, hash_oid, insert, table


@pytest.fixture
def none(new_database) -> Iterator[Target]:
    one = Target(new_database(), "postgres", ddl="none")
    yield one
    one.sink.close()


M = table("m", "id integer, v text")


def test_a_finer_type_of_the_source_stops_until_the_target_has_it(none: Target) -> None:
    narrow = table("a", "id integer, at timestamp(0) without time zone, n numeric(10)")
    wide = table("a", "id integer, at timestamp without time zone, n numeric")
    load(none, narrow, ["1", "2024-01-01 00:00:00", "1"])
    none.apply(insert(narrow, "2", "2024-01-02 00:00:00", "2"))

    with pytest.raises(NotExpressible, match="does not hold"):
        none.apply(alter(narrow, wide), insert(wide, "3", "2024-01-01 00:00:00.123456", "1.5"))

    none.run("ALTER TABLE a ALTER at TYPE timestamp, ALTER n TYPE numeric")
    assert none.drain().inexact == {}
    found = none.query("SELECT at::text, n::text FROM a WHERE id = 3")
    assert found == [("2024-01-01 00:00:00.123456", "1.5")]


def test_rows_of_a_partition_that_was_dropped_are_not_called_exact(none: Target) -> None:
    load(none, M, ["1", "old"], ["2", "new"])
    dropped = replace(alter(M, M, tag="DROP TABLE"), moved=Moved("delete", M.id, "(id < 2)"))

    assert none.apply(dropped).inexact == {"public.m": LEFT_OUT}

    load(none, M, ["2", "new"])
    assert none.drain().inexact == {}


@pytest.mark.parametrize(
    ("where", "is_exact"),
    [("(id < 2)", True), ("(id < 3)", False), ("(gone < 3)", False), (None, False)],
)
def test_a_partition_that_the_owner_dropped_too_leaves_the_table_exact(
    none: Target, where: str | None, is_exact: bool
) -> None:
    load(none, M, ["1", "old"], ["2", "new"])
    none.drain()
    none.run("DELETE FROM m WHERE id = 1")  # his DROP of the partition
    dropped = replace(alter(M, M, tag="DROP TABLE"), moved=Moved("delete", M.id, where))

    assert none.apply(dropped).inexact == ({} if is_exact else {"public.m": LEFT_OUT})


def test_rows_of_a_table_that_was_attached_are_not_called_exact(none: Target) -> None:
    root, part = table("root", "id integer, v text"), table("part", "id integer, v text")
    load(none, root, ["1", "a"])
    load(none, part, ["2", "b"])
    load(none, M, ["1", "a"])

    ledger = none.apply(
        replace(alter(root, root), moved=Moved("move", part.id)), insert(M, "2", "")
    )

    assert ledger.inexact == {"public.root": LEFT_OUT, "public.part": LEFT_OUT}
    assert len(none.query("SELECT FROM m")) == 2
    assert none.apply(alter(part, None)).inexact == {"public.root": LEFT_OUT}


def _with(**types: str) -> TableSchema:
    """The table with these columns, which are others where their types are."""
    columns = tuple(Column(n, hash_oid(t), -1, t) for n, t in {"id": "integer", **types}.items())
    return TableSchema(TableId("public", "a"), columns, ("id",))


WAS = _with(n="numeric(10,2)", v="text")


def _added(missing: str | None) -> TableSchema:
    more = _with(n="numeric(10,2)", v="text", w="text")
    return replace(more, columns=(*more.columns[:-1], replace(more.columns[-1], missing=missing)))


def _labelled(*labels: str) -> TableSchema:
    mood = UserType("e", "mood", labels=labels)
    column = replace(WAS.columns[-1], type_oid=20010, type_name="public.mood", user_type=mood)
    return replace(WAS, columns=(*WAS.columns[:-1], column))


@pytest.mark.parametrize(
    ("before", "after", "values", "is_other"),
    [
        (WAS, _with(n="numeric(10,1)", v="text"), {}, True),
        (WAS, _with(n="numeric(12,4)", v="text"), {}, True),  # 1.25 reads 1.2500 then
        (WAS, _with(n="numeric", v="text"), {}, False),
        (WAS, _with(n="numeric(12,2)", v="text"), {}, False),
        (WAS, _with(n="numeric(10,2)", v="character varying"), {}, False),
        (WAS, _with(n="numeric(10,2)", v="character varying(1)"), {}, True),
        (WAS, WAS, {"v": "new"}, True),
        (WAS, _with(n="numeric", v="text"), {"n": "lost"}, True),
        (WAS, _with(n="numeric", v="text"), {"n": "explicit"}, False),
        (WAS, _added(None), {}, False),
        (WAS, _added("x"), {}, True),
        (WAS, _with(n="numeric(10,2)"), {}, False),
        (_labelled("a", "b"), _labelled("a", "b", "c"), {}, False),
        (_labelled("a", "b"), _labelled("a", "c"), {}, True),
    ],
)
def test_values_that_a_statement_computed_are_not_called_exact(
    none: Target, before: TableSchema, after: TableSchema, values: dict[str, str], is_other: bool
) -> None:
    load(none, before, ["1", "1.25", "a"])
    none.run("ALTER TABLE a ALTER n TYPE numeric")  # it holds whatever comes
    change = replace(alter(before, after), origin=Origin.TRIGGER, values=values)

    ledger = none.apply(change)

    assert ledger.inexact == ({"public.a": LEFT_OUT} if is_other else {})
    assert none.query("SELECT n::text, v FROM a") == [("1.25", "a")], "the target is left alone"


def test_a_change_of_a_table_that_is_marked_is_no_other_mark(none: Target) -> None:
    load(none, WAS, ["1", "1.25", "a"])
    lossy = replace(alter(WAS, _with(n="numeric(9,1)", v="text")), lossy="computed")

    assert none.apply(lossy).inexact == {"public.a": "computed"}


# ---- beside a load, whose rows stand in a table of ours
NARROW, WIDE = table("a", "id integer, n numeric(10)"), table("a", "id integer, n numeric")


def begun(none: Target, shape: TableSchema, *rows: list[str | None]) -> None:
    none.feed.load(shape, LoadPhase.BEGIN, mode="BESIDE")
    none.feed.load(shape, LoadPhase.CHUNK, *rows, mode="BESIDE")
    none.drain()


def test_an_owner_follows_amid_a_load(none: Target) -> None:
    load(none, NARROW, ["1", "1"])
    begun(none, NARROW, ["1", "1"])
    more = table("a", "id integer, n numeric, w text")

    with pytest.raises(NotExpressible, match="does not hold"):
        none.apply(alter(NARROW, WIDE), insert(WIDE, "2", "1.2345"))
    none.run("ALTER TABLE a ALTER n TYPE numeric")  # as the message says
    none.drain()
    none.run("ALTER TABLE a ADD w text")  # before it is asked for
    none.apply(alter(WIDE, more), insert(more, "3", "2.5", "w"))
    none.feed.load(more, LoadPhase.END, mode="BESIDE")

    assert none.drain().inexact == {}
    found = none.query("SELECT id, n::text, w FROM a ORDER BY id")
    assert found == [(1, "1", None), (2, "1.2345", None), (3, "2.5", "w")]


def test_what_a_statement_does_to_rows_amid_a_load_it_does_to_its_rows_too(none: Target) -> None:
    shape = table("a", "id integer, v text")
    load(none, shape, ["1", "old"])
    begun(none, shape, ["1", "old"])

    none.apply(replace(alter(shape, shape), values={"v": "new"}))
    none.feed.load(shape, LoadPhase.CHUNK, ["2", None], mode="BESIDE", first=1)
    none.feed.load(shape, LoadPhase.END, mode="BESIDE")
    ledger = none.drain()

    found = none.query("SELECT id, v FROM a ORDER BY 1")
    assert (found, ledger.inexact) == ([(1, None), (2, None)], {})
