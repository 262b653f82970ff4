"""Arrays: one dimension, lower bound 1; any other array travels as exact text.

An array with another lower bound travels as its elements and the text.

PostgreSQL manual, chapter "Arrays", "Array Input and Output Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from schemas.tables import Column
from schemas.types.base import AvroType, Dump, Load, NotRepresentable, SqlType

_BOUNDS: Final = re.compile(r"\[-?[0-9]+:-?[0-9]+\]=(?=\{)")
_PLAIN: Final = re.compile(r'[^\s{}",\\]+')


def elements(text: str) -> list[str | None]:
    r"""Split the text of a one-dimensional array; raise NotRepresentable for others.

    >>> elements('{1,NULL,"a,\\"b","NULL"}')
    ['1', None, 'a,"b', 'NULL']
    """
    if not (text.startswith("{") and text.endswith("}")):
        raise NotRepresentable  # lower bounds: `[0:1]={...}`
    out: list[str | None] = []
    at, end = 1, len(text) - 1
    if at == end:
        return out
    while True:
        if text[at] == '"':
            item, at = _quoted(text, at + 1)
            out.append(item)
        else:
            stop = text.find(",", at, end)
            item = text[at : end if stop < 0 else stop]
            if not item or item[0] == "{":
                raise NotRepresentable  # a second dimension
            out.append(None if item == "NULL" else item)
            at += len(item)
        if at == end:
            return out
        if text[at] != ",":
            raise NotRepresentable
        at += 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    out = []
    while (char := text[at]) != '"':
        if char == "\\":
            at += 1
            char = text[at]
        out.append(char)
        at += 1
    return "".join(out), at + 1


def join(items: Iterable[str | None]) -> str:
    """Undo `elements`."""
    return "{" + ",".join("NULL" if item is None else _quote(item) for item in items) + "}"


def _quote(item: str) -> str:
    if _PLAIN.fullmatch(item) and item.upper() != "NULL":
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def array_avro(element: SqlType, column: Column) -> AvroType:
    """Return the Avro type of an array: its elements may always be NULL."""
    return {"type": "array", "items": ["null", element.avro(column)]}


def array_loader(element: SqlType, column: Column) -> Load:
    """Return the reader of an array; one element that does not fit makes all of it exact."""
    load = element.loader(column)

    def load_array(text: str) -> list[Any]:
        if bounds := _BOUNDS.match(text):
            raise NotRepresentable(
                [_nearest(load, item) for item in elements(text[bounds.end() :])]
            )
        items = elements(text)
        try:
            return [None if item is None else load(item) for item in items]
        except NotRepresentable:
            raise NotRepresentable([_nearest(load, item) for item in items]) from None

    return load_array


def _nearest(load: Load, item: str | None) -> Any:
    if item is None:
        return None
    try:
        return load(item)
    except NotRepresentable as exc:
        return exc.nearest


def array_dump(dump: Dump) -> Dump:
    """Return the writer of an array from that of its elements."""
    return lambda values: join(None if v is None else dump(v) for v in values)
