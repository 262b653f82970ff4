r"""Names and values inside SQL that is sent, or shown, as one text: the one place for quotes.

`literal` needs standard_conforming_strings, as our sessions with a PostgreSQL and with a
target have it.  `constant` needs no setting of the session: a backslash means something in
a plain constant where standard_conforming_strings is off, which an openGauss may have as its
default; in `E''` it always does, so a constant that holds one is written that way.

A session must speak UTF-8, in which no byte of a character can be a quote.  In openGauss
databases of B compatibility, double quotes mean names only while `ansi_quotes` is on, which it
is unless it was changed (not checked on a server).

A zero byte, and a name without a character, raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.tables import TableId  # whose texts are quoted here


def identifier(name: str) -> str:
    """Quote an identifier.

    Raises ValueError for an empty one, and for a zero byte.

    >>> identifier('a"b')
    '"a""b"'
    """
    if not name or "\0" in name:
        raise ValueError("an identifier is not empty and holds no zero byte")
    return '"' + name.replace('"', '""') + '"'


def qualified(table: TableId) -> str:
    """Quote a table's name with its schema.

    >>> from schemas.tables import TableId
    >>> qualified(TableId("public", 'odd"one'))
    '"public"."odd""one"'
    """
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def names(columns: Iterable[str]) -> str:
    """Quote identifiers, for a list of columns.

    >>> names(["id", "v"])
    '"id", "v"'
    """
    return ", ".join(map(identifier, columns))


def literal(text: str) -> str:
    """Quote a string constant; needs standard_conforming_strings.

    Raises ValueError for a zero byte.

    >>> literal("it's")
    "'it''s'"
    """
    if "\0" in text:
        raise ValueError("a text cannot hold a zero byte")
    return "'" + text.replace("'", "''") + "'"


def constant(value: str | None) -> str:
    r"""Quote a string constant for a session with any settings, or write NULL.

    >>> print(constant("it's"), constant("back\\slash"))
    'it''s' E'back\\slash'
    """
    if value is None:
        return "NULL"
    quoted = literal(value)
    return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted


def one_of(values: Iterable[str]) -> str:
    """Write a list for IN; an empty one matches nothing.

    >>> one_of(["a", "b"]), one_of([])
    ("('a', 'b')", '(NULL)')
    """
    listed = ", ".join(map(constant, values))
    return f"({listed or 'NULL'})"
