"""The direct writer on brokers that fail, move and answer late: each record once, in order.

The real broker is in `integration/test_direct.py`; here thousands of its bad days pass in seconds,
and each rule of the writer can be taken away and is noticed.
"""

from __future__ import annotations

import random
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from producer import native
from producer.core.events import Acknowledgement, Place, Record
from producer.errors import CdcError
from producer.kafka.direct import brokers, connection, lanes, transaction, writer
from producer.kafka.direct.lanes import PartitionLanes
from producer.kafka.direct.transaction import KafkaTransaction
from producer.kafka.direct.writer import DirectWriter
from tests.producer.kafka.direct.cluster import Cluster, Time, sockets
from tests.sim.mutations import edit, noticed

PLACES: list[Place] = [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
SEEDS = 150
PATIENCE = 60.0  # seconds of the simulated clock
SETTINGS = {
    "bootstrap.servers": "broker:0,broker:1,broker:2",
    "transactional.id": "bank",
    "batch.size": 300,
    "compression.type": "none",
}


@contextmanager
def simulated(cluster: Cluster) -> Iterator[None]:
    """Give the writer's modules the cluster's sockets and a clock."""
    clock = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "socket", sockets(cluster, socket))
        for module in (brokers, connection, lanes, transaction, writer):
            patch.setattr(module, "time", clock)
        yield


