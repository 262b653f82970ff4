"""A producer process in the simulated world: `producer/pipeline.py` with the drivers replaced.

Real: take_over and take_slot, CutsLog, Loader and known_tables of `producer/start.py`,
Relations, Assembler, Engine, and everything in `schemas`.  Ours: the session with the
source, librdkafka, topics, and `Loop`, which mirrors `_Loop` of the pipeline: whoever
changes one looks at the other.

A value in Kafka is the object itself (`Value`, a Cut, a SchemaChange), not its Avro:
what Avro does to them has tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from producer import start
from producer.core.assemble import Assembler, Binding, partition_of, table_key
from producer.core.assemble import World as Ports
from producer.core.encode import TransactionConstants
from producer.core.engine import Engine
from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    Command,
    CommitPart,
    Confirm,
    CutsDurable,
    Flush,
    Happened,
    InputDrained,
    Limits,
    PartDurable,
    PositionReached,
    Record,
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    WriteCuts,
)
from producer.core.relations import Relations
from producer.core.takeover import MadeSlot, Slot, Wanted, take_over, take_slot
from producer.drivers.kafka import CutsCommitted, Flushed, PartCommitted
from producer.errors import BrokerDown, CdcError, ConnectionLost, Fenced, SlotMissing
from schemas.control import Cut, Identity, SchemaChange, Topic, change_to_avro
from schemas.tables import UNCHANGED, TableId, TableSchema
from schemas.topics import Topics
from tests.sim.broker import Broker, FencedOff
from tests.sim.source import Connection, Source, table_id
from tests.sim.world import Actor, World

TOPICS = Topics("bank")
CUTS = (TOPICS.cuts, 0)
PARTITIONS = {"a": 2}  # of data topics; the others have one
SLOT, PLUGIN = "slot", "pgoutput"


class Value(NamedTuple):
    """A row as it lies in Kafka."""

    table: TableId
    columns: tuple[str, ...]
    op: str
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None
    epoch: int
    seq: int
    ordinal: int
    xid: int


@dataclass(frozen=True)
class Plan:
    """How one producer instance is configured."""

    exactly_once: bool = True
    accept_gap: bool = False
    is_alien: bool = False  # a run configured for another source, under our prefix
    limits: Limits = field(default_factory=Limits)


@dataclass
class Parts:
    """The rules in force; a mutation replaces one of them."""

    identity: Callable[[str], str] = lambda _: "gauss-cdc.bank"  # transactional.id of an instance
    engine: type[Engine] = Engine
    assembler: type[Assembler] = Assembler
    known_tables: Callable[..., dict[TableId, TableSchema]] = start.known_tables
    loop: type[Loop] = field(default_factory=lambda: Loop)


# ---------------------------------------------------------------- the source
class SimSource:
    """`takeover.Source` on a simulated session."""

    def __init__(self, actor: Actor, connection: Connection) -> None:
        self._actor, self._wire = actor, connection
        self._source = connection.source

    def _park(self, label: str) -> None:
        self._actor.park(label)
        if not self._wire.is_linked:
            raise ConnectionLost("the server closed the connection")

    def try_lock(self) -> bool:
        self._park("asks for the lock")
        if self._source.lock is None:
            self._source.lock = self._wire
        return self._source.lock is self._wire

    def slot(self) -> Slot | None:
        self._actor.park("looks at the slot")
        slot = self._source.slot
        return None if slot is None else Slot(PLUGIN, "bank", slot["confirmed"])

    def try_take(self) -> bool:
        self._park("START_REPLICATION")
        if self._source.slot is None:
            raise SlotMissing("the slot does not exist")
        return self._wire.start()

    def make_slot(self) -> MadeSlot | None:
        self._actor.park("looks for an old slot")
        if self._source.slot is not None:
            self._park("drops the old slot")
            if self._source.owner is not None:
                return None
            self._source.slot = None
        self._park("makes the slot")
        if self._source.slot is not None:
            return None
        snapshot = self._source.make_slot()
        return MadeSlot(self._source.snapshots[snapshot][0], snapshot)

    def keep_alive(self, *, force: bool = False) -> None:
        """Status messages before `run` carry no position."""


class AlienSource:
    """Another server, where everything is in order."""

    def try_lock(self) -> bool:
        return True

    def slot(self) -> Slot | None:
        return Slot(PLUGIN, "bank", 50)

    def try_take(self) -> bool:
        return True

    def make_slot(self) -> MadeSlot | None:
        return MadeSlot(50, "snap-0")

    def keep_alive(self, *, force: bool = False) -> None:
        """Nothing to do."""


# ---------------------------------------------------------------- Kafka
class SimReader:
    """`CutsReader`: a topic of one partition, read committed."""

    def __init__(self, actor: Actor, broker: Broker, topic: str) -> None:
        self._actor, self._broker, self._place = actor, broker, (topic, 0)

    def bounds(self) -> tuple[int, int]:
        self._actor.park("asks for the bounds of cuts")
        return self._broker.starts[self._place], self._broker.high(self._place)

    def lso(self) -> int:
        self._actor.park("asks for the LSO of cuts")
        return self._broker.lso(self._place)

    def read(self, low: int, high: int) -> list[tuple[int, Any]]:
        self._actor.park(f"reads {self._place[0]}")
        return [
            (offset, entry.value)
            for offset, entry in self._broker.read(self._place, low, high)
            if entry.value is not None
        ]


class SimAdmin:
    """Topics as they are."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def list_below(self, prefix: str) -> list[str]:
        return [name for name in self._broker.partitions if name.startswith(f"{prefix}.")]

    def describe(self, names: list[str]) -> dict[str, tuple[Topic, dict[int, int]]]:
        broker = self._broker
        return {
            name: (
                Topic(broker.topic_ids[name], broker.partitions[name]),
                {at: broker.high((name, at)) for at in range(broker.partitions[name])},
            )
            for name in names
        }


