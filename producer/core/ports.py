"""The ports of the producer's loop: source, Kafka, clocks, observer.

`producer/pipeline.py` implements them with sockets, librdkafka and clocks; the simulation with
parts that move one step at a time.  The code between the ports is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from producer.core.catalog.look import Before, Look, Unchanged
from producer.core.changes import Cells, Message
from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    CutsDurable,
    Limits,
    PartDurable,
    Records,
)
from producer.core.key_ranges import Key, NamedKeys, RangeRead
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.router import Binding
from producer.core.takeover import takeover
from producer.core.takeover.takeover import MadeSlot
from producer.errors import CdcError
from producer.wire.replication import Received, WalMessage
from schemas.control import Cut, Looked, SchemaChange, Topic
from schemas.positions import Lsn
from schemas.tables import Column, TableId, TableSchema
from schemas.topics import Topics

P = ParamSpec("P")
T = TypeVar("T")


class ShutdownRequested(Exception):
    """A stop was asked for while a start or a load was under way, or Kafka is slow to end."""


@dataclass(frozen=True, slots=True)
class RunObserver:
    """How a run is observed: step names, load progress, notes, and the wish to leave."""

    on_step: Callable[[str], None]
    on_load: Callable[[TableId, int, int], None]  # table, rows so far, rows expected
    on_note: Callable[[str], None]  # a state change, for people
    stop_asked: Callable[[float], bool]  # waits up to so many seconds; True = leave
    on_retry: Callable[[str], None] | None = None  # an error that passes; None: as a note
    on_warning: Callable[[str], None] | None = None  # a note for an operator; None: as a note
    # Bytes of values that were read, by topic. None: nobody counts.
    on_bytes: Callable[[Mapping[str, int]], None] | None = None
    # Records of cuts that are durable, and when the newest commits among them were made, one of
    # each read: µs since 1970. None: nobody counts.
    on_durable: Callable[[Sequence[Cut], Sequence[int]], None] | None = None

    def retrying(self, error: object, seconds: float) -> None:
        """Say which error it is, and when the next attempt begins."""
        (self.on_retry or self.on_note)(f"{error}; retrying in {seconds:.1f} s")

    def warn(self, line: str) -> None:
        """Say what stays as it is until somebody acts."""
        (self.on_warning or self.on_note)(line)


class Clock(Protocol):
    """Two clocks."""

    def now(self) -> float:
        """Seconds that never go back, from any beginning."""

    def wall_us(self) -> int:
        """µs since 1970."""


class Blocking(Protocol):
    """Makes calls that may take long, and keeps the source's session alive meanwhile."""

    beat: Callable[[], None]  # called again and again until the call returns

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `call` returns, or raise what it, or `beat`, raises."""


class Behind(Protocol):
    """Makes calls one after the other, in order, while the caller goes on."""

    def __call__(self, call: Callable[[], object]) -> None:
        """Begin a call when the one before has ended; raise what that one raised."""

    def wait(self) -> None:
        """Wait for the call under way; raise what it raises."""

    @property
    def is_busy(self) -> bool:
        """Is a call under way?  The next one would wait for it."""


# ---------------------------------------------------------------- the source
class Wire(Protocol):
    """The session that streams."""

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Read what has arrived, or wait; see `sources/postgres/connection.py`.

        Input on one of `wake_fds` ends the wait, too.

        `timeout`: seconds.
        """

    def has_input(self) -> bool:
        """Say whether more can be read at this moment."""

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        """Confirm everything before `flush`; 0 only keeps the session alive."""

    @property
    def received_end(self) -> Lsn:
        """The greatest position the source has mentioned; 0 before."""


class Reading(Protocol):
    """The source under one snapshot: what a first load reads."""

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        """Shapes as the stream will describe them."""

    def estimated_rows(self, table: TableId) -> int:
        """A guess for a progress bar; 0 = unknown."""

    def copy_rows(
        self,
        table: TableId,
        columns: Sequence[Column],
        hand_on: Callable[[Sequence[Cells]], None],
    ) -> None:
        """Send all rows to `hand_on`, some at a time."""


class Point(Protocol):
    """A place between two commits, and the source as it was there."""

    @property
    def at(self) -> Lsn:
        """Its position: the snapshot shows all commits that begin before it, and no other."""

    @property
    def reading(self) -> Reading:
        """The snapshot."""

    @property
    def looked(self) -> Before | None:
        """The table's row of the catalog as the snapshot shows it; None: it is not compared."""

    def close(self) -> None:
        """Let go of the snapshot."""


