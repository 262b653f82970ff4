"""Events and commands between the producer's pure state machines and the loop.

Names of events are past participles, names of commands imperatives.  Each comes once
per batch, transaction or group; a row is a `Record` tuple in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.control import Cut, Hole, Topic
from schemas.headers import Headers

# topic, partition, key, value, headers; no key: a TRUNCATE among Avro keys; no value: a tombstone
Record: TypeAlias = tuple[str, int, bytes | None, bytes | None, Headers]
Place: TypeAlias = tuple[str, int]  # topic, partition
Acknowledgement: TypeAlias = tuple[str, int, int]  # topic, partition, offset


# ---------------------------------------------------------------- happened
@dataclass(frozen=True, slots=True)
class RowsAssembled:
    """Rows (and DDL) of the open source transaction, in order."""

    records: list[Record]
    size: int  # bytes of keys and values


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The open source transaction committed; all its rows were assembled before."""

    seq: int
    xid: int
    csn: int
    commit_start: int
    end_lsn: int
    committed_at: int  # µs since 1970-01-01 UTC
    rows: int  # ordinals 0..rows-1
    ddl_ordinals: tuple[int, ...] = ()
    holes: tuple[Hole, ...] = ()
    user: str | None = None


@dataclass(frozen=True, slots=True)
class PositionReached:
    """The source is at `position` and no transaction of ours is open there.

    From a keepalive, or from the end of a transaction without rows of ours.
    """

    position: int
    is_urgent: bool = False  # the source waits for our confirmation: it may be shutting down


@dataclass(frozen=True, slots=True)
class InputDrained:
    """Nothing more can be read at this moment."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker stored these records; per partition in the order they were sent."""

    records: list[Acknowledgement]


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


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Leave: close what is whole, confirm, and say Stopped."""


Happened: TypeAlias = (
    RowsAssembled
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

    records: list[Record]


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

    lsn: int


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


@dataclass(slots=True)
class Tally:
    """Records of one source transaction per partition, in order of first use."""

    counts: dict[Place, int] = field(default_factory=dict)

    def add(self, records: list[Record]) -> None:
        """Count a batch."""
        counts = self.counts
        for record in records:
            place = record[0], record[1]
            counts[place] = counts.get(place, 0) + 1
