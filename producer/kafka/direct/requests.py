"""The requests that a transactional producer makes, and their answers.

Format: Kafka protocol guide, "The Messages".  Each has one version that all brokers from 3.0 on
have, so that one way of asking serves all.  Where the cluster has finalized transaction.version 2
(KIP-890), Produce adds partitions by itself, and the end of a transaction gives the next epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from producer.core.events import Place
from producer.errors import DecodeError, Unsupported
from producer.kafka.direct.wire import NO_TAGS, Response, array, text, unsigned
from schemas.version import VERSION

Parts = list[bytes]  # of a body, in order; a large one is not copied


class BrokerRequest(NamedTuple):
    """A request of one version."""

    key: int
    version: int
    body: Parts


PRODUCE: Final = 0
_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
_API_VERSIONS: Final = 18
_INIT_PRODUCER_ID: Final = 22
_ADD_PARTITIONS: Final = 24
_END_TXN: Final = 26

# (key, version): what every broker must have, and what transaction.version 2 needs besides.
_NEEDED: Final = {
    PRODUCE: 9,
    _METADATA: 9,
    _FIND_COORDINATOR: 3,
    _INIT_PRODUCER_ID: 4,
    _ADD_PARTITIONS: 3,
    _END_TXN: 3,
}
_NEEDED_FOR_2: Final = {PRODUCE: 12, _END_TXN: 5}
ACKS_ALL: Final = -1
_FEATURE: Final = "transaction.version"
_UNSUPPORTED_VERSION: Final = 35


# ---------------------------------------------------------------- ApiVersions
class Versions(NamedTuple):
    """What a broker can do."""

    transaction_version: int  # 1, or 2


def api_versions() -> BrokerRequest:
    """Ask which versions a broker has."""
    body = text("gauss-cdc") + text(VERSION) + NO_TAGS
    return BrokerRequest(_API_VERSIONS, 3, [body])


def read_api_versions(answer: Response) -> Versions:
    """Read it; raises Unsupported for a broker that is too old."""
    if answer.int16() == _UNSUPPORTED_VERSION:
        raise _too_old("ApiVersions")

    def known(a: Response) -> tuple[int, int, int]:
        found = a.int16(), a.int16(), a.int16()
        a.tags()
        return found

    ranges = {key: (low, high) for key, low, high in answer.array(known)}
    answer.int32()  # throttled for so many ms

    def has(needed: Mapping[int, int]) -> bool:
        return all(
            ranges.get(key, (0, -1))[0] <= version <= ranges.get(key, (0, -1))[1]
            for key, version in needed.items()
        )

    if not has(_NEEDED):
        raise _too_old("the versions of requests")

    def feature(a: Response) -> tuple[str | None, int]:
        name, highest, _ = a.text(), a.int16(), a.int16()
        a.tags()
        return name, highest

    finalized = answer.tags().get(2)
    levels = dict(finalized.array(feature)) if finalized is not None else {}
    return Versions(2 if levels.get(_FEATURE, 0) >= 2 and has(_NEEDED_FOR_2) else 1)


def _too_old(what: str) -> Unsupported:
    return Unsupported(
        "a broker of Kafka is too old for record batches of our own",
        lacks=what,
        hint='Kafka 3.0 and newer serve; or [kafka] producer = "librdkafka"',
    )


# ---------------------------------------------------------------- Metadata
class Leaders(NamedTuple):
    """Who leads which partition."""

    brokers: dict[int, tuple[str, int]]  # id: host, port
    leaders: dict[Place, int]  # partitions that have one
    errors: dict[str, int]  # topics that have one


def metadata(topics: Iterable[str]) -> BrokerRequest:
    """Ask for the leaders of topics, which are not made by that."""
    names = array(text(name) + NO_TAGS for name in topics)
    return BrokerRequest(_METADATA, 9, [names + b"\0\0\0" + NO_TAGS])


def read_metadata(answer: Response) -> Leaders:
    """Read it."""
    answer.int32()

    def broker(a: Response) -> tuple[int, tuple[str, int]]:
        node, host, port, _ = a.int32(), a.text() or "", a.int32(), a.text()
        a.tags()
        return node, (host, port)

    def partition(a: Response) -> tuple[int, int]:
        _, number, leader, _ = a.int16(), a.int32(), a.int32(), a.int32()
        for _ in range(3):  # replicas, in sync, offline
            a.array(Response.int32)
        a.tags()
        return number, leader

    def topic(a: Response) -> tuple[int, str, list[tuple[int, int]]]:
        error, name, _ = a.int16(), a.text() or "", a.int8()
        partitions = a.array(partition)
        a.int32()
        a.tags()
        return error, name, partitions

    brokers = dict(answer.array(broker))
    answer.text(), answer.int32()
    topics = answer.array(topic)
    return Leaders(
        brokers,
        {(name, p): leader for _, name, found in topics for p, leader in found if leader >= 0},
        {name: error for error, name, _ in topics if error},
    )


# ---------------------------------------------------------------- transactions
class Producing(NamedTuple):
    """Who writes: the id of a producer, and its epoch."""

    id: int
    epoch: int


def find_coordinator(transactional_id: str) -> BrokerRequest:
    """Ask which broker decides about the transactions of an id."""
    return BrokerRequest(_FIND_COORDINATOR, 3, [text(transactional_id) + b"\1" + NO_TAGS])


def read_coordinator(answer: Response) -> tuple[int, str, int]:
    """Read it: error, host, port."""
    answer.int32()
    error, _, _ = answer.int16(), answer.text(), answer.int32()
    return error, answer.text() or "", answer.int32()


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, known: Producing | None = None
) -> BrokerRequest:
    """Ask for a producer's id and epoch: older ones are fenced.  `known`: only its next epoch."""
    numbers = struct.pack(">iqh", timeout_ms, *(known or Producing(-1, -1)))
    return BrokerRequest(_INIT_PRODUCER_ID, 4, [text(transactional_id) + numbers + NO_TAGS])


