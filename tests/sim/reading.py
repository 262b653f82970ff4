"""librdkafka as readers use it, on the simulated broker: a consumer, an admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from spark_consumers.kafka.read import Clients
from tests.sim.broker import Broker, Entry, Place
from tests.sim.world import Actor, Whoever


class Message(NamedTuple):
    """A record, or the end of a partition, or an error."""

    place: Place
    at: int
    entry: Entry | None
    code: int | None = None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> Any:
        return self.entry and self.entry.key

    def value(self) -> bytes | None:
        return self.entry.value if self.entry else None

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class SimConsumer:
    """A consumer that was assigned its partitions."""

    def __init__(self, actor: Actor | Whoever, broker: Broker, settings: Mapping[str, Any]) -> None:
        self._actor, self._broker = actor, broker
        self._is_committed = settings["isolation.level"] == "read_committed"
        self._at: dict[Place, int] = {}
        self._ended: dict[Place, int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._at = {(p.topic, p.partition): p.offset for p in places}
        self._ended = {}

    def poll(self, timeout: float) -> Message | None:
        """The next record, or the end of a partition; None when the time is over."""
        for _ in range(2):
            for place in sorted(self._at):
                if (message := self._next(place)) is not None:
                    return message
            until = self._broker.world.now + timeout
            self._actor.park("waits for records", until=lambda u=until: self._broker.world.now >= u)
        return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Up to `count` messages."""
        first = self.poll(timeout)
        out = [] if first is None else [first]
        while first is not None and len(out) < count:
            found = (self._next(place) for place in sorted(self._at))
            message = next((m for m in found if m is not None), None)
            if message is None:
                break
            out.append(message)
        return out

    def close(self) -> None:
        self._at = {}

    def _next(self, place: Place) -> Message | None:
        broker, at = self._broker, self._at[place]
        if at < broker.starts[place] or at > broker.high(place):
            del self._at[place]
            return Message(place, at, None, KafkaError._AUTO_OFFSET_RESET)
        end = broker.lso(place) if self._is_committed else broker.high(place)
        for offset, entry in broker.read(place, at, end, is_committed=self._is_committed):
            self._at[place] = offset + 1
            return Message(place, offset, entry)
        self._at[place] = max(at, end)
        if self._ended.get(place) == end:
            return None
        self._ended[place] = end
        return Message(place, end, None, KafkaError._PARTITION_EOF)


class SimCluster:
    """What the cluster says of itself."""

    def __init__(self, actor: Actor | Whoever, broker: Broker) -> None:
        self._actor, self._broker = actor, broker

    def id(self) -> str:
        return self._broker.cluster_id

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        self._actor.park("asks for topics")
        return {name: self._broker.topic_ids[name] for name in names}

    def first(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self._broker.starts[place] for place in places}

    def stable(self, places: Iterable[Place]) -> dict[Place, int]:
        self._actor.park("asks for the LSO")
        return {place: self._broker.lso(place) for place in places}

    def high(self, places: Iterable[Place]) -> dict[Place, int]:
        self._actor.park("asks for the high watermark")
        return {place: self._broker.high(place) for place in places}


def clients(actor: Actor | Whoever, broker: Broker) -> Clients:
    """What a reader of this process is given."""

    def sleep(_seconds: float) -> None:
        actor.park("waits for the LSO of rows", weight=1.0)

    return Clients(
        consumer=lambda settings: SimConsumer(actor, broker, settings),
        cluster=lambda *_, **__: SimCluster(actor, broker),
        now=lambda: broker.world.now,
        sleep=sleep,
    )
