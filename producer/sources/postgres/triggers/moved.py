"""An object that is no table, and the name or the schema that a statement gave it."""

from __future__ import annotations

from typing import Final

from producer.core.sql_words import Words, cut, statements
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.model import Rename
from producer.sources.postgres.triggers.records import Command
from schemas.quoting import identifier, qualified
from schemas.tables import TableId

_NAMED: Final = frozenset(
    {"index", "view", "materialized view", "sequence", "function", "procedure", "trigger"}
)


def moved_object(command: Command, sql: str | None) -> str | None:
    """Return the statement that gave an object that is no table its name or its schema.

    A definition says only what it is called by now; what it was before says the client's text.
    """
    if sql is None or command.kind not in _NAMED:
        return None
    verb = f"ALTER {command.kind.upper()}"
    name = Words(command.identity).dotted()[-1:]
    for words in filter(None, statements(cut(sql))):
        said = tddl.statement(sql[words[0].start : words[-1].end])
        # PostgreSQL takes ALTER TABLE for indexes, views and sequences, too.
        if said.tag != command.tag or said.tag not in {verb, "ALTER TABLE"}:
            continue
        for move in said.actions:
            if isinstance(move, Rename) and (move.new.name,) == name:
                return _moved(verb, command, move)
    return None


def _moved(verb: str, command: Command, move: Rename) -> str | None:
    if command.kind == "trigger":
        table = command.identity.partition(" on ")[2]
        old, new = identifier(move.old.name), identifier(move.new.name)
        return f"{verb} {old} ON {table} RENAME TO {new}"
    # Whoever gets another name stays in the schema.
    is_renamed = move.old.name != move.new.name
    schema = command.schema if is_renamed else move.old.schema
    if schema is None or command.schema is None:
        return None
    old = qualified(TableId(schema, move.old.name))
    if command.kind in {"function", "procedure"}:
        old += command.identity[command.identity.index("(") :]
    if is_renamed:
        return f"{verb} {old} RENAME TO {identifier(move.new.name)}"
    return f"{verb} {old} SET SCHEMA {identifier(command.schema)}"
