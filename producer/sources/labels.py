"""Labels of enums: COPY prints them by the names of now, whatever its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from producer.core.changes import Cells
from producer.errors import TableChanging
from producer.sources.session import Asks
from schemas.tables import Column, TableId

# A rename of a label does not wait for readers, and their statements print it at once.  It may be
# undone before anybody asks: the row has another transaction then.
_LABELS: Final = (
    "SELECT e.oid::text, e.enumlabel::text || ' ' || e.xmin::text FROM pg_catalog.pg_enum e"
)


def written(asks: Asks) -> dict[str | None, str | None]:
    """Return the labels of all enums by oid, with what wrote them last."""
    return {oid: label for oid, label in asks.query(_LABELS)}  # noqa: C416  rows are lists


def has_user_types(columns: Iterable[Column]) -> bool:
    """Say whether cells of these columns may have labels."""
    return any(column.user_type is not None for column in columns)


def refuse_renamed(
    table: TableId, seen: dict[str | None, str | None], now: dict[str | None, str | None]
) -> None:
    """Raise TableChanging where one of the labels that were seen was renamed."""
    if any(now.get(oid, label) != label for oid, label in seen.items()):
        raise TableChanging(
            "a label of a type was renamed while its table was read",
            table=table,
            hint="the load starts over",
        )


def unrenamed(
    table: TableId,
    columns: Iterable[Column],
    reading: Asks,
    now: Asks,
    hand_on: Callable[[Sequence[Cells]], None],
) -> Callable[[Sequence[Cells]], None]:
    """Hand rows on as long as labels have the names that `reading` shows; else TableChanging.

    Where no column is of a type of users, there is nothing to look at.
    """
    if not has_user_types(columns):
        return hand_on
    seen = written(reading)

    def checked(rows: Sequence[Cells]) -> None:
        refuse_renamed(table, seen, written(now))
        hand_on(rows)

    return checked
