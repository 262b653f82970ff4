r"""Quoting of names and values in SQL, safe with whatever settings the server has.

Not for replication commands, whose grammar is another one (`commands`).  A
session must speak UTF-8, in which no byte of a character can be a quote.  In
openGauss databases of B compatibility, double quotes mean names only while
`ansi_quotes` is on, which it is unless somebody changed it (not checked on a
server).

>>> identifier('odd"name'), literal("it's"), literal("a\\b"), literal(None)
('"odd""name"', "'it''s'", "E'a\\\\b'", 'NULL')
"""

from __future__ import annotations

from producer.wire.commands import identifier

__all__ = ["identifier", "literal", "qualified"]


def literal(value: str | None) -> str:
    """Write a string, or NULL.

    With a backslash it becomes an escape string, which reads the same whether
    `standard_conforming_strings` is on or off.
    """
    if value is None:
        return "NULL"
    if "\0" in value:
        raise ValueError("a zero byte cannot be sent in a string")
    quoted = "'" + value.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted


def qualified(schema: str, name: str) -> str:
    """Write a name with its schema.

    >>> qualified("Big", "t")
    '"Big"."t"'
    """
    return f"{identifier(schema)}.{identifier(name)}"
