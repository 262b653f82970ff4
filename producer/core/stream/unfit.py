"""Rows that cannot be delivered: what is kept of them, so that the stream can continue.

A row is unfit when its record is larger than a topic takes, or when a value of it has no
form in Avro.  It takes no ordinal: commits stay complete without it, and a gap of its
table says that it is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from producer.core.changes import Cells
from producer.core.records.reference import NullInRequired
from producer.core.records.row_plan import NO_FORM
from producer.errors import CdcError, RowTooLarge, Unsupported
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableSchema

# What writing one row raises because of its values.
UNFIT: Final = (RowTooLarge, Unsupported, NullInRequired, *NO_FORM)
WHY: Final = "rows that could not be delivered are in the quarantine topic"
HINT: Final = (
    'tables.unfit-row = "quarantine" continues without such rows; otherwise raise '
    "kafka.max-row-bytes and max.message.bytes of its topic, or exclude the table"
)
_KEPT: Final = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Unfit:
    """One row that was put aside."""

    table: str  # schema.table
    op: str
    lsn: Lsn
    position: str  # epoch/seq/, of the ordinal that it would have had
    why: str  # holds no value
    size: int  # bytes of its cells
    content: bytes  # its cells as JSON; empty where they are too many bytes


def put_aside(
    error: Exception,
    table: TableSchema,
    *,
    op: str,
    before: Cells | None,
    after: Cells | None,
    lsn: Lsn,
    position: str,
) -> Unfit:
    """Describe a row that raised one of UNFIT."""
    size = sum(len(c) for cells in (before, after) for c in cells or () if isinstance(c, bytes))
    content = b""
    if size <= _KEPT // 8:  # a byte may become six, and there may be many names
        shown = {"before": _named(table, before), "after": _named(table, after)}
        content = json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")[:_KEPT]
    why = error.what if isinstance(error, CdcError) else "a value cannot be written"
    return Unfit(str(table.id), op, lsn, position, why, size, content)


def of_row(error: Exception, table: TableSchema, position: str) -> CdcError:
    """Say why the stream stops before a row."""
    if isinstance(error, RowTooLarge):
        return error
    return Unsupported(
        "a row has a value that cannot be written",
        table=table.id,
        position=position,
        error=error.what if isinstance(error, CdcError) else type(error).__name__,
        hint=HINT,
    )


def _named(table: TableSchema, cells: Cells | None) -> dict[str, str | None] | None:
    """Columns that were sent; bytes that are not UTF-8 are escaped."""
    if cells is None:
        return None
    return {
        name: None if cell is None else bytes(cell).decode("utf-8", "backslashreplace")
        for name, cell in zip(table.names(), cells, strict=False)
        if cell is not UNCHANGED and isinstance(cell, bytes | None)
    }
