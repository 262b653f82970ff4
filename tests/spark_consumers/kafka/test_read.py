"""The readers on the simulation's broker: what they wait for, compare and count.

Their dialogue with a real cluster is in tests/integration/test_read.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    Range,
    Start,
    Topic,
)
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.decode.control import decode_cut
from spark_consumers.errors import (
    CutsGap,
    Incomplete,
    KafkaDown,
    RangeExpired,
    StreamError,
    TopicMissing,
    TopicReplaced,
)
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.model import Ledger, Segment
from tests.sim.broker import Broker, Client
from tests.sim.ports import CUTS, TOPICS
from tests.sim.reading import clients
from tests.sim.registry import GARBAGE, Value, encode_cut, encode_row, schema_of
from tests.sim.world import World

A = TableId("public", "a")
ROWS = (TOPICS.table(A), 0)
STUCK, DOUBT = 10.0, 30.0
SHAPE = TableSchema(
    A,
    (Column("id", 25, nullable=False), Column("v", 25)),
    ("id",),
    (),
    ReplicaIdentity.DEFAULT,
    ("id",),
)
IDENTITY = Identity("7000", 1, "bank", "slot", "pgoutput")


def row(seq: int, ordinal: int) -> bytes:
    """An INSERT of the n-th row."""
    after = (b"%d" % ordinal, b"x")
    return encode_row(SHAPE, Value(A, SHAPE.names(), "c", after, 1, seq, ordinal, 7))


class Free:
    """An actor of a world without others: what it waits for comes with time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.labels: list[str] = []
        self.then: dict[int, Callable[[], object]] = {}  # after so many parks

    def park(self, label: str, until: object = None, weight: float = 0) -> None:
        self.labels.append(label)
        self.world.now += 0.5
        if do := self.then.pop(len(self.labels), None):
            do()


class Place:
    """A cluster with one table's topic, a producer, and the two readers."""

    def __init__(self) -> None:
        self.world = World(0)
        self.broker = Broker(self.world, {TOPICS.cuts: 1, TOPICS.ddl: 1, ROWS[0]: 1})
        self.actor = Free(self.world)
        self.producer = self.connect("p1")
        self.alarms: list[str] = []
        mine: Any = clients(self.actor, self.broker)  # type: ignore[arg-type]
        self.cuts = CutReader(
            {}, "bank", schema_of, doubt=DOUBT, on_alarm=self.alarms.append, clients=mine
        )
        self.rows = RangeReader({}, "bank", schema_of, stuck_after=STUCK, clients=mine)
        self.n = self.seq = 0
        self.put(self.start())

    def connect(self, name: str) -> Client:
        client = self.broker.connect(name, "gauss-cdc.bank")
        assert self.broker.init_transactions(client)
        return client

    def head(self, *, moves: bool = True) -> Head:
        self.n += moves
        return Head(self.n, 1, 1, "i1", self.seq, 10 * self.n, -1)

    def start(self) -> Start:
        ids = self.broker.topic_ids
        topics = {name: Topic(ids[name], 1) for name in (TOPICS.ddl, ROWS[0])}
        return Start(self.head(), IDENTITY, "content", "cluster-1", topics, {}, None, None, None)

    def put(self, *cuts: Cut, rows: int = 0, markers: bool = True) -> Range:
        """One Kafka transaction; without `markers` it is decided and not yet visible."""
        assert self.broker.begin(self.producer)
        first = self.broker.high(ROWS)
        for ordinal in range(rows):
            self.broker.append(self.producer, ROWS, b"", row(self.seq, ordinal))
        for cut in cuts:
            self.broker.append(self.producer, CUTS, b"bank", encode_cut(cut))
        self.broker.commit(self.producer)
        if markers:
            self.mark()
        return Range(*ROWS, first, first + rows)

    def mark(self, *places: tuple[str, int]) -> None:
        for transaction in self.broker.transactions:
            for place in list(transaction.pending):
                if not places or place in places:
                    self.broker._marker(transaction, place)

    def commit(self, rows: int = 2, *, markers: bool = True) -> Commits:
        """A source transaction: its rows and its cut."""
        self.seq += 1
        first = self.broker.high(ROWS)
        seq = self.seq
        entry = CommitEntry(seq, 700, seq, seq, seq + 1, 0, rows, {0: rows})
        cut = Commits(self.head(), (entry,), (Range(*ROWS, first, first + rows),))
        self.put(cut, rows=rows, markers=markers)
        return cut

    def segment(self) -> Segment:
        """The newest segment that the cuts make."""
        found = list(segments(Ledger("bank"), self.cuts(Ledger("bank")), strict=True))
        return found[-1]


@pytest.fixture
def place() -> Place:
    return Place()


def cells(place: Place, segment: Segment) -> list[Any]:
    return [change.after for change in place.rows(segment).changes[A]]


# ---------------------------------------------------------------- rows
def test_the_rows_of_a_segment_are_read_in_commit_order(place: Place) -> None:
    place.commit(3)

    assert cells(place, place.segment()) == [["0", "x"], ["1", "x"], ["2", "x"]]


