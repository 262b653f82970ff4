"""Brokers of Kafka in memory, as a transactional producer sees them, with faults by a seed.

What they answer: KIP-98 (sequences of a partition, of which the last five batches are known;
transactions), KIP-890 (transaction.version 2: Produce adds partitions, an end gives the next
epoch).  They speak bytes: what the writer sends is parsed here, its requests and its batches.
"""

from __future__ import annotations

import os
import random
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from producer.core.events import Place
from producer.kafka.direct.wire import NO_TAGS, Response, array, text, unsigned

_KNOWN_BATCHES: Final = 5
_LOADING, _TIMED_OUT = 14, 7
_NOT_COORDINATOR, _NOT_LEADER, _UNKNOWN_TOPIC = 16, 6, 3
_OUT_OF_ORDER, _DUPLICATE = 45, 46
_INVALID_EPOCH, _INVALID_STATE, _CONCURRENT = 47, 48, 51
_TOO_FEW, _TOO_FEW_AFTER_APPEND = 19, 20


class Request(Response):
    """A request's header and body."""

    def octets(self) -> bytes:
        return self._bytes(self.unsigned() - 1)

    def short_text(self) -> str:
        return self._bytes(self.int16()).decode()


@dataclass
class Batch:
    """A record batch, as it was parsed."""

    producer: tuple[int, int]  # id, epoch
    first: int  # sequence
    values: list[bytes]
    offset: int = -1
    fate: str = "open"


@dataclass
class Log:
    """One partition."""

    batches: list[Batch] = field(default_factory=list)
    known: deque[Batch] = field(default_factory=lambda: deque(maxlen=_KNOWN_BATCHES))
    end: int = 0

    def append(self, batch: Batch) -> tuple[int, int]:
        """Store a batch: error, offset."""
        known = [one for one in self.known if one.producer == batch.producer]
        for one in known:
            if (one.first, len(one.values)) == (batch.first, len(batch.values)):
                return 0, one.offset
        last = known[-1] if known else None
        expected = last.first + len(last.values) if last is not None else 0
        if batch.first != expected:
            return (_DUPLICATE if batch.first < expected else _OUT_OF_ORDER), -1
        batch.offset, self.end = self.end, self.end + len(batch.values)
        self.batches.append(batch)
        self.known.append(batch)
        return 0, batch.offset

    def committed(self) -> list[tuple[int, bytes]]:
        """Return offset and value of what readers of committed records see."""
        return [
            (batch.offset + at, value)
            for batch in self.batches
            if batch.fate == "committed"
            for at, value in enumerate(batch.values)
        ]


