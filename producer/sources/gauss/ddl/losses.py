"""Clauses that deparsing is known to leave out of a statement silently.

GaussDB manual, "DDL in logical decoding", constraints: the statement is sent
without its clause, so a statement that could have had one is marked.  None of
these clauses changes rows: a copy stays exact, only its DDL is incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from producer.sources.gauss.ddl.model import AddColumn, ChangeColumn, ColumnSpec, Statement

_TIMES: Final = ("time", "timestamp", "smalldatetime", "date", "datetime")
_MANUAL: Final = "GaussDB manual, DDL in logical decoding, constraints"


@dataclass(frozen=True, slots=True)
class ClauseLost:
    """A clause that is never printed, and which statements may have had it."""

    clause: str
    could_have: Callable[[Statement], bool]
    source: str


def _defined(statement: Statement) -> Iterator[ColumnSpec]:
    yield from statement.columns
    for action in statement.actions:
        if isinstance(action, AddColumn | ChangeColumn):
            yield action.column


def _defines_a_time(statement: Statement) -> bool:
    return any(column.type.name.startswith(_TIMES) for column in _defined(statement))


def _defines_columns(statement: Statement) -> bool:
    return any(True for _ in _defined(statement))


CLAUSES_LOST: Final = (
    ClauseLost(
        "ON UPDATE",
        _defines_a_time,
        f"{_MANUAL}: ON UPDATE of CREATE TABLE and ALTER TABLE in B compatibility",
    ),
    ClauseLost(
        "ILM policies",
        lambda statement: statement.tag == "CREATE TABLE",
        f"{_MANUAL}: ILM ADD POLICY of row-store tables",
    ),
    ClauseLost(
        "comments within the definition",
        _defines_columns,
        f"{_MANUAL}: comments on tables and columns in B compatibility",
    ),
    ClauseLost(
        "whether it was CREATE TABLE AS",
        lambda statement: statement.tag == "CREATE TABLE",
        f"{_MANUAL}: only CREATE TABLE of CREATE TABLE AS, SELECT INTO",
    ),
)


def clauses_lost(statement: Statement) -> str | None:
    """Say in a sentence what else the statement may have contained; None: it is complete.

    >>> from producer.sources.gauss.ddl.tddl import statement
    >>> clauses_lost(statement("ALTER TABLE ONLY public.t MODIFY COLUMN c TIME"))
    'not deparsed, if there: ON UPDATE, comments within the definition'
    """
    found = [lost.clause for lost in CLAUSES_LOST if lost.could_have(statement)]
    return f"not deparsed, if there: {', '.join(found)}" if found else None