def test_rows_whose_marker_is_late_are_waited_for_and_read_committed(place: Place) -> None:
    place.commit(2, markers=False)
    place.mark(CUTS)  # the cut can be read before its rows can
    segment = place.segment()
    began = len(place.actor.labels)
    place.actor.then[began + 8] = place.mark

    assert cells(place, segment) == [["0", "x"], ["1", "x"]]

    waited = place.actor.labels[began : began + 8]
    assert waited.count("waits for the LSO of rows") > 2
    assert "waits for records" not in waited  # not before they are visible
    assert list(place.rows._fetch._consumers) == [(True, False)]


def test_rows_behind_an_open_transaction_of_another_client_are_read_after_a_while(
    place: Place,
) -> None:
    place.broker.open_strange(ROWS)
    place.commit(2)
    segment, began = place.segment(), place.world.now

    assert cells(place, segment) == [["0", "x"], ["1", "x"]]
    assert place.world.now - began >= STUCK
    assert list(place.rows._fetch._consumers) == [(False, False)]


def test_a_record_that_was_aborted_is_missed_by_the_count(place: Place) -> None:
    assert place.broker.begin(place.producer)
    at = place.broker.append(place.producer, ROWS, b"", row(1, 0))
    place.broker.abort(place.producer)
    place.mark()
    place.seq = 1
    entry = CommitEntry(1, 700, 1, 1, 2, 0, 1, {0: 1})
    place.put(Commits(place.head(), (entry,), (Range(*ROWS, at, at + 1),)))

    with pytest.raises(Incomplete, match="0 of 1 records"):
        place.rows(place.segment())


def test_a_tombstone_in_the_place_of_a_row_is_missed_by_the_ordinals(place: Place) -> None:
    place.seq = 1
    assert place.broker.begin(place.producer)
    at = place.broker.append(place.producer, ROWS, b"key", None)
    entry = CommitEntry(1, 700, 1, 1, 2, 0, 1, {0: 1})
    cut = Commits(place.head(), (entry,), (Range(*ROWS, at, at + 1),))
    place.broker.append(place.producer, CUTS, b"bank", encode_cut(cut))
    place.broker.commit(place.producer)
    place.mark()

    with pytest.raises(Incomplete, match="1 of 1 rows are missing"):
        place.rows(place.segment())


def test_a_record_of_another_client_between_two_ranges_is_left_out(place: Place) -> None:
    place.seq = 1
    assert place.broker.begin(place.producer)
    for ordinal in range(2):
        place.broker.append(place.producer, ROWS, b"", row(1, ordinal))
        place.broker.write_strange(ROWS, GARBAGE)
    entry = CommitEntry(1, 700, 1, 1, 2, 0, 2, {0: 1, 1: 1})
    ranges = (Range(*ROWS, 0, 1), Range(*ROWS, 2, 3))
    cut = Commits(place.head(), (entry,), ranges)
    place.broker.append(place.producer, CUTS, b"bank", encode_cut(cut))
    place.broker.commit(place.producer)
    place.mark()

    assert cells(place, place.segment()) == [["0", "x"], ["1", "x"]]


def test_a_topic_that_was_made_again_is_refused_before_anything_is_read(place: Place) -> None:
    place.commit(2)
    segment = place.segment()
    place.broker.topic_ids[ROWS[0]] = "another"

    with pytest.raises(TopicReplaced, match="made again"):
        place.rows(segment)
    assert place.rows._fetch._consumers == {}


def test_another_cluster_is_refused(place: Place) -> None:
    place.commit(2)
    segment = place.segment()
    place.broker.cluster_id = "cluster-2"

    with pytest.raises(TopicReplaced, match="another Kafka cluster"):
        place.rows(segment)


def test_rows_that_expired_are_distinguished_from_rows_that_are_missing(place: Place) -> None:
    place.commit(2)
    segment = place.segment()
    place.broker.starts[ROWS] = 1

    with pytest.raises(RangeExpired) as caught:
        place.rows(segment)
    assert (caught.value.where["first"], caught.value.where["needed"]) == (1, 0)


def test_a_log_that_ends_before_its_rows_is_refused(place: Place) -> None:
    place.commit(2)
    segment = place.segment()
    del place.broker.logs[ROWS][1:]

    with pytest.raises(TopicReplaced, match="ends before rows"):
        place.rows(segment)


def test_a_record_that_cannot_be_decoded_is_named_by_its_place(place: Place) -> None:
    place.commit(1)
    entry = place.broker.logs[ROWS][0]
    place.broker.logs[ROWS][0] = entry._replace(value=GARBAGE)

    with pytest.raises(StreamError, match="cannot be decoded") as caught:
        place.rows(place.segment())
    assert caught.value.where["offset"] == 0


