"""Which tables and versions a step builds on; the engines are in `integration/test_lake_others`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas.control import LoadPhase
from schemas.tables import TableId
from spark_consumers.errors import MissingTable, Superseded, TargetNotEmpty, TargetRefused
from spark_consumers.model import Ledger
from spark_consumers.sinks import step as rules
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.core import Stamp, TableMark, TableVersion, Watermark, Work
from tests.sim.lake import LakeStaged
from tests.spark_consumers.feed import SOURCE, Feed, insert, table

A = table("a", "id integer, v text")
HEAD = TableVersion(7, Stamp((1, 2, 0)), source=SOURCE, made="first")


class Tables:
    """One table, of which nothing is left but the head."""

    def __init__(self, head: TableVersion | None) -> None:
        self.now = head
        self.on_put_back: Callable[[], object] = lambda: None
        self.works: list[Work] = []

    def head(self, of: TableId) -> TableVersion | None:
        del of
        return self.now

    def made(self, of: TableId, version: int) -> str:
        del of, version
        return "" if self.now is None else self.now.made

    def put_back(self, of: TableId, head: TableVersion, content: int) -> TableVersion:
        del head, content
        self.on_put_back()
        raise MissingTable("it was expired", table=of)

    def write(
        self, of: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        del of
        self.works.append(work)
        return replace(head or HEAD, id=8, stamp=stamp)


class Marks:
    def __init__(self, **named: TableMark) -> None:
        self.mark = Watermark(
            1, Ledger(SOURCE, fence=1), {f"public.{n}": m for n, m in named.items()}
        )

    def newest(self) -> Watermark:
        return self.mark

    def append(self, before: Watermark | None, mark: Watermark) -> None:
        assert before is self.mark
        self.mark = mark


MARK = TableMark(7, ("id",), A.id, "scd1", "first")


def feed(*, has_load: bool) -> Feed:
    made = Feed()
    made.start()
    if has_load:
        made.load(A, LoadPhase.BEGIN)
    else:
        made.commits([insert(A, "1", "x")])
    return made


def applied(
    tables: Tables, marks: Marks, *, has_load: bool = False, replaces: bool = False
) -> TableMark:
    """What the watermark names behind a load's begin, or a row."""
    source = feed(has_load=has_load)
    for segment in source.segments(marks.newest().ledger, ddl_apart=False, max_rows=1_000):
        staged = LakeStaged(source.read_rows(segment))
        one = core.LakeTransaction(
            tables, marks, staged, needs_key=True, mode="scd1", replaces=replaces
        )
        rules.step(one, segment, fence=1)
    return marks.newest().tables[str(A.id)]


def test_a_version_that_is_gone_stops_unless_another_applier_took_over() -> None:
    tables, marks = Tables(HEAD), Marks(a=replace(MARK, version=5))
    with pytest.raises(MissingTable, match="was expired"):
        applied(tables, marks)

    def take_over() -> None:
        marks.mark = replace(marks.mark, number=99)

    tables, marks = Tables(HEAD), Marks(a=replace(MARK, version=5))
    tables.on_put_back = take_over
    with pytest.raises(Superseded, match="another applier"):
        applied(tables, marks)


@pytest.mark.parametrize(
    ("mark", "head", "refused"),
    [
        (MARK, HEAD, None),
        (replace(MARK, mode="", made=""), HEAD, None),  # of an older release
        (replace(MARK, mode="log"), HEAD, TargetRefused),
        (MARK, replace(HEAD, made="second"), MissingTable),
        (MARK, None, MissingTable),
    ],
)
def test_rows_come_to_the_table_that_was_loaded_for_them(
    mark: TableMark, head: TableVersion | None, refused: type[Exception] | None
) -> None:
    tables, marks = Tables(head), Marks(a=mark)
    if refused is None:
        assert applied(tables, marks) == replace(MARK, version=8)
    else:
        with pytest.raises(refused):
            applied(tables, marks)
        assert not tables.works
    # A load is the way out.
    assert applied(Tables(head), Marks(a=mark), has_load=True).mode == "scd1"


STRANGE = TableVersion(3, made="second")


@pytest.mark.parametrize(
    ("head", "is_named", "is_taken"),
    [
        (None, False, True),
        (HEAD, False, True),  # it was dropped at the source, and comes again
        (replace(HEAD, source="other"), False, False),
        (replace(HEAD, source="other"), True, False),
        (replace(HEAD, source=None), False, True),  # of an older release, which stamps versions
        (replace(HEAD, source=None, stamp=Stamp()), True, True),
        (STRANGE, False, False),
        (STRANGE, True, False),
    ],
)
def test_a_load_takes_a_table_that_is_the_source_s(
    head: TableVersion | None, *, is_named: bool, is_taken: bool
) -> None:
    def loaded(*, replaces: bool) -> TableMark:
        marks = Marks(a=MARK) if is_named else Marks()
        return applied(Tables(head), marks, has_load=True, replaces=replaces)

    if is_taken:
        assert loaded(replaces=False).version == 8
    else:
        with pytest.raises(TargetNotEmpty, match="--replace"):
            loaded(replaces=False)
    assert loaded(replaces=True).version == 8
