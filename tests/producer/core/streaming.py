"""A turn of `run` on ports that are lists: each read is written down, and Kafka answers at once.

    run = Run()
    run.reads(*whole(600, insert(1)))
    run.then(lambda: run.passes(5))
    run.go()
    assert run.did == [...]

What happens between two reads is said with `then`.  When all of it has happened, the run is asked
to leave.  `did` is what source, Kafka and the operator have seen, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from producer.core.catalog.look import Before, Look, Unchanged
from producer.core.changes import Begin, Commit, Insert, Message, Relation, RelationColumn
from producer.core.events import (
    Acknowledged,
    CutsDurable,
    Limits,
    PartDurable,
    Records,
    TopicsChanged,
)
from producer.core.log.cuts_log import CutsLog
from producer.core.loop import Progress
from producer.core.ports import Answer, RunObserver, Stored, Tuning, Wish
from producer.core.records.encode import compile_encoder
from producer.core.router import Binding, table_key
from producer.core.takeover.takeover import MadeSlot, Slot, TakeoverRequest
from producer.core.turn import Turn
from producer.errors import CdcError
from producer.wire.replication import Received
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Identity,
    Looked,
    Origin,
    Range,
    SchemaChange,
    Start,
    Topic,
)
from schemas.positions import NOWHERE, Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from schemas.topics import Topics

NAMES = Topics("bank")
IDENTITY = Identity("7000", 1, "bank", "slot", "pgoutput")
REQUEST = TakeoverRequest(IDENTITY, "content", "cluster", "me", NAMES.ddl, resumes=True)
A, B, C = (TableId("public", name) for name in "abc")
COLUMNS = (
    Column("id", 23, type_name="integer", nullable=False),
    Column("owner", 25, type_name="text"),
)
RESUME = 500  # of the run before
NEVER = 1 << 60


def shape(table: TableId, oid: int = 0) -> TableSchema:
    return TableSchema(table, COLUMNS, ("id",), (), ReplicaIdentity.DEFAULT, ("id",), oid=oid)


def described(table: TableId = A, relation: int = 1) -> Relation:
    columns = tuple(RelationColumn(c.name, c.type_oid, c.type_mod, c.name == "id") for c in COLUMNS)
    return Relation(relation, *table, ReplicaIdentity.DEFAULT, columns)


def begin(start: int) -> Begin:
    return Begin(Lsn(start), 1_000_000 + start, start + 1)


def commit(start: int) -> Commit:
    return Commit(Lsn(start), Lsn(start + 8), 1_000_000 + start)


def insert(number: int, relation: int = 1) -> Insert:
    return Insert(relation, [b"%d" % number, b"Alice"])


def whole(start: int, *messages: Message) -> tuple[Message, ...]:
    """A transaction."""
    return (begin(start), *messages, commit(start))


class Place:
    """A point between two commits, and the rows of its table there."""

    looked: Before | None = None

    def __init__(self, at: int, table: TableSchema | None, *rows: list[bytes]) -> None:
        self.at, self.reading, self.is_open = at, self, True
        self._table, self._rows = table, rows

    def shapes(self, _tables: list[TableId]) -> list[TableSchema]:
        return [] if self._table is None else [self._table]

    def estimated_rows(self, _table: TableId) -> int:
        return 7

    def copy_rows(self, _table: Any, _columns: Any, hand_on: Callable[[Any], None]) -> None:
        if self._rows:
            hand_on(self._rows)

    def close(self) -> None:
        self.is_open = False


class Options(NamedTuple):
    """A configuration."""

    limits: Limits = Limits(heartbeat_seconds=1000)
    tuning: Tuning = Tuning()
    prefix: str = "bank"
    topics: Topics = NAMES
    publication: str = "p"
    max_row_bytes: int = 1000
    unknown_message: str = "quarantine"
    unfit_row: str = "quarantine"
    incompatible: str = "stop"
    repair: str = "auto"
    look_seconds: float = 3.0
    status_seconds: float = 10.0
    kafka_silence_seconds: float = 20.0
    accept_gap: bool = False
    loads_beside: bool = False
    load_rate: int = 0


@dataclass
class Clock:
    """It stands still, but for what is said."""

    time: float = 1000.0

    def now(self) -> float:
        return self.time

    def wall_us(self) -> int:
        return int(self.time * 1e6)


@dataclass
class Source:
    """`Source` and `Wire`: what it sends is scripted."""

    did: list[Any]
    known: list[TableSchema]
    clock: Clock
    keepalives_move: bool = True
    new_tables_are_complete: bool = True
    ids_are_oids: bool = False
    keeps_confirmed: bool = False
    filters_as_then: bool = False
    positions_are_csns: bool = True
    told_end: int = 0
    reports_ddl: bool = False
    rereads: bool = True
    reads_ranges: bool = False
    tells_switches: bool = True
    tables: list[TableId] = field(default_factory=list)
    script: deque[Received | Callable[[], object]] = field(default_factory=deque)
    timeouts: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    durable: list[Cut] = field(default_factory=list)
    looks: deque[Look | Unchanged] = field(default_factory=deque)
    befores: list[Before | None] = field(default_factory=list)  # with what looks were compared
    places: deque[Place | CdcError | None] = field(default_factory=deque)
    asked: dict[TableId, int] = field(default_factory=dict)
    published: list[TableId] = field(default_factory=list)
    refused: dict[TableId, str | CdcError] = field(default_factory=dict)
    the_slot: Slot | None = field(default_factory=lambda: Slot("pgoutput", "bank", RESUME))
    made: MadeSlot = field(default_factory=lambda: MadeSlot(900, "snapshot"))
    received_end: Lsn = field(default_factory=lambda: Lsn(0))
    started: dict[str, Any] = field(default_factory=dict)  # how reading began

    @property
    def wire(self) -> Source:
        return self

    def receive(self, timeout: float, _fds: Sequence[int] = ()) -> Received:
        self.timeouts.append(timeout)
        if not self.script:
            self.clock.time += 1  # it is being left
            return Received()
        what = self.script.popleft()
        if isinstance(what, Received):
            return what
        what()
        return Received()

    def has_input(self) -> bool:
        return bool(self.script) and isinstance(self.script[0], Received)

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        self.did.append(("status", int(flush)))
        self.statuses.append(int(flush))

    def messages(
        self, received: Sequence[Any], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, Message]]:
        return ((int(start), message) for start, _, message in received)

    def try_lock(self) -> bool:
        return True

    def try_take(self) -> bool:
        return True

    def slot(self) -> Slot | None:
        return self.the_slot

    def make_slot(self) -> MadeSlot | None:
        self.the_slot = Slot("pgoutput", "bank", self.made.consistent_point)
        return self.made

    def captured(self, _made: MadeSlot) -> tuple[str, ...]:
        return tuple(map(str, self.tables))

    def switch_point(self, _timeline: int) -> int | None:
        return None

    @contextmanager
    def reading(self, _made: MadeSlot) -> Iterator[Any]:
        yield self.places.popleft()

    def keep_alive(self, *, force: bool = False) -> None:
        """Not noted."""

    def start_reading(self, known: Any, **how: Any) -> None:
        self.started = {"known": known, **how}

    def shape(self, table: TableId) -> TableSchema | None:
        return next((t for t in self.known if t.id == table), None)

    def type_name(self, _oid: int, _modifier: int) -> str:
        return ""

    def table_name(self, oid: int) -> TableId | None:
        return next((t.id for t in self.known if t.oid == oid), None)

    def root_of(self, _oid: int) -> int:
        return 0

    def look(self, _known: Any, *, unless: str, before: Before | None) -> Look | Unchanged | None:
        self.befores.append(before)
        self.did.append(("looked", unless))
        return self.looks.popleft() if self.looks else None

    def point(self, table: TableId, *, if_gone: bool = False) -> Place | None:
        self.did.append(("point", str(table)))
        made = self.places.popleft() if self.places else None
        if isinstance(made, CdcError):
            raise made
        return made

    def requests(self) -> Mapping[Wish, int]:
        return {Wish(table): number for table, number in self.asked.items()}

    def answer(self, wish: Wish, number: int) -> None:
        self.did.append(("answered", str(wish.table), number))
        self.asked.pop(wish.table, None)

    def recalls(self, looked: Looked | None) -> Lsn:
        del looked
        return NOWHERE

    def delivered(self, cuts: Sequence[Cut]) -> None:
        self.durable += cuts

    def adopt(self, table: TableSchema) -> None:
        self.did.append(("adopted", str(table.id)))

    def forget(self, table: TableId) -> None:
        self.did.append(("forgotten", str(table)))

    def publish(self, table: TableId) -> str:
        self.published.append(table)
        how = self.refused.get(table, "")
        if isinstance(how, CdcError):
            raise how
        return how


@dataclass
class Kafka:
    """`Delivery`, the topics and the registry, which answer at once unless they are held."""

    did: list[Any]
    topics: dict[str, Topic]
    is_held: bool = False  # it does not answer
    is_busy: bool = False
    room: int = NEVER  # records that it takes at once
    progress: int = 0  # of what is acknowledged while somebody waits
    acknowledges: bool = False  # at once, before it is asked to flush
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    cuts: list[Cut | None] = field(default_factory=list)  # None: a marker
    changes: list[SchemaChange] = field(default_factory=list)
    changed: list[TopicsChanged] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    unknown: int | None = None
    refuses: CdcError | None = None  # the registry, any schema
    on_wait: Callable[[], object] = int
    on_full: Callable[[], object] = int
    _pending: list[Any] = field(default_factory=list)
    _answers: list[Answer] = field(default_factory=list)
    _encoded: list[Cut | SchemaChange] = field(default_factory=list)

    def filenos(self) -> tuple[int, ...]:
        return (7,)

    def wait(self, _seconds: float) -> None:
        self.did.append(("waited",))
        self.on_wait()

    def init_transactions(self, _timeout: float) -> None:
        """Nobody else writes."""

    def send(self, records: Records, start: int = 0) -> int:
        end = min(len(records), start + self.room)
        for at in range(start, end):
            topic, partition, *_ = records[at]
            offset = self.ends.get((topic, partition), 0)
            self.ends[topic, partition] = offset + 1
            self._pending.append((topic, partition, offset, offset + 1))
        self.did.append(("sent", end - start))
        if end < len(records):
            self.on_full()
        return end

    def poll(self) -> list[Any]:
        return self._taken() if self.acknowledges else []

    def answer(self, what: Answer) -> None:
        self._answers.append(what)

    def answers(self) -> list[Answer]:
        if self.is_held or not self._answers:
            return []
        self.is_busy = False
        answers, self._answers = self._answers, []
        return answers

    def _taken(self) -> list[Any]:
        taken, self._pending = self._pending, []
        return taken

    def flush(self) -> None:
        self.is_busy = True
        self._answers.append(Acknowledged(self._taken()))

    def commit_part(self) -> None:
        self.did.append(("part",))
        self.is_busy = True
        self._answers.append(PartDurable())

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        self.is_busy = True
        self._answers.append(CutsDurable(self._append(cuts)))

    def _append(self, cuts: Sequence[tuple[bytes, bytes]]) -> tuple[int, ...]:
        offsets = []
        for _, value in cuts:
            cut = self.read_cut(value)
            offsets.append(len(self.cuts))
            self.cuts.append(cut)
            self.did.append(("cut", type(cut).__name__, cut.head.resume))
        self.cuts.append(None)
        return tuple(offsets)

    def write_now(
        self, batches: Sequence[Records], cuts: Callable[[Any], Any], *, atomic: bool = False
    ) -> tuple[Any, tuple[int, ...]]:
        for records in batches:
            self.send(records)
        acknowledged = self._taken()
        return acknowledged, self._append(cuts(acknowledged))

    def abort(self, _timeout: float) -> None:
        self.did.append(("aborted",))

    def list_below(self, _prefix: str) -> list[str]:
        return list(self.topics)

    def existing(self, names: list[str]) -> dict[str, Topic]:
        return {name: self.topics[name] for name in names}

    def high_watermarks(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        return {name: {0: self.ends.get((name, 0), 0)} for name in topics}

    # ------------------------------------------------------------ registry
    def _encode(self, what: Cut | SchemaChange) -> bytes:
        self._encoded.append(what)
        return b"%d" % (len(self._encoded) - 1)

    encode_cut = encode_change = _encode

    def read_cut(self, value: bytes) -> Any:
        return self._encoded[int(value)]

    read_change = read_cut

    def repair(self, _prefix: str) -> list[str]:
        return self.repairs

    def register_ahead(self, _tables: Sequence[TableSchema]) -> None:
        """Each is registered when it is published."""

    def checked(self) -> None:
        """Nobody changes a topic's settings."""

    def messages(self) -> None:
        """Nobody asked for logical messages."""

    def transactions(self) -> None:
        """Nobody asked for BEGIN and END."""

    def topic(self, table: TableId) -> str:
        topic = NAMES.table(table)
        if topic not in self.topics:
            self.topics[topic] = Topic(f"id of {table}", 1)
            self.changed.append(TopicsChanged(dict(self.topics)))
        return topic

    def publish(self, table: TableSchema) -> Binding:
        if self.refuses is not None:
            raise self.refuses
        return Binding(
            table=table, topic=self.topic(table.id), schema_id=5, partitions=1,
            key=table_key(table.id),
            encoder=compile_encoder(table, prefix="bank", schema_id=5, database="bank"),
            key_of=None, partition_of=None, partition=0,
        )  # fmt: skip

    def put(self, _payload: bytes, *, lsn: int, why: str, **_: object) -> None:
        self.did.append(("put aside", lsn, why))


