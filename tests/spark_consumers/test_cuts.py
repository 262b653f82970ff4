"""Cut records become steps that follow each other, and nothing is skipped in silence."""

from dataclasses import replace

import pytest

from schemas.control import Commits, Hole, LoadPhase, Range, Start, TableLoad, Topic
from schemas.tables import TableSchema
from spark_consumers.cuts import check_complete, segments
from spark_consumers.errors import CutsGap, Incomplete, LedgerForeign
from spark_consumers.model import Change, Ledger, Rows, Segment
from tests.spark_consumers.feed import (
    Feed,
    Tx,
    alter,
    delete,
    insert,
    table,
    truncate,
)

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
C = table("c", "id integer, v text")
NEW = Ledger("bank")


def started() -> tuple[Feed, Ledger]:
    feed = Feed()
    feed.start()
    return feed, feed.segments(NEW)[-1].upto


def test_a_takeover_moves_only_the_ledger() -> None:
    feed, ledger = started()
    feed.start()

    (segment,) = feed.segments(ledger)

    assert isinstance(segment.cut, Start)
    assert (segment.rows, segment.ranges) == (0, ())
    assert (segment.upto.n, segment.upto.writer, segment.upto.instance) == (2, 2, "i2")
    assert segment.upto.next_offset == 3


def test_commits_of_several_records_are_one_segment() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x"), insert(B, "1", "x")], [insert(A, "2", "x")])
    feed.heartbeat()
    feed.commits([insert(A, "3", "x")])

    (segment,) = feed.segments(ledger)

    assert (segment.first_seq, segment.last_seq, segment.rows) == (1, 3, 4)
    assert segment.ranges == (
        Range("bank.public.a", 0, 5, 7),
        Range("bank.public.a", 0, 8, 9),
        Range("bank.public.b", 0, 5, 6),
    )
    assert segment.commit_rows == {1: 2, 2: 1, 3: 1}
    assert (segment.upto.n, segment.upto.seq, segment.upto.next_offset) == (3, 3, 7)
    assert (segment.upto.csn, segment.upto.committed_at) == (30, 3_000_000)
    check_complete(segment, feed.read_rows(segment))


def test_a_record_is_split_between_commits() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x"), insert(B, str(i), "x")] for i in range(3)))

    first, second, third = feed.segments(ledger, max_rows=2)

    assert first.ranges == (Range("bank.public.a", 0, 5, 6), Range("bank.public.b", 0, 5, 6))
    assert third.ranges == (Range("bank.public.a", 0, 7, 8), Range("bank.public.b", 0, 7, 8))
    assert [(s.upto.n, s.upto.seq, s.upto.next_offset) for s in (first, second, third)] == [
        (1, 1, 2),
        (1, 2, 2),
        (2, 3, 3),
    ]
    assert [s.after for s in (second, third)] == [first.upto, second.upto]


def test_a_split_record_is_taken_up_where_the_ledger_stands() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x")] for i in range(3)))
    middle = feed.segments(ledger, max_rows=1)[1].upto

    (segment,) = feed.segments(middle)

    assert (segment.first_seq, segment.last_seq) == (3, 3)
    assert segment.ranges == (Range("bank.public.a", 0, 7, 8),)


def test_strict_means_one_commit_each() -> None:
    feed, ledger = started()
    feed.commits(*([insert(A, str(i), "x")] for i in range(3)))

    assert [s.commit_rows for s in feed.segments(ledger, strict=True)] == [{1: 1}, {2: 1}, {3: 1}]


def test_a_commit_above_the_limit_is_alone_and_whole() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")], [insert(A, str(i), "x") for i in range(9)])

    assert [s.rows for s in feed.segments(ledger, max_rows=4)] == [1, 9]