class KeyRanges(Protocol):
    """Reads ranges of one table's key, each under a snapshot of its own, beside the stream."""

    @property
    def estimated_rows(self) -> int:
        """A guess for a progress bar; 0 = unknown."""

    @property
    def fileno(self) -> int:
        """A file that is readable when an answer has come."""

    def ask(self, after: Key | NamedKeys | None) -> None:
        """Begin to read the range behind a key, () from the first one on; None: the shape alone.

        `NamedKeys`: the rows of some keys, as many as a range may have.

        The table is protected from DDL before the snapshot is taken.  One answer is outstanding.
        """

    def take(self) -> RangeRead | CdcError | None:
        """Return the answer; None: it has not come."""

    def close(self) -> None:
        """Let go of the source; what is being read is given up."""


class Wish(NamedTuple):
    """A table that somebody asks to be read again, and for whom."""

    table: TableId
    target: str = ""  # "": for all targets


class Source(takeover.Source, Protocol):
    """A source as takeover, load and loop use it."""

    tables: list[TableId]  # of the load, once the slot was made

    @property
    def wire(self) -> Wire:
        """The session that streams."""

    @property
    def keepalives_move(self) -> bool:
        """Say whether a keepalive's position may be confirmed when nothing is outstanding."""

    @property
    def new_tables_are_complete(self) -> bool:
        """Say whether a table that appears has no rows older than its first change."""

    @property
    def told_end(self) -> Lsn:
        """Where the log ends, as the stream said last; 0: it does not.

        For what lags only: what is before it may still be to come.
        """

    @property
    def positions_are_csns(self) -> bool:
        """Say whether a place between two commits has a CSN: its position."""

    @property
    def ids_are_oids(self) -> bool:
        """Say whether the stream's relation ids are the tables' oids."""

    @property
    def reports_ddl(self) -> bool:
        """Say whether every statement that changes a table is described."""

    @property
    def keeps_confirmed(self) -> bool:
        """Say whether the slot stands exactly where a reader confirmed it."""

    @property
    def filters_as_then(self) -> bool:
        """Say whether what is sent again is chosen by the catalog as it was at its commit."""

    @property
    def rereads(self) -> bool:
        """Say whether a table can be read again while the stream goes on."""

    def reading(self, made: MadeSlot) -> AbstractContextManager[Reading]:
        """Open a session under the slot's own snapshot."""

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        """Make a place at the present end of the log, to read a table there; None: it is gone.

        `if_gone` makes one also then: its reading has no shape of the table.
        It lies behind all that the stream has sent.  Raises CdcError: not now.
        """

    @property
    def reads_ranges(self) -> bool:
        """Say whether `ranges` may open anything."""

    def ranges(
        self, table: TableId, *, of_any_size: bool = False
    ) -> tuple[TableSchema, KeyRanges] | None:
        """Open what reads a table in ranges of its key; None: it is read at a point.

        A small one is, unless `of_any_size`.  Raises CdcError: not now.
        """

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again: in force from here on."""

    def forget(self, table: TableId) -> None:
        """Take it that a table is gone: another of its name may come."""

    def publish(self, table: TableId) -> str:
        """Have a new table's changes sent from now on; return what somebody else must do, or "".

        Raises CdcError: not now.
        """

    def requests(self) -> Mapping[Wish, int]:
        """Return what somebody asks to be read again, with the newest request's number.

        A request stays until it is answered: it outlives every restart.
        """

    def named(self, wish: Wish) -> tuple[int, Sequence[Key]]:
        """Return the number and the keys of the oldest request; no keys: it is for all rows.

        So is each request for a table that somebody asks for whole.
        """

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        """Forget requests up to a number; a load for all targets answers those for one, too.

        `alone`: the one of this number, and no other.
        """

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Decode; (position of the row, message) in the order of commits.

        `one_by_one`: without stretches, so that the caller may stop before any transaction.

        A source that buffers transactions returns many messages for one; take slices.  The
        assembler takes each message before the next is decoded: both use the tables in force,
        which a statement changes here and a row of another shape changes there.
        """

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        """Prepare the stream: the tables in force at `resume`, the newest CSN delivered.

        `loads`: the epoch began with a load.

        `known` is one state, shared with `Relations`: both record changes in it.  `hidden`
        tables are not delivered yet; one whose creation the stream reports is taken out of them.
        """

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""

    def look(
        self, known: Mapping[TableId, TableSchema], *, unless: str, before: Before | None
    ) -> Look | Unchanged | None:
        """Read the catalog, to compare it with what the stream has described.

        None: not now, or not here.  `unless`: the signature of a look that need not be repeated.
        `before`: the look before, with which tables are compared, too.
        """

    def recalls(self, looked: Looked | None) -> Lsn:
        """Return the position from which on cuts of earlier runs are to be noted; 0: of none.

        `looked`: what the newest look of an earlier run showed.
        """

    def delivered(self, cuts: Sequence[Cut]) -> None:
        """Take note of records of cuts that are durable."""

    def type_name(self, type_oid: int, modifier: int) -> str:
        """Name a type as format_type() does."""

    def table_name(self, oid: int) -> TableId | None:
        """Return the present name of the table with this oid; None if it is gone."""

    def root_of(self, oid: int) -> int:
        """Return the oid of a partition's root, as it is by now; 0: it has none."""

    def keep_alive(self, *, force: bool = False) -> None:
        """Send a status message that confirms nothing, to keep the session alive."""


