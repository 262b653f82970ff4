"""Of `sinks/lakes/core.py`: names, keys and marks; how attempts meet is shown by tests/sim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from schemas.control import LoadPhase, Topic
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import ApplyError, NotExpressible, RowMissing, Superseded
from spark_consumers.loop.job import Applier, Observer, PassOptions
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks import step as rules
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.core import Apply, Stamp, TableVersion, Watermark, Work
from tests.sim.lake import LakeStaged
from tests.spark_consumers.feed import Feed, alter, create, insert, table, update

A, B = table("a", "id integer, v text, t text"), table("b", "id integer, v text")
KEYLESS = replace(A, key=())


class KilledError(Exception):
    """The process ends here."""


class Tables:
    """Versions without rows; a row of `lacks` is not there."""

    def __init__(self) -> None:
        self.versions: dict[TableId, list[TableVersion]] = {}
        self.lacks: set[TableId] = set()

    def head(self, of: TableId) -> TableVersion | None:
        return self.versions[of][-1] if of in self.versions else None

    def made(self, of: TableId, version: int) -> str:
        del of, version
        return ""

    def put_back(self, of: TableId, head: TableVersion, content: int) -> TableVersion:
        assert head is self.head(of)
        return self._add(of, Stamp(same_as=content))

    def write(
        self, of: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        assert head is self.head(of)
        if isinstance(work, Apply) and work.is_exact and of in self.lacks:
            raise RowMissing("a change needs a row that the lake does not have", table=of)
        return self._add(of, stamp)

    def _add(self, of: TableId, stamp: Stamp) -> TableVersion:
        there = self.versions.setdefault(of, [])
        there.append(TableVersion(len(there), stamp))
        return there[-1]


class Marks:
    """Watermarks; the next append may be the end of the process."""

    def __init__(self) -> None:
        self.marks = [Watermark(1, Ledger("bank", fence=1))]
        self.dies = False

    def newest(self) -> Watermark:
        return self.marks[-1]

    def append(self, before: Watermark | None, mark: Watermark) -> None:
        if self.dies:
            self.dies = False
            raise KilledError
        if before is not self.marks[-1]:
            raise Superseded("another applier wrote a watermark")
        self.marks.append(mark)


class Lake(Observer):
    """A lake that follows rows by their keys, with two tables; it implements `Sink`, too."""

    def __init__(self) -> None:
        self.feed, self.tables, self.marks = Feed(), Tables(), Marks()
        self.left_out: list[ApplyError] = []
        self.feed.start()
        for one in (A, B):
            self.feed.load(one, LoadPhase.BEGIN)
            self.feed.load(one, LoadPhase.CHUNK, ["1", *["x"] * (len(one.columns) - 1)])
            self.feed.load(one, LoadPhase.END)
        self.drained()

    def check(self) -> None:
        """Nobody else is there."""

    def ledger(self) -> Ledger:
        return self.marks.newest().ledger

    def stage(self, segment: Segment, rows: Rows) -> Rows:
        del segment
        return rows

    def step(self, segment: Segment, staged: Rows) -> Ledger:
        one = core.LakeTransaction(self.tables, self.marks, LakeStaged(staged), needs_key=True)
        return rules.step(one, segment, fence=1)

    def on_left_out(self, error: ApplyError) -> None:
        self.left_out.append(error)

    def segments(self, ledger: Ledger) -> Iterable[Segment]:
        return self.feed.segments(ledger, ddl_apart=False, max_rows=1_000)

    def drained(self) -> Ledger:
        """What a process without memory does."""
        options = PassOptions(1_000, ddl_apart=False)
        cuts, rows = self.feed.read_cuts, self.feed.read_rows
        return Applier(cuts, rows, self, options, observer=self).drain()  # type: ignore[arg-type]


# ---------------------------------------------------------------- marks
def test_rows_that_were_left_out_are_not_taken_for_applied_by_the_next_process() -> None:
    """RowMissing -> tried again with the table marked -> the process ends before the watermark.

    The mark was in its memory.
    """
    lake = Lake()
    lake.tables.lacks.add(A.id)
    lake.feed.commits([update(A, "7", "new", ...), insert(B, "2", "x")])
    lake.marks.dies = True
    with pytest.raises(KilledError):
        lake.drained()

    assert lake.drained().inexact == {str(A.id): LACKS_ROW}


def test_what_an_attempt_with_the_same_marks_wrote_is_done() -> None:
    lake = Lake()
    lake.tables.lacks.add(A.id)
    lake.feed.commits([update(A, "7", "new", ...)])
    assert lake.drained().inexact == {str(A.id): LACKS_ROW}
    lake.feed.commits([update(A, "7", "newer", ...)])
    lake.marks.dies = True
    with pytest.raises(KilledError):
        lake.drained()
    written = len(lake.tables.versions[A.id])

    lake.drained()

    assert len(lake.tables.versions[A.id]) == written


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_table_that_was_renamed_is_marked_by_its_name(*, is_joined: bool) -> None:
    """A lake's own errors name the place of a table, which a rename leaves behind."""
    lake = Lake()
    renamed = replace(A, id=TableId("public", "old"))
    lake.feed.commits([alter(A, renamed)])
    if not is_joined:
        lake.drained()
    lake.tables.lacks.add(A.id)  # the place
    lake.feed.commits([update(renamed, "7", "new", ...)])

    assert lake.drained().inexact == {str(renamed.id): LACKS_ROW}


