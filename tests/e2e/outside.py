"""`gauss-cdc` with a source and a target of its own: what a stranger adds, from outside.

The source is a file of JSON lines, one transaction each: a list of [id, text].  The target is
another one: what each step did.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gauss_cdc.__main__ import main
from producer.core import changes
from producer.core.takeover.takeover import MadeSlot, Slot
from producer.options import Options
from producer.sources.base import (
    PlainSource,
    SnapshotPoint,
    SourceInspector,
    SourceKind,
    SourceStanding,
)
from producer.sources.dial import ConnectionArguments
from producer.sources.kinds import SOURCES
from producer.sources.section import SourceSection
from producer.wire.replication import Received, WalMessage
from schemas.control import Identity
from schemas.findings import Finding, Level
from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks.base import Inspector, Kind, Setup, TargetReading
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.step import check_fence, check_place

TABLE = TableId("public", "line")
COLUMNS = (Column("id", 23, type_name="integer", nullable=False), Column("v", 25, type_name="text"))
SHAPE = TableSchema(TABLE, COLUMNS, ("id",), (), ReplicaIdentity.DEFAULT, ("id",))
STEP = 16  # positions of a line


# ---------------------------------------------------------------- the source
class LinesSection(SourceSection):
    kind: Literal["lines"]
    pause: float = 0.05  # between two looks at the file

    def connection(self) -> ConnectionArguments:
        return ConnectionArguments(host="", port=0, user="", dbname=self.dsn)


class Log:
    """The file, and beside it the position that was confirmed."""

    def __init__(self, options: Options) -> None:
        self.file = Path(options.source.dbname)
        self.slot = self.file.with_suffix(".slot")

    def lines(self, after: int) -> Iterator[WalMessage]:
        for number, line in enumerate(self.file.read_bytes().splitlines(), 1):
            if number * STEP > after:
                yield number * STEP, number * STEP + 8, line

    def end(self) -> int:
        return max((end for _, end, _ in self.lines(0)), default=STEP)


class Lines(PlainSource):
    """It is its own wire."""

    def __init__(self, options: Options, on_tables: Callable[[list[TableId]], None]) -> None:
        assert isinstance(options.section, LinesSection)
        self.log, self.pause, self.on_tables = Log(options), options.section.pause, on_tables
        self.where = Identity(str(self.log.file), 1, "", options.slot, "lines")
        self.wire, self.received_end, self.tables = self, Lsn(0), []

    def identity(self) -> Identity:
        return self.where

    def listed(self) -> list[TableId]:
        return [TABLE]

    def shape(self, table: TableId) -> TableSchema | None:
        return SHAPE if table == TABLE else None

    def slot(self) -> Slot | None:
        there = self.log.slot.exists()
        return Slot("lines", "", int(self.log.slot.read_text())) if there else None

    def make_slot(self) -> MadeSlot:
        self.log.slot.write_text(str(self.log.end()))
        return MadeSlot(self.log.end(), "its lines")

    def captured(self, _: MadeSlot) -> tuple[str, ...]:
        self.tables = [TABLE]
        self.on_tables(self.tables)
        return (str(TABLE),)

    @contextmanager
    def reading(self, made: MadeSlot) -> Iterator["LinesReading"]:
        yield LinesReading(self.log, made.consistent_point)

    def try_take(self) -> bool:
        self.received_end = Lsn(int(self.log.slot.read_text()))
        return True

    def has_input(self) -> bool:
        return any(self.log.lines(self.received_end))

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        if not self.has_input():
            time.sleep(min(timeout, self.pause))
        found = list(self.log.lines(self.received_end))
        self.received_end = Lsn(max([self.received_end, *(end for _, end, _ in found)]))
        return Received(found)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        if flush:
            self.log.slot.write_text(str(int(flush)))

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, changes.Message]]:
        named = [changes.RelationColumn(c.name, c.type_oid, -1, c.name == "id") for c in COLUMNS]
        for start, end, line in received:
            yield start, changes.Begin(Lsn(start), start, start)
            yield start, changes.Relation(1, *TABLE, SHAPE.replica_identity, tuple(named))
            yield from ((start, changes.Insert(1, row)) for row in cells(line))
            yield start, changes.Commit(Lsn(start), Lsn(end), start)


@dataclass
class LinesReading:
    """The file as it was when it ended at a position."""

    log: Log
    upto: int

    def shapes(self, _: list[TableId]) -> list[TableSchema]:
        return [SHAPE]

    def estimated_rows(self, _: TableId) -> int:
        return 0

    def copy_rows(self, _: Any, __: Any, hand_on: Callable[[Any], None]) -> None:
        hand_on([row for at, _, line in self.log.lines(0) if at < self.upto for row in cells(line)])


def cells(line: bytes) -> list[changes.Cells]:
    return [[b"%d" % number, text.encode()] for number, text in json.loads(line)]


class LinesInspector(SourceInspector):
    def __init__(self, options: Options) -> None:
        self._log, self._slot = Log(options), options.slot

    def check(self, *, fix: bool) -> Iterator[Finding]:
        yield Finding(Level.OK, "lines", f"{sum(1 for _ in self._log.lines(0))} transactions")

    def captured(self) -> list[TableSchema]:
        return [SHAPE]

    def log_end(self) -> int:
        return self._log.end()

    def standing(self) -> SourceStanding:
        confirmed = int(self._log.slot.read_text())
        return SourceStanding(self.log_end(), self._slot, False, confirmed, None, 0, "")

    @contextmanager
    def snapshot(self, _: Any, __: Any) -> Iterator[SnapshotPoint]:
        end = self.log_end()
        yield SnapshotPoint(end, LinesReading(self._log, end))


# ---------------------------------------------------------------- the target
class Steps:
    """One line a step, with rows and ledger."""

    def __init__(self, setup: Setup) -> None:
        self._path, self._source = Path(setup.dsn), setup.source
        self._fence: int | None = None

    def read(self) -> Ledger:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return Ledger(**json.loads(lines[-1])["ledger"]) if lines else Ledger(self._source)

    def start(self) -> Ledger:
        ledger = self.read()
        self._fence = ledger.fence + 1
        self._append(replace(ledger, fence=self._fence), [])
        return self.ledger()

    def check(self) -> None:
        pass

    def ledger(self) -> Ledger:
        return check_fence(self.read(), self._source, self._fence)

    def stage(self, segment: Segment, rows: Rows) -> Rows:
        return rows

    def step(self, segment: Segment, staged: Rows) -> Ledger:
        check_place(self.ledger(), segment)
        upto = replace(segment.upto, fence=self.ledger().fence)
        found = [change for rows in staged.changes.values() for change in rows]
        self._append(upto, [[change.op, change.after] for change in found])
        return upto

    def _append(self, ledger: Ledger, rows: list[Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"ledger": asdict(ledger), "rows": rows}, default=str) + "\n")

    def close(self) -> None:
        pass


class StepsInspector(Inspector):
    def __init__(self, setup: Setup) -> None:
        self._sink = Steps(setup)

    def ledger(self) -> Ledger | None:
        return self._sink.read()


class StepsReading(TargetReading):
    def __init__(self, setup: Setup) -> None:
        self._lines, self._ledger = Path(setup.dsn).read_text(), Steps(setup).read()

    def ledger(self) -> Ledger:
        return self._ledger

    def rows(self, _: TableSchema) -> Iterator[list[str]]:
        for line in self._lines.splitlines():
            yield from (row for _, row in json.loads(line)["rows"])


# The two lines: before the configuration is read.
SOURCES["lines"] = SourceKind(LinesSection, Lines, LinesInspector)
SINKS["steps"] = Kind(Steps, StepsInspector, reading=StepsReading)

if __name__ == "__main__":
    sys.exit(main())
