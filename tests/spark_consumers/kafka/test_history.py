"""Commits of one table by exact offsets, from any of them on, on the simulation's broker."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from schemas.control import Hole, LoadPhase, Moved
from schemas.positions import CommitKey, of_reread
from schemas.tables import Column, TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import ApplyError, RangeExpired, StreamError, TopicReplaced
from spark_consumers.kafka.history import Found, History, ShapeHistory, Standing
from tests.sim.ports import TOPICS
from tests.sim.registry import schema_of
from tests.spark_consumers.feed import Tx, alter, insert
from tests.spark_consumers.published import A, B, Published, commit, load


@pytest.fixture
def source() -> Published:
    return Published()


@pytest.fixture
def history(source: Published) -> Iterator[History]:
    with closing(History({}, "bank", schema_of, clients=source.clients)) as one:
        yield one


def rows(found: Found) -> int:
    return sum(r.end - r.start for r in found.ranges)


def notes(found: Found) -> list[tuple[str, str, str, int]]:
    return [(str(n.version), n.kind, n.why, n.ordinal) for n in found.notes]


def test_batches_of_any_size_hold_whole_commits_and_come_again_as_they_were(
    source: Published, history: History
) -> None:
    load(source, 3)
    commit(source, 2, 0, 5, 1)
    source.feed.heartbeat()
    source.feed.state()
    commit(source, 0, 0)
    commit(source, 4, 4)
    source.feed.load_again(A, B)
    load(source, 2)
    commit(source, 1, 7)
    source.publish()
    whole = history.walk([A.id], history.loads()).take_all(None)
    first = history.behind(Version(1, 0).before())
    every = history.walk([A.id], first).take_all(None)
    assert (rows(whole), rows(every)) == (10, 29)
    ends = {0, 3, 5, 10, 11, 15, 19, 21, 22, 29}  # rows behind which a commit or a chunk ends

    for size in (1, 2, 3, 5, 6, 100):
        walk, batches, at = history.walk([A.id], first), [first], 0
        while (batch := walk.take(size)).place != batches[-1]:
            at += rows(batch)
            assert at in ends
            batches.append(batch.place)
            again = history.walk([A.id], batches[-2]).take(upto=batch.place)
            assert again == batch
            walk = history.walk([A.id], batch.place)  # one at a time
        assert at == 29


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("1/0", "1/0", 3),
        ("1/0", "1/2", 3 + 1 + 1),
        ("1/1", "1/1", 1),
        ("1/3", "1/3", 1 + 2),  # with what was loaded there
        ("1/4", "1/4", 1),
        ("2/0", "2/0", 4),
        ("2/1", None, 1),
        ("1/4", "2/1", 1 + 4 + 1),
        ("1/3", "1/2", 0),
        ("2/2", None, 0),
    ],
)
def test_a_range_has_its_commits_and_what_was_loaded_at_them(
    source: Published, history: History, start: str, end: str | None, wanted: int
) -> None:
    load(source, 3)
    commit(source, 1, 1)
    commit(source, 1)
    load(source, 2)
    commit(source, 1)
    source.feed.load_again(A, B)
    load(source, 4)
    commit(source, 1)
    source.publish()

    walk = history.walk([A.id], history.behind(Version.parse(start).before()))

    assert rows(walk.take_all(None if end is None else Version.parse(end))) == wanted


def test_what_an_overtaken_writer_wrote_last_is_not_the_newest(
    source: Published, history: History
) -> None:
    commit(source, 1)
    source.publish()
    overtaken, at = source.feed.writer, source.feed.seq
    source.feed.start()
    commit(source, 1)
    source.publish()
    newest = history.newest()

    source.feed.writer, source.feed.seq = overtaken, at
    source.feed.heartbeat()
    source.publish()

    assert history.newest() == newest
    assert newest.version == (1, 2)


def test_a_range_that_is_not_there_is_refused(source: Published, history: History) -> None:
    """Its reader would go on behind it, and never see what is between."""
    commit(source, 1, 1)
    source.publish()
    for version in (Version(1, 3), Version(2, 0), Version(9, 0)):
        with pytest.raises(StreamError, match="yet to come"):
            history.behind(version)
    assert history.behind(Version(2, 0).before()).version == Version(2, 0).before()

    for last, why in ((3, "do not go as far"), (0, "before the first")):
        walk = history.walk([A.id], history.behind(Version(1, 1)))
        with pytest.raises(StreamError, match=why):
            walk.take_all(Version(1, last))


def test_a_range_without_loads_says_where_it_goes_on_into_another_history(
    source: Published, history: History
) -> None:
    commit(source, 1)
    source.feed.load_again(A, B)
    load(source, 4)
    commit(source, 1)
    source.publish()

    walk = history.walk([A.id], history.behind(Version(1, 0)), loads=False)

    assert notes(walk.take_all(None)) == [("2/0", "gap", "not loaded", -1)]


def test_commits_are_read_without_what_was_loaded_between_them(
    source: Published, history: History
) -> None:
    load(source, 3)
    commit(source, 1)
    load(source, 2)
    commit(source, 1)
    load(source, 4)
    source.publish()
    place = history.behind(Version(1, 0))

    found = history.walk([A.id], place, loads=False).take_all(Version(1, 2))

    assert (rows(found), found.notes) == (2, ())
    assert rows(history.walk([A.id], place).take_all(Version(1, 2))) == 1 + 2 + 1 + 4


def test_an_epoch_that_continues_says_nothing_and_its_commits_follow(
    source: Published, history: History
) -> None:
    load(source, 2)
    commit(source, 1, 1)
    source.feed.start(epoch=2, continues=True)
    commit(source, 3)
    source.publish()

    found = history.walk([A.id], history.behind(Version(1, 1))).take_all(None)

    assert (rows(found), found.notes, found.place.version) == (4, (), (2, 1))
    assert rows(history.walk([A.id], history.loads()).take_all(None)) == 2 + 5


def test_an_epoch_that_is_yet_to_come_is_waited_for(source: Published, history: History) -> None:
    commit(source, 1)
    source.publish()
    walk = history.walk([A.id], history.behind(Version(2, 0).before()))
    source.feed.heartbeat()
    commit(source, 1)
    source.publish()
    assert rows(walk.take()) == 0
    source.feed.start(epoch=2, continues=True)
    commit(source, 2, 3)
    source.publish()
    assert rows(walk.take()) == 5


def test_what_retention_removed_between_two_batches_is_not_passed_over(
    source: Published, history: History
) -> None:
    """A later STATE is a beginning for readers of later commits, not for this one."""
    commit(source, 1)
    source.publish()
    place = history.newest()
    commit(source, 1)
    source.feed.state()
    source.publish()
    state = source.last_cut
    commit(source, 1)
    source.publish()
    source.forget(state)

    with pytest.raises(RangeExpired) as expired:
        history.walk([A.id], place).take()
    assert expired.value.where["commit"] == "1/1"
    assert rows(history.walk([A.id], history.behind(Version(1, 2))).take()) == 1
    for version in (Version(1, 1), Version(1, 0), Version(1, 0).before()):
        with pytest.raises(RangeExpired):
            history.behind(version)


def test_a_time_leads_to_the_first_commit_that_is_not_before_it(
    source: Published, history: History
) -> None:
    """The simulation's commit n is at n seconds; loads and heartbeats have no time."""
    load(source, 3)
    for at in range(40):
        commit(source, *[1] * (at % 4 + 1))
        load(source, 2, mode="AGAIN")
        source.feed.heartbeat()
    source.publish()
    newest = history.newest().version.seq

    for seq in range(1, newest + 1):
        for time in (seq * 1_000_000, seq * 1_000_000 - 1, seq * 1_000_000 - 999_999):
            assert history.since(time) == (1, seq)
    assert history.since(newest * 1_000_000 + 1) is None

    source.forget(source.last_cut // 2)
    with pytest.raises(RangeExpired, match="may be as late") as expired:
        history.since(0)
    oldest = Version.parse(str(expired.value.where["first"])).seq
    assert 2 < oldest < newest - 2
    with pytest.raises(RangeExpired):
        history.since(oldest * 1_000_000)
    assert history.since(oldest * 1_000_000 + 1) == (1, oldest + 1)


def test_a_takeover_is_not_taken_for_the_beginning_of_an_epoch(
    source: Published, history: History
) -> None:
    load(source, 2)
    commit(source, 1)
    source.feed.start()
    (_, start) = source.feed.records[-1]
    known = replace(start.head, resume=start.head.resume - 10)  # where the last commit ended
    source.feed.records[-1] = (0, replace(start, head=known))
    source.publish()
    at = source.last_cut
    commit(source, 1)
    source.publish()
    assert rows(history.walk([A.id], history.loads()).take()) == 4
    source.forget(at)

    with pytest.raises(RangeExpired):
        history.loads()
    with pytest.raises(RangeExpired):
        history.behind(Version(1, 0).before())
    assert rows(history.walk([A.id], history.behind(Version(1, 1))).take()) == 1


def test_a_snapshot_begins_at_the_newest_load_whose_rows_are_there(
    source: Published, history: History
) -> None:
    """Retention removes the rows of a first load after days; a re-read brings them again."""
    place = (TOPICS.table(A.id), 0)
    load(source, 3)
    commit(source, *[1] * 40)
    source.publish()
    assert history.snapshot([A.id]) == history.loads()
    source.broker.starts[place] = 3

    with pytest.raises(RangeExpired, match="load are not in Kafka") as expired:
        history.snapshot([A.id])
    assert "gauss-cdc snapshot --table public.a" in expired.value.hint

    for mode in ("AGAIN", "AGAIN"):
        source.feed.commits([insert(A, "9", "x")])
        load(source, 2, mode=mode)
    commit(source, 1)
    source.publish()
    found = history.walk([A.id], history.snapshot([A.id])).take_all(None)
    assert (rows(found), [note.why for note in found.notes]) == (3, ["a load follows", ""])
    assert found.notes[0].version == (1, 42)

    source.broker.starts[place] = source.broker.high(place) - 2
    with pytest.raises(RangeExpired):
        history.snapshot([A.id])


def test_a_snapshot_of_a_table_without_a_load_begins_with_its_first_commit(
    source: Published, history: History
) -> None:
    load(source, 0)
    commit(source, 2, 2)
    source.publish()

    assert history.snapshot([B.id]) == history.loads()
    source.broker.starts[TOPICS.table(B.id), 0] = 1
    with pytest.raises(RangeExpired):
        history.snapshot([B.id])
    load(source, 0, mode="AGAIN")
    source.publish()
    assert history.snapshot([A.id]) == history.loads()
    source.broker.starts[TOPICS.table(A.id), 0] = 1
    assert history.walk([A.id], history.snapshot([A.id])).take_all(None).ranges == ()


def test_offsets_of_a_topic_that_was_made_again_are_refused(
    source: Published, history: History
) -> None:
    """Rows of the new topic stand at the offsets of the old one."""
    commit(source, 2)
    source.publish()
    place = history.newest()
    before = history.walk([A.id], history.loads()).take()
    topic = TOPICS.table(A.id)
    source.make_again(topic)
    source.feed.load_again(A, B)
    load(source, 9)
    source.publish()

    found = history.walk([A.id], history.behind(Version(1, 0).before())).take()
    assert (rows(before), rows(found), len(found.topics[topic].ids)) == (2, 11, 2)
    with pytest.raises(TopicReplaced):
        history.readable(found)
    assert history.readable(history.walk([A.id], history.loads()).take())

    source.make_again(TOPICS.cuts)
    source.begin(writer=7)  # another history, with a START where the old one had its own
    commit(source, 1, 1, 1)
    source.publish()
    assert isinstance(problem(history, place), TopicReplaced)


def problem(history: History, place: Standing) -> ApplyError | None:
    try:
        history.walk([A.id], place).take()
    except ApplyError as error:
        return error
    return None


def test_what_moves_rows_without_sending_them_is_noted(source: Published, history: History) -> None:
    renamed = replace(A, id=TableId("public", "a2"))
    gone = replace(alter(A, A), after=None, tag="DROP TABLE")
    commits: list[Any] = [
        Tx(
            [insert(A, "1", "x")], (Hole("public.a", "seen", "why"), Hole("public.b", "seen", "no"))
        ),
        [insert(A, "2", "x"), gone, insert(A, "3", "x")],
        [alter(A, renamed)],
        [alter(renamed, A)],
        [replace(alter(A, A), moved=Moved("delete", A.id, "id < 5"))],
        [replace(alter(B, B), moved=Moved("move", A.id))],
        [alter(A, replace(A, key=())), alter(B, renamed)],
    ]
    for one in commits:
        source.feed.commits(one)
    load(source, 1)
    source.feed.load_again(B)
    commit(source, 1)
    source.feed.load_again(A, B)
    load(source, 1)
    source.publish()

    found = history.walk([A.id], history.behind(Version(1, 0).before())).take()

    tag = alter(A, A).tag
    assert notes(found) == [
        ("1/1", "gap", "seen: why", -1),
        ("1/2", "truncate", "DROP TABLE", 1),
        ("1/3", "truncate", f"{tag}: now public.a2", 0),
        ("1/4", "gap", f"{tag}: its rows stand under public.a2", 0),
        ("1/5", "gap", f"{tag}: partitions moved without their rows", 0),
        ("1/6", "gap", f"{tag}: partitions moved without their rows", 0),
        ("1/7", "truncate", "a load follows", -1),
        ("1/7", "loaded", "", of_reread(11)),
        ("2/0", "gap", "not loaded", -1),
        ("3/0", "truncate", "a load follows", -1),
        ("3/0", "loaded", "", of_reread(17)),
    ]
    assert found.notes[0].at == 1_000_000


def test_values_that_a_statement_computes_are_not_sent_and_noted(
    source: Published, history: History
) -> None:
    """A copy has NULL, or what it had, where older rows have something else now."""
    number, column = Column("n", 23), Column("n", 23, missing="5", has_default=True)
    with_n = replace(A, columns=(*A.columns, number))
    changes = [
        alter(A, with_n),
        alter(with_n, A),
        alter(A, replace(A, columns=(*A.columns, column))),
        alter(A, replace(A, columns=(*A.columns, replace(number, has_default=True)))),
        replace(alter(with_n, with_n), values={"n": "new"}),
        alter(with_n, replace(with_n, columns=(*A.columns, Column("n", 20)))),  # int8
        alter(with_n, replace(with_n, columns=(*A.columns, Column("n", 21)))),  # int2
        replace(alter(A, replace(A, columns=(A.columns[0], Column("w", 25)))), renamed={"v": "w"}),
    ]
    for one in changes:
        source.feed.commits([one])
    source.publish()

    found = history.walk([A.id], history.behind(Version(1, 0).before())).take()

    tag = alter(A, A).tag
    assert notes(found) == [
        (f"1/{seq}", "gap", f"{tag}: values of {name} in rows that were not sent", 0)
        for seq, name in ((3, "n"), (4, "n"), (5, "n"), (7, "n"), (8, "w"))
    ]


def test_several_tables_are_found_together_each_with_what_is_said_of_it(
    source: Published, history: History
) -> None:
    load(source, 2)
    commit(source, 3, 1)
    source.feed.commits(Tx([insert(A, "1", "x")], (Hole(str(B.id), "seen", "why"),)))
    source.feed.load_again(B)
    source.publish()

    first = history.behind(Version(1, 0).before())
    found = history.walk([A.id, B.id], first).take_all(None)
    apart = [history.walk([one], first).take_all(None) for one in (A.id, B.id)]

    assert sorted(found.ranges) == sorted(r for one in apart for r in one.ranges)
    assert sorted(found.notes) == sorted(n for one in apart for n in one.notes)
    assert found.topics == {name: one for f in apart for name, one in f.topics.items()}
    assert {one.table for one in found.topics.values()} == {A.id, B.id}
    walk = history.walk([A.id, B.id], first)
    assert rows(walk.take(1)) == 2  # the load
    assert rows(walk.take(1)) == 3 + 1  # a commit, whole
    assert rows(walk.take(3)) == 1 + 1 + 1


def test_several_tables_begin_where_each_has_a_load_whose_rows_are_there(
    source: Published, history: History
) -> None:
    both = [A.id, B.id]
    load(source, 2)
    commit(source, 1)
    source.publish()
    assert history.snapshot(both) == history.loads()

    source.broker.starts[TOPICS.table(A.id), 0] = 2  # what A was loaded with
    with pytest.raises(RangeExpired, match=r"snapshot --table public\.a "):
        history.snapshot(both)
    load(source, 2, mode="AGAIN")
    source.publish()
    with pytest.raises(RangeExpired, match=r"snapshot --table public\.b "):
        history.snapshot(both)
    commit(source, 1)
    source.feed.load(B, LoadPhase.BEGIN, mode="AGAIN")
    source.feed.load(B, LoadPhase.CHUNK, ["1", "x"], mode="AGAIN")
    source.feed.load(B, LoadPhase.END, mode="AGAIN")
    source.publish()

    found = history.walk(both, history.snapshot(both)).take_all(None)

    assert history.snapshot(both) == history.snapshot([A.id])
    assert [(note.table, note.kind) for note in found.notes] == [
        (one, kind) for one in both for kind in ("truncate", "loaded")
    ]
    assert rows(found) == 2 + (1 + 1) + 1


def test_a_gap_that_may_be_of_any_table_is_one_of_each(source: Published, history: History) -> None:
    """With `unknown-message = "quarantine"` nobody knows whose rows were in a message."""
    commit(source, 1)
    lost = Hole("*", "seen", "a message that is not understood")
    source.feed.commits(Tx([insert(A, "1", "x")], (lost,)))
    source.publish()

    found = history.walk([A.id], history.behind(Version(1, 1))).take()

    assert [(n.table, n.kind, n.why) for n in found.notes] == [
        (A.id, "gap", "seen: a message that is not understood")
    ]


def test_a_shape_that_each_load_tells_again_is_held_once() -> None:
    shapes, keyed = ShapeHistory(), replace(A, key=("v",), identity_columns=("v",))
    told = replace(alter(A, A), before=None, epoch=1)
    for n in range(100):
        shapes.note(replace(told, seq=n, ordinal=of_reread(n)))
    shapes.note(replace(alter(A, keyed), epoch=1, seq=50, ordinal=7))  # it comes late
    shapes.note(replace(told, seq=60, ordinal=0))

    found = [shapes.at(A.id, CommitKey(1, seq, 8)) for seq in (0, 49, 50, 59, 60, 99)]

    assert found == [A, A, keyed, keyed, A, A]
    assert len(shapes._of[A.id]) == 3
    assert shapes.last() == {A.id}
