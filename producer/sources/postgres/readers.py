"""Several sessions that read the tables of a load under one snapshot, ahead of who writes them.

The *holder* is a session that imported the snapshot, keeps it alive and the tables locked, and
otherwise idles.  *Workers* import it from there, read parts (`parts`) in the order of the tables,
and keep what they read until it is taken: each at most `_HELD_BYTES`.  The one that writes takes
a table's rows in the order in which they come, whoever read them, one table after the other.

A worker's session that breaks costs the rest of its part: another session reads the part again
under the same snapshot and leaves out the rows that were passed on before.  What no worker can read
the holder does: a table that DDL waits for (a new session would wait behind it, and it for the
holder, without end), and everything where the server has no room for sessions.

A table was read only if the holder answers after its last row: it protected the table until then.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.changes import Cells
from producer.core.copy_lines import CopyLines
from producer.errors import ConnectionLost, SourceError, TableChanging
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres import catalog, parts, snapshot
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.parts import TablePart
from schemas.tables import Column, TableId, TableSchema

_log = logging.getLogger(__name__)

_HELD_BYTES: Final = 4 << 20  # of rows that a worker has read and nobody took
_ROW_BYTES: Final = 64  # what a row takes besides its own bytes, about
_BLOCK_ROWS: Final = 1_000  # are passed on at once
_TRIES: Final = 3  # of a part without a row that is new
_PAUSE: Final = 0.5  # seconds, between two of them
_LOCKED: Final = "55P03"  # lock_not_available


class SnapshotReading:
    """`ports.Reading` by `workers` sessions besides the holder."""

    def __init__(
        self,
        holder: Connection,
        arguments: ConnectionArguments,
        workers: int,
        *,
        least_bytes: int = parts.LEAST_BYTES,
    ) -> None:
        """`holder` has imported the snapshot; `least_bytes` of a part. Call `close` before it."""
        self.connection = holder
        self._arguments, self._count, self._least_bytes = arguments, workers, least_bytes
        self._shapes: list[TableSchema] = []
        self._ahead: _Ahead | None = None
        self._workers: list[_Worker] = []

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        """Shapes as the stream will describe them."""
        shapes = snapshot.stream_shapes(catalog.table_schemas(self.connection, tables))
        self._shapes.extend(shapes)
        return shapes

    def estimated_rows(self, table: TableId) -> int:
        """A guess for a progress bar; 0 = unknown."""
        return snapshot.estimated_rows(self.connection, table)

    def copy_rows(
        self,
        table: TableId,
        columns: Sequence[Column],
        hand_on: Callable[[Sequence[Cells]], None],
    ) -> None:
        """Send all rows to `hand_on`, some at a time."""
        if self._ahead is None:
            self._ahead = self._begin()

        def pass_on(lines: list[bytes]) -> None:
            hand_on(CopyLines(lines, len(columns), table))

        while (found := self._next(table)) is not None:
            if isinstance(found, _Job):
                self._read(found, pass_on)
                self._ahead.finish(found)
            else:
                pass_on(found)
        self._ask_holder(table)

    def close(self) -> None:
        """End the workers' sessions."""
        if self._ahead is not None:
            self._ahead.end()
        for worker in self._workers:
            worker.interrupt()
        for worker in self._workers:
            worker.join()

    def _begin(self) -> _Ahead:
        """Divide the tables, and let the workers begin."""
        divided = parts.divided(
            self.connection, self._shapes, self._count, least_bytes=self._least_bytes
        )
        jobs = [_Job(part, shape.columns) for shape in self._shapes for part in divided[shape.id]]
        # With one part, a session more would bring nothing.
        count = min(self._count, len(jobs)) if len(jobs) > 1 else 0
        ahead = _Ahead(jobs, workers=count)
        if count:
            with catalog.asking(self.connection) as cursor:
                cursor.execute("SELECT pg_export_snapshot()")
                name = cursor.fetchone()[0]
            self._workers = [_Worker(ahead, name, self._arguments, n) for n in range(count)]
        for worker in self._workers:
            worker.start()
        return ahead

    def _next(self, table: TableId) -> list[bytes] | _Job | None:
        assert self._ahead is not None
        try:
            return self._ahead.next(table)
        except SourceError:
            self._ask_holder(table)  # where it is gone, that is what the error comes from
            raise

    def _read(self, job: _Job, pass_on: Callable[[list[bytes]], None]) -> None:
        """Read a part by the holder."""

        def take(lines: list[bytes]) -> None:
            for block in job.unread(lines):
                pass_on(block)

        job.begin()
        snapshot.copy_part(self.connection, job.part, job.columns, take)
        job.end()

    def _ask_holder(self, table: TableId) -> None:
        with catalog.asking(self.connection, table=table) as cursor:
            cursor.execute("SELECT 1")


