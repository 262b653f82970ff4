"""What `<prefix>.ddl` discloses of a schema change: its structure, without its text.

Kafka keeps a statement's text for ever.  The text holds whatever its author typed:
passwords, a function's body, rows of a table that is not captured.  A target follows
the structure, so a consumer that copies rows does not need the text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from producer.core.shape_change import ShapeChange
from producer.core.statements.canonical import canonical
from producer.core.statements.sql_words import cut
from schemas.control import CAST_SETTINGS, SchemaChange
from schemas.tables import TableSchema

_LONGEST: Final = 120


def without_text(change: SchemaChange) -> SchemaChange:
    """Return the change with SQL of our own making only.

    Of an object that is not a captured table: its kind, its name and its change.
    """
    before, after = _without_defaults(change.before), _without_defaults(change.after)
    shape = ShapeChange(
        before, after, change.tag, renamed=change.renamed, values=change.values, moved=change.moved
    )
    return replace(
        change,
        before=before,
        after=after,
        sql=None,
        jddl=None,
        canonical=canonical(shape) if change.canonical is not None else None,
        settings={name: text for name, text in change.settings.items() if name in CAST_SETTINGS},
    )


def redacted(text: str) -> str:
    """Return a part of a statement for people, without the values in it.

    >>> redacted("ALTER a SET DEFAULT 'it''s' || 5 -- so")
    'ALTER a SET DEFAULT … || …'
    """
    shown = " ".join(
        word.text if word.kind in {"name", "quoted", "sign"} else "…" for word in cut(text)
    )
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


def _without_defaults(table: TableSchema | None) -> TableSchema | None:
    """Remove the expressions; `has_default` still says that there is one."""
    if table is None or all(column.default is None for column in table.columns):
        return table
    columns = tuple(replace(c, default=None, has_default=True) if c.default is not None else c
                    for c in table.columns)  # fmt: skip
    return replace(table, columns=columns)
