"""Shapes of tables out of the ddl topic."""

from dataclasses import replace
from typing import NamedTuple

from producer.core.log.ddl_log import known_tables, taken_back
from producer.core.ports import Stored
from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema

A, B = TableId("public", "a"), TableId("public", "b")


class Topic(NamedTuple):
    """A ddl topic whose records are decoded by their number."""

    changes: list[SchemaChange | None]
    topic: str = "bank.ddl"
    unknown: int | None = None

    def bounds(self) -> tuple[int, int]:
        return 0, len(self.changes)

    def lso(self) -> int:
        return len(self.changes)

    def read(self, low: int, high: int) -> list[Stored]:
        return [Stored(at, None, b"%d" % at) for at in range(low, high)]

    def read_change(self, value: bytes) -> SchemaChange:
        change = self.changes[int(value)]
        if change is None:
            raise ValueError("no schema change")
        return change


def shape(table: TableId, *columns: str) -> TableSchema:
    return TableSchema(table, tuple(Column(name, 25) for name in columns), (), ())


def change(
    before: TableSchema | None, after: TableSchema | None, *, epoch: int = 2, seq: int = 1
) -> SchemaChange:
    return SchemaChange(
        epoch=epoch,
        seq=seq,
        ordinal=0,
        xid=1,
        csn=1,
        lsn=1,
        origin=Origin.TRIGGER,
        tag="",
        before=before,
        after=after,
        topic="",
    )


def tables(*changes: SchemaChange | None, seq: int = 9) -> dict[TableId, TableSchema]:
    topic = Topic(list(changes))
    return known_tables(topic, topic, epoch=2, seq=seq)  # type: ignore[arg-type]


def test_the_last_shape_of_a_table_counts() -> None:
    old, new = shape(A, "x"), shape(A, "x", "y")

    assert tables(change(None, old), change(old, new, seq=2)) == {A: new}


def test_a_table_of_an_older_epoch_is_not_known_where_the_new_one_does_not_have_it() -> None:
    assert tables(change(None, shape(A, "x"), epoch=1), change(None, shape(B, "x"))) == {
        B: shape(B, "x")
    }


def test_an_attempt_whose_cut_never_came_does_not_count() -> None:
    old, new = shape(A, "x"), shape(A, "x", "y")

    assert tables(change(None, old), change(old, new, seq=3), seq=2) == {A: old}


def test_a_stray_is_taken_back_before_another_commit_gets_its_number() -> None:
    old = shape(A, "x")
    log = [change(None, old), change(old, shape(A, "x", "y"), seq=3), change(None, shape(B), seq=3)]
    strays: list[SchemaChange] = []
    topic = Topic([*log])

    known = known_tables(topic, topic, epoch=2, seq=2, strays=strays)  # type: ignore[arg-type]
    back = taken_back(strays, known, lambda table: change(None, table, seq=2))

    assert strays == log[1:]
    assert tables(*log, seq=3) == {A: shape(A, "x", "y"), B: shape(B)}
    assert tables(*log, *back, seq=3) == known == {A: old}


def test_a_renamed_or_dropped_table_is_known_by_its_old_name_no_more() -> None:
    old = shape(A, "x")
    renamed = replace(old, id=B)

    assert tables(change(None, old), change(old, renamed)) == {B: renamed}
    assert tables(change(None, old), change(old, None)) == {}


def test_a_table_that_came_back_under_another_name_is_known_by_no_former_one() -> None:
    """At the next start rows of it went to the copy that it had left, which was called exact."""
    old = replace(shape(A, "x"), oid=7)
    back = replace(old, id=B)
    other = replace(shape(A, "y"), oid=8)

    assert tables(change(None, old), change(old, old), change(None, back)) == {B: back}
    assert tables(change(None, old), change(None, other), change(None, back)) == {
        A: other,
        B: back,
    }
    assert tables(change(None, old), change(None, back), change(back, old)) == {A: old}


def test_a_stray_under_another_name_takes_no_table_away() -> None:
    old = replace(shape(A, "x"), oid=7)
    log = [change(None, old), change(None, replace(old, id=B), seq=3)]
    strays: list[SchemaChange] = []
    topic = Topic([*log])

    known = known_tables(topic, topic, epoch=2, seq=2, strays=strays)  # type: ignore[arg-type]
    back = taken_back(strays, known, lambda table: change(None, table, seq=2))

    assert tables(*log, *back, seq=3) == known == {A: old}


def test_a_record_that_is_not_a_schema_change_is_ignored() -> None:
    said: list[str] = []
    topic = Topic([None, change(None, shape(A, "x"))])

    found = known_tables(topic, topic, epoch=2, seq=9, note=said.append)  # type: ignore[arg-type]

    assert found == {A: shape(A, "x")}
    assert said == ["bank.ddl offset 0: not a schema change of ours, ignored"]


def test_a_stray_table_is_dropped_before_what_holds_is_said_again() -> None:
    old, gone = shape(A, "x"), shape(B)

    back = taken_back(
        [change(old, shape(A, "y")), change(None, gone)],
        {A: old},
        lambda table: change(None, table),
    )

    assert [(c.tag, c.before, c.after) for c in back] == [
        ("DROP TABLE", gone, None),
        ("", None, old),
    ]
