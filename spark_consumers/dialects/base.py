"""What a dialect is: a function from a schema change to statements of one target.

Pure.  A dialect answers with SQL, or with NotExpressible by name; it never
guesses, and it never repeats what the source's user typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from schemas import quoting, type_names
from schemas.control import SchemaChange
from schemas.system_schemas import is_system
from schemas.tables import TableId
from spark_consumers.errors import NotExpressible

Dialect: TypeAlias = Callable[[SchemaChange], list[str]]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of a schema change that is not run at the target, and why."""

    why: str
    way_out: str = "[ddl] code = true would run it"


NOT_TOLD: Final = LeftOut(
    "its definition is not in the topic", "`run` publishes it with [ddl] text or apply = all"
)


class Extras(Protocol):
    """What goes beyond rows, statement by statement."""

    def __call__(self, change: SchemaChange, *, code: bool = False) -> list[str | LeftOut]:
        """`code`: definitions that run code of the source's are trusted."""
        ...


def refuse_reserved(*tables: TableId) -> None:
    """Raise NotExpressible for a table in a schema of the target's server, or of the ledger.

    No source captures such a table: a record that names one is not of our producer.
    """
    for table in tables:
        if is_system(table.schema):
            raise NotExpressible(
                "a table of the stream stands in a schema that belongs to the target's server, or"
                " to us",
                table=table,
                hint="leave it out of [tables]; no producer of ours captures it",
            )


def quote(name: str) -> str:
    """Quote an identifier as SQL says.

    >>> quote('a"b')
    '"a""b"'
    """
    return _known(quoting.identifier, name)


def literal(text: str) -> str:
    """Quote a string constant; needs standard_conforming_strings.

    >>> literal("it's")
    "'it''s'"
    """
    return _known(quoting.literal, text)


def spelled(target: str, modifiers: Sequence[str]) -> str:
    """Write a type of the table of types, with the modifiers of the one that it is for.

    >>> spelled("character varying{}", ("20",)), spelled("character varying{}", ())
    ('character varying(20)', 'character varying')
    """
    numbers = ",".join(modifiers)
    return str(type_names.parse(target.replace("{}", f"({numbers})" if numbers else "")))


def _known(quoting: Callable[[str], str], text: str) -> str:
    try:
        return quoting(text)
    except ValueError as why:
        raise NotExpressible("SQL cannot hold a name or a text", why=why) from None
