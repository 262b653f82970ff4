"""Where a target stands after each record, and which records do not follow."""

from dataclasses import asdict, replace

import pytest

from schemas.control import (
    MEND,
    Hole,
    LoadPhase,
    Moved,
    Start,
    State,
    TableLoad,
    Topic,
    cut_from_avro,
    cut_to_avro,
)
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.cuts.complete import check_complete, promised
from spark_consumers.cuts.ledger import (
    LATE,
    NOT_CAPTURED,
    NOT_LOADED,
    SWITCHED,
    UNREAD,
    doubtful,
    is_for,
    is_unloaded,
    showing,
    shown,
    unshown,
)
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import CutsGap, LedgerForeign
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.step import absent_of, step
from tests.spark_consumers.feed import (
    Feed,
    Tx,
    alter,
    insert,
    loaded,
    started,
    table,
)
from tests.spark_consumers.sinks.test_step import Noting

A = table("a", "id integer, v text")
B = table("b", "id integer, v text")
C = table("c", "id integer, v text")
NEW = Ledger("bank")


def test_a_mark_without_what_readers_see_is_the_same_mark() -> None:
    assert unshown("it had a gap") == "it had a gap"
    assert unshown(showing("loading", "1/5")) == unshown(unshown(showing("loading", "2/7"))) != ""


@pytest.mark.parametrize("phase", [LoadPhase.CHUNK, LoadPhase.END])
def test_a_load_for_one_target_is_of_who_took_its_begin(phase: LoadPhase) -> None:
    cut = TableLoad(Feed().head(), A.id, phase, target="one")

    for mark in ("loading", "loading for another", "not loaded"):
        assert not is_for(replace(NEW, inexact={"public.a": mark}), cut, "one")
    assert is_for(replace(NEW, inexact={"public.a": "loading for one"}), cut, "another by now")


def test_rows_of_some_keys_are_of_who_has_the_name() -> None:
    cut = TableLoad(Feed().head(), A.id, LoadPhase.CHUNK, MEND, target="one")

    assert is_for(NEW, cut, "one")
    assert not is_for(replace(NEW, inexact={"public.a": "loading for one"}), cut, "another")


def test_a_takeover_moves_only_the_ledger() -> None:
    feed, ledger = started()
    feed.start()

    (segment,) = feed.segments(ledger)

    assert isinstance(segment.cut, Start)
    assert (segment.rows, segment.ranges) == (0, ())
    assert (segment.upto.n, segment.upto.writer, segment.upto.instance) == (2, 2, "i2")
    assert (segment.upto.next_offset, segment.upto.resume) == (3, 20)
    assert segment.upto.cluster_id == "cluster"


def test_a_table_that_went_before_its_load_began_is_not_waited_for() -> None:
    feed = Feed()
    feed.load_again(A, B, C)
    feed.load(A, LoadPhase.BEGIN)
    feed.state({"public.a": "BEGIN", "public.c": "PENDING"})
    feed.load(A, LoadPhase.END)

    upto = feed.segments(NEW)[-1].upto
    assert (upto.inexact, upto.state, upto.resume) == (
        {"public.c": "not loaded"}, "LOADING", 30,
    )  # fmt: skip

    feed.state()  # of a run that knows no loads
    assert feed.segments(NEW)[-1].upto == upto
    feed.load(C, LoadPhase.BEGIN)
    assert feed.segments(NEW)[-1].upto.inexact == {"public.c": "loading"}
    feed.load(C, LoadPhase.END)
    feed.load_again(A)
    feed.state({"public.b": "PENDING"})
    last = feed.segments(NEW)[-1].upto
    assert (last.inexact, last.state) == ({}, "EXACT")


def test_a_table_that_went_stays_marked_where_readers_see_older_rows() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    feed.load_again(A, B)
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    feed.state({"public.a": "END"})
    feed.commits([insert(A, "2", "x")])

    upto = feed.segments(replace(ledger, topics={"bank.public.b": "id-b"}))[-1].upto
    assert upto.inexact == {"public.b": f"{NOT_CAPTURED}; readers see commit 1/1"}


def test_a_table_that_a_takeover_marked_and_nobody_loads_is_not_captured() -> None:
    feed, ledger = started()
    feed.commits([insert(A, "1", "x")])
    marked = replace(ledger, inexact={"public.a": SWITCHED, "public.b": SWITCHED})
    feed.state({"public.a": "GAP"})

    segment = feed.segments(marked)[-1]
    assert segment.upto.inexact == {"public.a": SWITCHED, "public.b": NOT_CAPTURED}
    assert isinstance(segment.cut, State)
    # It was dropped, now or long ago: only a target that has it is not what the source is.
    assert doubtful(segment.after, segment.upto, segment.cut) == {"public.b": NOT_CAPTURED}