class Cluster:
    """Three brokers, their partitions, and one transactional id."""

    def __init__(self, rng: random.Random, places: Iterable[Place], version: int) -> None:
        self.rng, self.version = rng, version
        self.logs = {place: Log() for place in places}
        self.leaders = {place: rng.randrange(3) for place in self.logs}
        self.coordinator = rng.randrange(3)
        self.epoch = -1
        self._open: set[Place] = set()  # partitions of the open transaction
        self._ended: bool | None = None  # how the last one ended
        self._markers = 0  # requests until they are written
        self._faults = rng.choice([0.02, 0.05])  # share of what goes wrong
        self._losses = rng.choice([0.0, 0.03])  # of connections
        self._moves = rng.choice([0.01, 0.05])  # of leaders
        self.moves = 0

    def fails(self) -> bool:
        """Say whether a request goes wrong now."""
        return self.rng.random() < self._faults

    def loses(self) -> bool:
        """Say whether a connection is lost now."""
        return self.rng.random() < self._losses

    # ------------------------------------------------------------ requests
    def answer(self, node: int, frame: bytes) -> bytes:
        """Answer one request."""
        self._time_goes_on()
        request = Request(frame)
        key, version, correlation = request.int16(), request.int16(), request.int32()
        request.short_text(), request.tags()
        made = {
            0: self._produce, 3: self._metadata, 10: self._find, 18: self._versions,
            22: self._init, 24: self._add, 26: self._end,
        }[key](node, request, version)  # fmt: skip
        header = struct.pack(">i", correlation) + (b"" if key == 18 else NO_TAGS)
        return struct.pack(">i", len(header) + len(made)) + header + made

    def _time_goes_on(self) -> None:
        self._markers = max(0, self._markers - 1)
        if self.rng.random() < self._moves:
            self.moves += 1
            self.leaders[self.rng.choice(list(self.leaders))] = self.rng.randrange(3)
        if self.rng.random() < self._moves / 2:
            self.coordinator = self.rng.randrange(3)

    def _versions(self, _node: int, _request: Request, _version: int) -> bytes:
        ranges = array(
            struct.pack(">hhh", key, 0, 12) + NO_TAGS for key in (0, 3, 10, 18, 22, 24, 26)
        )
        level = text("transaction.version") + struct.pack(">hh", self.version, 0) + NO_TAGS
        finalized = array([level])
        tags = b"\1" + unsigned(2) + unsigned(len(finalized)) + finalized
        return struct.pack(">h", 0) + ranges + struct.pack(">i", 0) + tags

    def _metadata(self, _node: int, request: Request, _version: int) -> bytes:
        def topic(r: Response) -> str:
            name = r.text()
            r.tags()
            assert name is not None
            return name

        brokers = array(
            struct.pack(">i", node)
            + text("broker")
            + struct.pack(">i", node)
            + text(None)
            + NO_TAGS
            for node in range(3)
        )
        topics = []
        for name in request.array(topic):
            partitions = array(
                struct.pack(">hiii", 0, place[1], leader, 0) + array([]) * 3 + NO_TAGS
                for place, leader in self.leaders.items()
                if place[0] == name
            )
            error = 0 if any(place[0] == name for place in self.logs) else _UNKNOWN_TOPIC
            topics.append(
                struct.pack(">h", error) + text(name) + b"\0" + partitions
                + struct.pack(">i", 0) + NO_TAGS
            )  # fmt: skip
        body = text("cluster") + struct.pack(">i", 0) + array(topics)
        return struct.pack(">i", 0) + brokers + body + struct.pack(">i", 0) + NO_TAGS

    def _find(self, _node: int, _request: Request, _version: int) -> bytes:
        error = _LOADING + 1 if self.fails() else 0
        where = text("broker") + struct.pack(">i", self.coordinator)
        return struct.pack(">ih", 0, error) + text(None) + struct.pack(">i", 0) + where + NO_TAGS

    def _refusal(self, node: int, epoch: int) -> int:
        """What is wrong with a request to the coordinator."""
        if node != self.coordinator:
            return _NOT_COORDINATOR
        if self.fails():
            return _LOADING
        if epoch != self.epoch:
            return _INVALID_EPOCH
        return _CONCURRENT if self._markers else 0

    def _init(self, node: int, request: Request, _version: int) -> bytes:
        request.text(), request.int32()
        known = request.int64(), request.int16()
        error = self._refusal(node, self.epoch)
        if not error and known[0] >= 0 and known[1] not in (self.epoch, self.epoch - 1):
            error = _INVALID_EPOCH
        if not error and (known[0] < 0 or known[1] == self.epoch):
            self._decide(False)
            self.epoch += 1
            self._ended = None
        return struct.pack(">ihqh", 0, error, 7, self.epoch) + NO_TAGS

    def _add(self, node: int, request: Request, _version: int) -> bytes:
        request.text(), request.int64()
        epoch = request.int16()

        def topic(r: Response) -> tuple[str, list[int]]:
            found = r.text() or "", r.array(Response.int32)
            r.tags()
            return found

        wanted = request.array(topic)
        error = self._refusal(node, epoch)
        if not error:
            self._open |= {(name, p) for name, partitions in wanted for p in partitions}
        topics = array(
            text(name) + array(struct.pack(">ih", p, error) + NO_TAGS for p in partitions) + NO_TAGS
            for name, partitions in wanted
        )
        return struct.pack(">i", 0) + topics + NO_TAGS

    def _end(self, node: int, request: Request, _version: int) -> bytes:
        request.text(), request.int64()
        epoch, commit = request.int16(), bool(request.int8())
        again = self._ended == commit and not self._open
        if self.version == 2 and again and epoch == self.epoch - 1:
            error = self._refusal(node, self.epoch)
        else:
            error = self._refusal(node, epoch)
            if not error and not self._open and not (self.version == 1 and again):
                error = _INVALID_STATE if commit or self.version == 1 else 0
            if not error and not (self.version == 1 and again):
                self._decide(commit)
                self.epoch += self.version == 2
        next_one = struct.pack(">qh", 7, self.epoch) if self.version == 2 else b""
        return struct.pack(">ih", 0, error) + next_one + NO_TAGS

    def _decide(self, commit: bool) -> None:
        """Commit or abort what is open."""
        for place in self._open:
            log = self.logs[place]
            for batch in log.batches:
                if batch.fate == "open":
                    batch.fate = "committed" if commit else "aborted"
            log.end += 1  # the marker
        self._ended, self._markers = commit, self.rng.randrange(3) if self._open else 0
        self._open = set()

    # ------------------------------------------------------------ Produce
    def _produce(self, node: int, request: Request, _version: int) -> bytes:
        request.text(), request.int16(), request.int32()

        def partition(r: Response) -> tuple[int, bytes]:
            assert isinstance(r, Request)
            found = r.int32(), r.octets()
            r.tags()
            return found

        def topic(r: Response) -> tuple[str, list[tuple[int, bytes]]]:
            found = r.text() or "", r.array(partition)
            r.tags()
            return found

        topics = array(
            text(name)
            + array(self._stored(node, (name, p), data) for p, data in partitions)
            + NO_TAGS
            for name, partitions in request.array(topic)
        )
        return topics + struct.pack(">i", 0) + NO_TAGS

    def _stored(self, node: int, place: Place, data: bytes) -> bytes:
        error, offset = self._store(node, place, parsed(data))
        numbers = struct.pack(">ihqqq", place[1], error, offset, -1, 0)
        return numbers + array([]) + text(None) + NO_TAGS

    def _store(self, node: int, place: Place, batch: Batch) -> tuple[int, int]:
        log = self.logs.get(place)
        if log is None:
            return _UNKNOWN_TOPIC, -1
        if self.leaders[place] != node:
            return _NOT_LEADER, -1
        if batch.producer[1] != self.epoch:
            return _INVALID_EPOCH, -1
        if self._markers and self.version == 2:
            return _CONCURRENT, -1
        if self.version == 2:
            self._open.add(place)
        elif place not in self._open:
            return _INVALID_STATE, -1
        if self.fails():
            return _TOO_FEW, -1
        error, offset = log.append(batch)
        if not error and self.fails():
            return _TOO_FEW_AFTER_APPEND, -1
        return error, offset


