"""Rows that are handed over: what is found of them, whoever has them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gauss_cdc.verify.report import Outcome, RowKind, TableReport
from gauss_cdc.verify.request import ALL, Request, Sample, VerifyObserver
from gauss_cdc.verify.sides import ComparisonStopped, NotComparable, TableMoved
from gauss_cdc.verify.streams import StreamPair
from producer.core.changes import Cells
from producer.sources.base import SnapshotPoint
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.model import Change, Ledger
from spark_consumers.sinks.base import TargetReading

NAMES = ("id", "v", "x")
COLUMNS = (Column("id", 1700, type_name="numeric", nullable=False), Column("v", 25, -1, "text"),
           Column("x", 700, -1, "real"))  # fmt: skip
KEYED = TableSchema(TableId("public", "t"), COLUMNS, ("id",), (), ReplicaIdentity.DEFAULT, ("id",))
KEYLESS = replace(KEYED, key=(), identity_columns=(), replica_identity=ReplicaIdentity.FULL)
ROWS = [[str(n), f"v{n}", "0.1"] for n in range(300)]


class Given(TargetReading):
    """Rows of a list; as a reading of the source, cells of it."""

    def __init__(self, rows: Sequence[Sequence[str | None]]) -> None:
        self.given = rows

    def ledger(self) -> Ledger:
        return Ledger("s", epoch=1, seq=9)

    def rows(self, _: TableSchema) -> Sequence[Sequence[str | None]]:
        return self.given

    def shapes(self, _: list[TableId]) -> list[TableSchema]:
        return [KEYED]

    def estimated_rows(self, _: TableId) -> int:
        return len(self.given)

    def copy_rows(self, _: TableId, __: Any, hand_on: Callable[[Sequence[Cells]], None]) -> None:
        hand_on([[None if c is None else c.encode() for c in row] for row in self.given])


class Absent(Given):
    def values(self, *_: Any) -> None:
        return None


def compared(
    source: Sequence[Sequence[str | None]],
    target: Sequence[Sequence[str | None]] | TargetReading,
    *changes: Change,
    shape: TableSchema = KEYED,
    sample: Sample | None = None,
    stop: bool = False,
) -> TableReport:
    """`changes` are what the target holds and the source's snapshot does not."""
    there = target if isinstance(target, TargetReading) else Given(target)
    watch = VerifyObserver(print, lambda *_: None, lambda _: stop)
    request = Request(sample=sample or Sample())
    point = SnapshotPoint(8, Given(source))
    pair = StreamPair(
        point, None, there, there.ledger() or Ledger(""), TypeOptions(), request, watch
    )
    report = TableReport(str(shape.id))
    pair.compare(shape, changes, report)
    return report


def change(
    op: str, before: list[Any] | None = None, after: list[Any] | None = None, at: int = 0
) -> Change:
    return Change(9, at, op, NAMES, before, after)


def found(report: TableReport) -> list[tuple[str, tuple[str | None, ...], tuple[str, ...]]]:
    return [(row.kind.value, row.key, row.columns) for row in report.rows]


def without(*ids: int) -> list[list[str]]:
    return [row for row in ROWS if int(row[0]) not in ids]


def test_the_order_of_rows_is_nobody_s() -> None:
    report = compared(ROWS, ROWS[::-1])

    assert (report.outcome, report.source_rows, report.target_rows) == (Outcome.EQUAL, 300, 300)


def test_rows_that_differ_are_named_by_key_and_column() -> None:
    report = compared(ROWS, [*without(7, 8), ["8", "other", "0.1"], ["500", None, "1"]])

    assert found(report) == [
        ("extra", ("500",), ()),
        ("missing", ("7",), ()),
        ("changed", ("8",), ("v",)),
    ]


def test_a_key_that_stands_twice_at_the_target_is_one_row_more() -> None:
    report = compared(ROWS, [*ROWS, ROWS[5]])

    assert found(report) == [("extra", ("5",), ())]


def test_a_lost_update_is_found_although_both_sides_have_the_same_row() -> None:
    report = compared(ROWS, ROWS, change("u", None, ["7", "new", "0.1"]))

    assert found(report) == [("changed", ("7",), ("v",))]


def test_what_the_target_already_holds_of_later_commits_is_no_difference() -> None:
    changes = [
        change("u", None, ["7", "new", UNCHANGED]),  # the source's snapshot has the rest
        change("u", ["8", UNCHANGED, UNCHANGED], ["1008", UNCHANGED, "1.5"]),
        change("d", ["9", UNCHANGED, UNCHANGED]),
        change("c", None, ["500", None, "NaN"]),
        change("c", None, ["501", None, "1"]),
        change("d", ["501", UNCHANGED, UNCHANGED]),
    ]
    target = [*without(7, 8, 9), ["7", "new", "0.1"], ["1008", "v8", "1.5"], ["500", None, "NaN"]]

    report = compared(ROWS, target, *changes)

    assert (report.outcome, report.settled) == (Outcome.EQUAL, 6), report


def test_rows_without_a_key_are_counted() -> None:
    twice = [*ROWS, ROWS[0]]

    equal = compared(twice, [ROWS[0], *ROWS], shape=KEYLESS)
    report = compared(twice, [*ROWS, ["0", "?", "0.1"]], shape=KEYLESS)
    moved = [change("u", ROWS[0], ["0", "new", "0.1"]), change("c", None, ["1", "c", None], 1)]
    settled = compared(twice, [*ROWS, ["0", "new", "0.1"], ["1", "c", None]], *moved, shape=KEYLESS)

    assert equal.outcome is Outcome.EQUAL
    assert report.counts == {RowKind.MISSING: 1, RowKind.EXTRA: 1}
    assert settled.outcome is Outcome.EQUAL


def test_old_rows_that_are_not_known_decide_nothing() -> None:
    with pytest.raises(TableMoved):
        compared(ROWS, ROWS, change("d", ["7", UNCHANGED, UNCHANGED]), shape=KEYLESS)


def test_a_table_that_is_not_there_misses_all_rows() -> None:
    report = compared(ROWS, Absent([]))

    assert report.counts == {RowKind.MISSING: 300}
    with pytest.raises(NotComparable):
        compared([], Absent([]))


def test_a_sample_is_the_same_rows_of_both_sides() -> None:
    report = compared(ROWS, ROWS[::-1], sample=Sample(share=0.2))

    assert report.outcome is Outcome.EQUAL
    assert 20 < report.source_rows < 120
    assert Sample(rows=1).limit(ALL) == 1


def test_asked_to_stop_it_stops() -> None:
    with pytest.raises(ComparisonStopped):
        compared(ROWS, ROWS, stop=True)


def test_a_number_has_many_spellings_and_is_one_value() -> None:
    """Texts of a number are a target's own affair; a lake has the number."""

    class Numbers(Given):
        def values(self, table: TableSchema, avro: Any) -> Any:
            texts = super().values(table, avro)
            assert texts is not None
            return {**texts, "id": lambda _, exact: exact, "x": lambda value, _: value}

        def rows(self, _: TableSchema) -> Any:
            return [["NaN", "a", 0.10000000149011612]]

    report = compared([["NaN", "a", "0.1"]], Numbers([]))

    assert report.outcome is Outcome.EQUAL, report
