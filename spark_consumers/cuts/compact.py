"""The last state per key: many changes of one table -> what a target must do once.

Pure, for the driver lanes; values are the source's text.  Between two barriers
only a row's last state matters, column by column where a value was not sent:

    c, r   a whole row
    u      over what is known of the row; what is unknown stays UNCHANGED and is
           taken by the sink from the row that stands at `origin` before the step
    d      no row
    t      no row at all, whatever was there before

A changed key is a delete of the old one and an insert of the new, which takes
the old one's origin along.  `origin` is always a key as of *before* the batch,
so all values are fetched first and then everything is written.

Tables without a key (or whose old rows do not carry it) keep every change, in
order: `Single` names the old row by what was sent of it, and stands for one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from schemas.tables import UNCHANGED
from spark_consumers.model import Cell, Change
from spark_consumers.native import is_packed

Key: TypeAlias = tuple[Cell, ...]
_GONE: Final = None


@dataclass(slots=True)
class Image:
    """A row as it stands after the batch; UNCHANGED cells are those of `origin`."""

    cells: list[Cell]  # in the order of Collapsed.columns
    origin: Key | None  # where the row stood before the batch; None: nowhere, it is whole

    def unsent(self) -> list[int]:
        """Indexes of cells that only the target knows."""
        return [at for at, cell in enumerate(self.cells) if cell is UNCHANGED]


@dataclass(slots=True)
class Single:
    """One change of a table without a key."""

    old: list[Cell] | None  # cells that name one row; UNCHANGED: not known
    new: list[Cell] | None  # None: the row goes


@dataclass(slots=True)
class Collapsed:
    """What to do with one table: truncate, then delete, then upsert; or row by row."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    is_truncated: bool = False
    deletes: list[Key] = field(default_factory=list)
    moved: set[Key] = field(default_factory=set)  # deletes whose row lives on under another key
    upserts: dict[Key, Image] = field(default_factory=dict)
    net: int = 0  # keys that begin in the batch, less those that end; 0 where it truncates
    singles: list[Single] | None = None  # not None: by row, `deletes` and `upserts` are empty


class KeyUnknown(ValueError):
    """An old row does not carry the key: the table cannot be collapsed."""


def by_columns(changes: Sequence[Change]) -> Iterator[tuple[tuple[str, ...], Sequence[Change]]]:
    """Cut changes into runs that were written with the same columns.

    A truncation has none and belongs to any run.
    """
    if is_packed(changes):  # of one schema, and not to be made into changes
        if changes:
            yield changes.columns, changes
        return
    run: list[Change] = []
    columns: tuple[str, ...] | None = None
    for same, part in groupby(changes, key=lambda c: None if c.op == "t" else c.columns):
        if same is not None and columns is not None and same != columns:
            yield columns, run
            run = []
        columns = columns if same is None else same
        run += part
    if run:
        yield columns or (), run


def collapse(
    columns: tuple[str, ...], changes: Sequence[Change], key: tuple[str, ...]
) -> Collapsed:
    """Collapse changes of one table, all in `columns`, in commit order.

    An empty key, or an old row that does not carry it, gives `singles`.
    """
    if key and set(key) <= set(columns):
        try:
            return _by_key(columns, changes, key)
        except KeyUnknown:
            pass
    return one_by_one(columns, changes, key)