class SimLog(start.CutsLog):
    """The real log of cuts, without Avro between."""

    def framed(self, cut: Cut) -> Any:
        return b"bank", cut

    def _read(self, low: int, high: int) -> list[tuple[int, Cut]]:
        return self._reader.read(low, high)  # type: ignore[return-value]


class SimRegistry:
    """Control records stand in Kafka as they are; the real readers ask for their Avro."""

    def decode(self, value: Any) -> Any:
        return change_to_avro(value.change)


class SimDelivery:
    """`Delivery`: one transactional client, and a plain one for rows in plain mode."""

    def __init__(self, actor: Actor, world: World, broker: Broker, plan: Plan, identity: str):
        self._actor, self._world, self._broker = actor, world, broker
        self._is_exact = plan.exactly_once
        self.client = broker.connect(actor.name, identity)
        self._rows = self.client if plan.exactly_once else broker.connect(f"{actor.name}'", "")
        self._in_transaction = False
        self._answers: list[Flushed | PartCommitted | CutsCommitted | CdcError] = []
        self._is_busy = False

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def has_news(self) -> bool:
        """Say whether poll or answers would return something."""
        return bool(self._answers or self._rows.acknowledged or self._rows.failure)

    def init_transactions(self, *_: float) -> None:
        self._ask("init_transactions", lambda: self._broker.init_transactions(self.client))
        self._wait()

    def send(self, records: Sequence[Record]) -> None:
        """Hand records to the client's queue."""
        assert not self._is_busy
        if self._is_exact and not self._in_transaction:
            self._actor.park(
                "begins a transaction",
                until=lambda: not self._broker.has_markers_pending(self.client.identity),
            )
            try:
                begun = self._broker.begin(self.client)
            except FencedOff as off:
                raise _fenced(off) from None
            assert begun
            self._in_transaction = True
        for record in records:
            self._broker.send(self._rows, record, in_tx=self._is_exact)

    def poll(self) -> list[Acknowledgement]:
        self._raise_failure()
        taken, self._rows.acknowledged = self._rows.acknowledged, []
        return taken

    def answers(self) -> list[Flushed | PartCommitted | CutsCommitted | CdcError]:
        taken, self._answers = self._answers, []
        if taken:
            self._is_busy = False
        return taken

    def flush(self) -> None:
        self._ask("flush", self._flush)

    def commit_part(self) -> None:
        def commit() -> bool:
            if self._in_transaction:
                self._broker.commit(self.client)
            self._answers.append(PartCommitted())
            self._in_transaction = False
            return True

        self._ask("commits a part", commit)

    def write_cuts(self, cuts: Sequence[tuple[bytes, Any]]) -> None:
        """Three requests: records, EndTxn, and the answer; a crash may fall between any two."""
        offsets: list[int] = []

        def write() -> bool:
            if not self._broker.begin(self.client):
                return False
            self._in_transaction = True
            offsets.extend(self._broker.append(self.client, CUTS, *cut) for cut in cuts)
            self._ask(f"commits {_kinds(cuts)}", commit)
            return False

        def commit() -> bool:
            if self._is_exact and self._rows.is_flying():
                return False  # librdkafka sends what is queued before it commits
            self._broker.commit(self.client)
            self._ask(f"hears that {_kinds(cuts)} is durable", answer)
            return False

        def answer() -> bool:
            self._in_transaction = False
            self._answers.append(CutsCommitted(tuple(offsets)))
            return True

        self._ask(f"writes {_kinds(cuts)}", write)

    def write_now(
        self, records: Sequence[Record], cut: Callable[[list[Acknowledgement]], Any]
    ) -> tuple[list[Acknowledgement], int]:
        """Blocking, for start and loads."""
        self.send(records)
        self.flush()
        flushed = self._wait()
        assert isinstance(flushed, Flushed)
        self.write_cuts([cut(flushed.acknowledged)])
        committed = self._wait()
        assert isinstance(committed, CutsCommitted)
        return flushed.acknowledged, committed.offsets[0]

    def abort(self, _timeout: float) -> None:
        if not self._in_transaction or self._is_busy:
            return
        self._actor.park("aborts")
        try:
            self._broker.abort(self.client)
        except FencedOff as off:
            raise _fenced(off) from None
        self._in_transaction = False

    def die(self) -> None:
        """The process is gone; what it sent is on its way."""
        self.client.is_alive = self._rows.is_alive = False
        if self.client.request is not None and "hears" in self.client.request_label:
            self.client.request = None

    # ------------------------------------------------------------ one request at a time
    def _ask(self, label: str, request: Callable[[], bool]) -> None:
        self._is_busy = True

        def serve() -> bool:
            try:
                done = request()
            except FencedOff as off:
                self._answers.append(_fenced(off))
                return True
            if done and label == "init_transactions":
                self._answers.append(PartCommitted())  # any answer: it came back
            return done

        self.client.request, self.client.request_label = serve, label

    def _wait(self) -> Flushed | PartCommitted | CutsCommitted:
        self._actor.park("waits for Kafka", until=lambda: bool(self._answers))
        (answer,) = self.answers()
        if isinstance(answer, CdcError):
            raise answer
        return answer

    def _flush(self) -> bool:
        if self._rows.failure is not None:
            self._answers.append(_fenced(self._rows.failure))
            return True
        if self._rows.is_flying():
            return False
        self._answers.append(Flushed(self.poll()))
        return True

    def _raise_failure(self) -> None:
        if self._rows.failure is not None:
            raise _fenced(self._rows.failure)


