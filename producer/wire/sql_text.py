r"""Values and names inside SQL that is sent as one text.

A simple query has no parameters, and a session with openGauss is made of simple
queries.  A backslash means something in a plain constant where
standard_conforming_strings is off, which a server may have as its default; in
`E''` it always does, so a constant that holds one is written that way.

Not for replication commands, whose grammar is another one (`commands`).  A
session must speak UTF-8, in which no byte of a character can be a quote.  In
openGauss databases of B compatibility, double quotes mean names only while
`ansi_quotes` is on, which it is unless somebody changed it (not checked on a
server).
"""

from __future__ import annotations

from collections.abc import Iterable

from producer.wire.commands import identifier
from schemas.tables import TableId

__all__ = ["constant", "identifier", "one_of", "qualified"]


def constant(value: str | None) -> str:
    r"""Quote a string constant, or write NULL.

    >>> print(constant("it's"), constant("back\\slash"))
    'it''s' E'back\\slash'
    """
    if value is None:
        return "NULL"
    if "\0" in value:
        raise ValueError("a text cannot hold a zero byte")
    quoted = "'" + value.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted


def qualified(table: TableId) -> str:
    """Quote a table's name with its schema.

    >>> qualified(TableId("public", 'odd"one'))
    '"public"."odd""one"'
    """
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def one_of(values: Iterable[str]) -> str:
    """Write a list for IN; an empty one matches nothing.

    >>> one_of(["a", "b"]), one_of([])
    ("('a', 'b')", '(NULL)')
    """
    listed = ", ".join(map(constant, values))
    return f"({listed or 'NULL'})"
