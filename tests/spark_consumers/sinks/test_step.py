"""The rules of a step, on a transaction that only notes what it is asked."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import Hole, LoadPhase, Moved, SchemaChange, TableLoad
from schemas.tables import TableId
from spark_consumers.cuts.ledger import LATE, NOT_CAPTURED
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import Fenced, Incomplete, Superseded
from spark_consumers.model import Change, Ledger, Segment
from spark_consumers.sinks.step import (
    FIRST,
    LAST,
    Place,
    by_table,
    divided,
    present,
    shapes_of,
    step,
)
from tests.spark_consumers.feed import Feed, Tx, alter, create, insert, table

A, WIDER = table("a", "id integer, v text"), table("a", "id integer, v text, w text")
B = table("b", "id integer, v text")


class Noting:
    """Does nothing, in the order in which it is asked to."""

    def __init__(self, ledger: Ledger | None, *parts: Sequence[SchemaChange]) -> None:
        """`parts` of commits, by their schema changes; without any there is one with none."""
        self.ledger, self.several = ledger, parts or ((),)
        self.ddl = self.several[0]
        self.did: list[Any] = []
        self.is_whole, self.can_keep, self.loses = True, False, False
        self.lacks_parts = False
        self.has: set[TableId] = set()

    def lock_ledger(self) -> Ledger | None:
        self.did.append("lock")
        return self.ledger

    def check_staged(self, segment: Segment) -> None:
        self.did.append("check")
        if not self.is_whole:
            raise Incomplete("a row is missing")

    def parts(self) -> Iterator[None]:
        for at, ddl in enumerate(self.several):
            self.ddl = ddl
            self.did.append(("part", at))
            yield
        self.did.append("all parts")
        if self.lacks_parts:
            raise Incomplete("a part is missing")

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        self.did.append(("alter", change.ordinal, is_exact))
        return self.loses

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        self.did.append(("write", after, before, sorted(inexact)))

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        self.did.append(("load", cut.phase))
        return keeps and self.can_keep

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        self.did.append(("there", [*tables]))
        return self.has & set(tables)

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        self.did.append("move")
        self.ledger = upto


def fed(*transactions: Any) -> tuple[Feed, list[Segment]]:
    feed = Feed()
    feed.start()
    feed.commits(*transactions)
    return feed, feed.segments(Ledger("bank", fence=3), strict=True)


def test_rows_are_checked_then_written_then_the_ledger_moves() -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])
    transaction = Noting(replace(begun.upto, fence=3))
    steps: list[str] = []

    upto = step(transaction, commit, fence=3, on_step=steps.append)

    assert transaction.did == [
        *("lock", "check"),
        *(("part", 0), ("write", FIRST, LAST, []), "all parts"),
        "move",
    ]
    assert steps == ["ledger locked", "rows applied", "ledger moved"]
    assert (upto.seq, upto.fence, upto.state) == (1, 3, "EXACT")
    assert transaction.ledger == upto


def test_the_fence_stays_the_target_s_whatever_the_plan_was_made_with() -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])

    assert step(Noting(replace(begun.upto, fence=5)), commit, fence=5).fence == 5


@pytest.mark.parametrize("has", [set(), {A.id}, {B.id}, {A.id, B.id}])
def test_a_table_that_the_source_does_not_capture_is_marked_while_it_is_here(
    has: set[TableId],
) -> None:
    feed = Feed()
    feed.start()
    feed.load_again(B)
    feed.start()
    begun, new, again = feed.segments(Ledger("bank", fence=3))
    had = replace(begun.upto, topics={"bank.public.a": "1"}, fence=3)
    transaction = Noting(had)
    transaction.has = has

    upto = step(transaction, replace(new, after=had), fence=3)

    here = {"public.a": f"{NOT_CAPTURED}; readers see commit 1/0"} if A.id in has else {}
    assert upto.inexact == {"public.b": "not loaded", **here}
    assert transaction.did == ["lock", "check", ("there", [A.id]), "move"]

    transaction.has = set()  # its owner drops it
    again = replace(again, after=upto, upto=replace(upto, n=again.upto.n))
    upto = step(transaction, again, fence=3)

    assert upto.inexact == {"public.b": "not loaded"}


@pytest.mark.parametrize("fence", [2, 4, None])
def test_a_ledger_that_another_applier_took_changes_nothing(fence: int | None) -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])
    transaction = Noting(replace(begun.upto, fence=3))

    with pytest.raises(Fenced):
        step(transaction, commit, fence=fence)

    assert transaction.did == ["lock"]


def test_a_ledger_that_is_gone_changes_nothing() -> None:
    _, (_, commit) = fed([insert(A, "1", "x")])

    with pytest.raises(Fenced):
        step(Noting(None), commit, fence=3)


@pytest.mark.parametrize("moved", [{"epoch": 2}, {"n": 2}, {"seq": 1}, {"n": 0}])
def test_a_ledger_that_is_elsewhere_changes_nothing(moved: dict[str, int]) -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])
    transaction = Noting(replace(begun.upto, fence=3, **moved))

    with pytest.raises(Superseded):
        step(transaction, commit, fence=3)

    assert transaction.did == ["lock"]


def test_rows_that_are_not_what_the_cut_promises_change_nothing() -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])
    transaction = Noting(replace(begun.upto, fence=3))
    transaction.is_whole = False

    with pytest.raises(Incomplete):
        step(transaction, commit, fence=3)

    assert transaction.did == ["lock", "check"]


def test_schema_changes_are_run_between_the_rows_before_and_behind_them() -> None:
    feed, segments = fed([insert(A, "1", "x"), alter(A, WIDER), insert(WIDER, "2", "x", "y")])
    begun, commit = segments
    ddl = feed.read_rows(commit).ddl
    transaction = Noting(replace(begun.upto, fence=3), ddl)

    step(transaction, commit, fence=3)

    assert transaction.did[3:-2] == [
        ("write", FIRST, (1, 1), []),
        ("alter", 1, True),
        ("write", (1, 1), LAST, []),
    ]


def test_each_part_of_a_commit_is_written_with_what_the_ones_before_it_lost() -> None:
    lossy = replace(alter(A, WIDER), lossy="rows of w")
    feed, (begun, commit) = fed([insert(A, "1", "x"), lossy, insert(WIDER, "2", "x", "y")])
    transaction = Noting(replace(begun.upto, fence=3), (), feed.read_rows(commit).ddl, ())

    upto = step(transaction, commit, fence=3)

    assert transaction.did == [
        *("lock", "check"),
        *(("part", 0), ("write", FIRST, LAST, [])),
        *(("part", 1), ("write", FIRST, (1, 1), []), ("alter", 1, False)),
        ("write", (1, 1), LAST, ["public.a"]),
        *(("part", 2), ("write", FIRST, LAST, ["public.a"])),
        *("all parts", "move"),
    ]
    assert upto.inexact == {"public.a": "rows of w"}


def test_parts_that_end_before_they_are_everything_do_not_move_the_ledger() -> None:
    _, (begun, commit) = fed([insert(A, "1", "x")])
    transaction = Noting(replace(begun.upto, fence=3))
    transaction.lacks_parts = True

    with pytest.raises(Incomplete):
        step(transaction, commit, fence=3)

    assert transaction.did[-1] == "all parts"
    assert transaction.ledger == replace(begun.upto, fence=3)


def test_what_a_schema_change_loses_is_in_the_ledger_and_behind_it_rows_may_lack() -> None:
    lossy = replace(alter(A, WIDER), lossy="rows of w")
    feed, (begun, commit) = fed([lossy, insert(WIDER, "2", "x", "y")])
    transaction = Noting(replace(begun.upto, fence=3), feed.read_rows(commit).ddl)

    upto = step(transaction, commit, fence=3)

    assert transaction.did[3:-2] == [
        ("write", FIRST, (1, 0), []),
        ("alter", 0, False),
        ("write", (1, 0), LAST, ["public.a"]),
    ]
    assert (upto.state, upto.inexact) == ("LOADING", {"public.a": "rows of w"})


def test_a_table_that_is_not_exact_is_altered_as_one_and_others_are_not() -> None:
    known = {"public.a": "seen: TRUNCATE"}
    later = alter(table("b", "id integer"), B)
    feed, (begun, commit) = fed([alter(A, WIDER), later, alter(B, None), alter(None, None)])
    at = replace(begun.upto, fence=3, inexact=known)
    transaction = Noting(at, feed.read_rows(commit).ddl[::-1])

    upto = step(
        transaction, replace(commit, after=at, upto=replace(commit.upto, inexact=known)), fence=3
    )

    assert [did for did in transaction.did if did[0] == "alter"] == [
        ("alter", 0, False), ("alter", 1, True), ("alter", 2, True), ("alter", 3, True),
    ]  # fmt: skip
    assert upto.inexact == known


def test_a_gap_of_the_commit_itself_holds_for_its_rows_already() -> None:
    gap = Hole("public.a", "seen", "rows after DDL")
    _, (begun, commit) = fed(Tx([insert(A, "1", "x")], (gap,)))
    transaction = Noting(replace(begun.upto, fence=3))

    upto = step(transaction, commit, fence=3)

    assert transaction.did[3] == ("write", FIRST, LAST, ["public.a"])
    assert upto.state == "LOADING"


def test_a_table_that_lacked_a_row_behind_its_rename_is_marked_under_that_name() -> None:
    """The step failed, and is tried again with a mark of the name that the table has by then."""
    named, marks = table("named", "id integer, v text"), {"public.named": "seen: it lacked a row"}
    feed, (begun, commit) = fed([alter(A, named), insert(named, "1", "x")])
    at = replace(begun.upto, fence=3, inexact=marks)
    transaction = Noting(at, feed.read_rows(commit).ddl)

    upto = step(
        transaction,
        replace(commit, after=at, upto=replace(commit.upto, inexact=marks), marks=marks),
        fence=3,
    )

    written = [did for did in transaction.did if did[0] == "write"]
    assert written[-1] == ("write", (1, 0), LAST, ["public.named"])
    assert upto.inexact == marks


def test_schema_changes_of_a_table_that_is_not_here_move_its_mark_alone() -> None:
    named, made = table("named", "id integer, v text"), table("a", "id integer")
    changes = [alter(A, named), alter(named, None), alter(None, made, tag="CREATE TABLE")]
    _, (begun, commit) = fed(changes)
    ddl = [replace(change, seq=1, ordinal=at) for at, change in enumerate(changes)]
    late = replace(begun.upto, fence=3, inexact={"public.a": LATE})
    transaction = Noting(late, ddl)

    upto = step(transaction, replace(commit, after=late, upto=late), fence=3)

    assert [did for did in transaction.did if did[0] == "alter"] == [("alter", 2, True)]
    writes = [did[3] for did in transaction.did if did[0] == "write"]
    assert writes == [["public.a"], ["public.named"], [], []]
    assert upto.inexact == {}


def test_rows_do_not_come_from_a_table_that_is_not_here_and_the_other_one_is_marked() -> None:
    change = replace(alter(B, B), seq=1, ordinal=0, moved=Moved("move", A.id))
    _, (begun, commit) = fed([change])
    late = replace(begun.upto, fence=3, inexact={"public.a": LATE})
    taken: list[SchemaChange] = []

    class Altering(Noting):
        def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
            taken.append(change)
            return super().alter(change, is_exact=is_exact)

    upto = step(Altering(late, [change]), replace(commit, after=late, upto=late), fence=3)

    assert [one.moved for one in taken] == [None]
    assert upto.inexact["public.b"].startswith("seen: rows came from a table that is not loaded")
    assert upto.inexact["public.a"] == LATE


def test_rows_that_come_from_a_table_that_is_not_exact_may_meet_others() -> None:
    change = replace(alter(B, B), seq=1, ordinal=0, moved=Moved("move", A.id))
    _, (begun, commit) = fed([change])
    marked = replace(begun.upto, fence=3, inexact={"public.a": "seen: a gap"})
    transaction = Noting(marked, [change])

    upto = step(transaction, replace(commit, after=marked, upto=marked), fence=3)

    assert [did for did in transaction.did if did[0] == "alter"] == [("alter", 0, False)]
    assert upto.inexact == {"public.a": "seen: a gap", "public.b": "seen: a gap"}


def test_changes_of_a_table_that_is_not_here_are_not_present() -> None:
    changes = {A.id: [_change(1, 0)], B.id: [_change(1, 1)]}

    assert present(changes, {"public.a": LATE, "public.b": "seen: a gap"}) == {B.id: changes[B.id]}
    assert present(changes, {}) is changes


def test_a_load_that_began_before_the_target_is_left_out() -> None:
    feed, (begun, _) = fed([insert(A, "1", "x")])
    feed.load(A, LoadPhase.CHUNK, ["1", "x"])
    feed.load(A, LoadPhase.END)
    late = replace(feed.segments(begun.upto)[0].upto, fence=3, inexact={"public.a": LATE})
    (older,) = feed.segments(late)
    transaction = Noting(late)

    assert step(transaction, older, fence=3).inexact == {"public.a": LATE}
    assert transaction.did == ["lock", "check", "move"]


def test_a_load_is_no_commit() -> None:
    feed = Feed()
    feed.start()
    for phase in LoadPhase:
        feed.load(A, phase, *([["1", "x"]] if phase is LoadPhase.CHUNK else []))
    begun, *loads = feed.segments(Ledger("bank"))
    transaction = Noting(begun.upto, [create(A)])

    for segment in loads:
        step(transaction, segment, fence=0)

    assert [d for d in transaction.did if d[0] == "load"] == [
        ("load", phase) for phase in LoadPhase
    ]
    assert not [d for d in transaction.did if d[0] in {"write", "alter"}]
    assert transaction.ledger is not None
    assert transaction.ledger.state == "EXACT"


def test_several_steps_of_loads_are_taken_in_order_and_a_tables_chunks_at_once() -> None:
    feed = Feed()
    feed.start()
    for schema in (A, B):
        feed.load(schema, LoadPhase.BEGIN)
        feed.load(schema, LoadPhase.CHUNK, ["1", "x"])
        feed.load(schema, LoadPhase.CHUNK, ["2", "x"], ["3", "x"])
        feed.load(schema, LoadPhase.END)
    begun, segment = feed.segments(Ledger("bank"))
    ddl = [create(A), create(B)]
    transaction = Noting(begun.upto, ddl)

    step(transaction, segment, fence=0)

    loads = by_table(segment.loads)
    assert [(one.table.name, one.phase, one.rows) for one in loads] == [
        (name, phase, 3 if phase is LoadPhase.CHUNK else 0) for name in "ab" for phase in LoadPhase
    ]
    assert [r for one in loads for r in one.ranges] == [
        r for one in segment.loads for r in one.ranges
    ]
    assert transaction.did == [
        "lock", "check", *(("load", phase) for phase in (*LoadPhase, *LoadPhase)), "move"
    ]  # fmt: skip
    assert list(shapes_of([*ddl, alter(A, None)], A.id)) == ddl[:1]


LOADED = Ledger("bank", epoch=1, n=1, seq=4, instance="i1", topics={"bank.public.a": "1"})


def marks(transaction: Noting, feed: Feed) -> list[str]:
    """What the ledger says of a after each record, which is a step of its own."""
    out = []
    for record in feed.records:
        assert transaction.ledger is not None
        (segment,) = segments(transaction.ledger, [record])
        found = step(transaction, segment, fence=0)
        out.append(found.inexact.get("public.a", ""))
    return out


@pytest.mark.parametrize(
    ("mark", "commit"),
    [
        (None, "1/4"),
        ("seen: TRUNCATE", "1/4 (seen: TRUNCATE)"),
        ("not loaded; readers see commit 0/9", "0/9"),
        ("seen: TRUNCATE; readers see commit 0/9", "0/9"),
    ],
)
def test_a_table_that_is_loaded_beside_its_rows_says_of_which_commit_they_are(
    mark: str | None, commit: str
) -> None:
    feed = Feed(n=1, epoch=1, writer=1)
    for phase in LoadPhase:
        feed.load(A, phase)
    at = replace(LOADED, inexact={} if mark is None else {"public.a": mark})
    transaction = Noting(at, [create(A)])
    transaction.can_keep = True

    found = marks(transaction, feed)

    assert found == [f"loading; readers see commit {commit}"] * 2 + [""]


@pytest.mark.parametrize("mark", ["loading", "not loaded"])
def test_rows_of_no_commit_are_not_kept(mark: str) -> None:
    feed = Feed(n=1, epoch=1, writer=1)
    feed.load(A, LoadPhase.BEGIN)
    transaction = Noting(replace(LOADED, inexact={"public.a": mark}), [create(A)])
    transaction.can_keep = True

    assert marks(transaction, feed) == ["loading"]


def test_what_comes_between_begin_and_end_does_not_hide_what_readers_see() -> None:
    feed = Feed(n=1, epoch=1, seq=4, writer=1)
    lossy = replace(alter(A, WIDER), lossy="rows of w")
    feed.commits(Tx([lossy], (Hole("public.a", "seen", "TRUNCATE"),)), [alter(WIDER, A)])
    at = replace(LOADED, inexact={"public.a": "loading; readers see commit 1/3"})
    first, second = feed.segments(at)
    assert first.upto.inexact == {"public.a": "seen: TRUNCATE; readers see commit 1/3"}
    transaction = Noting(at, feed.read_rows(first).ddl)

    upto = step(transaction, first, fence=0)

    assert upto.inexact == {"public.a": "rows of w; readers see commit 1/3"}

    transaction.ddl, transaction.loses = feed.read_rows(second).ddl, True
    upto = step(
        transaction,
        replace(
            second,
            after=upto,
            upto=replace(second.upto, inexact={**upto.inexact, "public.b": "loading"}),
        ),
        fence=0,
    )

    assert upto.inexact == {"public.a": "rows of w", "public.b": "loading"}


def test_changes_are_divided_at_schema_changes_and_stay_whole_without_any() -> None:
    rows = {
        A.id: [_change(1, 0), _change(1, 4), _change(2, 0)],
        B.id: [_change(1, 3)],
    }

    assert divided(rows, []) == [rows]
    assert divided(rows, [])[0][A.id] is rows[A.id]
    assert divided(rows, [(1, 2), (1, 5), (3, 0)]) == [
        {A.id: rows[A.id][:1]},
        {A.id: rows[A.id][1:2], B.id: rows[B.id]},
        {A.id: rows[A.id][2:]},
        {},
    ]
    at_places = divided(rows, [(1, 0), (1, 3), (1, 4)])
    assert at_places == [
        {A.id: rows[A.id][:1]},
        {B.id: rows[B.id]},
        {A.id: rows[A.id][1:2]},
        {A.id: rows[A.id][2:]},
    ], "a row that stands at a place goes before it"


def _change(seq: int, ordinal: int) -> Change:
    return Change(seq, ordinal, "c", ("id",), None, ["1"])