def test_what_a_target_has_and_a_new_epoch_does_not_capture_is_in_doubt() -> None:
    """A DROP that no slot kept is told by nobody."""
    feed = Feed(topics={f"bank.public.{name}": Topic(name, 1) for name in "abc"})
    feed.load_again(A, B, C)
    for schema in (A, B, C):
        feed.load(schema, LoadPhase.BEGIN)
        feed.load(schema, LoadPhase.END)
    feed.commits(Tx([insert(A, "1", "x")], (Hole("public.c", "seen", "lost"),)))
    before = feed.segments(NEW)[-1].upto
    before = replace(before, inexact={**before.inexact, "bank.public.cut_off": UNREAD})
    del feed.topics["bank.public.b"], feed.topics["bank.public.c"]
    start = feed.load_again(A)
    feed.start()

    new, again = feed.segments(before)
    assert isinstance(start, Start)
    assert doubtful(new.after, new.upto, start) == {
        "public.b": f"{NOT_CAPTURED}; readers see commit 1/1",
        "public.c": "seen: lost",
    }
    marked = replace(again.after, inexact={**again.after.inexact, "public.b": NOT_CAPTURED})
    assert isinstance(again.cut, Start)
    assert doubtful(marked, marked, again.cut) == {"public.b": NOT_CAPTURED}


def test_a_table_that_joins_an_epoch_without_loads_is_not_read() -> None:
    feed = Feed(topics={"bank.public.a": Topic("a", 1)})
    feed.start()
    feed.topics["bank.public.b"] = Topic("b", 1)
    feed.start()
    feed.start()

    assert [dict(s.upto.inexact) for s in feed.segments(NEW)] == [
        {"public.a": UNREAD},
        *[{"public.a": UNREAD, "public.b": UNREAD}] * 2,
    ]


def test_a_table_that_joins_where_the_tables_of_all_loads_are_gone_is_loaded() -> None:
    """What the START says that finds it is told before its load begins."""
    feed = Feed(topics={"bank.public.a": Topic("a", 1)})
    feed.load_again(A)
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    feed.had_loads = True
    feed.state({})
    feed.topics["bank.public.b"] = Topic("b", 1)
    feed.start()

    assert [dict(s.upto.inexact) for s in feed.segments(NEW)][-1] == {}


def test_of_several_gaps_of_a_table_one_that_was_seen_is_told() -> None:
    feed, ledger = started()
    seen, suspected = Hole("public.a", "seen", "do this"), Hole("public.a", "suspected", "perhaps")
    feed.commits(Tx([], (suspected, seen, suspected)))

    assert feed.segments(ledger)[-1].upto.inexact == {"public.a": "seen: do this"}


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
        {"public.a": UNREAD, "public.b": UNREAD},
        {"public.a": "loading", "public.b": UNREAD},
        {"public.a": "loading", "public.b": UNREAD},
        {"public.b": UNREAD},
        {"public.b": "loading"},
        {"public.b": "loading"},
        {},
    ]
    assert [s.upto.state for s in plan[-2:]] == ["LOADING", "EXACT"]
    for segment in plan[1:]:
        assert [segment.cut] == [*segment.loads]
        check_complete(promised(segment), feed.read_rows(segment))


def test_the_end_of_a_load_clears_the_mark_of_its_table_and_of_no_other_one() -> None:
    """Names that differ by the place of a dot alone."""
    one, other = replace(A, id=TableId("a", "b.c")), replace(A, id=TableId("a.b", "c"))
    feed = loaded(one, other, rows=0)
    feed.commits(Tx([], (Hole(str(one.id), "seen", "values were not sent"),)))
    for phase in (LoadPhase.BEGIN, LoadPhase.END):
        feed.load(other, phase)

    assert feed.segments(NEW)[-1].upto.inexact == {'a."b.c"': "seen: values were not sent"}
    for phase in (LoadPhase.BEGIN, LoadPhase.END):
        feed.load(one, phase)
    assert feed.segments(NEW)[-1].upto.state == "EXACT"