@dataclass
class _Read:
    """A control topic of one partition."""

    topic: str
    kafka: Kafka

    def _stored(self) -> list[Any]:
        return self.kafka.cuts if self.topic == NAMES.cuts else list(self.kafka.changes)

    def bounds(self) -> tuple[int, int]:
        return 0, self.lso()

    def lso(self) -> int:
        return len(self._stored())

    def read(self, low: int, high: int) -> list[Stored]:
        return [
            Stored(at, b"bank", self.kafka.encode_cut(what))
            for at, what in enumerate(self._stored()[low:high], low)
            if what is not None
        ]


class Calls:
    """`Blocking` and `Behind`: a call has ended before the caller goes on."""

    is_busy = False
    are_long = False  # the caller is told that the time for a sign of life has come
    beat: Callable[[], None]

    def __call__(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        result = call(*args, **more)
        if self.are_long:
            self.beat()
        return result

    def wait(self) -> None:
        """Nothing is under way."""


class Run:
    """A turn and its world; by itself a prefix that has loaded a, and one commit of it, to 500."""

    def __init__(
        self,
        *,
        loads: Mapping[str, str] | None = None,
        known: Sequence[TableSchema] = (shape(A, 1),),
        captured: Sequence[TableId] = (A,),
        wanted: Sequence[TableId] = (A, B),
        native: Any = None,
        **options: Any,
    ) -> None:
        self.did: list[Any] = []
        self.options, self.captured, self.wanted = Options(**options), captured, wanted
        self.native, self.clock, self.progress = native, Clock(), Progress()
        self.steps: list[str] = []
        self.calls = Calls()
        self.durable: list[list[int]] | None = None  # when what became durable was committed
        self.is_to_follow = False  # another turn, behind this one
        self.waits: set[float] = set()  # for how long a wish to leave was waited for
        self.source = Source(self.did, list(known), self.clock)
        topics = {NAMES.table(t.id): Topic(f"id of {t.id}", 1) for t in known}
        topics |= {NAMES.cuts: Topic("cuts", 1), NAMES.ddl: Topic("ddl", 1)}
        self.kafka = kafka = Kafka(self.did, topics)
        self.has_left: Callable[[], bool] = lambda: not self.source.script
        for at, table in enumerate(known):
            kafka.changes.append(
                SchemaChange(
                    epoch=1, seq=0, ordinal=at, xid=0, csn=0, lsn=0, origin=Origin.SNAPSHOT,
                    tag="CREATE TABLE", before=None, after=table, topic=NAMES.table(table.id),
                )
            )  # fmt: skip
        loads = {"public.a": "END"} if loads is None else loads
        start = Start(
            Head(1, 1, 1, "earlier", 0, 400, -1),
            *(IDENTITY, "content", "cluster", dict(topics), dict(loads)),
        )
        entry = CommitEntry(1, 700, 5, RESUME - 10, RESUME, 0, 1, {0: 1})
        head = Head(2, 1, 1, "earlier", 1, RESUME, 0)
        kafka.cuts += [
            start,
            None,
            Commits(head, (entry,), (Range(NAMES.table(A), 0, 0, 1),)),
            None,
        ]
        kafka.ends[NAMES.table(A), 0] = 1

    def _on_durable(self, _cuts: Sequence[Cut], made: Sequence[int]) -> None:
        assert self.durable is not None
        self.durable.append([*made])

    # ------------------------------------------------------------ the script
    def reads(self, *messages: Message, keepalive: int = 0, urgent: bool = False) -> Run:
        """The source sends messages, the first of them at position 9000, the next at 9001."""
        pairs: list[Any] = [(Lsn(at), Lsn(at), m) for at, m in enumerate(messages, 9000)]
        self.source.script.append(Received(pairs, Lsn(keepalive), urgent))
        return self

    def then(self, do: Callable[[], object]) -> Run:
        """Do something in place of a read, which brings nothing."""
        self.source.script.append(do)
        return self

    def passes(self, seconds: float) -> Run:
        """Time passes in place of a read."""

        return self.then(lambda: self.passed(seconds))

    def passed(self, seconds: float) -> None:
        """Time passes."""
        self.clock.time += seconds

    def go(self, request: TakeoverRequest = REQUEST, *, stream: bool = True) -> Run:
        """Run the turn to its end; `did` begins with its stream."""
        calls, source, kafka = self.calls, self.source, self.kafka
        log = CutsLog(
            names=NAMES, accept_gap=False, reader=_Read(NAMES.cuts, kafka), codec=kafka,
            delivery=kafka, topics=kafka, clock=self.clock, note=self._note,  # type: ignore[arg-type]
        )  # fmt: skip
        parts: dict[str, Any] = {
            "options": self.options, "source": source, "log": log,
            "ddl": _Read(NAMES.ddl, kafka), "codec": kafka, "delivery": kafka,
            "publisher": kafka, "quarantine": kafka, "blocking": calls, "behind": calls,
            "clock": self.clock, "changed": kafka.changed, "native": self.native,
        }  # fmt: skip
        observer = RunObserver(
            on_step=self.steps.append,
            on_load=lambda table, done, of: self.did.append(("load", str(table), done, of)),
            on_note=self._note,
            stop_asked=self._stop_asked,
            on_warning=lambda line: self.did.append(("warned", line)),
            on_durable=None if self.durable is None else self._on_durable,
        )
        turn = Turn(
            **parts,
            observer=observer,
            wants=lambda table: table in self.wanted,
            advice=lambda table: f"{table} is not captured",
            captured=lambda: list(self.captured),
        )
        self.is_to_follow = turn.run(request, self.progress, stream=stream)
        return self

    def _note(self, line: str) -> None:
        if line.startswith("streaming from"):
            self.did.clear()
            self.steps.clear()
        self.did.append(("noted", line))

    def _stop_asked(self, seconds: float) -> bool:
        self.waits.add(seconds)
        return self.has_left()

    @property
    def notes(self) -> list[str]:
        return [what[1] for what in self.did if what[0] == "noted"]

    @property
    def warnings(self) -> list[str]:
        return [what[1] for what in self.did if what[0] == "warned"]

    @property
    def written(self) -> list[Cut]:
        """Records of cuts of this turn's stream and load."""
        return [cut for cut in self.kafka.cuts[5:] if cut is not None]