def read_producing(answer: Response) -> tuple[int, Producing]:
    """Read it: error, and who we are."""
    answer.int32()
    return answer.int16(), Producing(answer.int64(), answer.int16())


def add_partitions(
    transactional_id: str, producing: Producing, places: Sequence[Place]
) -> BrokerRequest:
    """Say that the open transaction writes to partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    topics = array(
        text(name) + array(struct.pack(">i", p) for p in partitions) + NO_TAGS
        for name, partitions in by_topic.items()
    )
    body = text(transactional_id) + struct.pack(">qh", *producing) + topics + NO_TAGS
    return BrokerRequest(_ADD_PARTITIONS, 3, [body])


def read_added(answer: Response) -> dict[Place, int]:
    """Read it: error by partition."""
    answer.int32()

    def partition(a: Response) -> tuple[int, int]:
        found = a.int32(), a.int16()
        a.tags()
        return found

    def topic(a: Response) -> tuple[str, list[tuple[int, int]]]:
        found = a.text() or "", a.array(partition)
        a.tags()
        return found

    return {(name, p): error for name, found in answer.array(topic) for p, error in found}


def end_txn(
    transactional_id: str, producing: Producing, *, commit: bool, transaction_version: int
) -> BrokerRequest:
    """Commit or abort."""
    numbers = struct.pack(">qh?", *producing, commit)
    version = _NEEDED_FOR_2[_END_TXN] if transaction_version == 2 else _NEEDED[_END_TXN]
    return BrokerRequest(_END_TXN, version, [text(transactional_id) + numbers + NO_TAGS])


def read_ended(answer: Response, transaction_version: int) -> tuple[int, Producing | None]:
    """Read it: error, and with transaction.version 2 who we are from now on."""
    answer.int32()
    error = answer.int16()
    if transaction_version < 2:
        return error, None
    return error, Producing(answer.int64(), answer.int16())


# ---------------------------------------------------------------- Produce
@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one record batch."""

    place: Place
    error: int
    offset: int  # of its first record; -1: unknown
    why: str | None


def produce(
    transactional_id: str | None,
    batches: Sequence[tuple[Place, Parts]],
    *,
    timeout_ms: int,
    transaction_version: int,
) -> BrokerRequest:
    """Store record batches, at most one of a partition."""
    by_topic: dict[str, list[tuple[int, Parts]]] = {}
    for (topic, partition), batch in batches:
        by_topic.setdefault(topic, []).append((partition, batch))
    parts: Parts = [
        text(transactional_id)
        + struct.pack(">hi", ACKS_ALL, timeout_ms)
        + unsigned(len(by_topic) + 1)
    ]
    for topic, partitions in by_topic.items():
        parts.append(text(topic) + unsigned(len(partitions) + 1))
        for partition, batch in partitions:
            size = sum(map(len, batch))
            parts += [struct.pack(">i", partition) + unsigned(size + 1), *batch, NO_TAGS]
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    version = _NEEDED_FOR_2[PRODUCE] if transaction_version == 2 else _NEEDED[PRODUCE]
    return BrokerRequest(PRODUCE, version, parts)


def read_produced(answer: Response) -> list[Appended]:
    """Read it."""

    def mistake(a: Response) -> None:
        a.int32(), a.text(), a.tags()

    def partition(a: Response) -> tuple[int, int, int, str | None]:
        number, error, offset = a.int32(), a.int16(), a.int64()
        a.int64(), a.int64()  # the time of the append, the log's start
        a.array(mistake)
        why = a.text()
        a.tags()
        return number, error, offset, why

    def topic(a: Response) -> tuple[str, list[tuple[int, int, int, str | None]]]:
        found = a.text() or "", a.array(partition)
        a.tags()
        return found

    return [
        Appended((name, number), error, offset, why)
        for name, found in answer.array(topic)
        for number, error, offset, why in found
    ]


def framed(request: BrokerRequest, correlation: int, client: str) -> Parts:
    """A request as it is sent, with its header of version 2."""
    name = client.encode()
    header = struct.pack(">hhih", request.key, request.version, correlation, len(name))
    header += name + NO_TAGS
    size = len(header) + sum(map(len, request.body))
    return [struct.pack(">i", size) + header, *request.body]


def body_of(request: BrokerRequest, correlation: int, frame: bytes) -> Response:
    """Body of an answer; ApiVersions' header has no tags."""
    answer = Response(frame)
    if answer.int32() != correlation:
        raise DecodeError("an answer of Kafka is of another request")
    if request.key != _API_VERSIONS:
        answer.tags()
    return answer
