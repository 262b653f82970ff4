"""A producer process in the simulated world: `core/turn.py` as it ships, on simulated ports.

Takeover, load, the loop, the engine, the assembler, relations, the log of cuts and
everything in `schemas` are the product's.  Ours are the session with the source, librdkafka,
topics, the encoder and the clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from producer.core import turn
from producer.core.events import Limits, TopicsChanged
from producer.core.log import cuts_log
from producer.core.loop import Progress
from producer.core.ports import RunObserver, Tuning
from producer.core.takeover.takeover import TakeoverRequest
from producer.kafka import client
from schemas.control import Identity
from schemas.tables import TableId
from tests.producer.core.streaming import Options
from tests.sim.broker import Broker
from tests.sim.delivery import SimDelivery
from tests.sim.native import Use, native_of
from tests.sim.ports import (
    PLUGIN,
    SLOT,
    TOPICS,
    AlienSource,
    SimAdmin,
    SimBehind,
    SimBlocking,
    SimClock,
    SimCodec,
    SimGaussSource,
    SimPublisher,
    SimQuarantine,
    SimReader,
    SimSource,
    SimWire,
)
from tests.sim.registry import Decoded
from tests.sim.source import Connection, Source, table_id
from tests.sim.world import Actor, World

# What the loop says that it does -> where the open group stands.
PHASES = {
    "run: rows sent": "sending",
    "run: confirmed": "sending",
    "run: cut durable, not confirmed": "sending",
    "run: waiting for acknowledgements": "flushing",
    "run: part of a giant committed": "parting",
    "run: cut written, not committed": "cutting",
}


@dataclass(frozen=True)
class Plan:
    """How one producer instance is configured."""

    exactly_once: bool = True
    accept_gap: bool = False
    accept_switch: bool = False
    is_alien: bool = False  # a run configured for another source, under our prefix
    use: Use = Use.NOTHING
    limits: Limits = field(default_factory=Limits)
    tuning: Tuning = field(default_factory=Tuning)
    load_rate: int = 0


@dataclass
class Process:
    """What the world may know of a running producer."""

    actor: Actor
    plan: Plan
    connection: Connection | None = None
    delivery: SimDelivery | None = None
    opened: SimSource | None = None
    progress: Progress = field(default_factory=Progress)
    stop_asked: bool = False
    ended: str = ""  # how it ended: crash, stop, or the name of an error
    error: BaseException | None = None

    @property
    def has_streamed(self) -> bool:
        """Say whether start and load are behind it."""
        return self.progress.has_streamed


@dataclass(frozen=True)
class Around:
    """The world as one producer sees it."""

    world: World
    source: Source
    broker: Broker
    decoded: Decoded
    on_confirm: Callable[[str, int], None]  # a status message with a position was sent


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
            if process.opened is not None:
                process.opened.leave()
            on_end(process)

    process = Process(Actor(name, body), plan)
    return process


def _run_once(around: Around, process: Process) -> None:
    """Build a turn, as the pipeline does, and run it."""
    world, source, broker = around.world, around.source, around.broker
    actor, plan = process.actor, process.plan
    actor.park("begins")
    changed: list[TopicsChanged] = []
    publisher = SimPublisher(broker, changed.append)
    process.connection = source.connect(actor.name)
    process.delivery = delivery = SimDelivery(
        actor,
        broker,
        client.transactional_id(TOPICS.prefix),
        is_exact=plan.exactly_once,
        decoded=around.decoded,
    )
    wire = SimWire(actor, process.connection, delivery, around.on_confirm)
    captured = set(source.captured)  # as the configuration says now

    def wants(table: TableId) -> bool:
        return table.name in captured

    process.opened = opened = _open(
        plan, source, actor, process.connection, wire, publisher.prepare_tables, wants
    )
    said: set[str] = set()

    def on_note(line: str) -> None:
        if line.startswith("waiting:") and line in said:
            world.fail("said", f"{actor.name} says it again: {line}")
        said.add(line)

    codec, clock, blocking = SimCodec(around.decoded), SimClock(world), SimBlocking(actor)

    def on_step(step: str) -> None:
        wire.phase = PHASES.get(step, wire.phase)

    log = cuts_log.CutsLog(
        names=TOPICS,
        accept_gap=plan.accept_gap,
        reader=SimReader(actor, broker, TOPICS.cuts),
        codec=codec,
        delivery=delivery,
        topics=SimAdmin(broker),
        clock=clock,
        note=world.note,
        blocking=blocking,
    )

    def listed() -> list[TableId]:
        return [table_id(name) for name in source.tables if name in captured & source.published]

    publisher.prepare_tables(listed())
    request = TakeoverRequest(
        identity=Identity(
            "sys-2" if plan.is_alien else source.system_id, source.timeline, "bank", SLOT, PLUGIN
        ),
        fingerprint="content",
        cluster_id=broker.cluster_id,
        instance=f"{actor.name}.{world.seed}",
        ddl_topic=TOPICS.ddl,
        accept_gap=plan.accept_gap,
        accept_switch=plan.accept_switch,
        resumes=opened.rereads,
        newest_epoch=round(world.now),
    )
    options: Any = Options(
        plan.limits, plan.tuning, accept_gap=plan.accept_gap, load_rate=plan.load_rate
    )
    turn.Turn(
        options=options,
        source=opened,
        log=log,
        ddl=SimReader(actor, broker, TOPICS.ddl),
        codec=codec,
        delivery=delivery,
        publisher=publisher,
        quarantine=SimQuarantine(actor, broker),
        blocking=blocking,
        behind=SimBehind(is_busy=world.seed % 6 == 5),
        clock=clock,
        observer=RunObserver(
            on_step=on_step,
            on_load=lambda _t, _d, _e: None,
            on_note=on_note,
            stop_asked=lambda seconds: _pause(actor, process, seconds),
        ),
        wants=wants,
        advice=str,
        changed=changed,
        captured=listed,
        native=native_of(plan.use, world.rng),
    ).run(request, process.progress)


def _open(plan: Plan, source: Source, *around: Any) -> SimSource:
    if plan.is_alien:
        return AlienSource(*around)
    if source.decoding is None:
        return SimSource(*around)
    return SimGaussSource(*around, native="off" if plan.use is Use.NOTHING else "auto")


def _pause(actor: Actor, process: Process, seconds: float) -> bool:
    if seconds:
        actor.park("waits at its start", weight=0.7)
    return process.stop_asked
