"""Tasks of Spark in the simulated world: they read one behind the other, and may fail.

Everything else is the product's: which segments are theirs (`Lanes`), what comes in parts
(`CommitParts`, `PartsInOrder`), and what is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self, TypeVar
from unittest import mock

from spark_consumers.errors import ApplyError, KafkaDown
from spark_consumers.kafka import parts, read
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.ranges import choose, ends
from spark_consumers.kafka.read import Clients
from spark_consumers.spark import lanes
from spark_consumers.spark.executors import Done, Share, _checked
from tests.sim.ports import TOPICS
from tests.sim.registry import schema_of
from tests.sim.world import Actor, Whoever, World

T = TypeVar("T")
DID: Final = Counter[str]()  # what tasks did since the tests began


class SimTasks(lanes.Tasks):
    """Jobs whose tasks are an actor's."""

    def __init__(
        self, world: World, clients: Clients, width: int, actor: Actor | Whoever | None = None
    ) -> None:
        """`actor`: by default the one that calls."""
        self._world, self._clients, self._width = world, clients, width
        self._actor = actor or Whoever()
        self._asked = 0

    def at_once(self, seconds: float = 0) -> int:
        """A job needs an open micro-batch: now and then there is none, waited for or not."""
        del seconds
        self._asked += 1
        if self._width == 1 and self._asked % 4 == 0:
            DID["no batch"] += 1
            return 0
        return self._width

    def read(
        self, shares: Sequence[Share], ids: Mapping[str, Sequence[int]], description: str
    ) -> Sequence[Done] | None:
        del ids
        self._actor.park(f"runs a job: {description}")
        if self._fails(0.1):
            DID["job failed"] += 1
            return None
        DID["part" if shares[0].is_part else "segment"] += len(shares)
        return [self._task(share) for share in shares]

    def close(self) -> None:
        """Nothing was written for tasks."""

    def _task(self, share: Share) -> Done:
        """What `executors.bring` does, by a reader of the task's own."""
        mine = self._clients
        if self._fails(0.1):
            DID["too large"] += 1
            return Done()
        if self._fails(0.1):
            DID["task failed"] += 1
            return Done(error=KafkaDown("a task cannot read"))
        fetch = choose(
            {}, TOPICS.prefix, mine.cluster({}).first,
            consumer=mine.consumer, now=mine.now, native_parts=True,
        )  # fmt: skip
        content = Content(Decoders(TOPICS, schema_of, native=True))
        try:
            fetch(sorted(share.ranges), content, is_committed=True, stable=ends(share.ranges))
            return _checked(content.all(), share)
        except ApplyError as error:
            return Done(error=error)
        finally:
            fetch.close()

    def _fails(self, probability: float) -> bool:
        return not self._world.calm and self._world.chance(probability)


class AtOnce:
    """A `ThreadPoolExecutor` without threads: only one thread of a history may run."""

    def __init__(self, *_: Any) -> None:
        """Whatever it is asked for, it has none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Call now; what it raises is raised where the result is asked for."""
        done = Future[T]()
        try:
            done.set_result(call(*args))
        except Exception as error:  # noqa: BLE001
            done.set_exception(error)
        return done


@contextmanager
def small_parts(seed: int) -> Iterator[None]:
    """Let a few rows be many: what a history's appliers hold at once, and how parts are cut."""
    sizes: dict[tuple[Any, str], int] = {
        (read, "WHOLE_BYTES"): (0, 64 << 20, 200)[seed % 3],
        (parts, "_FIRST"): (1, 2, 5)[seed // 3 % 3],
        (parts, "PART_BYTES"): (100, 1_000)[seed // 9 % 2],
        (lanes, "PART_BYTES"): (100, 1_000)[seed // 9 % 2],
        (lanes, "_PART_ROWS"): (1, 2, 5)[seed // 6 % 3],
        (lanes, "_DRIVER_ROWS"): (0, 1_000)[seed // 4 % 2],
    }
    with ExitStack() as stack:
        for (module, name), size in sizes.items():
            assert hasattr(module, name)
            stack.enter_context(mock.patch.object(module, name, size))
        stack.enter_context(mock.patch.object(lanes, "ThreadPoolExecutor", AtOnce))
        yield
