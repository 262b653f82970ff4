"""Changes of single tables, in order, without their neighbours of the same commits.

Nothing is waited for but the cut: a load of another table, or its rows, hold nothing up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change, of_note
from gauss_cdc_reader.commits import in_order
from schemas.tables import TableId
from spark_consumers.kafka.history import (
    LOAD_FOLLOWS,
    LOADED,
    Found,
    History,
    ShapeHistory,
    Standing,
)

_TOGETHER = 2_000  # rows that are read at once; a commit of more is held as a whole


class TableBatch(NamedTuple):
    """Changes between two places; `start` may lie behind some of them, which are left out."""

    start: Bookmark
    end: Standing
    changes: Sequence[Change]


class TableChanges:
    """Reads what comes of some tables behind a place; one at a time."""

    def __init__(self, history: History, tables: Sequence[TableId], shapes: ShapeHistory) -> None:
        """`shapes` are those of tables, and are kept up."""
        self._history, self._tables, self._shapes = history, tables, shapes

    def behind(self, mark: Bookmark) -> Iterator[tuple[Bookmark, Change] | None]:
        """Give each change with the place behind it; None wherever there is none by now."""
        for batch in self.batches(mark):
            if batch is None:
                yield None
                continue
            for taken, change in enumerate(batch.changes, batch.start.taken + 1):
                yield batch.start.within(taken, batch.end), change

    def batches(self, mark: Bookmark, upto: Standing | None = None) -> Iterator[TableBatch | None]:
        """Give what comes behind a place, up to another one; None: there is none by now."""
        walk = self._history.walk(self._tables, mark.standing)
        while upto is None or not mark.standing.has(upto):
            found = walk.take(None, mark.end) if mark.taken else walk.take(_TOGETHER, upto)
            if found.place == mark.standing:
                yield None
                continue
            yield TableBatch(mark, found.place, self._read(found)[mark.taken :])
            mark = Bookmark.of(found.place)

    def _read(self, found: Found) -> list[Change]:
        """Read what was found, in order."""
        for change in found.changes:
            self._shapes.note(change)
        is_loaded = any(note.why == LOAD_FOLLOWS for note in found.notes)
        if is_loaded or not self._shapes.last() >= {*self._tables}:
            self._shapes.update(self._history.shapes(found.place))
        notes = [of_note(note, self._shapes) for note in found.notes if note.kind != LOADED]
        is_committed = self._history.readable(found)
        rows = in_order(self._history.rows.content(found.ranges, is_committed=is_committed).all())
        if not notes:
            return rows
        return sorted([*notes, *rows], key=lambda one: one.position)