class History:
    """Transactions of one producer after the other, and what readers must see of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(self.rng, PLACES, 1 + seed % 2)
        self.wanted: dict[Place, list[bytes]] = defaultdict(list)
        self.acknowledged: dict[Place, set[int]] = defaultdict(set)
        self._parts = native.parts("auto") if seed % 4 > 1 else None
        self._number = 0
        self._writers: list[DirectWriter] = []

    def run(self) -> str | None:
        """Play it; return what is wrong."""
        with simulated(self.cluster):
            try:
                producer = self._writer()
                for _ in range(self.rng.randint(4, 8)):
                    producer = self._transaction(producer)
                return self._compare()
            finally:
                for one in self._writers:
                    one.close()

    def _writer(self) -> DirectWriter:
        made = DirectWriter(SETTINGS, self._parts)
        self._writers.append(made)
        made.init_transactions(PATIENCE)
        return made

    def _transaction(self, producer: DirectWriter) -> DirectWriter:
        """One transaction; return who writes the next one."""
        sent = self._records()
        runs: list[Acknowledgement] = []
        commits = self.rng.random() < 0.8
        try:
            producer.begin()
            at = 0
            while at < len(sent):
                at = producer.send(sent[: at + self.rng.randint(1, 20)], at)
                if self.rng.random() < 0.3:
                    producer.poll(0.01)
                runs += producer.take()
            if self.rng.random() < 0.15:
                return self._fenced(producer)
            if not commits:
                producer.abort(PATIENCE)
                return producer
            if self.rng.random() < 0.5:
                left = producer.flush(PATIENCE)
                assert not left, f"{left} records have no answer"
            assert producer.commit(PATIENCE), "the commit has no answer"
            runs += producer.take()
        except CdcError as error:
            # The broker of version 1 never heard of the transaction that is aborted.
            if commits or "INVALID_TXN_STATE" not in str(error) or self._is_visible(sent):
                raise
            return self._writer()
        for topic, partition, value in ((r[0], r[1], r[3]) for r in sent):
            assert value is not None
            self.wanted[topic, partition].append(value)
        self._note(runs)
        return producer

    def _is_visible(self, sent: list[Record]) -> bool:
        values = {record[3] for record in sent}
        return any(
            value in values for log in self.cluster.logs.values() for _, value in log.committed()
        )

    def _fenced(self, older: DirectWriter) -> DirectWriter:
        """Another producer takes over: the older one cannot commit."""
        newer = self._writer()
        with pytest.raises(CdcError):
            self._go_on(older)
        return newer

    def _go_on(self, producer: DirectWriter) -> None:
        """Commit, which may have been empty, and write once more."""
        producer.commit(PATIENCE)
        producer.begin()
        producer.send([(*PLACES[0], None, b"too late", [])], 0)
        producer.commit(PATIENCE)

    def _records(self) -> list[Record]:
        out: list[Record] = []
        for _ in range(self.rng.choice([0, 1, 5, 60, 150])):
            self._number += 1
            value = f"{self._number}".encode() + b"." * self.rng.randrange(60)
            out.append((*self.rng.choice(PLACES), None, value, []))
        return out

    def _note(self, runs: Sequence[Acknowledgement]) -> None:
        """What was acknowledged stands where it was said to."""
        for topic, partition, start, end in runs:
            if start >= 0:
                self.acknowledged[topic, partition] |= set(range(start, end))
        for place, log in self.cluster.logs.items():
            wrong = self.acknowledged[place] - {offset for offset, _ in log.committed()}
            assert not wrong, f"{place}: acknowledged at {sorted(wrong)}, where nothing stands"

    def _compare(self) -> str | None:
        for place, log in self.cluster.logs.items():
            found = [value for _, value in log.committed()]
            if found != self.wanted[place]:
                return f"{place}: {len(found)} records, and {len(self.wanted[place])} were sent"
        return None


def played(seed: int) -> str | None:
    """Return what is wrong with a history."""
    try:
        return History(seed).run()
    except (AssertionError, CdcError, pytest.fail.Exception) as wrong:
        return str(wrong)


def test_each_record_stands_once_and_in_order_whatever_fails() -> None:
    moved = 0
    for seed in range(SEEDS):
        history = History(seed)
        assert history.run() is None, seed
        moved += history.cluster.moves

    assert moved > SEEDS


WITHOUT: dict[str, Callable[[ExitStack], None]] = {
    "a batch keeps its sequence number": edit(
        PartitionLanes, "_numbered", ("if one.number == _NEW:", "if True:")
    ),
    "what is sent again goes before what is newer": edit(
        PartitionLanes,
        "_again",
        ("[*before, one, *list(lane.waiting)[len(before) :]]", "[*lane.waiting, one]"),
    ),
    "behind one that failed, all are answered before anything is sent": edit(
        PartitionLanes, "produce", ("(lane.is_stalled and lane.flying)", "False")
    ),
    "what follows one that failed is sent again, whatever its answer": edit(
        PartitionLanes, "_judge", ("and lane.is_stalled:", "and False:")
    ),
    "what is under way at an old leader comes first": edit(
        PartitionLanes, "produce", ("if lane.flying and lane.node != node:", "if False:")
    ),
    "who asked hears that no answer comes": edit(
        brokers.Brokers, "lose", ("on_answer(None)", "pass")
    ),
    "an answer that is damaged is none": edit(
        connection.BrokerConnection, "move", ("self._asked.appendleft(asked)", "pass")
    ),
    "sequences begin anew in each epoch": edit(
        KafkaTransaction, "_begin_epoch", ("self._sequences.clear()", "pass")
    ),
    "a partition is added to each transaction": edit(
        KafkaTransaction, "begin", ("self._added.clear()", "pass")
    ),
    "an abort begins a new epoch": edit(
        KafkaTransaction, "renew", ("if self.version < 2:", "if False:")
    ),
    "a commit waits for all answers": edit(
        DirectWriter,
        "commit",
        ("if self._unanswered:", "if False:"),
        ("not self._unanswered and ", ""),
    ),
    "an answer that the coordinator moved is followed": edit(
        KafkaTransaction, "_leave_moved", ("self._brokers.lose(connection)", "pass")
    ),
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_a_rule_taken_away_is_noticed(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = noticed(rule, WITHOUT[rule], 10 * SEEDS, played)
    with capsys.disabled():
        sys.stdout.write(found)
