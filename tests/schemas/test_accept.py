"""Which records of cuts count: each rule of the protocol's section 1."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.accept import (
    CutGap,
    CutIdentity,
    CutReplay,
    Foreign,
    Record,
    backwards,
    counts,
    judge,
    replay_tail,
)
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    LoadPhase,
    Looked,
    NewerFormat,
    Prev,
    Range,
    Start,
    State,
    TableLoad,
    Topic,
)
from schemas.tables import TableId

IDENTITY = Identity("7000", 1, "bank", "gauss_cdc", "pgoutput")
TOPICS = {"bank.cuts": Topic("id", 1)}


def head(n: int, *, seq: int = 0, resume: int = 0, writer: int = 1, epoch: int = 1) -> Head:
    return Head(n, epoch, writer, f"w{writer}", seq, resume, 0)


def start(n: int, *, prev: Prev | None = None, **more: int) -> Start:
    own = replace(head(n, **more), state_from=-1)
    return Start(own, IDENTITY, "content", "cluster", TOPICS, {}, prev)


def state(n: int, **more: int) -> State:
    own = replace(head(n, **more), state_from=-1)
    return State(own, IDENTITY, "other", "cluster", TOPICS, {"public.a": "BEGIN"})


def commits(n: int, *seqs: int, xid: int = 700, **more: int) -> Commits:
    entries = tuple(CommitEntry(s, xid + s, 5, 10 * s, 10 * s + 5, 0, 1, {0: 1}) for s in seqs)
    ranges = (Range("bank.public.a", 0, 0, seqs[-1] * 10),)
    return Commits(head(n, seq=seqs[-1], resume=10 * seqs[-1] + 5, **more), entries, ranges)


def beat(n: int, **more: int) -> Heartbeat:
    return Heartbeat(head(n, **more))


def load(n: int, phase: LoadPhase, **more: int) -> TableLoad:
    ranges = (Range("bank.public.a", 1, 3, 5),)
    return TableLoad(head(n, **more), TableId("public", "a"), phase, ranges=ranges)


def replayed(*cuts: Cut) -> CutReplay:
    replay = CutReplay.from_nobody()
    for offset, cut in enumerate(cuts):
        assert replay.accept(offset, cut) is cut
    return replay


# ---------------------------------------------------------------- nobody yet
def test_everything_before_the_first_start_or_state_is_skipped() -> None:
    replay = CutReplay.from_nobody()

    assert replay.accept(0, commits(5, 3)) is None
    assert replay.accept(1, beat(5)) is None
    assert replay.accept(2, load(6, LoadPhase.BEGIN)) is None
    assert replay.instance is None


@pytest.mark.parametrize("first", [start(7, seq=3, resume=40), state(7, seq=3, resume=40)])
def test_the_first_start_or_state_is_taken_as_it_stands(first: State) -> None:
    replay = replayed(first)

    assert (replay.n, replay.epoch, replay.seq, replay.resume) == (7, 1, 3, 40)
    assert (replay.writer, replay.instance) == (1, "w1")
    assert replay.state is first
    assert replay.loads == first.loads


# ---------------------------------------------------------------- one writer
def test_commits_move_n_seq_and_resume_and_say_where_our_rows_end() -> None:
    replay = replayed(start(1), commits(2, 1, 2), commits(3, 3))

    assert (replay.n, replay.seq, replay.resume) == (3, 3, 35)
    assert replay.known == {3: (30, 703)}
    assert replay.ends == {("bank.public.a", 0): 30}
    assert replay.csn == 5


def test_resume_and_csn_do_not_go_back() -> None:
    replay = replayed(start(1), commits(2, 1), beat(2, resume=90))
    older = commits(3, 2)
    entries = tuple(replace(entry, csn=3) for entry in older.commits)

    assert replay.accept(4, replace(older, commits=entries)) is not None
    assert (replay.resume, replay.csn) == (90, 5)


def test_the_greatest_epoch_is_that_of_any_record() -> None:
    replay = replayed(start(1))
    for epoch in (5, 2):
        replay.follow(2, beat(1, epoch=epoch))

    assert replay.greatest == 5
    assert replay.epoch == 1


def test_what_was_looked_at_is_that_of_a_state_and_of_tables_that_began_behind_it() -> None:
    first = Looked(5, "1:2", {"16": "a", "17": "b"})
    of_table = Looked(9, "1:2", {"17": "c"})
    begin = replace(load(2, LoadPhase.BEGIN), looked=of_table)
    replay = replayed(replace(start(1), looked=first), begin, load(3, LoadPhase.END))
    assert replay.looked == Looked(5, "1:2", {"16": "a", "17": "c"})

    replay = replayed(replace(start(1), looked=first), begin, state(2))
    assert replay.looked is None, "a STATE says it anew"
    replay = replayed(start(1), begin)
    assert replay.looked is None, "nothing was compared"


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(commits(3, 1), id="n of COMMITS jumps"),
        pytest.param(commits(1, 1), id="n of COMMITS repeats"),
        pytest.param(commits(2, 2), id="seq jumps"),
        pytest.param(commits(2, 1, 3), id="seq jumps inside"),
        pytest.param(commits(2, 1, 1), id="a seq twice"),
        pytest.param(replace(commits(2, 1), commits=()), id="no commits at all"),
        pytest.param(replace(commits(2, 1), head=head(2, seq=2)), id="last_seq is another"),
        pytest.param(load(3, LoadPhase.BEGIN), id="n of TABLE jumps"),
        pytest.param(beat(2), id="n of HEARTBEAT is ahead"),
        pytest.param(beat(0), id="n of HEARTBEAT is behind"),
        pytest.param(state(2), id="n of STATE is ahead"),
        pytest.param(start(3, writer=2, resume=1), id="n of START jumps"),
        pytest.param(start(1, writer=2, resume=1), id="n of START repeats"),
        pytest.param(start(2, writer=3, resume=1), id="a START was passed over"),
        pytest.param(start(2, writer=2, seq=1, resume=1), id="START knows another seq"),
        pytest.param(start(2, writer=2, resume=7), id="START knows another resume"),
        pytest.param(commits(2, 1, epoch=2), id="epoch without its START"),
        pytest.param(start(2, writer=2, epoch=2), id="new epoch without prev"),
        pytest.param(
            start(2, writer=2, epoch=2, prev=Prev(1, 9, 1)), id="new epoch after another place"
        ),
        pytest.param(beat(1, writer=2), id="record of a newer writer"),
        pytest.param(commits(2, 1, writer=2), id="commits of a newer writer"),
    ],
)
def test_a_record_that_does_not_follow_is_a_gap(lost: Cut) -> None:
    replay = replayed(start(1, resume=1))

    with pytest.raises(CutGap, match="offset 1"):
        replay.accept(1, lost)


def test_heartbeats_and_states_repeat_n_and_move_resume() -> None:
    replay = replayed(start(1), beat(1, resume=90), state(1, resume=80))

    assert (replay.n, replay.resume) == (1, 90)
    assert replay.state is not None
    assert replay.state.content == "other"
    assert replay.is_loading()


def test_tables_count_and_say_how_far_their_load_is() -> None:
    replay = replayed(start(1), load(2, LoadPhase.BEGIN))
    assert replay.is_loading()

    replay.accept(2, load(3, LoadPhase.CHUNK))
    assert replay.is_loading()
    assert replay.ends == {("bank.public.a", 1): 5}

    replay.accept(3, load(4, LoadPhase.END))
    assert not replay.is_loading()
    assert replay.n == 4


# ---------------------------------------------------------------- delivered before
def test_commits_known_already_are_ignored_and_do_not_move_n() -> None:
    replay = replayed(start(1), commits(2, 1, 2))

    assert replay.accept(9, commits(3, 1, 2)) is None
    assert replay.accept(9, commits(99, 2)) is None
    assert (replay.n, replay.seq) == (2, 2)


def test_commits_known_in_part_count_for_their_rest() -> None:
    replay = replayed(start(1), commits(2, 1, 2))
    both = commits(3, 2, 3)

    assert replay.accept(9, both) is both
    assert (replay.n, replay.seq) == (3, 3)


@pytest.mark.parametrize("again", [(2,), (2, 3)])
def test_one_seq_that_names_two_transactions_is_refused(again: tuple[int, ...]) -> None:
    replay = replayed(start(1), commits(2, 1, 2))

    with pytest.raises(CutIdentity):
        replay.accept(9, commits(3, *again, xid=800))


def test_a_ledger_goes_on_where_it_stands_and_compares_what_it_knows() -> None:
    replay = CutReplay.resumed(n=5, epoch=1, seq=3, writer=1, instance="w1")

    assert replay.accept(0, commits(5, 3, xid=900)) is None  # nothing is known of seq 3
    assert replay.accept(1, commits(6, 4)) is not None
    assert replay.accept(2, start(7, writer=2, seq=4, resume=45)) is not None

    unread = CutReplay.resumed(n=5, epoch=1, seq=3, writer=1, instance="w1")
    assert unread.accept(0, start(6, writer=2, seq=3, resume=45)) is not None
    known = CutReplay.resumed(n=5, epoch=1, seq=3, writer=1, instance="w1", resume=44)
    with pytest.raises(CutGap, match="resume"):
        known.accept(0, start(6, writer=2, seq=3, resume=45))


# ---------------------------------------------------------------- takeovers
def test_a_newer_writer_takes_over() -> None:
    replay = replayed(start(1), commits(2, 1), start(3, writer=2, seq=1, resume=15))

    assert (replay.writer, replay.instance, replay.n) == (2, "w2", 3)
    assert replay.known == {1: (10, 701)}


def test_an_older_writers_start_is_ignored() -> None:
    replay = replayed(start(1), start(2, writer=2), start(3, writer=3))

    assert replay.accept(3, start(4, writer=2)) is None
    assert replay.accept(4, replace(start(4, writer=3), content="other")) is None
    assert replay.writer == 3


@pytest.mark.parametrize("late", [commits(2, 1), beat(1), state(1), load(2, LoadPhase.BEGIN)])
def test_an_overtaken_writer_is_ignored_and_counted_as_an_alarm(late: Cut) -> None:
    replay = replayed(start(1), start(2, writer=2))

    assert replay.accept(2, late) is None
    assert (replay.alarms, replay.n, replay.seq) == (1, 2, 0)


def test_another_instance_of_the_same_writer_is_an_alarm_too() -> None:
    replay = replayed(start(1))

    assert replay.accept(1, Heartbeat(replace(head(1), instance="twin"))) is None
    assert replay.alarms == 1


def test_a_new_epoch_follows_exactly_the_place_it_names() -> None:
    replay = replayed(
        start(1), commits(2, 1), start(3, writer=2, epoch=2, resume=900, prev=Prev(1, 1, 2))
    )

    assert (replay.epoch, replay.seq, replay.n, replay.resume) == (2, 0, 3, 900)
    assert (replay.known, replay.ends, replay.csn) == ({}, {}, 0)


# ---------------------------------------------------------------- what is not ours
def test_a_record_is_ours_by_its_key_and_its_bytes() -> None:
    def read(value: bytes) -> Cut:
        if value == b"newer":
            raise NewerFormat("of format 99")
        if value == b"junk":
            raise ValueError("secret")
        return beat(1)

    def judged(key: bytes | None, value: bytes | None) -> Record:
        return judge(key, value, source="bank", read=read)

    assert judged(b"bank", b"value") == beat(1)
    for key in (b"bank2", b"", None):
        assert judged(key, b"value") == Foreign("its key is not the prefix")
    assert judged(b"bank", None) == Foreign("it has no value")
    assert judged(b"bank", b"newer") == Foreign("of format 99", is_newer=True)
    assert judged(b"bank", b"junk") == Foreign("4 bytes are not a record of cuts")


def test_only_what_counts_has_the_next_n() -> None:
    of_load = load(2, LoadPhase.BEGIN)

    assert [counts(cut) for cut in (start(1), commits(2, 1), of_load)] == [True] * 3
    assert [counts(cut) for cut in (state(1), beat(1))] == [False] * 2


def test_the_walk_backwards_ends_where_it_is_told_to() -> None:
    log: list[tuple[int, Record]] = [(at, commits(at, at)) for at in range(100, 300)]

    def read(low: int, high: int) -> list[tuple[int, Record]]:
        assert low >= 200, "retention took what was before"
        return [(offset, cut) for offset, cut in log if low <= offset < high]

    found = backwards(read, 200, 300, 299, writer=1)
    assert [at for at, _ in found] == [*range(299, 199, -1)]


def test_the_walk_backwards_passes_over_what_a_stranger_wrote() -> None:
    nobody = {"head": replace(head(2), instance="nobody")}
    log: list[Record] = [
        *(start(1), beat(1), commits(2, 1)),
        *(replace(start(2), **nobody), replace(beat(2), **nobody), beat(2, writer=4), beat(2)),
        *(start(3, writer=2), beat(3, writer=2)),
        *(replace(beat(3), **nobody), start(3, writer=4)),
        *(commits(4, 2, writer=2), start(5, writer=3), commits(6, 3, writer=3)),
    ]

    def read(low: int, high: int) -> list[tuple[int, Record]]:
        return list(enumerate(log))[low:high]

    def walked(upto: int, n: int, writer: int, instance: str | None = None) -> list[int]:
        return [at for at, _ in backwards(read, 0, upto, n, writer=writer, instance=instance)]

    assert walked(14, 6, 3, "w3") == [13, 12, 11, 8, 7, 6, 2, 1, 0]
    assert walked(12, 4, 2) == [11, 8, 7, 6, 2, 1, 0]
    assert walked(12, 4, 2, "nobody") == []


JUNK = Foreign("7 bytes are not a record")


@pytest.mark.parametrize("at", range(4))
def test_a_record_that_cannot_be_decoded_is_skipped_and_counted(at: int) -> None:
    log: list[Record] = [start(1), commits(2, 1), beat(2)]
    log.insert(at, JUNK)
    replay = CutReplay.from_nobody()

    taken = [replay.accept(offset, record) for offset, record in enumerate(log)]

    assert [cut for cut in taken if cut] == [start(1), commits(2, 1), beat(2)]
    assert (replay.alarms, replay.alarm) == (1, f"offset {at}: 7 bytes are not a record")
    assert replay.suspect is None


FORGED = [
    pytest.param(start(1, writer=2), id="START with a known n"),
    pytest.param(start(9, writer=99, seq=8, resume=1 << 62), id="START out of the blue"),
    pytest.param(commits(7, 9), id="commits that leave a gap"),
    pytest.param(commits(3, 9), id="commits whose seq leaves a gap"),
    pytest.param(commits(3, 1, xid=0), id="another transaction of one seq"),
    pytest.param(beat(5), id="a heartbeat ahead"),
    pytest.param(beat(2, writer=7), id="a heartbeat of nobody"),
    pytest.param(commits(3, 2, epoch=4), id="commits of no epoch"),
    pytest.param(Foreign("of format 99", is_newer=True), id="a later format"),
]


@pytest.mark.parametrize("forged", FORGED)
def test_what_does_not_follow_was_forged_if_its_writer_goes_on_as_if_it_were_not_there(
    forged: Record,
) -> None:
    replay = replayed(start(1), commits(2, 1))

    assert replay.follow(2, forged) is None
    assert replay.suspect is not None
    assert replay.accept(3, commits(3, 2)) is not None

    assert replay.suspect is None
    assert replay.alarms == 1
    assert (replay.n, replay.seq) == (3, 2)


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_record_at_the_end_is_not_the_tail(forged: Record) -> None:
    found = tail([(0, start(1)), (2, from_(0, commits(2, 1))), (4, forged)])

    assert found is not None
    assert (found.n, found.seq, found.resume, found.writer) == (2, 1, 15, 1)
    assert found.suspect is not None


def test_a_lost_record_stays_suspected_whatever_its_writer_says_later() -> None:
    replay = replayed(start(1), commits(2, 1))

    for offset, later in enumerate([commits(4, 3), beat(4), state(4, seq=3), commits(5, 4)], 4):
        assert replay.follow(offset, later) is None

    assert "offset 4: n is 4, expected 3" in str(replay.suspect)
    assert replay.follow(9, start(1)) is None, "it does not count"
    assert replay.suspect is not None

    newer = replayed(start(1))
    for what in "ab":
        assert newer.follow(2, Foreign(what, is_newer=True)) is None
    assert str(newer.suspect) == "offset 2: a"
    assert newer.alarms == 0


def test_an_epoch_that_loads_all_tables_ends_any_gap() -> None:
    replay = replayed(start(1), commits(2, 1))
    replay.follow(2, commits(9, 8))
    anew = replace(start(40, writer=7, epoch=5, prev=Prev(4, 9, 39)), continues=False)

    assert replay.accept(3, anew) is anew

    assert (replay.suspect, replay.n, replay.epoch, replay.writer) == (None, 40, 5, 7)
    assert (replay.known, replay.ends, replay.csn, replay.alarms) == ({}, {}, 0, 0)
    assert replay.follow(4, replace(anew, head=replace(anew.head, epoch=4, writer=8))) is None


def test_a_copy_of_an_older_epochs_start_is_not_the_tail() -> None:
    anew = replace(start(3, writer=2, epoch=2, prev=Prev(1, 1, 2)), continues=False)
    log = [(0, start(1)), (2, from_(0, commits(2, 1))), (4, anew)]
    log += [(6, from_(4, commits(4, 1, writer=2, epoch=2)))]

    found = tail([*log, (8, replace(anew, head=replace(anew.head, instance="nobody")))])

    assert found is not None
    assert (found.n, found.seq, found.instance) == (4, 1, "w2")


def test_a_forged_start_is_not_the_tail_where_retention_left_none_before_it() -> None:
    forged = start(92, writer=5, seq=0)
    log = [(2, from_(0, commits(2, 1))), (4, forged), (6, from_(0, beat(2)))]
    log += [(8, state(2, seq=1)), (10, from_(8, commits(3, 2)))]

    found = tail(log, low=2)

    assert found is not None
    assert (found.n, found.seq, found.writer) == (3, 2, 1)


def test_a_state_from_that_names_garbage_is_no_beginning() -> None:
    records: list[tuple[int, Record]] = [
        (0, start(1)),
        (2, JUNK),
        (4, from_(2, beat(1))),
        (6, from_(900, beat(1))),
        (8, from_(0, beat(1, resume=30))),
        (10, from_(2, beat(1, resume=99))),
        (12, JUNK),
    ]

    found = tail(records)

    assert found is not None
    assert found.n == 1


def test_a_log_of_garbage_alone_has_no_tail() -> None:
    assert tail([(offset, JUNK) for offset in range(600)]) is None


# ---------------------------------------------------------------- the tail
READS: list[tuple[int, int]] = []


def tail(records: Sequence[tuple[int, Record]], low: int = 0) -> CutReplay | None:
    def read(a: int, b: int) -> list[tuple[int, Record]]:
        assert a >= low, "the log begins later"
        READS.append((a, b))
        return [(o, c) for o, c in records if a <= o < b]

    READS.clear()
    return replay_tail(read, low, max((o + 2 for o, _ in records), default=low))


def long_log(state_at: int, count: int = 500) -> list[tuple[int, Record]]:
    """START, and a commit at every second offset, but for one STATE."""
    log: list[tuple[int, Record]] = [(0, start(1))]
    n, seq, base = 1, 0, 0
    for at in range(2, 2 * count, 2):
        if at == state_at:
            log.append((at, state(n, seq=seq, resume=10 * seq + 5)))
            base = at
        else:
            n, seq = n + 1, seq + 1
            log.append((at, from_(base, commits(n, seq))))
    return log


@pytest.mark.parametrize(
    ("state_at", "low", "reads"),
    [
        # Far away: is there one, all from there on, and what stands before it.
        (0, 0, [(744, 1000), (0, 1), (0, 1000)]),
        (600, 0, [(744, 1000), (600, 601), (600, 1000), (344, 600)]),
        (600, 500, [(744, 1000), (600, 601), (600, 1000), (500, 600)]),
        # In what was read: so is what stands before it, but for its very beginning.
        (800, 0, [(744, 1000)]),
        (744, 0, [(744, 1000), (488, 744)]),
        # Without any, all is looked through.
        (300, 302, [(744, 1000), (488, 1000), (302, 1000), (744, 1000), (488, 1000), (302, 1000)]),
    ],
)
def test_no_more_of_a_long_log_is_read_than_that(
    state_at: int, low: int, reads: list[tuple[int, int]]
) -> None:
    found = tail([(at, cut) for at, cut in long_log(state_at) if at >= low], low)

    assert reads == READS
    assert (found is None) is (low > state_at)
    if found is not None:
        assert (found.n, found.seq) == ((500, 499) if state_at == 0 else (499, 498))


def by_nobody(cut: Cut) -> Cut:
    """Written by somebody who goes on from a place of his own."""
    return replace(cut, head=replace(cut.head, instance="nobody", n=50 + cut.head.n))


@pytest.mark.parametrize("low", [0, 2])
@pytest.mark.parametrize("named", [6, 2, 4, 5, 900])
def test_a_forged_state_is_no_beginning_whatever_names_it(low: int, named: int) -> None:
    """Of the same writer by its number, and other records name it, or anything before it."""
    log: list[tuple[int, Record]] = [(0, start(1)), (2, from_(0, commits(2, 1)))]
    log += [(4, state(2, seq=1, resume=15)), (5, from_(4, commits(3, 2)))]
    log += [(6, by_nobody(state(3, seq=2))), (8, from_(named, by_nobody(beat(3))))]

    found = tail([(at, cut) for at, cut in log if at >= low], low)

    assert found is not None
    assert (found.n, found.seq, found.instance) == (3, 2, "w1")


def test_where_every_state_was_forged_the_newest_is_taken() -> None:
    log = [(300, from_(10, commits(5, 4))), (302, by_nobody(state(3, seq=2)))]

    found = tail([*log, (304, from_(302, by_nobody(beat(3))))], low=300)

    assert found is not None
    assert (found.n, found.instance) == (53, "nobody")


@pytest.mark.parametrize("low", [0, 40])
def test_what_stands_first_in_a_log_may_be_anybodys(low: int) -> None:
    """Where the log begins at 0, nothing was before: a record of nobody's is none of ours."""
    junk: Record = from_(0, by_nobody(beat(9, writer=9))) if low == 0 else JUNK
    log: list[tuple[int, Record]] = [(low, junk)]
    if low == 0:
        log += [(2, start(1)), (4, from_(2, commits(2, 1)))]
    log += [(44, state(2, seq=1, resume=15)), (46, from_(44, commits(3, 2)))]
    log += [(48, by_nobody(state(3, seq=2))), (50, from_(48, by_nobody(beat(3))))]

    found = tail(log, low)

    assert found is not None
    assert (found.n, found.instance) == (3, "w1")