@dataclass(slots=True, eq=False)
class _Job:
    """A part, and how far it was read."""

    part: TablePart
    columns: tuple[Column, ...]
    rows: int = 0  # that were passed on
    _last: list[bytes] = field(default_factory=list)  # the newest of them
    _seen: int = 0  # rows of this reading

    def begin(self) -> None:
        """Read from the beginning."""
        self._seen = 0

    def unread(self, lines: list[bytes]) -> Iterator[list[bytes]]:
        """Leave out rows that were passed on before, and count the others as passed on.

        Raises TableChanging where they come in another order than before.
        """
        at = min(len(lines), max(0, self.rows - self._seen))
        first = self.rows - len(self._last)  # the number of the first row that is known
        for n in range(max(self._seen, first), self._seen + at):
            if lines[n - self._seen] != self._last[n - first]:
                raise self._differs("came in another order when it was read again")
        self._seen += len(lines)
        for start in range(at, len(lines), _BLOCK_ROWS):
            block = lines[start : start + _BLOCK_ROWS]
            self.rows, self._last = self.rows + len(block), block
            yield block

    def end(self) -> None:
        """All rows of this reading were seen."""
        if self._seen < self.rows:
            raise self._differs("had fewer rows when it was read again")

    def _differs(self, how: str) -> TableChanging:
        hint = "the load starts over automatically"
        return TableChanging(f"a part of a table {how}", table=self.part.table, hint=hint)


class _Left(Exception):
    """Nobody takes rows any more."""


@dataclass(slots=True)
class _Begun:
    """What is to be done for a table, and what was read of it."""

    open: int = 0  # parts that were not read to their end
    blocks: deque[tuple[_Worker, int, list[bytes]]] = field(default_factory=deque)  # with bytes
    left: deque[_Job] = field(default_factory=deque)  # for the holder


