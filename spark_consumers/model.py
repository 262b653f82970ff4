"""The consumer's vocabulary: ledgers, segments, changes.

Pure.  `segments.py` makes segments, `read.py` fills them with changes, a sink
moves a target by one segment in one atomic step.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from schemas.control import (
    CommitEntry,
    Commits,
    PackedEntries,
    Range,
    SchemaChange,
    State,
    TableLoad,
)
from schemas.positions import NOWHERE, Lsn
from schemas.tables import Missing, TableId
from schemas.topics import rewritten

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


class Columns(Protocol):
    """Entries of a COMMITS record, whose seqs follow each other; by their index in it."""

    @property
    def first(self) -> int:
        """The seq of the first."""

    def __len__(self) -> int: ...

    def identity(self, at: int, /) -> tuple[Lsn, int]:
        """(commit_start, xid)."""

    def place(self, at: int, /) -> tuple[int, Lsn, int]:
        """(csn, commit_start, committed_at)."""

    def greatest_csn(self) -> int:
        """The greatest of all entries."""

    def rows(self, first: int, last: int, /) -> bytes:
        """Rows of each entry, as an array of 64 bits each."""

    def total(self, first: int, last: int, /) -> int:
        """Rows of all of these."""

    def fitting(self, first: int, last: int, room: int, /) -> int:
        """Return the index after the last one that has its rows in so much room."""

    def records(self, first: int, last: int, width: int, /) -> list[int] | None:
        """Records of these in each of `width` ranges; None: one names another range."""

    def lacking(self) -> int:
        """Return the first entry with fewer records than rows; -1: none."""


class ListedEntries:
    """`Columns` of entries that are objects."""

    def __init__(self, entries: Sequence[CommitEntry]) -> None:
        self._entries, self.first = entries, entries[0].seq

    def __len__(self) -> int:
        return len(self._entries)

    def identity(self, at: int, /) -> tuple[Lsn, int]:
        entry = self._entries[at]
        return entry.commit_start, entry.xid

    def place(self, at: int, /) -> tuple[int, Lsn, int]:
        entry = self._entries[at]
        return entry.csn, entry.commit_start, entry.committed_at

    def greatest_csn(self) -> int:
        return max(entry.csn for entry in self._entries)

    def rows(self, first: int, last: int, /) -> bytes:
        return array("q", [entry.rows for entry in self._entries[first:last]]).tobytes()

    def total(self, first: int, last: int, /) -> int:
        return sum(entry.rows for entry in self._entries[first:last])

    def fitting(self, first: int, last: int, room: int, /) -> int:
        rows = 0
        for at in range(first, last):
            rows += self._entries[at].rows
            if rows > room:
                return at
        return last

    def records(self, first: int, last: int, width: int, /) -> list[int] | None:
        found = [0] * width
        for entry in self._entries[first:last]:
            for place, records in entry.counts.items():
                if not 0 <= place < width:
                    return None
                found[place] += records
        return found

    def lacking(self) -> int:
        for at, entry in enumerate(self._entries):
            if sum(entry.counts.values()) < entry.rows:
                return at
        return -1


class ReadEntries(PackedEntries):
    """Entries of a COMMITS record that were read as columns."""

    __slots__ = ("columns",)

    def __init__(
        self,
        avro: bytes,
        columns: Columns,
        unpack: Callable[[bytes, int], Sequence[CommitEntry]],
    ) -> None:
        """See `PackedEntries`."""
        self.columns = columns
        super().__init__(avro, _Identities(columns), columns.greatest_csn(), unpack)


def columns_of(commits: Sequence[CommitEntry]) -> Columns:
    """A COMMITS record's entries by their index."""
    return commits.columns if isinstance(commits, ReadEntries) else ListedEntries(commits)


class _Identities(Mapping[int, tuple[int, int]]):
    """seq -> (commit_start, xid)."""

    __slots__ = ("_columns", "_seqs")

    def __init__(self, columns: Columns) -> None:
        self._columns, self._seqs = columns, range(columns.first, columns.first + len(columns))

    def __getitem__(self, seq: int) -> tuple[int, int]:
        try:
            return self._columns.identity(self._seqs.index(seq))
        except ValueError:
            raise KeyError(seq) from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def __len__(self) -> int:
        return len(self._seqs)