def test_a_long_stretch_of_garbage_hides_no_tail() -> None:
    log = [(0, start(1)), (2, from_(0, commits(2, 1)))]

    found = tail([*log, *((at, JUNK) for at in range(4, 700))])

    assert found is not None
    assert (found.n, found.seq) == (2, 1)
    assert READS == [(445, 701), (189, 701), (0, 701)]


def test_many_records_that_name_a_forged_state_cost_no_more_than_one() -> None:
    log = long_log(500)
    log += [(1000, by_nobody(state(498, seq=498)))]
    log += [(at, from_(1000, by_nobody(beat(498)))) for at in range(1002, 1600, 2)]

    found = tail(log)

    assert found is not None
    assert found.n == 499
    assert READS == [
        (1344, 1600), (1000, 1001), (1000, 1600), (744, 1000),  # the forged one, once
        (1088, 1600), (576, 1600), (500, 501), (500, 1600), (244, 500),
    ]  # fmt: skip


def from_(offset: int, cut: Cut) -> Cut:
    return replace(cut, head=replace(cut.head, state_from=offset))


def test_no_record_has_no_tail() -> None:
    assert tail([]) is None
    assert tail([], low=40) is None


def test_the_tail_is_found_before_trailing_markers_and_behind_long_logs() -> None:
    records: list[tuple[int, Cut]] = [(0, start(1))]
    records += [(2 * n, commits(n + 1, n)) for n in range(1, 1000)]

    found = tail(records)

    assert found is not None
    assert (found.n, found.seq) == (1000, 999)


