"""What executors do at a PostgreSQL target: COPY into the staging tables of bulk.py.

Without psycopg2 until a task has rows: an executor that only decodes needs none.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from schemas.tables import UNCHANGED
from spark_consumers.model import Cell, Change
from spark_consumers.native import is_packed
from spark_consumers.sinks.postgres.encoding import is_no_text, take_bytes
from spark_consumers.sinks.postgres.lines import ESCAPES

_FLUSH: Final = 4 << 20  # characters or bytes of COPY text held by a task


class CopyRefused(NamedTuple):
    """What the target did not take of a task's rows."""

    sqlstate: str | None = None
    message: str = ""  # the server's primary one
    stage: int | None = None  # of the rows that were sent
    line: str = ""  # with bytes that are not valid text


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies a task's rows in one transaction, under the number of its attempt."""

    target: Mapping[str, Any] = field(repr=False)  # of psycopg2.connect, without secrets
    settings: str  # SQL: COPY casts to the target's types, as the driver's session would

    def load(
        self,
        stages: Sequence[str],
        task: int,
        changes: Iterable[tuple[int, Sequence[Change]]],
        secrets: Mapping[str, str],
    ) -> str | None:
        """Copy changes into their staging tables; the connection waits for the first rows."""
        refused = _Copy({**self.target, **secrets}, self.settings, stages).run(task, changes)
        return None if refused is None else json.dumps(refused)


class _Copy:
    """One task's COPY statements."""

    def __init__(self, login: Mapping[str, Any], settings: str, stages: Sequence[str]) -> None:
        self._login, self._settings, self._stages = login, settings, stages
        self._lines: list[list[str]] = [[] for _ in stages]
        self._packed: list[list[bytes]] = [[] for _ in stages]
        self._connection: Any = None
        self._takes_bytes = False
        self._at: int | None = None  # number of the stage whose rows are on their way

    def run(self, task: int, changes: Iterable[tuple[int, Sequence[Change]]]) -> CopyRefused | None:
        import psycopg2  # noqa: PLC0415  only where rows are copied

        held = 0
        try:
            for at, some in changes:
                text = some.staged(task) if is_packed(some) else None
                if text is not None:
                    self._packed[at].append(text)
                    held += len(text)
                else:
                    for change in some:
                        line = copy_line(task, change)
                        self._lines[at].append(line)
                        held += len(line)
                if held > _FLUSH:
                    held = 0
                    if (refused := self._flush()) is not None:
                        return refused
            if held and (refused := self._flush()) is not None:
                return refused
            if self._connection is not None:
                self._connection.commit()
        except psycopg2.Error as error:  # its own text may hold values, and would be in Spark's
            return CopyRefused(error.pgcode, error.diag.message_primary or "", self._at)
        finally:
            if self._connection is not None:
                self._connection.close()
        return None

    def _flush(self) -> CopyRefused | None:
        """Send what is held; return where a line has bytes that the target cannot take."""
        if self._connection is None:
            self._connect()
        with self._connection.cursor() as cursor:
            for at, stage in enumerate(self._stages):
                self._at = at
                into = f'COPY gauss_cdc."{stage}" FROM STDIN'
                if packed := self._packed[at]:  # such rows hold no bytes that are no text
                    cursor.copy_expert(into, io.BytesIO(b"".join(packed)))
                    packed.clear()
                if lines := self._lines[at]:
                    text = "".join(lines)
                    if not self._takes_bytes and is_no_text(text):
                        return CopyRefused(
                            stage=at, line=next(line for line in lines if is_no_text(line))
                        )
                    cursor.copy_expert(into, io.StringIO(text))
                    lines.clear()
        self._at = None
        return None

    def _connect(self) -> None:
        import psycopg2  # noqa: PLC0415  only where rows are copied

        connection = self._connection = psycopg2.connect(**self._login)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(self._settings)
        self._takes_bytes = take_bytes(connection)
        connection.autocommit = False


def copy_line(task: int, change: Change) -> str:
    r"""One row of a staging table (spark_consumers/sinks/postgres/bulk.py) in COPY's text format.

    >>> copy_line(7, Change(1, 0, "u", ("id", "v"), None, ["1", UNCHANGED]))
    '7\t1\t0\tu\t{1}\t\\N\t\\N\t\\N\t1\t\\N\n'
    """
    width = len(change.columns)
    nothing: list[Cell] = [None] * width
    unsent = carried = "\\N"
    if change.after is not None and UNCHANGED in change.after:
        unsent = _numbers([n for n, cell in enumerate(change.after) if cell is UNCHANGED])
    if change.before is not None:
        carried = _numbers([n for n, cell in enumerate(change.before) if cell is not UNCHANGED])
    cells = [*(change.before or nothing), *(change.after or nothing)]
    texts = [cell.translate(ESCAPES) if isinstance(cell, str) else "\\N" for cell in cells]
    head = f"{task}\t{change.seq}\t{change.ordinal}\t{change.op}\t{unsent}\t{carried}"
    return "\t".join([head, *texts]) + "\n"


def _numbers(cells: Sequence[int]) -> str:
    """An array of int2."""
    return "{" + ",".join(map(str, cells)) + "}"