def _by_key(columns: tuple[str, ...], changes: Sequence[Change], key: tuple[str, ...]) -> Collapsed:
    places = [columns.index(name) for name in key]
    out = Collapsed(columns, key)
    rows: dict[Key, Image | None] = {}
    begun: set[Key] = set()  # no row had them before the batch
    for change in changes:
        match change.op:
            case "c" | "r":
                if change.after is None:
                    raise ValueError(f"an insert without a row at {change.seq}/{change.ordinal}")
                new = _key(change.after, places)
                if new not in rows:
                    begun.add(new)
                rows[new] = Image(change.after, None)
            case "u":
                if change.after is None:
                    raise ValueError(f"an update without a row at {change.seq}/{change.ordinal}")
                cells = _sent(change)
                new = _key(cells, places)
                old = new if change.before is None else _key(change.before, places)
                known = rows.get(old)
                origin: Key | None = old
                if known is not None:
                    origin = known.origin
                    cells = [
                        mine if cell is UNCHANGED else cell
                        for cell, mine in zip(cells, known.cells, strict=True)
                    ]
                if old != new and new not in rows:
                    begun.add(new)
                rows[new] = Image(cells, origin)
                if old != new:
                    rows[old] = _GONE
                    out.moved.add(old)
            case "d":
                if change.before is None:
                    raise KeyUnknown(f"a delete without an old row at {change.seq}")
                rows[_key(change.before, places)] = _GONE
            case "t":
                rows.clear()
                begun.clear()
                out.moved.clear()
                out.is_truncated = True
            case op:
                raise ValueError(f"unknown op {op!r} at {change.seq}/{change.ordinal}")
    for where, image in rows.items():
        if image is not None:
            out.upserts[where] = image
        elif not out.is_truncated:
            out.deletes.append(where)
    out.moved.intersection_update(out.deletes)
    if not out.is_truncated:
        out.net = sum((image is not None) - (key not in begun) for key, image in rows.items())
    return out


def one_by_one(
    columns: tuple[str, ...], changes: Sequence[Change], key: tuple[str, ...]
) -> Collapsed:
    """Keep every change, in order; what was sent of the old row names it, or its key.

    Raises ValueError for an unknown op, and for an update without a row.
    """
    out = Collapsed(columns, (), singles=[])
    singles: list[Single] = []
    for change in changes:
        match change.op:
            case "c" | "r":
                singles.append(Single(None, change.after))
            case "u":
                if change.after is None:
                    raise ValueError(f"an update without a row at {change.seq}/{change.ordinal}")
                old = change.before
                if old is None:  # the identity did not change: the key of the new row names it
                    old = [
                        cell if name in key else UNCHANGED
                        for name, cell in zip(columns, change.after, strict=True)
                    ]
                singles.append(Single(old, _sent(change)))
            case "d":
                singles.append(Single(change.before, None))
            case "t":
                singles.clear()
                out.is_truncated = True
            case op:
                raise ValueError(f"unknown op {op!r} at {change.seq}/{change.ordinal}")
    out.singles = singles
    return out


def netted(singles: Sequence[Single]) -> list[Single]:
    """Leave of whole rows only those that go and those that come, the ones that go first.

    In order, rows of a unique constraint that is checked late meet each other half-way.
    Where a row is not known whole, they stay as they are.

    >>> [(s.old, s.new) for s in netted([Single(["1"], ["2"]), Single(["2"], ["3"])])]
    [(['1'], None), (None, ['3'])]
    """
    gone: Counter[Key] = Counter()
    come: Counter[Key] = Counter()
    for single in singles:
        for cells in (single.old, single.new):
            if cells is not None and UNCHANGED in cells:
                return list(singles)
        if single.old is not None:
            old = tuple(single.old)
            if come[old]:
                come[old] -= 1
            else:
                gone[old] += 1
        if single.new is not None:
            come[tuple(single.new)] += 1
    return [
        *(Single(list(row), None) for row in gone.elements()),
        *(Single(None, list(row)) for row in come.elements()),
    ]


def _sent(change: Change) -> list[Cell]:
    """The new row; what it leaves out but the old one carries is known, too."""
    after = change.after or []
    if change.before is None or UNCHANGED not in after:
        return after
    return [
        old if new is UNCHANGED and isinstance(old, str) else new
        for new, old in zip(after, change.before, strict=True)
    ]


def _key(cells: Sequence[Cell], places: Sequence[int]) -> Key:
    key = tuple([cells[at] for at in places])
    if UNCHANGED in key or None in key:
        raise KeyUnknown("a row does not carry its key")
    return key