def test_the_walk_begins_at_the_state_that_the_newest_record_names() -> None:
    records: list[tuple[int, Cut]] = [
        (0, beat(77)),  # would be a gap, if it were read
        (10, state(5, seq=3)),
        (12, from_(10, commits(6, 4))),
    ]

    found = tail(records)

    assert found is not None
    assert (found.n, found.seq) == (6, 4)


def test_a_zombies_record_at_the_end_is_not_the_tail() -> None:
    records: list[tuple[int, Cut]] = [
        (0, start(1)),
        (2, start(2, writer=2)),
        (4, from_(2, commits(3, 1, writer=2))),
        (6, from_(0, commits(2, 1, xid=900))),
    ]

    found = tail(records)

    assert found is not None
    assert (found.writer, found.n) == (2, 3)


def test_a_record_that_does_not_count_says_nothing_of_where_the_walk_begins() -> None:
    """From the START that it names, the walk stops at a gap; from the newest STATE it does not."""
    log = [(0, start(1)), (300, from_(0, commits(5, 4))), (302, state(5, seq=4))]
    log += [(304, from_(302, commits(6, 5))), (306, from_(0, by_nobody(beat(6))))]

    found = tail(log)

    assert found is not None
    assert (found.n, found.seq) == (6, 5)


def test_records_whose_start_is_gone_are_no_tail() -> None:
    assert tail([(50, from_(0, beat(4)))], low=50) is None