def test_marks_of_an_earlier_build_get_the_texts_that_tables_have_now() -> None:
    names, odd = Topics("bank"), TableId("app.v2", "t")
    cut = names.table(TableId("public", "x" * 300))
    kept = {"public.a": "loading", "app.v2.t": "seen", "a.b.c": "seen", cut: "not loaded"}
    topics = {names.table(odd): "1", cut: "2"}

    ledger = Ledger.read(asdict(replace(NEW, inexact=kept, topics=topics)))

    assert [*ledger.inexact] == ["public.a", '"app.v2".t', 'a."b.c"', cut]
    assert Ledger.read(asdict(ledger)) == ledger
    assert Ledger.read({"source": "bank"}) == NEW


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
    feed.start(epoch=3, continues=False)
    (segment,) = segments(NEW, feed.records[1:])

    assert (segment.upto.epoch, segment.upto.n, segment.upto.seq) == (3, 4, 0)


def test_without_such_an_epoch_it_begins_late_with_the_newest_state_and_no_table() -> None:
    feed, _ = started()
    feed.commits([insert(A, "1", "x")])
    feed.start(epoch=2, continues=True)
    feed.commits([insert(A, "2", "x")])
    feed.state({"public.a": "END", "public.b": "PENDING", "public.c": "LEFT"})
    newest = feed.records[-1]
    feed.commits([insert(A, "3", "x")])

    (late,) = segments(NEW, feed.records[1:])

    assert (late.after, late.cut, late.ranges) == (NEW, newest[1], ())
    at = late.upto
    assert (at.epoch, at.n, at.seq) == (2, newest[1].head.n, newest[1].head.last_seq)
    assert (at.next_offset, at.state) == (newest[0] + 1, "LOADING")
    assert dict(at.inexact) == {"public.a": LATE, "public.b": NOT_LOADED, "public.c": LATE}
    assert shown(at, "public.a") == "", "no reader sees rows of it"
    (following,) = segments(at, feed.records[-1:])
    assert following.upto.inexact == at.inexact


def test_a_late_target_lacks_what_was_made_in_the_stream_too() -> None:
    feed, names = Feed(), Topics("bank")
    cut_name = TableId("public", "x" * 300)
    topics = [names.table(A.id), names.table(cut_name), names.cuts, names.ddl]
    feed.topics = dict.fromkeys([*topics, "bank.public.made"], Topic("6", 1))
    feed.start()
    feed.start()
    feed.state({"public.a": "END"})

    (late,) = segments(NEW, feed.records[1:])

    lacking = {"public.a", "public.made", names.table(cut_name)}
    assert late.upto.inexact == dict.fromkeys(lacking, LATE)


def test_a_late_target_lacks_a_table_that_the_stream_brought_and_that_is_noted_as_pending() -> None:
    """It was made while `run` was down; its note goes once no other table is read."""
    feed, _ = started()
    feed.state({"public.a": "CHUNK", "public.b": "PENDING", "public.c": "PENDING"})
    newest = feed.records[-1:]
    (late,) = segments(NEW, newest, known=lambda *_: ["public.a", "public.b"])

    assert dict(late.upto.inexact) == {
        "public.a": LATE, "public.b": LATE, "public.c": NOT_LOADED
    }  # fmt: skip
    feed.state({"public.a": "CHUNK"})
    feed.load(C, LoadPhase.BEGIN)
    behind = feed.segments(late.upto)[-1].upto
    assert {table: behind.inexact[table] for table in ("public.a", "public.b")} == {
        "public.a": LATE, "public.b": LATE
    }  # fmt: skip


def test_a_table_that_is_not_here_stays_so_until_its_load_begins() -> None:
    feed, _ = started()
    feed.state({"public.a": "CHUNK", "public.b": "PENDING"})
    (late,) = segments(NEW, feed.records[-1:])
    at = late.upto
    feed.load(A, LoadPhase.CHUNK)
    feed.load(A, LoadPhase.END)
    feed.commits(Tx([insert(B, "1", "x")], (Hole("public.a", "seen", "w"),)))
    feed.state({"public.a": "END"})
    *_, behind = feed.segments(at)

    assert dict(behind.upto.inexact) == {"public.a": LATE, "public.b": LATE}, "rows of b came"
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    *_, loaded = feed.segments(behind.upto)
    assert dict(loaded.upto.inexact) == {"public.b": LATE}


def test_a_missing_record_is_a_gap() -> None:
    feed, ledger = started()
    for i in range(3):
        feed.commits([insert(A, str(i), "x")])

    for lost in (1, 2):
        records = [r for i, r in enumerate(feed.records) if i not in (0, lost)]
        with pytest.raises(CutsGap):
            list(segments(ledger, records))