class CommitRows(Mapping[int, int]):
    """seq -> rows, of commits that follow each other: their ordinals are 0..rows-1."""

    __slots__ = ("_rows", "first")

    def __init__(self, first: int = 0, rows: Iterable[int] = ()) -> None:
        self.first = first
        self._rows = rows if isinstance(rows, array) else array("q", rows)

    def __getitem__(self, seq: int) -> int:
        if not 0 <= seq - self.first < len(self._rows):
            raise KeyError(seq)
        return self._rows[seq - self.first]

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + len(self._rows)))

    def __len__(self) -> int:
        return len(self._rows)

    def places(self) -> array[int]:
        """Where each commit's rows begin if all stand in a line, and where the last one's end."""
        return array("q", accumulate(self._rows, initial=0))

    def tobytes(self) -> bytes:
        """Rows of each commit, as `Columns.rows`."""
        return self._rows.tobytes()

    @staticmethod
    def of(first: int, columns: Iterable[bytes]) -> CommitRows:
        """Commits by `Columns.rows`, one behind the other."""
        rows = array("q")
        for some in columns:
            rows.frombytes(some)
        return CommitRows(first, rows)


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
    resume: Lsn = NOWHERE
    csn: int = 0
    commit_lsn: Lsn = NOWHERE
    committed_at: int = 0  # µs since 1970-01-01 UTC, of the newest applied commit

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """Take what a target kept; tables get the texts that they have now."""
        topics, inexact = raw.get("topics", {}), raw.get("inexact", {})
        marks = {rewritten(table, topics): why for table, why in inexact.items()}
        return cls(**{**raw, "inexact": marks})


def joined_ids(
    several: Iterable[Mapping[str, tuple[int, ...]]],
) -> dict[str, tuple[int, ...]]:
    """Schema ids by topic of several records, each once."""
    ids: dict[str, dict[int, None]] = {}
    for one in several:
        for topic, more in one.items():
            ids.setdefault(topic, {}).update(dict.fromkeys(more))
    return {topic: tuple(own) for topic, own in ids.items()}


@dataclass(frozen=True, slots=True)
class Segment:
    """One atomic step of a target: whole commits, steps of loads, or one record that moves no row.

    That is START, or a STATE that clears a mark.

    `after` is what the ledger must hold before the step, `upto` what it holds after it.
    For COMMITS, `first_seq..last_seq` are whole source transactions, `ranges` are the
    exact offsets of their records; their entries stay in the records of cuts.  For TABLE,
    `loads` are the records in order, and `cut` is the last of them.
    """

    cut: Commits | TableLoad | State
    after: Ledger
    upto: Ledger
    first_seq: int = 0
    last_seq: int = 0
    rows: int = 0
    ranges: tuple[Range, ...] = ()
    commit_rows: CommitRows = field(default_factory=CommitRows)
    is_barrier: bool = False  # holds DDL: alone, applied in ordinal order
    # Of gaps of its commits, and of tables without which it failed, by their names there: behind a
    # rename, perhaps.
    marks: Mapping[str, str] = field(default_factory=dict)
    loads: tuple[TableLoad, ...] = ()

    @property
    def schema_ids(self) -> Mapping[str, tuple[int, ...]]:
        """The writers' schemas of each topic's records."""
        match self.cut:
            case Commits(schema_ids=ids):
                return ids
            case TableLoad():
                return joined_ids(load.schema_ids for load in self.loads)
            case State():  # START, too
                return {}


@dataclass(slots=True)
class Rows:
    """A segment's content, or a part of it, in commit order."""

    changes: Mapping[TableId, Sequence[Change]]
    ddl: Sequence[SchemaChange] = ()
    are_of_tasks: bool = False  # Spark's tasks read them


@runtime_checkable
class Parts(Protocol):
    """A segment that is too large to be held at once; the parts are checked to be all of it."""

    by_tasks: Counter[str]  # records of the last reading that Spark's tasks brought, by topic

    def read(self, *, are_tables_apart: bool) -> Iterator[Rows]:
        """Read all parts, from the first on; what is not there raises Incomplete at the end.

        In commit order.  With `are_tables_apart` in that of each table only, as where no foreign
        key acts at the target.
        """


@dataclass(frozen=True, slots=True)
class Ways:
    """Which way records went, by topic."""

    by_driver: Counter[str] = field(default_factory=Counter)
    by_tasks: Counter[str] = field(default_factory=Counter)  # of Spark

    def add(self, segment: Segment, content: Any) -> None:
        """Count what was read of a segment; frames are read by tasks."""
        every = Counter[str]()
        for one in segment.ranges:
            every[one.topic] += one.end - one.start
        tasks = every
        if isinstance(content, Rows):
            tasks = every if content.are_of_tasks else Counter[str]()
        elif isinstance(content, Parts):
            tasks = content.by_tasks
        self.by_tasks.update(tasks)
        self.by_driver.update(every - tasks)

    def copy(self) -> Ways:
        """As of now: another thread may count on."""
        return Ways(self.by_driver.copy(), self.by_tasks.copy())

    def since(self, before: Ways) -> Ways:
        """Return what was read since then."""
        return Ways(self.by_driver - before.by_driver, self.by_tasks - before.by_tasks)


# How last states are asked for: numbers of the key's columns, and whether keys that begin are known
# to be new.  By table, its columns, and whether rows are of a load.
Asked: TypeAlias = dict[tuple[TableId, tuple[str, ...], bool], tuple[tuple[int, ...], bool]]
