"""A producer process in the simulated world: `producer/pipeline.py` with the drivers replaced.

Real: take_over and take_slot, CutsLog, Loader and known_tables of `producer/start.py`,
Relations, Assembler, Engine, and everything in `schemas`.  Ours: the session with the
source, librdkafka, topics, and `Loop`, which mirrors `_Loop` of the pipeline: whoever
changes one looks at the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from producer import start
from producer.core.assemble import Assembler
from producer.core.assemble import World as Ports
from producer.core.engine import Engine
from producer.core.events import (
    Acknowledged,
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
    SendRows,
    StopAsked,
    Stopped,
    Ticked,
    TopicsChanged,
    WriteCuts,
)
from producer.core.records.encode import TransactionConstants
from producer.core.relations import Relations
from producer.core.takeover import Wanted, take_over, take_slot
from producer.errors import BrokerDown, CdcError, ConnectionLost
from producer.kafka.delivery import CutsCommitted, Flushed, PartCommitted
from schemas.control import Identity
from schemas.tables import TableId, TableSchema
from tests.sim.broker import Broker
from tests.sim.delivery import SimDelivery
from tests.sim.ports import (
    PLUGIN,
    SLOT,
    TOPICS,
    AlienSource,
    SimAdmin,
    SimLog,
    SimOptions,
    SimPublisher,
    SimReader,
    SimRegistry,
    SimSource,
)
from tests.sim.source import Connection, Source, table_id
from tests.sim.world import Actor, World


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
    taker: Any = (
        AlienSource() if plan.is_alien else SimSource(actor, wire, publisher.prepare_tables)
    )
    process.delivery = delivery = SimDelivery(
        actor, broker, parts.identity(actor.name), is_exact=plan.exactly_once
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
            source=taker,
            log=log,
            delivery=delivery,  # type: ignore[arg-type]
            publisher=publisher,  # type: ignore[arg-type]
            watch=watch,
            made=taken.made,
            quarantine=None,  # type: ignore[arg-type]
        )
        standing, known = loader.run(taker.tables)
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
        log=log,
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
        log: SimLog,
        standing: Any,
        taken: Any,
        known: dict[TableId, TableSchema],
        changed: list[TopicsChanged],
    ) -> None:
        world, parts = around.world, around.parts
        self._around, self._process, self._world = around, process, world
        assert process.connection is not None
        self._wire = process.connection
        self._delivery, self._log, self._changed = delivery, log, changed
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
        self._in_flight: Any = ()
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
                    self._log.judge_own(self._in_flight, offsets)
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
                self._in_flight = cuts
                delivery.write_cuts([self._log.framed(cut) for cut in cuts])
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
