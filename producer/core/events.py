"""Events and commands between the producer's pure state machines and the loop.

Names of events are past participles, names of commands imperatives.  Each comes once
per batch, transaction or group; a row is a `Record` tuple in a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from schemas.control import Cut, Hole, Topic
from schemas.headers import Headers
from schemas.positions import Lsn

# topic, partition, key, value, headers; no key: a TRUNCATE among Avro keys; no value: a tombstone
Record: TypeAlias = tuple[str, int, bytes | None, bytes | None, Headers]
Place: TypeAlias = tuple[str, int]  # topic, partition
Acknowledgement: TypeAlias = tuple[str, int, int, int]  # topic, partition, offsets start..end-1


# ---------------------------------------------------------------- happened
@dataclass(frozen=True, slots=True)
class RowsAssembled:
    """Rows (and DDL) of the open source transaction, in order."""

    records: Records
    size: int  # bytes of keys and values


class Fate(NamedTuple):
    """What a transaction means for the load of a table, in its order.

    `now` is `table`: rows or values were not sent; another name: renamed; None: dropped.
    """

    table: str  # schema.table
    now: str | None
    is_of_rows: bool = False  # they went into `now`, not the table


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The open source transaction committed; all its rows were assembled before."""

    seq: int
    xid: int
    csn: int
    commit_start: Lsn
    end_lsn: Lsn
    committed_at: int  # µs since 1970-01-01 UTC
    rows: int  # ordinals 0..rows-1
    ddl_ordinals: tuple[int, ...] = ()
    holes: tuple[Hole, ...] = ()
    user: str | None = None
    fates: tuple[Fate, ...] = ()


class Records(Protocol):
    """A sequence of records: a list, or what a native walker finished."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __getitem__(self, at: int, /) -> Record: ...


class Batch(Records, Protocol):
    """Finished records of the native walker, in order, of one or more source transactions.

    A batch in which a transaction ends holds nothing behind the last COMMIT.  The first
    transaction may have older records than these, the last one (without a COMMIT) younger ones.
    """

    @property
    def size(self) -> int:
        """Bytes of keys and values."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its records."""

    def sizes(self) -> dict[str, int]:
        """Bytes of values by topic."""

    def transactions(self) -> list[tuple[dict[Place, int], TransactionEnded | None]]:
        """Per transaction: its records here, in order of first use, and its end (not: None)."""


@dataclass(frozen=True, slots=True)
class Walked:
    """The native walker finished the rows of many messages at once."""

    records: Batch
    commits: int  # transactions that end in it
    rows: int  # of these transactions
    end_lsn: Lsn  # of the last one; 0: none ends
    committed_at: int  # of the last one, µs since 1970-01-01 UTC

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return self.records.size


def sizes_of(rows: RowsAssembled | Walked) -> dict[str, int]:
    """Bytes of values by topic."""
    if isinstance(rows, Walked):
        return rows.records.sizes()
    found: dict[str, int] = {}
    for topic, _, _, value, _ in rows.records:
        found[topic] = found.get(topic, 0) + len(value or b"")
    return found


@dataclass(frozen=True, slots=True)
class PositionReached:
    """The source is at `position` and no transaction of ours is open there.

    From a keepalive, or from the end of a transaction without rows of ours.
    """

    position: Lsn
    is_urgent: bool = False  # the source waits for our confirmation: it may be shutting down


@dataclass(frozen=True, slots=True)
class InputDrained:
    """Nothing more can be read at this moment."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker stored these records; per partition in the order they were sent."""

    runs: list[Acknowledgement]


@dataclass(frozen=True, slots=True)
class PartDurable:
    """The rows of a giant transaction so far are committed, without a cut."""


@dataclass(frozen=True, slots=True)
class CutsDurable:
    """The records of the last WriteCuts are committed, at these offsets."""

    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics that ranges may name from now on."""

    topics: Mapping[str, Topic]


@dataclass(frozen=True, slots=True)
class SchemaUsed:
    """Values of `topic` are written with this registry id from now on."""

    topic: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed: monotonic seconds, and the wall clock in µs since 1970."""

    now: float
    wall_us: int
    told_end: int = 0  # where the source's log ends, as it said last; 0: it does not


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Leave: close what is whole, confirm, and say Stopped."""


Happened: TypeAlias = (
    RowsAssembled
    | Walked
    | TransactionEnded
    | PositionReached
    | InputDrained
    | Acknowledged
    | PartDurable
    | CutsDurable
    | TopicsChanged
    | SchemaUsed
    | Ticked
    | StopAsked
)


# ---------------------------------------------------------------- commands
@dataclass(frozen=True, slots=True)
class SendRows:
    """Send now, inside the open Kafka transaction (begin one if there is none)."""

    records: Records


@dataclass(frozen=True, slots=True)
class Flush:
    """Send nothing more until every record sent is acknowledged."""


@dataclass(frozen=True, slots=True)
class CommitPart:
    """Commit the rows of a giant transaction without a cut; answer PartDurable."""


@dataclass(frozen=True, slots=True)
class WriteCuts:
    """Write these records into cuts, in the same Kafka transaction, and commit it."""

    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Allow the source to forget everything before `lsn`."""

    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing is open any more: abort what is incomplete, and leave."""

    abort: bool


Command: TypeAlias = SendRows | Flush | CommitPart | WriteCuts | Confirm | Stopped


@dataclass(frozen=True, slots=True)
class Limits:
    """When a group of source transactions closes."""

    group_rows: int = 20_000
    group_seconds: float = 0.1
    group_commits: int = 2_000  # a commit entry is about 60 bytes: far below 256 KiB
    cut_bytes: int = 200_000
    transaction_timeout: float = 300.0  # kafka.transaction-timeout; a third of it makes a giant
    heartbeat_seconds: float = 5.0
    state_seconds: float = 3600.0
    state_records: int = 10_000
