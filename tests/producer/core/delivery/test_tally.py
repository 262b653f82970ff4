"""The books of the open group, in Python and natively: the same entries, byte by byte."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as some

from producer.core.delivery.tally import Entries, PlainTally, Tally
from producer.core.events import Acknowledgement, Place, Record, TransactionEnded
from producer.core.records.cut_code import encode_commits
from producer.errors import GroupUnusable
from producer.native import MODULE
from schemas.control import (
    CommitEntry,
    Commits,
    DdlPlace,
    Head,
    Hole,
    Range,
    greatest_csn,
    identities_of,
)

DDL, MESSAGES = "p.ddl", "p.message"
PLACES: list[Place] = [("p.a", 0), ("p.a", 1), ("p.b", 0), (DDL, 0), (MESSAGES, 0)]
HEAD = Head(1, 1, 1, "one", 0, 0, 0)
TOPICS = {"ddl_topic": DDL, "untracked_topics": frozenset({MESSAGES})}


def plain() -> Tally:
    return PlainTally(**TOPICS)


def native() -> Tally:
    return MODULE.NativeTally(MODULE.Places(), **TOPICS)


# Where the native module is not built, tests/producer/native says so.
TALLIES = [plain] if MODULE is None else [plain, native]


def record(place: Place) -> Record:
    return (*place, b"key", b"value", [])


def ended(seq: int, rows: int = 0, **more: object) -> TransactionEnded:
    at = seq * 1000
    numbers = {"xid": 700 + seq, "csn": at + 1, "commit_start": at, "end_lsn": at + 500}
    return TransactionEnded(**({"seq": seq, "committed_at": -seq, "rows": rows} | numbers | more))


# ---------------------------------------------------------------- any sequence
@dataclass(frozen=True)
class Piece:
    """Records of a source transaction, and perhaps its end."""

    places: list[Place]
    ends: bool
    holes: tuple[Hole, ...] = ()
    user: str | None = None


@dataclass(frozen=True)
class Step:
    """What is counted, how much of it is acknowledged, and whether the group closes then."""

    pieces: list[Piece]
    walked: bool  # by the native walker
    parts: list[int]  # sizes of runs
    closes: bool


places = some.lists(some.sampled_from(PLACES), max_size=6)
pieces = some.builds(
    Piece,
    places,
    some.booleans(),
    some.sampled_from([(), (), (), (Hole("s.t", "seen", "because"),)]),
    some.sampled_from([None, None, "ärmel"]),
)
steps = some.builds(
    Step,
    some.lists(pieces, max_size=4),
    some.booleans(),
    some.lists(some.integers(1, 3), max_size=3),
    some.booleans(),
)


@dataclass
class Driver:
    """Does the same to both tallies, as the engine would."""

    tallies: list[Tally]
    places: object  # of the native one
    seq: int = 0
    open: list[Place] = field(default_factory=list)
    awaited: Counter[Place] = field(default_factory=Counter)
    offsets: Counter[Place] = field(default_factory=Counter)

    def take(self, step: Step) -> None:
        if step.walked and MODULE is not None:
            self._walk([piece for piece in step.pieces if not piece.holes])
        else:
            for piece in step.pieces:
                self._assemble(piece)
        for size in step.parts:
            self.acknowledge(size)
        if step.closes:
            self.acknowledge(1_000)
            self._close()
        self.compare()

    def compare(self) -> None:
        first = self.tallies[0]
        for tally in self.tallies[1:]:
            assert (tally.commits, tally.is_open) == (first.commits, first.is_open)
            assert tally.cut_bytes == first.cut_bytes

    def _assemble(self, piece: Piece) -> None:
        self._sent(piece.places)
        ends = self._end(piece) if piece.ends else None
        for tally in self.tallies:
            tally.add([record(place) for place in piece.places])
            if ends is not None:
                tally.end(ends)

    def _walk(self, given: list[Piece]) -> None:
        """Make a batch; the walker leaves DDL to Python, and what is open with DDL, too."""
        transactions, rows = [], []
        for piece in given:
            if DDL in {topic for topic, _ in self.open}:
                break
            mine = [place for place in piece.places if place[0] != DDL]
            self._sent(mine)
            ends = self._end(piece, walked=True) if piece.ends else None
            at = len(transactions)
            of = ends or ended(self.seq + 1)
            transactions.append((of.seq, of.xid, of.csn, ends))
            rows += [(at, *place, b"k", b"v", 0, 0) for place in mine]
            if ends is None:
                break  # only the last one may be without its end
        batch = MODULE.batch_of(self.places, 1, transactions, rows)
        for tally in self.tallies:
            tally.take(batch)

    def _sent(self, new: list[Place]) -> None:
        self.open += new
        self.awaited.update(new)

    def _end(self, piece: Piece, *, walked: bool = False) -> TransactionEnded:
        self.seq += 1
        ordinals = tuple(at for at, place in enumerate(self.open) if place[0] == DDL)
        rows, self.open = len(self.open), []
        if walked:
            return ended(self.seq, rows)
        return ended(self.seq, rows, ddl_ordinals=ordinals, holes=piece.holes, user=piece.user)

    def acknowledge(self, size: int) -> None:
        """Acknowledge up to `size` records of each place; now and then a marker is between."""
        runs: list[Acknowledgement] = []
        for place, count in self.awaited.items():
            taken = min(size, count)
            if not taken:
                continue
            start = self.offsets[place] + (size % 2)
            runs.append((*place, start, start + taken))
            self.offsets[place] = start + taken
            self.awaited[place] -= taken
        counts = {tally.acknowledge(runs) for tally in self.tallies}
        assert counts == {sum(end - start for _, _, start, end in runs)}

    def _close(self) -> None:
        expected, *others = (tally.close() for tally in self.tallies)
        for found in others:
            assert [unpacked(entries) for entries in found] == expected
            assert [written(entries) for entries in found] == [written(e) for e in expected]
            for one, other in zip(found, expected, strict=True):
                assert identities_of(one.commits) == identities_of(other.commits)
                assert greatest_csn(one.commits) == greatest_csn(other.commits)
                assert len(one.commits) == len(other.commits)


def unpacked(entries: Entries) -> Entries:
    return entries._replace(commits=tuple(entries.commits))


def written(entries: Entries) -> bytes:
    return encode_commits(Commits(HEAD, entries.commits, entries.ranges))


@given(some.lists(steps, max_size=12))
def test_twins_give_the_same_entries(given_steps: list[Step]) -> None:
    if MODULE is None:
        driver = Driver([plain(), plain()], None)
    else:
        places = MODULE.Places()
        driver = Driver([plain(), MODULE.NativeTally(places, **TOPICS)], places)
    for step in given_steps:
        driver.take(step)


# ---------------------------------------------------------------- what it does
@pytest.mark.parametrize("make", TALLIES)
class TestEitherTally:
    def test_gives_each_transaction_its_offsets(self, make) -> None:
        tally = make()
        a, b = PLACES[0], PLACES[2]
        tally.add([record(a), record(b), record(a)])
        tally.end(ended(1, 3))
        tally.add([record(a)])
        tally.end(ended(2, 1))

        tally.acknowledge([("p.a", 0, 10, 12), ("p.b", 0, 5, 6), ("p.a", 0, 13, 14)])
        [entries] = tally.close()

        assert entries.ranges == (Range(*a, 10, 12), Range(*b, 5, 6), Range(*a, 13, 14))
        assert [entry.counts for entry in entries.commits] == [{0: 2, 1: 1}, {2: 1}]
        assert (entries.seq, entries.end_lsn) == (2, 2500)

    def test_a_transaction_with_ddl_is_alone(self, make) -> None:
        tally = make()
        for seq in (1, 2, 3):
            tally.add([record(PLACES[0]), record((DDL, 0))][: 1 + seq % 2 * (seq > 1)])
            tally.end(ended(seq, 2, ddl_ordinals=(1,) if seq == 3 else ()))
        tally.acknowledge([("p.a", 0, 0, 3), (DDL, 0, 7, 8)])

        first, second = tally.close()

        assert [len(first.commits), len(second.commits)] == [2, 1]
        [entry] = second.commits
        assert isinstance(entry, CommitEntry)
        assert entry.ddl == (DdlPlace(1, 7),)

    def test_offsets_of_the_open_transaction_outlive_the_group(self, make) -> None:
        tally = make()
        tally.add([record(PLACES[0])])
        tally.end(ended(1, 1))
        tally.add([record(PLACES[0])])
        tally.acknowledge([("p.a", 0, 0, 2)])
        [entries] = tally.close()
        assert entries.ranges == (Range("p.a", 0, 0, 1),)
        assert (tally.commits, tally.is_open, tally.cut_bytes) == (0, True, 0)

        tally.end(ended(2, 1))

        [entries] = tally.close()
        assert entries.ranges == (Range("p.a", 0, 1, 2),)
        assert not tally.is_open

    def test_keeps_nothing_of_offsets_that_were_given_away(self, make) -> None:
        tally = make()
        for seq in range(1, 400):  # every marker begins a new run
            tally.add([record(PLACES[0])] * 2)
            tally.end(ended(seq, 2))
            tally.acknowledge([("p.a", 0, 3 * seq, 3 * seq + 2)])
            if seq % 3 == 0:
                [entries] = tally.close()
                assert [r.end - r.start for r in entries.ranges] == [2, 2, 2]
                assert entries.ranges[-1].end == 3 * seq + 2

    def test_refuses_a_record_without_an_offset(self, make) -> None:
        with pytest.raises(GroupUnusable, match="without an offset"):
            make().acknowledge([("p.a", 0, -1, 0)])

    def test_refuses_offsets_that_go_backwards(self, make) -> None:
        tally = make()
        tally.acknowledge([("p.a", 0, 5, 7)])

        with pytest.raises(GroupUnusable, match="go backwards") as caught:
            tally.acknowledge([("p.a", 0, 6, 8)])

        assert caught.value.where == {"offset": 6, "known": 7}

    @pytest.mark.parametrize("place", [PLACES[0], PLACES[-1]])
    def test_refuses_to_close_without_all_acknowledgements(self, make, place: Place) -> None:
        tally = make()
        tally.add([record(place)] * 2)
        tally.end(ended(1, 2))
        tally.acknowledge([(*place, 5, 6)])

        with pytest.raises(GroupUnusable, match="was not acknowledged"):
            tally.close()

    def test_numbers_beyond_64_bits_are_not_cut_off(self, make) -> None:
        def write() -> bytes:
            tally = make()
            tally.end(ended(1, csn=2**63))
            return written(tally.close()[0])

        with pytest.raises((OverflowError, ValueError)):  # native code, and fastavro
            write()
