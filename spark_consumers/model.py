"""The consumer's vocabulary: ledgers, segments, changes.

Pure.  `cuts.py` makes segments, `read.py` fills them with changes, a sink
moves a target by one segment in one atomic step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.control import (
    CommitEntry,
    Commits,
    Hole,
    PackedEntries,
    Range,
    SchemaChange,
    Start,
    TableLoad,
)
from schemas.tables import Missing, TableId

Cell: TypeAlias = str | Missing | None  # the source's text form, NULL, or unsent TOAST


@dataclass(slots=True)
class Change:
    """One row change.  Cells stand in the order of `columns`."""

    seq: int
    ordinal: int
    op: str  # Debezium's: c u d r t (m is not a row)
    columns: tuple[str, ...]  # real names, as of the writer's schema; shared between rows
    before: list[Cell] | None  # what the source carried of the old row; unsent columns: UNCHANGED
    after: list[Cell] | None


class ReadEntries(PackedEntries):
    """Entries of a COMMITS record that were read as columns; those of one place belong together."""

    __slots__ = ("committed_at", "counts", "csns", "rows")

    def __init__(
        self,
        avro: bytes,
        identities: Mapping[int, tuple[int, int]],
        columns: tuple[list[int], list[int], list[int], list[Mapping[int, int]]],
        unpack: Callable[[bytes, int], Sequence[CommitEntry]],
    ) -> None:
        """`columns` are csn, committed_at, rows and counts of each entry; see `PackedEntries`."""
        self.csns, self.committed_at, self.rows, self.counts = columns
        super().__init__(avro, identities, max(self.csns), unpack)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a target holds: one row per source, moved together with the rows."""

    source: str
    epoch: int = 0
    n: int = 0
    seq: int = 0
    writer: int = 0
    instance: str = ""
    next_offset: int = 0  # of cuts: where reading goes on
    cluster_id: str = ""
    fence: int = 0
    state: str = "LOADING"  # LOADING | EXACT
    inexact: Mapping[str, str] = field(default_factory=dict)  # schema.table -> why
    topics: Mapping[str, str] = field(default_factory=dict)  # name -> topic id, from START / STATE
    resume: int = 0
    csn: int = 0
    commit_lsn: int = 0
    committed_at: int = 0  # µs since 1970-01-01 UTC, of the newest applied commit


@dataclass(frozen=True, slots=True)
class Segment:
    """One atomic step of a target: whole commits, one TABLE record, or one START.

    `after` is what the ledger must hold before the step, `upto` what it holds after it.
    For COMMITS, `first_seq..last_seq` are whole source transactions, `ranges` are the
    exact offsets of their records and `counts[i]` the records in `ranges[i]`.
    """

    cut: Commits | TableLoad | Start
    after: Ledger
    upto: Ledger
    first_seq: int = 0
    last_seq: int = 0
    rows: int = 0
    ranges: tuple[Range, ...] = ()
    commit_rows: Mapping[int, int] = field(default_factory=dict)  # seq -> ordinals 0..rows-1
    is_barrier: bool = False  # holds DDL: alone, applied in ordinal order
    holes: tuple[Hole, ...] = ()  # gaps of its commits

    @property
    def schema_ids(self) -> Mapping[str, tuple[int, ...]]:
        """The writers' schemas of each topic's records."""
        return {} if isinstance(self.cut, Start) else self.cut.schema_ids


@dataclass(slots=True)
class Rows:
    """A segment's content in commit order, as the driver lanes hold it."""

    changes: Mapping[TableId, Sequence[Change]]
    ddl: Sequence[SchemaChange] = ()