@pytest.mark.parametrize("records", [1, 3])
def test_ddl_is_a_segment_of_its_own(records: int) -> None:
    feed, ledger = started()
    all_three = [[insert(A, "1", "x")], [insert(A, "2", "x"), alter(A, B)], [insert(A, "3", "x")]]
    for some in [all_three] if records == 1 else [[one] for one in all_three]:
        feed.commits(*some)

    plan = feed.segments(ledger)

    assert [(s.rows, s.is_barrier) for s in plan] == [(1, False), (2, True), (1, False)]
    check_complete(plan[1], feed.read_rows(plan[1]))


def test_loads_mark_and_clear_their_table() -> None:
    feed = Feed()
    feed.topics = {f"bank.public.{t}": Topic(f"id-{t}", 1) for t in "ab"} | {
        "bank.ddl": Topic("d", 1)
    }
    feed.start()
    for schema in (A, B):
        feed.load(schema, LoadPhase.BEGIN)
        feed.load(schema, LoadPhase.CHUNK, ["1", "x"])
        feed.load(schema, LoadPhase.END)

    plan: list[Segment] = []
    for record in feed.records:
        plan += segments(plan[-1].upto if plan else NEW, [record])

    assert [dict(s.upto.inexact) for s in plan] == [
        {"public.a": "not loaded", "public.b": "not loaded"},
        {"public.a": "loading", "public.b": "not loaded"},
        {"public.a": "loading", "public.b": "not loaded"},
        {"public.b": "not loaded"},
        {"public.b": "loading"},
        {"public.b": "loading"},
        {},
    ]
    assert [s.upto.state for s in plan[-2:]] == ["LOADING", "EXACT"]
    for segment in plan[1:]:
        assert [segment.cut] == [*segment.loads]
        check_complete(segment, feed.read_rows(segment))


def loaded(*tables: TableSchema, chunks: int = 2, rows: int = 3) -> Feed:
    """A feed with the loads of some tables, each `chunks` times `rows` rows."""
    feed = Feed()
    feed.start()
    for schema in tables:
        feed.load(schema, LoadPhase.BEGIN)
        for chunk in range(chunks):
            feed.load(schema, LoadPhase.CHUNK, *([f"{chunk}.{row}", "x"] for row in range(rows)))
        feed.load(schema, LoadPhase.END)
    return feed


def phases(plan: list[Segment]) -> list[str]:
    """Steps of loads by segment: the table's name and the phase, or its chunk's rows."""
    return [
        " ".join(
            f"{load.table.name}{load.rows if load.phase is LoadPhase.CHUNK else load.phase[0]}"
            for load in segment.loads
        )
        for segment in plan
    ]


def test_steps_of_loads_are_one_segment_up_to_its_rows() -> None:
    feed = loaded(A, B)

    assert phases(feed.segments(NEW)[1:]) == ["aB a3 a3 aE bB b3 b3 bE"]
    assert phases(feed.segments(NEW, max_rows=6)[1:]) == ["aB a3 a3 aE bB", "b3 b3 bE"]
    assert phases(feed.segments(NEW, max_rows=3)[1:]) == ["aB a3", "a3 aE bB", "b3", "b3 bE"]
    alone = ["aB", "a3", "a3", "aE bB", "b3", "b3", "bE"]
    assert phases(feed.segments(NEW, max_rows=2)[1:]) == alone
    for size in (2, 3, 6, 100):
        plan = feed.segments(NEW, max_rows=size)
        assert [s.after for s in plan[1:]] == [s.upto for s in plan[:-1]]
        assert plan[-1].upto == feed.segments(NEW)[-1].upto
        for segment in plan:
            check_complete(segment, feed.read_rows(segment))


def test_commits_and_takeovers_are_not_put_to_loads() -> None:
    feed = loaded(A)
    feed.commits([insert(A, "9", "x")])
    feed.load(B, LoadPhase.BEGIN)
    feed.heartbeat()
    feed.load(B, LoadPhase.END)
    feed.start()
    feed.load(A, LoadPhase.BEGIN)

    plan = feed.segments(NEW)

    assert phases(plan) == ["", "aB a3 a3 aE", "", "bB bE", "", "aB"]
    assert [s.after for s in plan[1:]] == [s.upto for s in plan[:-1]]