class _Ahead:
    """Parts that wait, and rows that were read and not yet taken; for all threads."""

    def __init__(self, jobs: Sequence[_Job], *, workers: int) -> None:
        """`workers`: how many will take parts, and `retire`."""
        self._changed = threading.Condition()
        self._waiting = deque(jobs)
        self._workers = workers
        self._tables: dict[TableId, _Begun] = {}
        for job in jobs:
            self._of(job.part.table).open += 1
        self._error: BaseException | None = None
        self._has_ended = False

    def _of(self, table: TableId) -> _Begun:
        return self._tables.setdefault(table, _Begun())

    # ---- who writes
    def next(self, table: TableId) -> list[bytes] | _Job | None:
        """Wait for rows, or for a part that the caller must read; None: the table's end."""
        with self._changed:
            of = self._of(table)
            while True:
                if self._error is not None:
                    raise self._error
                if of.blocks:
                    worker, size, lines = of.blocks.popleft()
                    worker.held -= size
                    self._changed.notify_all()
                    return lines
                if of.left:
                    return of.left.popleft()
                if not of.open:
                    return None
                if not self._workers:
                    job = next(job for job in self._waiting if job.part.table == table)
                    self._waiting.remove(job)
                    return job
                self._changed.wait()

    def end(self) -> None:
        """Have workers leave."""
        with self._changed:
            self._has_ended = True
            self._waiting.clear()
            self._changed.notify_all()

    # ---- workers
    def take(self) -> _Job | None:
        """Return the next part; None: there is none."""
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def put(self, worker: _Worker, job: _Job, lines: list[bytes]) -> None:
        """Keep rows for who writes; wait while there are too many of this worker's."""
        size = sum(map(len, lines)) + _ROW_BYTES * len(lines)
        with self._changed:
            self._changed.wait_for(lambda: worker.held < _HELD_BYTES or self._has_ended)
            if self._has_ended:
                raise _Left
            worker.held += size
            self._of(job.part.table).blocks.append((worker, size, lines))
            self._changed.notify_all()

    def finish(self, job: _Job) -> None:
        """Note that a part was read to its end."""
        with self._changed:
            self._of(job.part.table).open -= 1
            self._changed.notify_all()

    def leave(self, job: _Job) -> None:
        """Leave the rest of a part to the holder."""
        with self._changed:
            self._of(job.part.table).left.append(job)
            self._changed.notify_all()

    def pause(self) -> None:
        """Wait before another try."""
        with self._changed:
            if self._changed.wait_for(lambda: self._has_ended, _PAUSE):
                raise _Left

    def retire(self, error: BaseException | None) -> None:
        """Note that a worker takes no more parts, and the error that who writes is to raise."""
        with self._changed:
            self._error = self._error or error
            self._workers -= 1
            self._changed.notify_all()


class _Worker(threading.Thread):
    """Reads parts in a session of its own."""

    def __init__(
        self, ahead: _Ahead, snapshot_name: str, arguments: ConnectionArguments, number: int
    ) -> None:
        super().__init__(name=f"load {number + 1}", daemon=True)
        self.held = 0  # bytes; changed by `ahead` only
        self._ahead, self._snapshot, self._arguments = ahead, snapshot_name, arguments
        self._session: ReplicationConnection | None = None

    def run(self) -> None:
        error: BaseException | None = None
        try:
            while (job := self._ahead.take()) is not None and self._has_read(job):
                pass
        except _Left:
            pass
        except BaseException as any_error:  # noqa: BLE001  who writes raises it
            error = any_error
        self._close()
        self._ahead.retire(error)

    def interrupt(self) -> None:
        """Have a wait for the server end."""
        if (session := self._session) is not None:
            session.interrupt()

    def _has_read(self, job: _Job) -> bool:
        """Read a part, or leave it to the holder; False: no session is to be had."""
        tries, rows = 0, job.rows
        while True:
            try:
                if self._session is None:
                    self._session = ReplicationConnection.open(self._arguments, replication=False)
                self._read(job, self._session)
            except ConnectionLost as error:
                self._close()
                if error.where.get("sqlstate") == _LOCKED:
                    _log.info("DDL waits, table=%s: its holder reads it", job.part.table)
                    self._ahead.leave(job)
                    return True
                tries, rows = (0 if job.rows > rows else tries) + 1, job.rows
                if tries >= _TRIES:
                    _log.warning("a session of the load is given up: %s", error)
                    self._ahead.leave(job)
                    return False
                self._ahead.pause()
                _log.warning("a session of the load broke, table=%s: %s", job.part.table, error)
            else:
                self._ahead.finish(job)
                return True

    def _read(self, job: _Job, session: ReplicationConnection) -> None:
        session.query(snapshot.beginning(self._snapshot, job.part))
        job.begin()
        for lines in session.copy_lines(snapshot.statement(job.part, job.columns)):
            for block in job.unread(lines):
                self._ahead.put(self, job, block)
        session.query("COMMIT")
        job.end()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
