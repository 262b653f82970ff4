"""The new name or schema that a statement gave to an object other than a table."""

from __future__ import annotations

from typing import Final, NamedTuple

from producer.core.statements.sql_words import Words, cut, statements
from producer.sources.postgres.triggers.records import Command
from schemas.quoting import identifier, qualified
from schemas.tables import TableId

_NAMED: Final = frozenset(
    {"index", "view", "materialized view", "sequence", "function", "procedure", "trigger"}
)


class _Move(NamedTuple):
    """A new name, or a new schema."""

    schema: str | None  # the former one, if the text contains it
    old: str
    new: str


def moved_object(command: Command, sql: str | None) -> str | None:
    """Return the statement that gave an object other than a table its name or its schema.

    The definition has only the present name; the former one is in the client's text.

    None: it gave none, or the text is not there.
    """
    verb = f"ALTER {command.kind.upper()}"
    # PostgreSQL takes ALTER TABLE for indexes, views and sequences, too.
    if sql is None or command.kind not in _NAMED or command.tag not in {verb, "ALTER TABLE"}:
        return None
    name = Words(command.identity).dotted()[-1:]
    for words in statements(cut(sql)):
        move = _read(Words(sql, words), command)
        if move is not None and (move.new,) == name:
            return _written(verb, command, move)
    return None


def _read(words: Words, command: Command) -> _Move | None:
    """Read a statement of the command's kind; None for any other, and for another action."""
    if not words.take(*command.tag.split()):
        return None
    words.take("IF", "EXISTS")
    words.take("ONLY")
    name = words.dotted()
    if not name:
        return None
    words.brackets()  # of a function
    if words.take("ON"):  # of a trigger
        words.dotted()
    schema = name[-2] if len(name) > 1 else None
    if words.take("RENAME", "TO") and (new := words.identifier()) is not None:
        return _Move(schema, name[-1], new)
    return _Move(schema, name[-1], name[-1]) if words.take("SET", "SCHEMA") else None


def _written(verb: str, command: Command, move: _Move) -> str | None:
    if command.kind == "trigger":
        table = command.identity.partition(" on ")[2]
        return f"{verb} {identifier(move.old)} ON {table} RENAME TO {identifier(move.new)}"
    # A renamed object stays in its schema.
    is_renamed = move.old != move.new
    schema = command.schema if is_renamed else move.schema
    if schema is None or command.schema is None:
        return None
    old = qualified(TableId(schema, move.old))
    if command.kind in {"function", "procedure"}:
        old += command.identity[command.identity.index("(") :]
    if is_renamed:
        return f"{verb} {old} RENAME TO {identifier(move.new)}"
    return f"{verb} {old} SET SCHEMA {identifier(command.schema)}"
