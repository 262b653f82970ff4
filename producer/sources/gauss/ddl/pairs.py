"""Statements that openGauss sends in two messages.

A DROP sends a message when it begins and one when it has ended: `jddl.read`
passes over the first.  ADD COLUMN with a default is followed by an ALTER COLUMN
… SET DEFAULT that no user wrote; only the second has the default as SQL, the
first holds its text unescaped (`'it's'`; checked on a live 7.0.0-RC2).  Where it
adds several columns with defaults, one such message follows for each, which names
those before it once more (openGauss' public sources).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from producer.sources.gauss.ddl import jddl
from producer.sources.gauss.ddl.format import expand, parse
from producer.sources.gauss.ddl.model import AddColumn, SetDefault, Statement
from producer.sources.gauss.decoders.messages import Ddl
from schemas.positions import Lsn


@dataclass(frozen=True, slots=True)
class Waiting:
    """A statement that a message may still belong to."""

    position: Lsn
    ddl: Ddl
    statement: Statement
    settled: frozenset[str] = frozenset()  # columns whose message came

    @property
    def is_whole(self) -> bool:
        """Say whether all its messages came."""
        return _defaults(self.statement) <= self.settled


def waits(ddl: Ddl, statement: Statement) -> bool:
    """Say whether a message that belongs to this one may follow."""
    return ddl.form == "deparse" and bool(_defaults(statement))


def joined(waiting: Waiting, second: Ddl, two: Statement) -> Waiting | None:
    """Return both as one statement; None if they are two."""
    first, one = waiting.ddl, waiting.statement
    if second.form != "deparse" or one.names != two.names:
        return None
    added = _defaults(one)
    sets = [a for a in two.actions if isinstance(a, SetDefault) and a.default is not None]
    named = {a.name for a in sets}
    # A default that was settled and is set again was set by a user.
    if len(sets) != len(two.actions) or not named <= added or named <= waiting.settled:
        return None
    document: Any = parse(first.content)
    for each in sets:
        for command in document.get("subcmds", ()):
            _set_default(command, each)
    content = json.dumps(document, ensure_ascii=False, default=float)
    ddl = replace(first, content=content, sql=expand(document))
    whole = jddl.read(ddl)
    assert whole is not None
    return Waiting(waiting.position, ddl, whole, waiting.settled | named)


def _defaults(statement: Statement) -> set[str]:
    """Columns that a statement adds with a default."""
    return {
        action.column.name
        for action in statement.actions
        if isinstance(action, AddColumn) and action.column.default is not None
    }


def _set_default(command: Any, named: SetDefault) -> None:
    definition = command.get("definition") if isinstance(command, dict) else None
    if not isinstance(definition, dict) or definition.get("name") != named.name:
        return
    said = definition.get("default")
    if isinstance(said, dict):
        said["default"] = named.default
    elif isinstance(said, str):
        definition["default"] = f"DEFAULT {named.default}"
