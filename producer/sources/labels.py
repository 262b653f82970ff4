"""Labels of enums: COPY prints them by the names of now, whatever its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from producer.core.changes import Cells
from producer.errors import TableChanging
from producer.sources.session import Asks
from schemas.tables import TableId

# A rename of a label does not wait for readers, and their statements print it at once.
_LABELS: Final = "SELECT e.oid::text, e.enumlabel::text FROM pg_catalog.pg_enum e"


def unrenamed(
    table: TableId, reading: Asks, now: Asks, hand_on: Callable[[Sequence[Cells]], None]
) -> Callable[[Sequence[Cells]], None]:
    """Hand rows on as long as labels have the names that `reading` shows; else TableChanging."""
    seen = reading.query(_LABELS)

    def checked(rows: Sequence[Cells]) -> None:
        names = {oid: name for oid, name in now.query(_LABELS)}  # noqa: C416  rows are lists
        if any(names.get(oid, name) != name for oid, name in seen):
            raise TableChanging(
                "a label of a type was renamed while its table was read",
                table=table,
                hint="the load starts over",
            )
        hand_on(rows)

    return checked