def test_a_takeover_that_knows_other_commits_is_a_gap() -> None:
    feed, ledger = started()
    feed.seq = 7
    feed.start()

    with pytest.raises(CutsGap):
        feed.segments(ledger)


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


def test_a_start_that_does_not_name_a_topic_lets_it_be_made_again() -> None:
    """Its table left [tables]; later it comes back."""
    feed = Feed(topics={"bank.public.a": Topic("1", 1), "bank.public.b": Topic("2", 1)})
    feed.start()
    for topics in ({"bank.public.a": Topic("1", 1)}, {"bank.public.b": Topic("3", 1)}):
        feed.topics = topics
        feed.start()

    assert feed.segments(NEW)[-1].upto.topics == {"bank.public.b": "3"}


def test_topics_of_a_state_reach_the_ledger_with_the_next_step() -> None:
    feed, ledger = started()
    feed.topics = {"bank.public.a": Topic("1", 1)}
    feed.state()
    feed.commits([insert(A, "1", "x")])
    known = replace(ledger, topics={"bank.public.a": "", "bank.public.b": "2"})

    for at, topics in ((ledger, {}), (known, {"bank.public.b": "2"})):
        (segment,) = feed.segments(at)
        assert segment.upto.topics == {"bank.public.a": "1", **topics}

    feed.state()
    for other in (replace(known, topics={"bank.public.a": "9"}), replace(known, cluster_id="x")):
        with pytest.raises(LedgerForeign):
            feed.segments(other)


def test_commits_of_another_epoch_are_a_gap() -> None:
    feed, ledger = started()
    cut = feed.commits([insert(A, "1", "x")])
    other = replace(cut, head=replace(cut.head, epoch=2))

    with pytest.raises(CutsGap):
        list(segments(ledger, [(2, other)]))


def test_an_epoch_without_a_load_marks_all_tables_by_their_topics() -> None:
    odd = replace(A, id=TableId("public", "x" * 300))
    names = Topics("bank")
    feed = Feed(topics={names.table(A.id): Topic("1", 1), names.table(odd.id): Topic("2", 1)})
    feed.topics |= {names.ddl: Topic("3", 1), names.cuts: Topic("4", 1)}
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    feed.start(epoch=2, continues=False)

    upto = feed.segments(NEW)[-1].upto
    # A name that ends in a hash has no way back to its table.
    assert upto.inexact == {"public.a": UNREAD, names.table(odd.id): UNREAD}
    assert not is_unloaded(UNREAD)  # nothing brings it by itself
    assert absent_of(upto.inexact) == set()  # what is written from now on is delivered
    assert shown(upto, "public.a") == f"2/0 ({UNREAD})"

    feed.load(A, LoadPhase.BEGIN)  # `gauss-cdc snapshot --table public.a`
    feed.load(A, LoadPhase.END)
    feed.state({"public.a": "END"})
    assert feed.segments(NEW)[-1].upto.inexact == {names.table(odd.id): UNREAD}

    feed.load(odd, LoadPhase.BEGIN)
    feed.load(odd, LoadPhase.END)
    assert feed.segments(NEW)[-1].upto.inexact == {}


def applied(feed: Feed, ledger: Ledger) -> Ledger:
    """The ledger behind all records, each step planned anew."""
    at = replace(ledger, fence=3)
    while plan := feed.segments(at):
        at = step(Noting(at, feed.read_rows(plan[0]).ddl), plan[0], fence=3)
    return at


def test_a_mark_of_a_switch_goes_along_with_a_rename() -> None:
    feed, ledger = started()
    marked = replace(ledger, inexact={"public.a": SWITCHED})
    feed.commits([alter(A, replace(A, id=TableId("public", "konto")))])
    feed.state({"public.konto": "GAP"})

    assert applied(feed, marked).inexact == {"public.konto": SWITCHED}


def test_a_root_takes_the_mark_of_a_switch_with_the_rows_of_a_part() -> None:
    feed, ledger = started()
    marked = replace(ledger, inexact={"public.a": SWITCHED})
    attached = replace(alter(B, B), moved=Moved("move", A.id))
    feed.commits([attached, alter(A, None, tag="DROP TABLE")])
    feed.state({"public.b": "GAP"})

    assert applied(feed, marked).inexact == {"public.b": SWITCHED}