# ---------------------------------------------------------------- Kafka
Answer: TypeAlias = Acknowledged | PartDurable | CutsDurable | CdcError


class Delivery(Protocol):
    """The one writer of a prefix; see `kafka/delivery.py`."""

    @property
    def is_busy(self) -> bool:
        """Say whether a call of flush, commit_part or write_cuts is under way: send nothing."""

    @property
    def progress(self) -> int:
        """A number that changes while acknowledgements come in."""

    def wait(self, seconds: float) -> None:
        """Wait for an answer."""

    def filenos(self) -> tuple[int, ...]:
        """Files of which one is readable when `poll` or `answers` may have something."""

    def init_transactions(self, timeout: float) -> None:
        """Fence older selves; their open transactions are decided when this returns.

        `timeout`: seconds.
        """

    def send(self, records: Records, start: int = 0) -> int:
        """Hand over records from `start` on; return how far there was room for them."""

    def poll(self) -> list[Acknowledgement]:
        """Take what was acknowledged since the last call; nothing while a call is under way."""

    def answers(self) -> Sequence[Answer]:
        """Take what calls that are done have answered; errors are values here."""

    def flush(self) -> None:
        """Ask for all acknowledgements: Acknowledged."""

    def commit_part(self) -> None:
        """Ask for a commit without a cut: PartDurable."""

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask for (key, value)s in cuts and for the commit: CutsDurable."""

    def write_now(
        self,
        batches: Sequence[Records],
        cuts: Callable[[list[Acknowledgement]], Sequence[tuple[bytes, bytes]]],
        *,
        atomic: bool = False,
    ) -> tuple[list[Acknowledgement], tuple[int, ...]]:
        """Write records and cuts about them, in one transaction; blocks: for start and load.

        Returns the records' acknowledgements and the offsets of the cuts.

        `atomic`: the records, too, where rows are written outside of transactions.
        """

    def abort(self, timeout: float) -> None:
        """Abort the open Kafka transaction, if any, on leaving.  `timeout`: seconds."""


class Stored(NamedTuple):
    """A record as it is stored in a topic, by any writer."""

    offset: int
    key: bytes | None
    value: bytes | None


class Reader(Protocol):
    """A topic of one partition, read committed."""

    @property
    def topic(self) -> str:
        """Its name."""

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark, asked now."""

    def lso(self) -> int:
        """End of what read_committed readers see, asked now."""

    def read(self, low: int, high: int) -> Sequence[Stored]:
        """Committed records with low <= offset < high; `high` is at most the LSO."""


class TopicCatalog(Protocol):
    """Topics as the broker has them."""

    def list_below(self, prefix: str) -> list[str]:
        """Names of the topics of a prefix."""

    def existing(self, names: Collection[str]) -> Mapping[str, Topic]:
        """Those that exist."""

    def high_watermarks(self, topics: Mapping[str, Topic]) -> Mapping[str, Mapping[int, int]]:
        """High watermarks by partition."""


class Codec(Protocol):
    """Control records as bytes, by the registry's schemas."""

    @property
    def unknown(self) -> int | None:
        """A schema id that the registry did not know; None: it knew all."""

    def encode_cut(self, cut: Cut) -> bytes:
        """Write a record of cuts."""

    def read_cut(self, value: bytes) -> Cut:
        """Read a record of cuts; raise ValueError for other bytes."""

    def read_change(self, value: bytes) -> SchemaChange:
        """Read a record of ddl; raise ValueError for other bytes."""

    def repair(self, prefix: str) -> list[str]:
        """Undo what an older run left incomplete; return the subjects."""


