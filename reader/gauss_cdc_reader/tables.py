"""Changes of single tables, in order, without their neighbours of the same commits.

Nothing is waited for but the cut: a load of another table, or its rows, hold nothing up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change, of_note
from gauss_cdc_reader.commits import in_order
from schemas.tables import TableId, TableSchema
from spark_consumers.kafka.history import Found, History

_TOGETHER = 2_000  # rows that are read at once; a commit of more is held as a whole


class TableChanges:
    """Reads what comes of some tables behind a place; one at a time."""

    def __init__(
        self, history: History, tables: Sequence[TableId], shapes: dict[TableId, TableSchema]
    ) -> None:
        """`shapes` are those of tables, and are read again where one of ours has changed."""
        self._history, self._tables, self._shapes = history, tables, shapes

    def behind(self, mark: Bookmark) -> Iterator[tuple[Bookmark, Change] | None]:
        """Give each change with the place behind it; None wherever there is none by now."""
        walk = self._history.walk(self._tables, mark.standing)
        while True:
            upto, rows = (mark.end, None) if mark.taken else (None, _TOGETHER)
            found = walk.take(rows, upto)
            if found.place == mark.standing:
                yield None
                continue
            changes = self._read(found)
            for taken, change in enumerate(islice(changes, mark.taken, None), mark.taken + 1):
                yield mark.within(taken, found.place), change
            mark = Bookmark.of(found.place)

    def _read(self, found: Found) -> list[Change]:
        """Read what was found, in order."""
        if found.notes or not self._shapes.keys() >= {*self._tables}:
            self._shapes.update(self._history.shapes(found.place))
        notes = [of_note(note, self._shapes) for note in found.notes]
        is_committed = self._history.readable(found)
        rows = in_order(self._history.rows.content(found.ranges, is_committed=is_committed).all())
        if not notes:
            return rows
        return sorted([*notes, *rows], key=lambda one: one.position)