_FRAME = struct.Struct(">qiibIhiqqqhii")


def parsed(data: bytes) -> Batch:
    """Read a record batch (version 2) without compression."""
    head = _FRAME.unpack_from(data)
    _, length, _, magic, _, attributes, last, _, _, producer, epoch, first, count = head
    assert (length, magic, attributes, last) == (len(data) - 12, 2, 0x10, count - 1)
    at, values = _FRAME.size, []
    for number in range(count):
        size, at = _varint(data, at)
        end, at = at + size, at + 1
        _, at = _varint(data, at)
        delta, at = _varint(data, at)
        assert delta == number
        key, at = _varint(data, at)
        size, at = _varint(data, at + max(0, key))
        values.append(data[at : at + size])
        at = end
    assert at == len(data)
    return Batch((producer, epoch), first, values)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at


# ---------------------------------------------------------------- sockets and time
class Line:
    """A socket to a broker: answers come late, bytes go out in parts, and it may be lost."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster, self._node = cluster, node
        self._out, self._in = bytearray(), bytearray()
        self._is_lost = False
        self._read, self._write = os.pipe()
        os.write(self._write, b"!")  # select finds it ready, always

    def setsockopt(self, *_: int) -> None: ...

    def settimeout(self, _: float) -> None: ...

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        if self._read >= 0:
            os.close(self._read)
            os.close(self._write)
        self._read, self._is_lost = -1, True
        self._in.clear()

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        if self._is_lost:
            raise BrokenPipeError
        data = b"".join(parts)
        if self._cluster.rng.random() < 0.2:
            if self._cluster.rng.random() < 0.5:
                raise BlockingIOError
            data = data[: max(1, len(data) // 2)]
        self._out += data
        return len(data)

    def recv(self, _: int) -> bytes:
        if self._is_lost:
            return b""
        if self._cluster.rng.random() < 0.5:
            raise BlockingIOError
        while len(self._out) >= 4:
            (size,) = struct.unpack_from(">i", self._out)
            if len(self._out) < 4 + size:
                break
            frame = bytes(self._out[4 : 4 + size])
            del self._out[: 4 + size]
            if self._cluster.loses():
                self._is_lost = True  # before it came
                break
            made = self._cluster.answer(self._node, frame)
            if self._cluster.loses():
                self._is_lost = True  # its answer
                break
            if self._cluster.loses():
                made = made[:4] + struct.pack(">i", -1) + made[8:]  # of another request
            self._in += made
            if self._cluster.rng.random() < 0.3:
                break
        if not self._in:
            if self._is_lost:
                return b""
            raise BlockingIOError
        data, self._in = bytes(self._in), bytearray()
        return data


def sockets(cluster: Cluster, real: Any) -> SimpleNamespace:
    """What `socket` is to a connection."""

    def connect(address: tuple[str, int], _: float) -> Line:
        if cluster.loses():
            raise ConnectionRefusedError
        return Line(cluster, address[1] % 3)

    names = ("IPPROTO_TCP", "TCP_NODELAY", "SOL_SOCKET", "SO_KEEPALIVE", "SO_SNDBUF")
    return SimpleNamespace(create_connection=connect, **{n: getattr(real, n) for n in names})


class Time:
    """A clock that goes on by being looked at."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        self._now += 0.0005
        return self._now

    def time_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._now += seconds
