"""The rules of a step, on a transaction that only notes what it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import Hole, LoadPhase, SchemaChange, TableLoad
from spark_consumers.errors import Fenced, Incomplete, Superseded
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.step import FIRST, LAST, Place, by_table, shapes_of, step
from tests.spark_consumers.feed import Feed, Tx, alter, create, insert, table

A, WIDER = table("a", "id integer, v text"), table("a", "id integer, v text, w text")
B = table("b", "id integer, v text")


class Noting:
    """Does nothing, in the order in which it is asked to."""

    def __init__(self, ledger: Ledger | None, ddl: Sequence[SchemaChange] = ()) -> None:
        self.ledger, self.ddl = ledger, ddl
        self.did: list[Any] = []
        self.is_whole = True

    def lock_ledger(self) -> Ledger | None:
        self.did.append("lock")
        return self.ledger

    def check_staged(self, segment: Segment) -> None:
        self.did.append("check")
        if not self.is_whole:
            raise Incomplete("a row is missing")

    def alter(self, change: SchemaChange, *, is_exact: bool) -> None:
        self.did.append(("alter", change.ordinal, is_exact))

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        self.did.append(("write", after, before, sorted(inexact)))

    def load(self, cut: TableLoad) -> None:
        self.did.append(("load", cut.phase))

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

    assert transaction.did == ["lock", "check", ("write", FIRST, LAST, []), "move"]
    assert steps == ["ledger locked", "rows applied", "ledger moved"]
    assert (upto.seq, upto.fence, upto.state) == (1, 3, "EXACT")
    assert transaction.ledger == upto


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

    assert transaction.did[2:-1] == [
        ("write", FIRST, (1, 1), []),
        ("alter", 1, True),
        ("write", (1, 1), LAST, []),
    ]


def test_what_a_schema_change_loses_is_in_the_ledger_and_behind_it_rows_may_lack() -> None:
    lossy = replace(alter(A, WIDER), lossy="rows of w")
    feed, (begun, commit) = fed([lossy, insert(WIDER, "2", "x", "y")])
    transaction = Noting(replace(begun.upto, fence=3), feed.read_rows(commit).ddl)

    upto = step(transaction, commit, fence=3)

    assert transaction.did[2:-1] == [
        ("write", FIRST, (1, 0), []),
        ("alter", 0, False),
        ("write", (1, 0), LAST, ["public.a"]),
    ]
    assert (upto.state, upto.inexact) == ("LOADING", {"public.a": "rows of w"})


def test_a_gap_of_the_commit_itself_holds_for_its_rows_already() -> None:
    gap = Hole("public.a", "seen", "rows after DDL")
    _, (begun, commit) = fed(Tx([insert(A, "1", "x")], (gap,)))
    transaction = Noting(replace(begun.upto, fence=3))

    upto = step(transaction, commit, fence=3)

    assert transaction.did[2] == ("write", FIRST, LAST, ["public.a"])
    assert upto.state == "LOADING"


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
    assert list(shapes_of(ddl, A.id)) == ddl[:1]