# ---------------------------------------------------------------- keys
def test_a_table_may_be_without_a_key_until_its_next_row() -> None:
    """ALTER TABLE a DROP CONSTRAINT a_pkey; ALTER TABLE a ADD PRIMARY KEY (id)."""
    lake = Lake()
    lake.feed.commits([alter(A, KEYLESS), alter(KEYLESS, A), update(A, "1", "new", "t")])
    assert lake.drained().seq == 1

    lake.feed.commits([update(A, "1", "x", "t"), alter(A, KEYLESS)])
    assert lake.drained().seq == 2
    lake.feed.commits([insert(B, "2", "x")])
    lake.feed.commits([alter(KEYLESS, A), update(A, "1", "new", "t")])

    assert (lake.drained().seq, lake.ledger().state) == (4, "EXACT")


def test_a_new_table_may_get_its_key_before_its_first_row() -> None:
    lake = Lake()
    c, keyless = (table("c", "id integer, v text", key=key) for key in ("id", ""))
    lake.feed.commits([create(keyless), alter(keyless, c), insert(c, "1", "x")])

    assert lake.drained().state == "EXACT"


def test_rows_without_a_key_stop_a_lake_until_all_is_loaded_with_one() -> None:
    lake = Lake()
    lake.feed.commits([alter(A, KEYLESS), update(KEYLESS, "1", "new", "t"), alter(KEYLESS, A)])
    lake.feed.commits([insert(B, "2", "x")])
    with pytest.raises(NotExpressible, match="without a key") as raised:
        lake.drained()
    assert raised.value.where["table"] == A.id
    assert LOAD_AGAIN in raised.value.hint

    lake.feed.load_again(A)
    for phase, rows in ((LoadPhase.BEGIN, ()), (LoadPhase.CHUNK, (["1", "n", "t"],)),
                        (LoadPhase.END, ())):  # fmt: skip
        lake.feed.load(A, phase, *rows)

    assert (lake.drained().epoch, lake.ledger().state) == (2, "EXACT")
    assert [type(error) for error in lake.left_out] == [NotExpressible]


def test_a_load_of_a_table_without_a_key_is_refused_at_its_beginning() -> None:
    lake = Lake()
    lake.feed.load(table("c", "id integer", key=""), LoadPhase.BEGIN)

    with pytest.raises(NotExpressible, match="without a key"):
        lake.drained()


def test_a_table_that_the_source_captures_no_more_is_marked_while_the_lake_has_it() -> None:
    lake = Lake()
    lake.feed.topics = {f"bank.public.{one.id.name}": Topic("1", 1) for one in (A, B)}
    for tables in ((A, B), (A,)):
        lake.feed.load_again(*tables)
        for one in tables:
            lake.feed.load(one, LoadPhase.BEGIN)
            lake.feed.load(one, LoadPhase.END)
        lake.drained()
        lake.feed.topics = {"bank.public.a": Topic("1", 1)}

    assert [*lake.drained().inexact] == ["public.b"]

    del lake.tables.versions[B.id]  # its owner drops it
    lake.feed.start()
    assert (lake.drained().inexact, lake.ledger().state) == ({}, "EXACT")