def _fenced(off: Exception) -> Fenced:
    return Fenced("another producer of this prefix took over", by=str(off))


def _kinds(cuts: Sequence[tuple[bytes, Any]]) -> str:
    return "+".join(type(cut).__name__.upper() for _, cut in cuts)


# ---------------------------------------------------------------- tables
class SimEncoder:
    """The trivial encoder: a row is a tuple."""

    def __init__(self, table: TableSchema) -> None:
        self._table, self._columns = table, table.names()

    def encode(
        self,
        op: str,
        old_kind: str,
        old: list[Any] | None,
        new: list[Any] | None,
        tx: TransactionConstants,
        _lsn: int,
        ordinal: int,
    ) -> Value:
        if old is not None and old_kind == "K":
            named = self._table.identity_columns
            pairs = zip(self._columns, old, strict=True)
            old = [cell if name in named else UNCHANGED for name, cell in pairs]
        return Value(
            self._table.id,
            self._columns,
            op,
            None if old is None else tuple(old),
            None if new is None else tuple(new),
            tx.epoch,
            tx.seq,
            ordinal,
            tx.xid,
        )


class SimPublisher:
    """Topics, made before their first row."""

    def __init__(self, broker: Broker, on_topics: Callable[[TopicsChanged], None]) -> None:
        self._broker, self._on_topics = broker, on_topics
        self._admin = SimAdmin(broker)
        self._known = set(broker.partitions)

    def prepare_tables(self, tables: list[TableId]) -> None:
        for table in tables:
            self._broker.add_topic(TOPICS.table(table), PARTITIONS.get(table.name, 1))
        self._known = set(self._broker.partitions)

    def publish(self, table: TableSchema) -> Binding:
        topic = TOPICS.table(table.id)
        if topic not in self._known:
            self._broker.add_topic(topic, PARTITIONS.get(table.id.name, 1))
            found = self._admin.describe(self._admin.list_below("bank"))
            self._known = set(found)
            self._on_topics(TopicsChanged({name: t for name, (t, _) in found.items()}))
        partitions = self._broker.partitions[topic]
        at = table.names().index("id") if table.key else -1

        def by_key(cells: list[Any]) -> int:
            return partition_of(cells[at], partitions)

        return Binding(
            table=table,
            topic=topic,
            schema_id=100 * len(table.columns) + len(table.id.name),
            partitions=partitions,
            encoder=SimEncoder(table),  # type: ignore[arg-type]
            key=table_key(table.id),
            key_of=None,
            partition_of=by_key if partitions > 1 else None,
            partition=0,
            key_at=(at,) if partitions > 1 else (),
        )

    def encode_change(self, change: SchemaChange) -> Any:
        return _Framed(change)