def test_a_broker_that_says_nothing_may_be_tried_again(place: Place) -> None:
    place.commit(2)
    segment = place.segment()
    place.rows.wait_visible = lambda _: True  # type: ignore[method-assign]
    place.broker.open_strange(ROWS)
    place.broker.transactions[-1].places[ROWS] = 0

    with pytest.raises(KafkaDown, match="silent"):
        place.rows(segment)


# ---------------------------------------------------------------- cuts
def offsets(place: Place, ledger: Ledger) -> list[int]:
    return [offset for offset, _ in place.cuts(ledger)]


def test_cuts_are_read_to_the_last_stable_offset_and_no_further(place: Place) -> None:
    place.commit(1)
    place.commit(1, markers=False)

    assert offsets(place, Ledger("bank")) == [0, 2]
    place.mark()
    assert offsets(place, Ledger("bank")) == [0, 2, 4]


def test_a_cut_that_was_aborted_is_none(place: Place) -> None:
    assert place.broker.begin(place.producer)
    heartbeat = encode_cut(Heartbeat(place.head(moves=False)))
    place.broker.append(place.producer, CUTS, b"bank", heartbeat)
    place.broker.abort(place.producer)
    place.mark()
    place.commit(1)

    assert offsets(place, Ledger("bank")) == [0, 4]


def test_a_reader_goes_on_where_the_ledger_stands_whatever_it_read_before(place: Place) -> None:
    place.commit(1)
    place.commit(1)
    one, two = list(segments(Ledger("bank"), place.cuts(Ledger("bank")), strict=True))[:2]

    assert offsets(place, one.upto) == [2, 4]
    assert offsets(place, two.upto) == [4]
    assert offsets(place, one.upto) == [2, 4]  # a target restored from its backup
    assert place.alarms == []
    place.broker.logs[CUTS][0] = place.broker.logs[CUTS][0]._replace(value=GARBAGE)
    assert offsets(place, two.upto) == [4]
    assert place.alarms == []


def test_a_pass_that_broke_off_is_read_again_from_the_ledgers_place(place: Place) -> None:
    place.commit(1)
    reading = iter(place.cuts(Ledger("bank")))
    next(reading)
    del reading

    assert offsets(place, Ledger("bank")) == [0, 2]


def test_cuts_that_expired_before_they_were_applied_are_a_gap(place: Place) -> None:
    place.commit(1)
    (begun, *_) = list(segments(Ledger("bank"), place.cuts(Ledger("bank"))))
    place.commit(1)
    place.broker.starts[CUTS] = 4

    with pytest.raises(RangeExpired):
        offsets(place, begun.upto)


def test_a_record_that_does_not_follow_is_a_gap_unless_the_writer_continues(place: Place) -> None:
    place.commit(1)
    forged = Heartbeat(replace(place.head(moves=False), n=99))
    place.put(forged)

    *_, held = segments(Ledger("bank"), place.cuts(Ledger("bank")))
    assert offsets(place, held.upto) == []
    assert len(place.alarms) == 1
    place.world.now += DOUBT
    with pytest.raises(CutsGap):
        offsets(place, held.upto)


def test_a_record_that_does_not_follow_was_forged_when_its_writer_goes_on(place: Place) -> None:
    place.put(Heartbeat(replace(place.head(moves=False), n=99)))
    assert offsets(place, Ledger("bank")) == [0]
    place.commit(1)
    place.world.now += 2 * DOUBT

    assert offsets(place, Ledger("bank")) == [0, 4]
    assert place.cuts.replay.suspect is None


def test_waiting_ends_with_a_record_which_the_next_pass_takes(place: Place) -> None:
    assert offsets(place, Ledger("bank")) == [0]
    start = decode_cut(place.broker.logs[CUTS][0].value, schema_of)
    (begun,) = segments(Ledger("bank"), [(0, start)])
    assert offsets(place, begun.upto) == []
    assert not place.cuts.wait(1)
    place.commit(1)

    assert place.cuts.wait(1)
    assert offsets(place, begun.upto) == [2]


def test_a_topic_is_missing_from_when_brokers_say_so_without_a_break(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker comes back, learns of topics late, and goes down once more."""
    place.commit(2)
    segment, cluster = place.segment(), place.rows._kafka
    real = cluster.topic_ids
    says = [TopicMissing("unknown"), KafkaDown("no answer"), TopicMissing("unknown")]

    def topic_ids(names):
        if says:
            raise says.pop(0)
        return real(names)

    monkeypatch.setattr(cluster, "topic_ids", topic_ids)
    with pytest.raises(TopicMissing):
        place.rows(segment)
    place.world.now += 6 * STUCK
    with pytest.raises(KafkaDown, match="no answer"):
        place.rows(segment)
    with pytest.raises(TopicMissing):
        place.rows(segment)
    assert place.rows(segment).changes

    says += [TopicMissing("unknown"), TopicMissing("unknown")]
    place.rows._topics.clear()
    with pytest.raises(TopicMissing):
        place.rows(segment)
    place.world.now += STUCK
    with pytest.raises(TopicReplaced, match="was deleted"):
        place.rows(segment)
