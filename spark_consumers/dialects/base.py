"""What a dialect is: a function from a schema change to statements of one target.

Pure.  A dialect answers with SQL, or with NotExpressible by name; it never
guesses, and it never repeats what the source's user typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from schemas.control import SchemaChange
from schemas.sql_text import literal, quote

__all__ = ["Dialect", "literal", "quote"]

Dialect: TypeAlias = Callable[[SchemaChange], list[str]]