@pytest.mark.parametrize(
    ("why", "is_open"),
    [
        ("loading", True),
        ("not loaded", True),
        ("loading; readers see commit 1/2", True),
        ("seen: TRUNCATE; readers see commit 1/2", True),
        ("seen: TRUNCATE", False),
    ],
)
def test_a_table_whose_load_is_to_come_or_under_way_is_not_loaded(why: str, is_open: bool) -> None:
    assert is_unloaded(why) is is_open


def test_a_ledger_without_an_epoch_shows_no_commit() -> None:
    assert shown(NEW, "public.a") == ""


def test_until_they_are_loaded_again_tables_show_the_commit_of_the_epoch_before() -> None:
    feed = Feed(topics={"bank.public.a": Topic("1", 1)})
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)
    feed.commits([insert(A, "1", "x")])
    feed.load_again(A, B)
    shows = "not loaded; readers see commit 1/1"

    again = feed.segments(NEW)[-1].upto

    assert again.inexact == {"public.a": shows, "public.b": "not loaded"}

    feed.load_again(A, B)
    assert feed.segments(again)[-1].upto.inexact["public.a"] == shows

    feed.load(A, LoadPhase.BEGIN)
    assert feed.segments(again)[-1].upto.inexact["public.a"] == "loading"


def test_a_gap_in_a_record_of_an_earlier_build_marks_the_table_that_has_it() -> None:
    """Its text had no quotes: the ledger's topics say which table it names."""
    odd = replace(A, id=TableId("app.v2", "t"))
    feed = Feed(topics={Topics("bank").table(odd.id): Topic("1", 1)})
    feed.start()
    for phase in (LoadPhase.BEGIN, LoadPhase.END):
        feed.load(odd, phase)
    feed.commits(Tx([], (Hole("app.v2.t", "seen", "values were not sent"),)))
    offset, cut = feed.records[-1]
    feed.records[-1] = offset, cut_from_avro(cut_to_avro(cut))

    assert [*feed.segments(NEW)[-1].upto.inexact] == ['"app.v2".t']

    for phase in (LoadPhase.BEGIN, LoadPhase.END):
        feed.load(odd, phase)
    assert feed.segments(NEW)[-1].upto.state == "EXACT"


@pytest.mark.parametrize(
    ("why", "then"),
    [
        ("seen: lost; readers see commit 1/1", "seen: lost; readers see commit 1/1"),
        ("loading", NOT_CAPTURED),
        ("loading; readers see commit 1/1", f"{NOT_CAPTURED}; readers see commit 1/1"),
        ("not loaded; readers see commit 1/1", f"{NOT_CAPTURED}; readers see commit 1/1"),
        (SWITCHED, NOT_CAPTURED),
        (NOT_LOADED, None),  # the target has nothing of it
        (LATE, None),
    ],
)
def test_what_a_new_epoch_does_not_load_is_marked_as_it_was_or_as_not_loaded(
    why: str, then: str | None
) -> None:
    feed = Feed(topics={"bank.public.a": Topic("1", 1)})
    feed.start()
    before = replace(feed.segments(NEW)[-1].upto, inexact={"public.b": why})
    feed.load_again(A)
    feed.state({"public.a": "PENDING"})

    found = feed.segments(before)[-1].upto.inexact

    assert found == {"public.a": found["public.a"], **({"public.b": then} if then else {})}
    assert not is_unloaded(f"{NOT_CAPTURED}; readers see commit 1/1")  # nothing brings it by itself


def test_a_mark_of_a_table_that_an_epoch_does_not_load_stays() -> None:
    """It left the publication, which its mark says, and is not back when an epoch begins."""
    feed = Feed(topics={f"bank.public.{name}": Topic(name, 1) for name in "ab"})
    feed.load_again(A, B)
    for schema in (A, B):
        feed.load(schema, LoadPhase.BEGIN)
        feed.load(schema, LoadPhase.END)
    feed.commits(Tx([], (Hole("*", "seen", "nobody understands it"),)))  # loads bring it
    feed.commits(Tx([], (Hole("public.b", "seen", "not in the publication"),)))
    before = feed.segments(NEW)[-1].upto
    feed.load_again(A)
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.END)

    assert feed.segments(before)[-1].upto.inexact == {"public.b": "seen: not in the publication"}

    feed.load(B, LoadPhase.BEGIN)  # it is published again
    feed.load(B, LoadPhase.END)
    assert feed.segments(before)[-1].upto.inexact == {}
