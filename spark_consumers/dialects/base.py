"""What a dialect is: a function from a schema change to statements of one target.

Pure.  A dialect answers with SQL, or with NotExpressible by name; it never
guesses, and it never repeats what the source's user typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from schemas.control import SchemaChange

Dialect: TypeAlias = Callable[[SchemaChange], list[str]]


def quote(name: str) -> str:
    """Quote an identifier as SQL says.

    >>> quote('a"b')
    '"a""b"'
    """
    if "\0" in name:
        raise ValueError("an identifier cannot hold a zero byte")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string constant; needs standard_conforming_strings.

    >>> literal("it's")
    "'it''s'"
    """
    if "\0" in text:
        raise ValueError("a text cannot hold a zero byte")
    return "'" + text.replace("'", "''") + "'"