def test_a_state_is_a_tail_by_itself() -> None:
    found = tail([(4, state(9, seq=8))])
    assert found is not None
    assert found.seq == 8


@given(st.lists(st.sampled_from("cbst"), max_size=40), st.data())
def test_any_prefix_of_a_log_has_the_tail_that_walking_it_from_its_start_finds(
    kinds: list[str], data: st.DataObject
) -> None:
    records: list[tuple[int, Cut]] = [(0, start(1))]
    n, seq, resume, writer, base, at = 1, 0, 0, 1, 0, 0
    for kind in kinds:
        at += data.draw(st.integers(1, 3))
        match kind:
            case "c":
                n, seq = n + 1, seq + 1
                cut: Cut = from_(base, commits(n, seq, writer=writer))
                resume = cut.head.resume
            case "b":
                cut = from_(base, beat(n, seq=seq, resume=resume, writer=writer))
            case "s":
                cut, base = state(n, seq=seq, resume=resume, writer=writer), at
            case _:
                n, writer = n + 1, writer + 1
                cut, base = start(n, seq=seq, resume=resume, writer=writer), at
        records.append((at, cut))
    replay = CutReplay.from_nobody()
    for offset, cut in records:
        assert replay.accept(offset, cut) is cut

    found = tail(records)

    assert found is not None
    assert (found.n, found.seq, found.resume, found.writer) == (n, seq, resume, writer)
    assert (replay.n, replay.seq, replay.resume, replay.writer) == (n, seq, resume, writer)
