"""Entries of a COMMITS record that are read as columns are those that Python reads.

Records of other kinds, and of writers with other schemas: tests/spark_consumers/test_decode.py.
"""

import io
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.accept import CutReplay
from schemas.control import (
    CommitEntry,
    Commits,
    DdlPlace,
    Head,
    Hole,
    Range,
    cut_from_avro,
    cut_to_avro,
    greatest_csn,
    identities_of,
)
from schemas.load import avsc
from spark_consumers.cuts.segments import segments
from spark_consumers.decode.control import decode_control
from spark_consumers.model import Ledger, ListedEntries, ReadEntries, columns_of
from spark_consumers.native import IS_BUILT, read_entries
from tests.spark_consumers.feed import Feed

PARSED = fastavro.parse_schema(avsc("cut"))
LEDGER = Ledger("bank")
MANY = 50
RANGES = (Range("bank.public.a", 0, 10, 10 + MANY), Range("bank.public.b", 1, 20, 20 + 2 * MANY))


def entry(seq: int, **other: Any) -> CommitEntry:
    return replace(
        CommitEntry(seq, seq + 700, seq * 10, seq * 10, seq * 10 + 1, seq * 10**6, 3, {0: 1, 1: 2}),
        **other,
    )


def commits(*odd: CommitEntry) -> Commits:
    """A record of MANY commits; `odd` take the places of their seq."""
    mine = {e.seq: e for e in (*map(entry, range(1, MANY + 1)), *odd)}
    return Commits(
        Head(2, 1, 1, "i1", MANY, 20, -1), tuple(mine.values()), RANGES, {"bank.public.a": (42,)}
    )


def payload(cut: Commits) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, cut_to_avro(cut))
    return out.getvalue()


def read(data: bytes) -> Commits:
    cut = decode_control(b"\x00\x00\x00\x00\x09" + data, lambda _: avsc("cut"))
    assert isinstance(cut, Commits)
    return cut


def test_many_entries_are_read_as_columns_and_say_the_same() -> None:
    cut = commits(entry(3, user="app", end_lsn=None), entry(5, rows=0, counts={}))

    found = read(payload(cut))

    assert isinstance(found.commits, ReadEntries) == IS_BUILT
    assert tuple(found.commits) == cut.commits
    assert (found.commits[0], len(found.commits)) == (cut.commits[0], MANY)
    assert replace(found, commits=cut.commits) == cut
    assert identities_of(found.commits) == identities_of(cut.commits)
    assert greatest_csn(found.commits) == greatest_csn(cut.commits)


@pytest.mark.parametrize(
    "odd",
    [entry(7, ddl=(DdlPlace(0, 4),)), entry(7, holes=(Hole("public.a", "seen", "lost"),))],
    ids=["DDL", "a gap"],
)
def test_a_record_with_more_than_usual_is_left_to_python(odd: CommitEntry) -> None:
    cut = commits(odd)

    assert read_entries(payload(cut)) is None
    assert read(payload(cut)) == cut


def test_columns_say_what_the_entries_say() -> None:
    cut = commits(entry(5, rows=0, counts={}), entry(9, rows=7, counts={1: 3}), entry(30, csn=9000))
    found = read(payload(cut)).commits
    if not isinstance(found, ReadEntries):
        return
    own, wanted = found.columns, ListedEntries(cut.commits)

    for name in ("first", "greatest_csn", "lacking"):
        one, other = getattr(own, name), getattr(wanted, name)
        assert (one() if callable(one) else one) == (other() if callable(other) else other)
    places = range(MANY + 1)
    for first, last in ((a, b) for a in places for b in places if a <= b):
        assert own.rows(first, last) == wanted.rows(first, last)
        assert own.total(first, last) == wanted.total(first, last)
        for width in (0, 1, 2, 5):
            assert own.records(first, last, width) == wanted.records(first, last, width)
        for room in (0, 1, 3, 10, 1000):
            assert own.fitting(first, last, room) == wanted.fitting(first, last, room)
    for at in range(MANY):
        assert own.place(at) == wanted.place(at)
        assert own.identity(at) == wanted.identity(at)
    for broken in ((-1, 0), (2, 1), (0, MANY + 1)):
        for ask in (own.rows, own.total, lambda a, b: own.fitting(a, b, 1)):
            with pytest.raises(IndexError):
                ask(*broken)


@pytest.mark.parametrize(
    "odd",
    [
        {"seq": 8},
        {"rows": -1},
        {"rows": 1 << 50},
        {"counts": {0: -1, 1: 4}},
        {"counts": {0: 1 << 50}},
    ],
    ids=str,
)
def test_numbers_that_no_writer_writes_are_left_to_python(odd: dict[str, Any]) -> None:
    cut = commits()
    entries_ = tuple(replace(e, **odd) if e.seq == 7 else e for e in cut.commits)

    assert read_entries(payload(replace(cut, commits=entries_))) is None


def test_commits_with_many_ranges_are_columns_too() -> None:
    many = {at: at for at in range(100)}
    found = read(payload(commits(entry(1, counts=many))))

    assert found.commits[0].counts == many
    assert columns_of(found.commits).records(0, 1, 100) == list(many.values())
    assert columns_of(found.commits).records(0, 1, 99) is None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_are_left_to_python_or_read_as_it_does(data: st.DataObject) -> None:
    broken = bytearray(payload(commits()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken)))
        match data.draw(st.integers(0, 2)):
            case 0:
                broken[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case 1:
                del broken[at : at + data.draw(st.integers(1, 40))]
            case _:
                broken[at:at] = data.draw(st.binary(max_size=12))
    one = bytes(broken)

    if read_entries(one) is None:
        return
    try:
        wanted = cut_from_avro(fastavro.schemaless_reader(io.BytesIO(one), PARSED, PARSED))  # type: ignore[arg-type]
    except (ValueError, LookupError, EOFError, OverflowError, AttributeError):
        return  # what stands behind the entries: Python reads it
    try:
        found = read(one)
    except ValueError:  # bytes are left behind the record
        return

    assert isinstance(wanted, Commits)
    assert replace(found, commits=tuple(found.commits)) == wanted


# ---------------------------------------------------------------- segments of such a record
@pytest.mark.parametrize("max_rows", [1, 3, 7, 50, 10_000])
@pytest.mark.parametrize("already", [0, 1, 20, MANY])
def test_segments_of_columns_are_those_of_the_entries(max_rows: int, already: int) -> None:
    feed, cut = Feed(), commits()
    start = feed.start()
    found = read(payload(cut))
    ledger = next(iter(segments(LEDGER, [(0, start)]))).upto
    ledger = replace(ledger, seq=already)

    own = list(segments(ledger, [(2, found)], max_rows=max_rows))
    wanted = list(segments(ledger, [(2, cut)], max_rows=max_rows))

    assert [(s.after, s.upto, s.ranges, s.commit_rows) for s in own] == [
        (s.after, s.upto, s.ranges, s.commit_rows) for s in wanted
    ]
    assert sum(len(s.commit_rows) for s in own) == MANY - already


def test_the_acceptance_function_takes_columns() -> None:
    feed = Feed()
    replay = CutReplay.from_nobody()
    replay.accept(0, feed.start())

    assert replay.accept(2, read(payload(commits()))) is not None
    assert (replay.seq, replay.csn) == (MANY, MANY * 10)
