"""The executors' half of a PostgreSQL sink: COPY into the staging tables of bulk.py."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import psycopg2

from schemas.tables import UNCHANGED
from spark_consumers.errors import ApplyError
from spark_consumers.model import Cell, Change
from spark_consumers.native import is_packed
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.bulk import has_stage
from spark_consumers.sinks.postgres.driver import Refused
from spark_consumers.sinks.postgres.encoding import is_no_text, no_text, take_bytes
from spark_consumers.sinks.postgres.refusals import ours

_FLUSH: Final = 4 << 20  # characters or bytes of COPY text held by a task
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class CopyRefused(NamedTuple):
    """What the target did not take of a task's rows."""

    sqlstate: str | None = None
    message: str = ""  # the server's primary one
    stage: int | None = None  # of a line with bytes that are not valid text
    line: str = ""


@dataclass(frozen=True, slots=True)
class CopyLoader:
    """Copies a task's rows in one transaction, under the number of its attempt."""

    target: Mapping[str, Any] = field(repr=False)  # of psycopg2.connect; the only secret

    def takes(self, shape: StagedShape) -> bool:
        """Say whether a staging table can hold both rows of a change."""
        return has_stage(shape)

    def load(
        self, stages: Sequence[str], task: int, changes: Iterable[tuple[int, Sequence[Change]]]
    ) -> CopyRefused | None:
        """Copy changes into their staging tables; the connection waits for the first rows."""
        lines: list[list[str]] = [[] for _ in stages]
        packed: list[list[bytes]] = [[] for _ in stages]
        connection = None
        held, takes = 0, False

        def flush() -> tuple[int, str] | None:
            nonlocal connection, takes, held
            if connection is None:
                connection = psycopg2.connect(**self.target)
                takes = take_bytes(connection)
                if not takes:  # else it is whatever the login says, or the database has
                    connection.set_client_encoding("UTF8")
            held = 0
            _flush_packed(connection, stages, packed)
            return _flush(connection, stages, lines, takes=takes)

        try:
            for at, some in changes:
                text = some.staged(task) if is_packed(some) else None
                if text is not None:
                    packed[at].append(text)
                    held += len(text)
                else:
                    for change in some:
                        line = copy_line(task, change)
                        lines[at].append(line)
                        held += len(line)
                if held > _FLUSH and (found := flush()) is not None:
                    return CopyRefused(stage=found[0], line=found[1])
            if held and (found := flush()) is not None:
                return CopyRefused(stage=found[0], line=found[1])
            if connection is not None:
                connection.commit()
        except psycopg2.Error as error:  # its own text may hold values, and would be in Spark's
            return CopyRefused(error.pgcode, error.diag.message_primary or "")
        finally:
            if connection is not None:
                connection.close()
        return None

    def explained(self, refused: CopyRefused, shapes: Sequence[StagedShape]) -> ApplyError:
        """Name the column whose bytes are not text, or give the server's message."""
        if refused.stage is not None:
            shape = shapes[refused.stage]
            return no_text(shape.table, 2 * shape.columns, refused.line)
        hint = "" if refused.sqlstate else "do executors reach it, and with which password?"
        error = Refused(refused.sqlstate, message=refused.message, hint=hint)
        return ours(error, where="an executor")


def copy_line(task: int, change: Change) -> str:
    r"""One row of a staging table (spark_consumers/sinks/postgres/bulk.py) in COPY's text format.

    >>> copy_line(7, Change(1, 0, "u", ("id", "v"), None, ["1", UNCHANGED]))
    '7\t1\t0\tu\t1\t\\N\t\\N\t\\N\t1\t\\N\n'
    """
    width = len(change.columns)
    nothing: list[Cell] = [None] * width
    unsent = carried = "\\N"
    if change.after is not None and UNCHANGED in change.after:
        unsent = ",".join([str(n) for n, cell in enumerate(change.after) if cell is UNCHANGED])
    if change.before is not None:
        carried = ",".join(
            [str(n) for n, cell in enumerate(change.before) if cell is not UNCHANGED]
        )
    cells = [*(change.before or nothing), *(change.after or nothing)]
    texts = [cell.translate(_ESCAPES) if isinstance(cell, str) else "\\N" for cell in cells]
    head = f"{task}\t{change.seq}\t{change.ordinal}\t{change.op}\t{unsent}\t{carried}"
    return "\t".join([head, *texts]) + "\n"


def _flush_packed(connection: Any, stages: Sequence[str], packed: list[list[bytes]]) -> None:
    """Send what is text already; such rows hold no bytes that a target cannot take."""
    with connection.cursor() as cursor:
        for name, mine in zip(stages, packed, strict=True):
            if mine:
                cursor.copy_expert(_copy_into(name), io.BytesIO(b"".join(mine)))
                mine.clear()


def _copy_into(stage: str) -> str:
    return f'COPY gauss_cdc."{stage}" FROM STDIN'


def _flush(
    connection: Any, stages: Sequence[str], lines: list[list[str]], *, takes: bool
) -> tuple[int, str] | None:
    """Send what is held; return where a line has bytes that the target cannot take."""
    with connection.cursor() as cursor:
        for place, (name, mine) in enumerate(zip(stages, lines, strict=True)):
            if mine:
                text = "".join(mine)
                if not takes and is_no_text(text):
                    return place, next(line for line in mine if is_no_text(line))
                cursor.copy_expert(_copy_into(name), io.StringIO(text))
                mine.clear()
    return None
