"""Values that are not text, on their way into a target database.

A database without an encoding (SQL_ASCII) stores them as they are; psycopg2 then uses
a codec of ours, UTF-8 with other bytes as surrogate escapes.  Any other database
cannot hold them, and its server would refuse them without naming the column: so they
are found before they are sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from schemas.encodings import BYTES_OR_UTF8, WITHOUT
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.errors import NotText, TargetRefused

_NO_TEXT: Final = re.compile("[\ud800-\udfff]")


def take_bytes(connection: Any) -> bool:
    """Let a session with a database without an encoding carry bytes; say whether it is one.

    Once, before the session's first transaction: psycopg2 would roll back an open one.
    """
    from psycopg2 import extensions  # noqa: PLC0415  executors import this module without it

    if not isinstance(connection, extensions.connection):
        return False  # another driver: what it cannot send, it refuses by itself
    if connection.info.parameter_status("server_encoding") != WITHOUT:
        return False
    for name in (WITHOUT, "SQLASCII"):  # psycopg2 knows both
        extensions.encodings[name] = BYTES_OR_UTF8
    connection.set_client_encoding("UTF8")  # it looks at its codec only when the name changes
    connection.set_client_encoding(WITHOUT)
    return True


def is_no_text(text: str) -> bool:
    """Say whether a text holds bytes; costs nothing for ASCII."""
    return not text.isascii() and _NO_TEXT.search(text) is not None


def no_text(table: TableId, columns: Sequence[str], lines: str) -> NotText:
    """Name the first column, of the last ones of COPY's lines, that holds bytes."""
    return NotText(
        "a value is not text in any encoding, and the target's database has one",
        table=table,
        column=_column(columns, lines, is_no_text),
        hint="make the target a database with ENCODING 'SQL_ASCII', or correct the value at the "
        f"source; then {LOAD_AGAIN}",
    )


def zero_byte(table: TableId, columns: Sequence[str], lines: str) -> TargetRefused:
    """Name the first column that holds a zero byte: neither a driver nor a COPY names it."""
    return TargetRefused(
        "a value holds a zero byte, which no text of the target can",
        table=table,
        column=_column(columns, lines, lambda text: "\0" in text),
        hint=f"correct the value at the source; then {LOAD_AGAIN}",
    )


def _column(columns: Sequence[str], lines: str, has_it: Callable[[str], bool]) -> str:
    line = next(line for line in lines.split("\n") if has_it(line))
    cells = line.split("\t")[-len(columns) :]
    return next(column for column, cell in zip(columns, cells, strict=True) if has_it(cell))
