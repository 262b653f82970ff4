"""An applier process in the simulated world: `run`, the readers and the sink's rules as they ship.

Ours are librdkafka (`reading.py`), the database (`target.py`), the clock, tasks of Spark
(`tasks.py`), and the thread that reads ahead: an actor of its own, so that a reading and a step
take turns in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from producer.core.log.ddl_log import known_tables
from spark_consumers.errors import ApplyError
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.loop.ahead import ALONE, InTurn, Promise, Several
from spark_consumers.loop.job import Observer, PassOptions
from spark_consumers.loop.run import Polling, run
from spark_consumers.spark.lanes import Lanes
from tests.sim.broker import Broker
from tests.sim.lake import LakeSimSink
from tests.sim.ports import CUTS, TOPICS, SimCodec, SimReader
from tests.sim.reading import clients
from tests.sim.registry import Decoded, schema_of
from tests.sim.target import SimSink, Target
from tests.sim.tasks import SimTasks
from tests.sim.world import Actor, Whoever, World

T = TypeVar("T")
STUCK = 4.0  # seconds of the world until another producer's open transaction is read past
DOUBT = 60.0  # seconds until a record that does not follow is a gap


class Reported(Observer):
    """What the run reported."""

    def __init__(self) -> None:
        self.retries: list[str] = []
        self.left_out: list[str] = []

    def on_retry(self, error: ApplyError, seconds: float) -> None:
        self.retries.append(str(error))

    def on_left_out(self, error: ApplyError) -> None:
        self.left_out.append(str(error))


class Reading(Generic[T]):
    """A call that an actor of its own makes, while the one that began it goes on."""

    def __init__(self, world: World, begun_by: Actor, call: Callable[[], T]) -> None:
        self._begun_by = begun_by
        self._results: list[T] = []
        self._error: BaseException | None = None
        self.actor = Actor(f"{begun_by.name}'s reader", self._body)
        self._call = call
        world.actors.append(self.actor)

    def _body(self, _: Actor) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:  # noqa: BLE001  raised where the result is asked for
            self._error = error

    def result(self) -> T:
        self._wait("waits for a reading")
        if self._error is not None:
            raise self._error
        return self._results[0]

    def abandon(self) -> None:
        self._wait("waits for the end of a reading")

    def _wait(self, label: str) -> None:
        if not self.actor.is_over:
            self._begun_by.park(label, until=lambda: self.actor.is_over)


@dataclass
class ApplierProcess:
    """What the world may know of a running applier."""

    actor: Actor
    target: Target
    reading: Reading[Any] | None = None  # the newest
    sink: SimSink | LakeSimSink | None = None
    ended: str = ""
    error: BaseException | None = None
    reported: Reported = field(default_factory=Reported)

    def freeze(self, until: float) -> None:
        """No thread of the process goes on before then."""
        keeper = self.sink and self.sink.keeper
        for actor in (
            self.actor,
            *([self.reading.actor] if self.reading is not None else []),
            *([keeper.actor] if keeper else []),
        ):
            actor.frozen_until = until


def make_applier(
    world: World,
    broker: Broker,
    target: Target,
    *,
    name: str,
    options: PassOptions,
    ahead: bool,
    tasks: int,
    on_end: Callable[[ApplierProcess], None],
) -> ApplierProcess:
    """A process that runs `gauss-cdc apply` until it crashes or must stop.

    `tasks` of Spark read at once, where the target is no lake; 0: the driver reads.
    """

    def body(actor: Actor) -> None:
        try:
            _run(actor, process)
        except Exception as error:  # noqa: BLE001  the world judges it
            process.ended, process.error = type(error).__name__, error
        finally:
            process.ended = process.ended or "crash"
            if process.reading is not None and not process.reading.actor.is_over:
                process.reading.actor.crash()  # a thread ends with its process
            if process.sink is not None:
                process.sink.close()
            target.release(actor)
            on_end(process)

    def _run(actor: Actor, process: ApplierProcess) -> None:
        actor.park("begins")
        mine = clients(Whoever(), broker)
        process.sink = sink = target.sink(actor)
        cuts = CutReader({}, TOPICS.prefix, schema_of, doubt=DOUBT, clients=mine)
        rows = RangeReader({}, TOPICS.prefix, schema_of, stuck_after=STUCK, clients=mine)

        def stop(seconds: float = 0, /) -> bool:
            if seconds:
                actor.park("pauses", weight=0.3)
            return False

        def wait(seconds: float) -> None:
            """Something came.  The target's own changes come by other appliers."""
            seen, version = broker.lso(CUTS), sink.seen
            actor.park(
                "waits for cuts",
                until=lambda: (
                    broker.lso(CUTS) > seen
                    or target.version != version
                    or bool(sink.keeper and sink.keeper.is_lost)
                ),
            )
            sink.seen = target.version
            if broker.lso(CUTS) > seen:
                cuts.wait(seconds)

        def known(epoch: int, seq: int) -> list[str]:
            log, codec = SimReader(actor, broker, TOPICS.ddl), SimCodec(Decoded())
            return [str(table) for table in known_tables(log, codec, epoch=epoch, seq=seq)]

        by_tasks = SimTasks(world, mine, tasks) if tasks else None
        lanes = Lanes(rows, by_tasks, source=TOPICS.prefix)
        is_lake = isinstance(sink, LakeSimSink)

        def begin(call: Callable[[], T], /) -> Promise[T]:
            if not ahead:
                return InTurn(call)
            process.reading = reading = Reading(world, actor, call)
            return reading

        with closing(cuts), closing(rows):
            run(
                sink, cuts, rows if is_lake else lanes, Polling(wait),
                options=options, stop=stop, observer=process.reported, begin=begin,
                several=ALONE if is_lake else Several(lanes.together, lanes.several),
                known=known,
            )  # fmt: skip

    process = ApplierProcess(Actor(name, body), target)
    return process