def test_a_load_that_begins_again_is_not_put_to_rows_of_the_one_before() -> None:
    feed = loaded(A, B, A)

    assert phases(feed.segments(NEW)[1:]) == ["aB a3 a3 aE bB b3 b3 bE", "aB a3 a3 aE"]


def test_one_step_locks_no_more_tables_than_a_target_can() -> None:
    tables = [table(f"t{at}", "id integer") for at in range(120)]
    feed = loaded(*tables, chunks=0)

    assert [len(s.loads) for s in feed.segments(NEW)[1:]] == [100, 100, 40]


def test_schemas_of_a_load_are_those_of_all_its_chunks() -> None:
    feed = loaded(A, B)
    for at, (offset, record) in enumerate(feed.records):
        if isinstance(record, TableLoad) and record.rows:
            ids = {f"bank.public.{record.table.name}": (at, 7)}
            feed.records[at] = offset, replace(record, schema_ids=ids)

    assert feed.segments(NEW)[1].schema_ids == {
        "bank.public.a": (2, 7, 3),
        "bank.public.b": (6, 7),
    }


def test_gaps_mark_their_table() -> None:
    feed, ledger = started()
    feed.commits(Tx([insert(A, "1", "x")], (Hole("public.b", "seen", "truncate"),)))

    (segment,) = feed.segments(ledger)

    assert (segment.upto.state, segment.upto.inexact) == (
        "LOADING",
        {"public.b": "seen: truncate"},
    )


@pytest.mark.parametrize("continues", [True, False])
def test_a_new_epoch_begins_where_the_target_stands(continues: bool) -> None:
    feed = Feed(topics={"bank.public.a": Topic("1", 1)})
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    feed.commits([insert(A, "1", "x")])
    feed.start(epoch=2, continues=continues)

    last = feed.segments(NEW)[-1].upto

    assert (last.epoch, last.seq, last.n) == (2, 0, 5)
    assert last.state == ("EXACT" if continues else "LOADING")


def test_an_epoch_that_follows_another_place_is_a_gap() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    feed.start(epoch=2, continues=True)

    with pytest.raises(CutsGap):
        list(segments(replace(ledger, n=2), feed.records[2:]))


def test_an_epoch_that_loads_all_tables_is_followed_whatever_the_target_missed() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    feed.start(epoch=2, continues=False)
    start = feed.records[-1]

    (segment,) = segments(replace(ledger, n=1, cluster_id="another"), [start])

    assert (segment.upto.epoch, segment.upto.n, segment.upto.seq) == (2, 3, 0)
    assert segment.upto.state == "EXACT"  # nothing was captured
    with pytest.raises(CutsGap):  # of an epoch that the target has left
        list(segments(replace(ledger, epoch=2), [start]))


def test_an_empty_target_begins_with_an_epoch_that_loads_all_tables() -> None:
    feed, _ = started()
    feed.commits([insert(A, "1", "x")])
    feed.start(epoch=2, continues=True)
    with pytest.raises(CutsGap):
        list(segments(NEW, feed.records[1:]))

    feed.start(epoch=3, continues=False)
    (segment,) = segments(NEW, feed.records[1:])

    assert (segment.upto.epoch, segment.upto.n, segment.upto.seq) == (3, 4, 0)


def test_a_missing_record_is_a_gap() -> None:
    feed, ledger = started()
    for i in range(3):
        feed.commits([insert(A, str(i), "x")])

    for lost in (1, 2):
        records = [r for i, r in enumerate(feed.records) if i not in (0, lost)]
        with pytest.raises(CutsGap):
            list(segments(ledger, records))


@pytest.mark.parametrize("say", [Feed.heartbeat, Feed.state])
def test_a_heartbeat_shows_that_a_record_is_missing(say) -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    say(feed)

    with pytest.raises(CutsGap):
        list(segments(ledger, feed.records[2:]))


def test_a_takeover_that_knows_other_commits_is_a_gap() -> None:
    feed, ledger = started()
    feed.seq = 7
    feed.start()

    with pytest.raises(CutsGap):
        feed.segments(ledger)


