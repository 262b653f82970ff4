"""Names as the plugins write them: in the database's encoding, quoted or not.

Every row repeats the names of its table and columns, so they are cached.  An
encoding is named by Python's name of its codec; `codec` finds it by the server's.
A SQL_ASCII database has no encoding ("ascii" here): a name that is not UTF-8 keeps
its bytes as surrogate escapes, so that nothing is lost and two names never become
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import RowShape
from producer.sources.gauss.server import codec

__all__ = [
    "NAME",
    "SQL_ASCII",
    "Cache",
    "codec",
    "reader",
    "row_shape",
    "unquote",
    "unquoting",
]

K = TypeVar("K")
V = TypeVar("V")

# A quoted name holds anything, its quotes doubled; an unquoted one neither dot nor quote.
NAME: Final = rb'(?:"(?:[^"]++|"")++"|[^"\[\]().,:; ]++)'
QUALIFIED: Final = re.compile(rb"(" + NAME + rb")\.(" + NAME + rb")")

_MOST: Final = 4096  # cached entries of a kind; a hostile stream must not fill the memory
SQL_ASCII: Final = "ascii"


class Cache(dict[K, V]):
    """A dict that makes its missing values, and is cleared when it is full."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(self) >= _MOST:
            self.clear()
        self[key] = value
        return value


def reader(encoding: str) -> Callable[[bytes], str]:
    """Return the function that reads an unquoted name; it raises DecodeError."""
    name, errors = ("utf-8", "surrogateescape") if encoding == SQL_ASCII else (encoding, "strict")

    def read(raw: bytes) -> str:
        try:
            text = raw.decode(name, errors)
        except UnicodeDecodeError as error:
            raise DecodeError(
                "a name is not text in the database's encoding",
                hint="is source.encoding that of the database?",
                encoding=encoding,
                at=error.start,
            ) from None
        if not text or "\0" in text:
            raise DecodeError("an empty name, or one with a zero byte")
        return text

    return read


def unquote(raw: bytes) -> bytes:
    """Undo quote_identifier: `"a""b"` is `a"b`; an unquoted name is returned as it is.

    Raises DecodeError for unbalanced quotes.
    """
    if raw[:1] != b'"':
        return raw
    inner = raw[1:-1]
    if len(raw) < 3 or raw[-1:] != b'"' or b'"' in inner.replace(b'""', b""):
        raise DecodeError("a name with unbalanced quotes", size=len(raw))
    return inner.replace(b'""', b'"')


def unquoting(encoding: str) -> Callable[[bytes], str]:
    """Return the function that reads a quoted name; it raises DecodeError."""
    read = reader(encoding)
    return lambda raw: read(unquote(raw))


def row_shape(names: tuple[str, ...], oids: tuple[int, ...], types: tuple[str, ...]) -> RowShape:
    """Make a shape; raise DecodeError for a duplicate column."""
    if len(set(names)) != len(names):
        raise DecodeError("a row names one of its columns twice", columns=len(names))
    return RowShape(names, oids, types)
