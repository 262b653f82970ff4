"""What a role may read of the captured tables, whatever the product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from producer.core.catalog_rows import TableRights
from producer.errors import CdcError, NotPermitted
from schemas.quoting import identifier, qualified

_NAMED: Final = 5  # of many tables


def problems_of_reading(rights: Sequence[TableRights], role: str) -> Iterator[CdcError]:
    """Check what a role of any product may read; hints are the statements that grant it."""
    user = identifier(role)
    for schema in sorted({table.id.schema for table in rights if not table.uses_schema}):
        yield NotPermitted(
            "the role may not use a schema",
            schema=schema,
            hint=f"GRANT USAGE ON SCHEMA {identifier(schema)} TO {user}",
        )
    if unread := [table.id for table in rights if not table.selects]:
        names = [f"{qualified(table)}" for table in unread]
        yield NotPermitted(
            "the role may not read tables",
            tables=shortened([str(table) for table in unread]),
            hint=f"GRANT SELECT ON {', '.join(names)} TO {user}",
        )
    if hidden := [str(table.id) for table in rights if table.selects and not table.sees_all_rows]:
        yield NotPermitted(
            "row security hides rows of tables from the role: the copy would not be equal",
            tables=shortened(hidden),
            hint=f"ALTER ROLE {user} BYPASSRLS",
        )


def shortened(names: Sequence[str]) -> str:
    """Join names for a message; of many the first.

    >>> shortened(["a", "b"]), shortened(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    some = ", ".join(names[:_NAMED])
    return some if len(names) <= _NAMED else f"{some} and {len(names) - _NAMED} more"