class _Framed(NamedTuple):
    """A SchemaChange; has a length, as bytes have."""

    change: SchemaChange


class SimOptions(NamedTuple):
    """What Loader and CutsLog ask of Options."""

    source: Source
    prefix: str = "bank"
    topics: Topics = TOPICS
    max_row_bytes: int = 1000


# ---------------------------------------------------------------- the process
@dataclass
class Process:
    """What the world may know of a running producer."""

    actor: Actor
    plan: Plan
    connection: Connection | None = None
    delivery: SimDelivery | None = None
    engine: Engine | None = None
    stop_asked: bool = False
    ended: str = ""  # how it ended: crash, stop, or the name of an error
    error: BaseException | None = None


@dataclass(frozen=True)
class Around:
    """The world as one producer sees it."""

    world: World
    source: Source
    broker: Broker
    parts: Parts
    on_confirm: Callable[[str, int], None]  # the engine said Confirm


def make_producer(
    around: Around, *, name: str, plan: Plan, on_end: Callable[[Process], None]
) -> Process:
    """A process that runs one turn of `gauss-cdc run`."""

    def body(actor: Actor) -> None:
        try:
            _run_once(around, process)
            process.ended = "stop"
        except Exception as error:  # noqa: BLE001  the world judges it
            process.ended, process.error = type(error).__name__, error
        finally:
            process.ended = process.ended or "crash"
            if process.connection is not None:
                around.source.drop_connection(process.connection)
            if process.delivery is not None:
                process.delivery.die()
            on_end(process)

    process = Process(Actor(name, body), plan)
    return process