@pytest.mark.parametrize(
    "damage",
    [
        {"ranges": (Range("bank.public.a", 0, 5, 9),)},
        {"rows": 3},
        {"seqs": (1, 3)},
        {"seqs": (2, 3)},
    ],
)
def test_a_cut_that_does_not_add_up_is_refused(damage: dict) -> None:
    feed, ledger = started()
    cut = feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    commits = cut.commits
    if "rows" in damage:
        commits = tuple(replace(entry, rows=3) for entry in commits)
    if "seqs" in damage:
        commits = tuple(replace(e, seq=s) for e, s in zip(commits, damage["seqs"], strict=True))
    broken = Commits(cut.head, commits, damage.get("ranges", cut.ranges))

    with pytest.raises(CutsGap):
        list(segments(ledger, [(2, broken)]))


def test_another_cluster_or_another_life_of_a_topic_is_refused() -> None:
    feed = Feed(topics={"bank.public.a": Topic("1", 1)})
    feed.start()
    ledger = feed.segments(NEW)[-1].upto
    feed.topics = {"bank.public.a": Topic("2", 1)}
    feed.start()

    with pytest.raises(LedgerForeign):
        feed.segments(ledger)
    with pytest.raises(LedgerForeign):
        feed.segments(replace(ledger, cluster_id="other", topics={}))


def test_topics_of_a_state_reach_the_ledger_with_the_next_step() -> None:
    feed, ledger = started()
    feed.topics = {"bank.public.a": Topic("1", 1)}
    feed.state()
    feed.commits([insert(A, "1", "x")])

    (segment,) = feed.segments(ledger)

    assert segment.upto.topics == {"bank.public.a": "1"}


def rows_of(feed: Feed, ledger: Ledger) -> tuple:
    (segment,) = feed.segments(ledger)
    return segment, feed.read_rows(segment)


@pytest.mark.parametrize("damage", ["lost", "twice", "foreign"])
def test_rows_that_are_not_the_commits_are_refused(damage: str) -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x"), delete(A, "1"), truncate(A)])
    segment, content = rows_of(feed, ledger)
    changes = list(content.changes[A.id])
    if damage == "lost":
        changes.pop()
    elif damage == "twice":
        changes.append(changes[0])
    else:
        changes.append(Change(2, 0, "d", A.names(), None, None))

    check_complete(segment, content)
    with pytest.raises(Incomplete):
        check_complete(segment, Rows({A.id: changes}))


def test_a_truncation_may_stand_in_several_partitions() -> None:
    feed, ledger = started()
    feed.commits([truncate(A)])
    segment, content = rows_of(feed, ledger)

    check_complete(segment, Rows({A.id: [*content.changes[A.id]] * 2}))


def test_a_load_with_fewer_rows_than_stated_is_refused() -> None:
    feed, ledger = started()
    feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "x"])
    segment, content = rows_of(feed, ledger)

    with pytest.raises(Incomplete):
        check_complete(segment, Rows({A.id: content.changes[A.id][:1]}))


def test_rows_of_loads_are_counted_for_each_table() -> None:
    segment, content = rows_of(feed := loaded(A, B), feed.segments(NEW)[0].upto)
    a, b = content.changes[A.id], content.changes[B.id]

    check_complete(segment, content)
    for wrong in ({A.id: a[1:], B.id: [*b, b[0]]}, {A.id: a}, {A.id: a, B.id: b, C.id: b[:1]}):
        with pytest.raises(Incomplete):
            check_complete(segment, Rows(wrong, content.ddl))


def test_a_shape_that_a_load_begins_with_is_counted() -> None:
    feed = loaded(A, B)
    for at in (1, 5):
        offset, record = feed.records[at]
        assert isinstance(record, TableLoad)
        feed.records[at] = offset, replace(record, rows=1)
    segment, content = rows_of(feed, feed.segments(NEW)[0].upto)

    check_complete(segment, content)
    with pytest.raises(Incomplete):
        check_complete(segment, Rows(content.changes, content.ddl[:1]))
