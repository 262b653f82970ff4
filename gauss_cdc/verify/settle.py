"""Decides the rows that commits between the two snapshots changed.

The source's rows with these changes are what the target must hold.  What a change holds is the
source's text; the target's server reads and prints it, so that it is compared as its own rows are.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from gauss_cdc.verify.report import RowDifference, RowKind
from gauss_cdc.verify.rows import HeldTable, Key, TablePlan
from gauss_cdc.verify.sides import ComparedServer, TableMoved
from gauss_cdc.verify.text import ComparedColumn, RowText
from schemas.quoting import constant, identifier
from schemas.tables import UNCHANGED, Missing
from spark_consumers.cuts.compact import Collapsed, Single, by_columns, collapse, netted
from spark_consumers.cuts.compact import Key as KafkaKey
from spark_consumers.model import Cell, Change

Cells: TypeAlias = list[str | None]
T = TypeVar("T")
_BATCH: Final = 500  # rows of one question
_AT: Final = '"row of gauss-cdc"'  # no column of a table, one may hope
CHANGING: Final = "its rows changed meanwhile, in a form that does not say the old ones"


@dataclass(frozen=True, slots=True)
class SettledRows:
    """Keys that are decided, whatever their hashes say, and those of them that differ."""

    keys: frozenset[Key]
    differences: tuple[RowDifference, ...]


def collapsed(names: Collection[str], key: tuple[str, ...], changes: Sequence[Change]) -> Collapsed:
    """Give the last state of each key; raise TableMoved where the changes do not give it."""
    runs = list(by_columns(changes))
    if len(runs) != 1:
        raise TableMoved("its columns changed meanwhile")
    columns, run = runs[0]
    out = collapse(columns, run, key)
    if out.is_truncated:
        raise TableMoved("it was emptied meanwhile")
    if {*columns} != {*names}:
        raise TableMoved("its columns changed meanwhile")
    if key and out.singles is not None:
        raise TableMoved(CHANGING)
    return out


def settle(table: HeldTable, found: Collapsed) -> SettledRows:
    """Compare what the target must hold of the changed keys with what it holds."""
    plan = table.plan
    asked = [*found.upserts, *found.deletes]
    origins = [image.origin for image in found.upserts.values() if image.origin is not None]
    _, before, _ = _rows(table, [*dict.fromkeys(origins)], is_source=True)
    names, there, several = _rows(table, asked, is_source=False)
    order = [found.columns.index(column.name) for column in plan.columns]
    sent = {key: [image.cells[at] for at in order] for key, image in found.upserts.items()}
    old = {key: before.get(image.origin or ()) for key, image in found.upserts.items()}
    expected: dict[KafkaKey, Cells | None] = {
        **dict.fromkeys(found.deletes),
        **{key: _whole(cells, old[key]) for key, cells in sent.items()},
    }
    unlike = {k: cells for k, cells in sent.items() if k in there and expected[k] != there[k]}
    for key, cells in _reprinted(table, unlike):
        mine = zip(cells, sent[key], strict=True)
        expected[key] = _whole([c if c is UNCHANGED else text for text, c in mine], old[key])
    differences = [
        difference
        for key, cells in expected.items()
        if (difference := _difference(plan, names[key], cells, there.get(key))) is not None
        and key not in several
    ]
    differences += [RowDifference(RowKind.EXTRA, names[key]) for key in several]
    return SettledRows(frozenset(names.values()), tuple(differences))


def net_rows(plan: TablePlan, singles: Sequence[Single], columns: Sequence[str],
             target: ComparedServer) -> Counter[str]:  # fmt: skip
    """Rows that come and go in a table without a key, by their hashes; raise TableMoved."""
    out: Counter[str] = Counter()
    if not singles:
        return out
    order = [columns.index(column.name) for column in plan.columns]
    text = plan.text(is_source=False)
    rows: list[tuple[int, list[Cell]]] = []
    for single in netted(singles):
        for sign, cells in ((-1, single.old), (1, single.new)):
            if cells is not None:
                if UNCHANGED in cells:
                    raise TableMoved(CHANGING)
                rows.append((sign, [cells[at] for at in order]))
    for some in _batches(rows):
        values = _values(text, plan.columns, [[*cells] for _, cells in some])
        hashes = target.now.query(f"SELECT v.{_AT}::text, {text.row('v')} FROM {values}")
        for at, found in hashes:
            if plan.is_sampled(found or ""):
                out[found or ""] += some[int(at or 0)][0]
    return out


def changed_columns(table: HeldTable, keys: Sequence[Key]) -> dict[Key, tuple[str, ...]]:
    """Name the columns in which rows of both servers differ."""
    _, ours, _ = _rows(table, keys, is_source=True)
    _, theirs, _ = _rows(table, keys, is_source=False)
    return {
        key: _unlike(table.plan, ours[key], theirs[key])
        for key in keys
        if key in ours and key in theirs
    }


def _whole(cells: Sequence[Cell], before: Cells | None) -> Cells:
    """Fill what was not sent from the row as it was."""
    out: Cells = []
    for at, cell in enumerate(cells):
        if not isinstance(cell, Missing):
            out.append(cell)
        elif before is not None:
            out.append(before[at])
        else:
            raise TableMoved(CHANGING)
    return out


def _difference(
    plan: TablePlan, name: Key, expected: Cells | None, there: Cells | None
) -> RowDifference | None:
    if expected == there:
        return None
    if there is None:
        return RowDifference(RowKind.MISSING, name)
    if expected is None:
        return RowDifference(RowKind.EXTRA, name)
    return RowDifference(RowKind.CHANGED, name, _unlike(plan, expected, there))


def _unlike(plan: TablePlan, ours: Cells, theirs: Cells) -> tuple[str, ...]:
    pairs = zip(plan.columns, ours, theirs, strict=True)
    return tuple(column.name for column, a, b in pairs if a != b)


def _rows(
    table: HeldTable, keys: Iterable[KafkaKey], *, is_source: bool
) -> tuple[dict[KafkaKey, Key], dict[KafkaKey, Cells], set[KafkaKey]]:
    """Read rows by key: what the server prints of each key, and the cells of those there are.

    And the keys of several rows, which a table without its key may have.  A row counts only if its
    key is printed alike: 1.0 and 1.00 are equal, and two keys here.
    """
    server, start, text = table.side(is_source=is_source)
    names: dict[KafkaKey, Key] = {}
    found: dict[KafkaKey, Cells] = {}
    several: set[KafkaKey] = set()
    for some in _batches(list(keys)):
        values = _values(text, text.key, [[*key] for key in some])
        same = " AND ".join(f"t.{_quoted(c)} = v.{_quoted(c)}" for c in text.key)
        width = len(text.key)
        for at, *cells in server.reading.query(
            f"SELECT v.{_AT}::text, {text.cells(text.key, 'v')}, {text.cells(text.key)},"
            f" {text.cells(text.columns)} FROM {values} LEFT JOIN {start} ON {same}"
        ):
            key = some[int(at or 0)]
            names[key] = tuple(cells[:width])
            if cells[width : 2 * width] == cells[:width]:
                several |= {key} & found.keys()
                found[key] = cells[2 * width :]
    return names, found, several


def _reprinted(
    table: HeldTable, rows: Mapping[KafkaKey, list[Cell]]
) -> Iterator[tuple[KafkaKey, Cells]]:
    """Read texts by the columns' types, and print them again."""
    server, _, text = table.side(is_source=False)
    for some in _batches(list(rows.items())):
        values = _values(text, text.columns, [cells for _, cells in some])
        for at, *cells in server.now.query(
            f"SELECT v.{_AT}::text, {text.cells(text.columns, 'v')} FROM {values}"
        ):
            yield some[int(at or 0)][0], cells


def _values(
    text: RowText, columns: Sequence[ComparedColumn], rows: Sequence[Sequence[Cell]]
) -> str:
    """Rows as a FROM item `v`, numbered from 0."""
    types = [text.type_of(column) for column in columns]
    listed = []
    for at, row in enumerate(rows):
        cells = [f"{_constant(cell)}::{name}" for cell, name in zip(row, types, strict=True)]
        listed.append(f"({', '.join([str(at), *cells])})")
    names = ", ".join([_AT, *(_quoted(column) for column in columns)])
    return f"(VALUES {', '.join(listed)}) AS v ({names})"


def _batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(rows), _BATCH):
        yield rows[at : at + _BATCH]


def _constant(cell: Cell) -> str:
    return constant(cell if isinstance(cell, str) else None)


def _quoted(column: ComparedColumn) -> str:
    return identifier(column.name)