def _run_once(around: Around, process: Process) -> None:
    """Mirrors `_run_once` of the pipeline."""
    world, source, broker, parts = around.world, around.source, around.broker, around.parts
    actor, plan = process.actor, process.plan
    actor.park("begins")
    changed: list[TopicsChanged] = []
    publisher = SimPublisher(broker, changed.append)
    process.connection = wire = source.connect(actor.name)
    taker: Any = AlienSource() if plan.is_alien else SimSource(actor, wire)
    process.delivery = delivery = SimDelivery(
        actor, world, broker, plan, parts.identity(actor.name)
    )
    options: Any = SimOptions(source)
    registry: Any = SimRegistry()
    log = SimLog(
        options,
        reader=SimReader(actor, broker, TOPICS.cuts),  # type: ignore[arg-type]
        registry=registry,
        delivery=delivery,  # type: ignore[arg-type]
        admin=SimAdmin(broker),  # type: ignore[arg-type]
    )
    tables = [table_id(name) for name in source.tables if name != "x"]
    publisher.prepare_tables(tables)
    wanted = Wanted(
        identity=Identity(
            "sys-2" if plan.is_alien else source.system_id, source.timeline, "bank", SLOT, PLUGIN
        ),
        content="content",
        cluster_id=broker.cluster_id,
        instance=f"{actor.name}.{world.seed}",
        ddl_topic=TOPICS.ddl,
        tables=tuple(str(table) for table in tables),
        accept_gap=plan.accept_gap,
    )
    watch: Any = start.Watch(
        on_step=lambda _: None,
        on_load=lambda _t, _d, _e: None,
        on_note=lambda _: None,
        stop_asked=lambda seconds: _pause(actor, process, seconds),
    )
    taken = start.drive(take_over(taker, log, wanted), watch, taker)
    standing = taken.standing
    if taken.made is not None:
        loader = start.Loader(
            options,
            standing,
            log=log,
            delivery=delivery,  # type: ignore[arg-type]
            publisher=publisher,  # type: ignore[arg-type]
            watch=watch,
            made=taken.made,
        )
        standing, known = loader.run(tables)
        start.drive(take_slot(taker, standing.head.resume), watch, taker)
    else:
        head = standing.head
        reader: Any = SimReader(actor, broker, TOPICS.ddl)
        known = parts.known_tables(reader, registry, epoch=head.epoch, seq=head.last_seq)
    changed.clear()
    parts.loop(
        around,
        process,
        delivery=delivery,
        publisher=publisher,
        standing=standing,
        taken=taken,
        known=known,
        changed=changed,
    ).run()


def _pause(actor: Actor, process: Process, seconds: float) -> bool:
    if seconds:
        actor.park("waits at its start", weight=0.7)
    return process.stop_asked


