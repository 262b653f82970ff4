"""What a comparison found.  Keys are values of cells: they are shown only where asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

EQUAL: Final = 0
DIFFERENT: Final = 7
UNDECIDED: Final = 8


class Outcome(StrEnum):
    """Of one table."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "not decided"


class RowKind(StrEnum):
    """How a row differs."""

    MISSING = "missing"  # at the target
    EXTRA = "extra"  # at the target
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row; `key` are values of cells, in the order of the key's columns."""

    kind: RowKind
    key: tuple[str | None, ...]
    columns: tuple[str, ...] = ()  # that differ, of a changed row


@dataclass(slots=True)
class TableReport:
    """One table at one commit."""

    table: str
    key: tuple[str, ...] = ()  # names of its columns
    epoch: int = 0
    seq: int = 0
    source_rows: int = 0
    target_rows: int = 0
    counts: dict[RowKind, int] = field(default_factory=dict)
    rows: list[RowDifference] = field(default_factory=list)  # the first ones
    is_marked: bool = False  # at the target: it is exact again when all of it was read again
    is_by_key: bool = False  # the keys of `rows` are texts by which the source finds them
    settled: int = 0  # rows that commits between the two snapshots changed
    undecided: str = ""  # why nothing is known
    is_passing: bool = False  # what undecided says: another round may decide it
    notes: list[str] = field(default_factory=list)

    @property
    def differing(self) -> int:
        """How many rows differ."""
        return sum(self.counts.values())

    @property
    def outcome(self) -> Outcome:
        """What is known."""
        if self.counts:
            return Outcome.DIFFERENT
        return Outcome.UNDECIDED if self.undecided else Outcome.EQUAL

    @property
    def is_left_marked(self) -> bool:
        """Say whether its rows are equal, and the target says that they may not be.

        One that was mended lacked a row that the source changed before.
        """
        return self.is_marked and self.outcome is Outcome.EQUAL

    def add(self, found: RowDifference, limit: int) -> None:
        """Count a difference, and keep it while there are few."""
        self.counts[found.kind] = self.counts.get(found.kind, 0) + 1
        if len(self.rows) < limit:
            self.rows.append(found)

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """The keys of all rows that differ; [] where they are not all known."""
        is_known = not (self.is_marked or self.undecided) and len(self.rows) == self.differing
        if not (is_known and self.is_by_key):
            return []
        return [tuple(cell for cell in row.key if cell is not None) for row in self.rows]

    def remarks(self) -> Iterator[str]:
        """Say why the table is not decided, and what else is known of it."""
        if self.undecided:
            yield self.undecided
        yield from self.notes
        if self.outcome is Outcome.EQUAL and self.source_rows != self.target_rows:
            yield (
                f"was counted at two commits; the {self.settled:,} rows that changed between them"
                " are equal, too"
            )

    def as_json(self, *, show_keys: bool, limit: int | None = None) -> dict[str, object]:
        """Plain values; those of cells only with `show_keys`, of so many rows at most."""
        out: dict[str, object] = {
            "table": self.table,
            "outcome": self.outcome.value,
            "commit": {"epoch": self.epoch, "seq": self.seq},
            "rows": {"source": self.source_rows, "target": self.target_rows},
            "differences": {kind.value: self.counts.get(kind, 0) for kind in RowKind},
            "settled": self.settled,
            "why": self.undecided or None,
            "notes": self.notes,
        }
        if show_keys:
            out["keys"] = [
                {
                    "kind": row.kind.value,
                    "key": dict(zip(self.key, row.key, strict=False)),
                    "columns": list(row.columns),
                }
                for row in self.rows[:limit]
            ]
        return out


def exit_code(reports: Iterable[TableReport]) -> int:
    """Of all tables: a difference counts more than what is not decided."""
    found = {report.outcome for report in reports}
    if Outcome.DIFFERENT in found:
        return DIFFERENT
    return UNDECIDED if Outcome.UNDECIDED in found else EQUAL
