"""Rows as lines of COPY."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_consumers.model import Cell
from spark_consumers.sinks.postgres.encoding import is_no_text, no_text, zero_byte

if TYPE_CHECKING:  # executors import this without the target's driver
    from spark_consumers.sinks.postgres.plan import Plan

ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def copy_lines(cursor: Any, plan: Plan, statement: str, lines: Iterable[str]) -> None:
    """Send rows by COPY, where the server has such texts; see `check_text`."""
    text = "".join(lines)
    check_text(plan, text)
    cursor.copy_expert(statement, io.StringIO(text))


def copy_packed(cursor: Any, plan: Plan, statement: str, lines: bytes) -> None:
    """Send rows that are lines already; all of them are text.

    Raises TargetRefused for a zero byte.
    """
    if b"\0" in lines:
        raise zero_byte(plan.table.id, plan.columns, lines.decode(errors="replace"))
    cursor.copy_expert(statement, io.BytesIO(lines))


def check_text(plan: Plan, lines: str) -> None:
    """Raise an error that names the column where the server has no such text, or no driver."""
    if "\0" in lines:
        raise zero_byte(plan.table.id, plan.columns, lines)
    if not plan.takes_bytes and is_no_text(lines):
        raise no_text(plan.table.id, plan.columns, lines)


def line_of(cells: Sequence[Cell], plan: Plan) -> str:
    """A row in COPY's text format."""
    return "\t".join([text_of(cells[place]) for place in plan.places]) + "\n"


def text_of(cell: Cell) -> str:
    """A cell in COPY's text format; what is not known stands as NULL until it is filled."""
    if not isinstance(cell, str):
        return "\\N"
    return cell.translate(ESCAPES)