class Loop:
    """Mirrors `_Loop` of the pipeline."""

    def __init__(
        self,
        around: Around,
        process: Process,
        *,
        delivery: SimDelivery,
        publisher: SimPublisher,
        standing: Any,
        taken: Any,
        known: dict[TableId, TableSchema],
        changed: list[TopicsChanged],
    ) -> None:
        world, parts = around.world, around.parts
        self._around, self._process, self._world = around, process, world
        assert process.connection is not None
        self._wire = process.connection
        self._delivery, self._changed = delivery, changed
        self._engine = process.engine = parts.engine(standing, process.plan.limits)
        relations = Relations(
            known,
            read_catalog=self._read_catalog,
            wanted=lambda table: table.name != "x",
            new_tables_are_complete=True,
        )
        head = standing.head
        self._assembler = parts.assembler(
            relations=relations,
            world=Ports(
                publisher.publish,
                publisher.encode_change,
                TransactionConstants,
                lambda: int(world.now * 1e6),
            ),
            epoch=head.epoch,
            seq=head.last_seq,
            resume=head.resume,
            ddl_topic=TOPICS.ddl,
            max_row_bytes=1000,
            known=taken.known,
        )
        self._confirmed = self._told = 0
        self._answered_at = self._leaving_since = world.now
        self._is_leaving = False
        self._stopped: Stopped | None = None

    def run(self) -> None:
        self._tick()
        park = self._process.actor.park
        while self._stopped is None:
            if self._engine.is_idle and not self._assembler.is_open:
                wake = self._world.now + self._world.rng.choice([0.5, 2.0, 6.0])
                park("idles", until=lambda wake=wake: self._has_news(wake))
            else:
                park(f"runs ({self._engine.phase.value})")
            self._read()
            self._hear_from_kafka()
            self._tick()
            self._leave_if_asked()
        if self._stopped.abort:
            self._delivery.abort(3.0)
        self._tell_source(force=True)

    def _has_news(self, wake: float) -> bool:
        return bool(
            self._wire.socket
            or not self._wire.is_linked
            or self._delivery.has_news()
            or self._world.now >= wake
        )

    def _read(self) -> None:
        socket = self._wire.socket
        if not socket and not self._wire.is_linked:
            raise ConnectionLost("the server closed the connection")
        messages, end, asks = [], 0, False
        for _ in range(self._world.rng.choice([1, 2, 5, 20])):
            if not socket or (socket[0][0] == "message" and end):
                break
            kind, lsn, what = socket.popleft()
            if kind == "message":
                messages.append((lsn, what))
            else:
                end, asks = lsn, asks or bool(what)
        if messages:
            for happened in self._assembler.feed(messages):
                self._step(happened)
            while self._changed:
                self._step(self._changed.pop(0))
        if end and not self._assembler.is_open:
            self._step(PositionReached(end, asks))
        if asks:
            self._tell_source(force=True)
        if not messages or not socket:
            self._step(InputDrained())

    def _read_catalog(self, table: TableId) -> TableSchema | None:
        """As it is now, which may be younger than the row."""
        found = self._around.source.tables.get(table.name)
        return None if found is None else found.schema(table.name)

    def _tell_source(self, *, force: bool = False) -> None:
        if force or self._confirmed > self._told:
            if self._wire.is_linked:
                self._wire.statuses.append(self._confirmed)
            self._told = self._confirmed

    def _hear_from_kafka(self) -> None:
        delivery = self._delivery
        if acknowledged := delivery.poll():
            self._answered_at = self._world.now
            self._step(Acknowledged(acknowledged))
        for answer in delivery.answers():
            self._answered_at = self._world.now
            match answer:
                case Flushed(acknowledged):
                    self._step(Acknowledged(acknowledged))
                case PartCommitted():
                    self._step(PartDurable())
                case CutsCommitted(offsets):
                    self._step(CutsDurable(offsets))
                case CdcError():
                    raise answer
        if delivery.is_busy and self._world.now - self._answered_at > 60.0:
            raise BrokerDown("Kafka does not answer; the source is let go meanwhile")

    def _tick(self) -> None:
        self._step(Ticked(self._world.now, int(self._world.now * 1e6)))
        self._tell_source()

    def _step(self, happened: Happened) -> None:
        for command in self._engine.step(happened):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        delivery = self._delivery
        match command:
            case SendRows(records):
                delivery.send(records)
            case Flush():
                self._answered_at = self._world.now
                delivery.flush()
            case CommitPart():
                delivery.commit_part()
            case WriteCuts(cuts):
                self._answered_at = self._world.now
                delivery.write_cuts([(b"bank", cut) for cut in cuts])
            case Confirm(lsn):
                self._confirmed = lsn
                self._around.on_confirm(self._process.actor.name, lsn)
            case Stopped():
                self._stopped = command

    def _leave_if_asked(self) -> None:
        if not self._process.stop_asked:
            return
        if not self._is_leaving:
            self._is_leaving, self._leaving_since = True, self._world.now
        if not self._assembler.is_open or self._world.now - self._leaving_since > 5:
            self._step(StopAsked())


# ---------------------------------------------------------------- what Loader imports
class SimCatalog:
    """`producer.drivers.catalog` as far as Loader needs it: a connection is a snapshot."""

    @staticmethod
    def table_schemas(connection: Mapping[str, Any], tables: list[TableId]) -> list[TableSchema]:
        return [connection[t.name].schema(t.name) for t in tables if t.name in connection]


class SimSnapshot:
    """`producer.drivers.snapshot`."""

    @staticmethod
    @contextmanager
    def imported(source: Source, name: str) -> Iterator[Mapping[str, Any]]:
        yield source.snapshots[name][1]

    @staticmethod
    def estimated_rows(_connection: Any, _table: TableId) -> int:
        return 0

    @staticmethod
    def copy_rows(
        connection: Mapping[str, Any],
        table: TableId,
        columns: Sequence[Any],
        hand_on: Callable[[list[Any]], None],
    ) -> None:
        for row in connection[table.name].rows:
            hand_on([[row[c.name].encode() if c.name in row else None for c in columns]])