class Publisher(Protocol):
    """Makes bindings: topic made, schema registered, encoder compiled."""

    def topic(self, table: TableId) -> str:
        """Return a table's topic, made if it is not there: a cut may name it from now on."""

    def publish(self, table: TableSchema) -> Binding:
        """Bind one table version, before its first row."""

    def register_ahead(self, tables: Sequence[TableSchema]) -> None:
        """Begin to register the schemas of many tables, which are published sooner or later."""

    def checked(self) -> None:
        """Wait until the topics that were there are known to keep all of our records."""

    def encode_change(self, change: SchemaChange) -> bytes:
        """Write a record of ddl."""

    def messages(self) -> MessageWriter | None:
        """Bind the topic of logical messages, where they are asked for.  None: they are not."""

    def transactions(self) -> TransactionWriter | None:
        """Bind the topic of BEGIN and END, where it is asked for.  None: it is not."""


class Quarantine(Protocol):
    """What could not be decoded or delivered, kept."""

    def put(self, payload: bytes, *, lsn: Lsn, why: str, table: str = "", **more: object) -> None:
        """Write one record, durable."""


# ---------------------------------------------------------------- options
@dataclass(frozen=True, slots=True)
class Tuning:
    """How much is done at once."""

    buffer_bytes: int = 12 << 20  # of values held while a group is being finished; a row
    # costs 5 times that
    slice_messages: int = 2_000  # between two looks at Kafka
    slice_seconds: float = 0.2
    chunk_rows: int = 16_000  # of a first load; apply stages more than 20,000 by executors
    chunk_bytes: int = 16 << 20  # of values; so much waits in memory, and as much is being written
    range_rows: int = 8_000  # of a load that the stream does not wait for
    range_bytes: int = 8 << 20  # of these, about
    beside_bytes: int = 8 << 20  # a smaller table is read at a point, which takes a moment
    load_steps: int = 150  # records of TABLE in one Kafka transaction: of 50 small tables
    look_share: int = 50  # a slow look at the catalog is taken less often: 2 % of the time
    rest_seconds: float = 10.0  # of a table that was read to mend a gap, until the next one is
    mark_seconds: float = 600.0  # until a window whose marks do not show is given up; then twice


class RunOptions(Protocol):
    """The settings of `producer.options.Options` that the loop reads."""

    @property
    def prefix(self) -> str:
        """The source's name in Kafka: its topics and `transactional.id` contain it."""

    @property
    def topics(self) -> Topics:
        """Names of the prefix's topics; no topic need exist."""

    @property
    def publication(self) -> str:
        """The publication that is read; "": the source has none."""

    @property
    def limits(self) -> Limits:
        """When a group of commits closes, and when HEARTBEAT and STATE are due."""

    @property
    def tuning(self) -> Tuning:
        """How much is read, held and written at once: rows, bytes, seconds."""

    @property
    def loads_beside(self) -> bool:
        """A first load reads tables beside the stream, not all under the slot's snapshot."""

    @property
    def load_rate(self) -> int:
        """Rows a second of a load beside the stream, at most; 0: no limit."""

    @property
    def max_row_bytes(self) -> int:
        """Bytes of a record's value, at most; a larger row is decided by `unfit_row`."""

    @property
    def unknown_message(self) -> Literal["stop", "quarantine"]:
        """At an undecodable message, kept in any case: raise DecodeError, or note a gap."""

    @property
    def unfit_row(self) -> Literal["stop", "quarantine"]:
        """A row that no record can hold: raise, or put it aside and note a gap."""

    @property
    def incompatible(self) -> Literal["stop", "new-version", "quarantine"]:
        """A schema that the registry refuses: raise, register it anyway, or note a gap."""

    @property
    def repair(self) -> Literal["auto", "ask", "off"]:
        """Tables with gaps: read them again, when asked to (`ask`), or mark them only (`off`)."""

    @property
    def look_seconds(self) -> float:
        """Seconds between two looks at the catalog, at least; see `Tuning.look_share`."""

    @property
    def status_seconds(self) -> float:
        """Seconds between two status messages to the source, at most."""

    @property
    def kafka_silence_seconds(self) -> float:
        """Seconds without an answer of Kafka before BrokerDown, which frees the source."""

    @property
    def accept_gap(self) -> bool:
        """A loaded row that no record can hold is put aside, whatever `unfit_row` says."""
