"""What cuts say of the commits behind a position."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from producer.core.log.delivered import delivered, recent
from producer.core.stream.redelivery import DeliveredPart
from producer.errors import CutsBroken, GroupUnusable, HistoryDiffers
from schemas.accept import Foreign, Record
from schemas.control import (
    ANY,
    GAP,
    LEFT,
    MEND,
    PENDING,
    CommitEntry,
    Commits,
    DdlPlace,
    Head,
    Heartbeat,
    Hole,
    Identity,
    LoadPhase,
    Prev,
    Range,
    Start,
    State,
    TableLoad,
)
from schemas.positions import Lsn
from schemas.tables import TableId
from schemas.topics import Topics

END = LoadPhase.END
SOURCE = Identity("7000", 1, "bank", "slot", "pgoutput")
TABLES = {name: TableId("public", name) for name in "abc"}
TOPICS = {table: f"bank.public.{name}" for name, table in TABLES.items()}


def named(**phases: str) -> dict[str, str]:
    return {f"public.{name}": phase for name, phase in phases.items()}


@dataclass
class Log:
    """A topic of cuts that grows; each record has a marker behind it."""

    loads: Mapping[str, str] = field(default_factory=lambda: named(a=END, b=END))
    records: dict[int, Record] = field(default_factory=dict)
    n: int = 0
    seq: int = 0
    epoch: int = 1
    writer: int = 0
    resume: int = 100
    first: int = 0
    read: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        return 2 * len(self.records)

    def _head(self, *, counts: bool) -> Head:
        self.n += counts
        return Head(self.n, self.epoch, self.writer, f"w{self.writer}", self.seq, self.resume, 0)

    def _add(self, record: Record) -> None:
        self.records[self.end] = record

    def starts(self, **more: Any) -> "Log":
        self.writer += 1
        head = self._head(counts=True)
        self._add(Start(head, SOURCE, "content", "cluster", {}, dict(self.loads), **more))
        return self

    def opens(self, resume: int, *, continues: bool = False) -> "Log":
        """Begin another epoch."""
        prev = Prev(self.epoch, self.seq, self.n) if self.n else None
        self.epoch, self.seq, self.resume = self.epoch + (prev is not None), 0, resume
        return self.starts(prev=prev, continues=prev and continues, reason="why")

    def states(self, **phases: str) -> "Log":
        self.loads = {**self.loads, **named(**phases)}
        self._add(State(self._head(counts=False), SOURCE, "", "", {}, dict(self.loads)))
        return self

    def commits(
        self,
        *starts: int,
        tables: str = "a",
        holes: Sequence[Hole] = (),
        ddl: Sequence[DdlPlace] = (),
        xid: int | None = None,
    ) -> "Log":
        ranges = tuple(Range(f"bank.public.{name}", 0, 0, 1) for name in tables)
        ranges += tuple(Range("bank.ddl", 0, place.offset, place.offset + 1) for place in ddl)
        entries = []
        for start in starts:
            self.seq, self.resume = self.seq + 1, start + 8
            counts = dict.fromkeys(range(len(ranges)), 1)
            entries.append(
                CommitEntry(
                    self.seq,
                    start + 1 if xid is None else xid,
                    0,
                    start,
                    start + 8,
                    0,
                    1,
                    counts,
                    tuple(ddl),
                    tuple(holes),
                )
            )
        self._add(Commits(self._head(counts=True), entries, ranges))
        return self

    def reaches(self, resume: int) -> "Log":
        self.resume = resume
        self._add(Heartbeat(self._head(counts=False)))
        return self

    def loaded(self, name: str, at: int) -> "Log":
        self.resume = max(self.resume, at)
        for phase in (LoadPhase.BEGIN, LoadPhase.CHUNK, END):
            head = self._head(counts=True)
            self._add(TableLoad(head, TABLES[name], phase, "AGAIN", (), 0, at))
        self.loads = {**self.loads, f"public.{name}": END}
        return self

    def _read(self, low: int, high: int) -> list[tuple[int, Record]]:
        self.read.append((low, high))
        low = max(low, self.first)
        return [(at, record) for at, record in self.records.items() if low <= at < high]

    def since(self, position: int) -> list[int]:
        """Take over, and read what is behind a position: where its records end."""
        self.starts()
        start = self.records[self.end - 2]
        assert isinstance(start, Start)
        found = recent(self._read, self.first, self.end - 2, head=start.head, since=Lsn(position))
        return [cut.head.resume for cut in found]

    def behind(
        self,
        confirmed: int,
        *,
        first: int = 0,
        meanwhile: int | None = None,
        has_triggers: bool = False,
        keeps_confirmed: bool = False,
        is_sent: Callable[[str], bool] | None = None,
    ) -> list[DeliveredPart]:
        """Take over, and read; what is before `first` was removed by retention.

        What is before `meanwhile` is removed while the records are read.
        """
        self.first = first
        self.starts()
        end = self.end - 2
        start = self.records[end]
        assert isinstance(start, Start)
        parts = delivered(
            self._read,
            lambda: self.first,
            end,
            head=start.head,
            loads=start.loads,
            confirmed=confirmed,
            topics=TOPICS,
            note=self.notes.append,
            has_triggers=has_triggers,
            keeps_confirmed=keeps_confirmed,
            is_sent=is_sent,
        )
        self.first = first if meanwhile is None else meanwhile
        # What is exact holds until the next part is asked for.
        return [part._replace(exact=set(part.exact)) for part in parts]


def expected(parts: Sequence[DeliveredPart]) -> list[int]:
    return [c.commit_start for part in parts for c in part.commits if c.is_compared]


def exact_at(parts: Sequence[DeliveredPart], position: int) -> str:
    part = next(part for part in parts if part.resume > position)
    return "".join(sorted(topic[-1] for topic in part.exact))


def names_at(parts: Sequence[DeliveredPart], position: int) -> str:
    part = next(part for part in parts if part.resume > position)
    return "".join(sorted(text[-1] for text in part.names()))


def test_it_is_read_from_the_newest_record_that_is_not_behind() -> None:
    log = Log().opens(100).commits(110, 120).commits(130, 140).reaches(200).commits(210)

    parts = log.behind(138)

    assert [part.resume for part in parts] == [128, 148, 200, 218]
    assert expected(parts) == [130, 140, 210]
    (known, *_) = parts[1].commits
    assert (known.xid, known.committed_at) == (131, 0)
    assert log.notes == []


def test_a_slot_where_no_record_ends_is_of_somebody_else() -> None:
    def log() -> Log:
        return Log().opens(100).commits(110, 120).commits(130, 140).reaches(200)

    assert expected(log().behind(128, keeps_confirmed=True)) == [130, 140]
    for position in (127, 138, 199):
        with pytest.raises(HistoryDiffers, match=r"no `run` left it.*--accept-gap"):
            log().behind(position, keeps_confirmed=True)
    cut_off = log()
    cut_off.behind(138, first=4, keeps_confirmed=True)
    assert len(cut_off.notes) == 1, "retention took the record, if there was one"


def test_what_is_behind_a_position_is_read_backwards_and_no_further() -> None:
    log = Log().opens(100).commits(110, 120)
    for at in range(200):
        log.commits(130 + 10 * at)
    log.starts()

    assert log.since(2118) == [2128, 2128]
    assert max(high - low for low, high in log.read) <= 64
    assert len(log.read) == 1
    assert log.since(127)[-1] == 128
    assert log.since(0)[-1] == 100, "retention, or the first start, ends it"


def test_a_commit_that_a_record_has_again_counts_once() -> None:
    log = Log().opens(100).commits(110, 120)
    log.seq -= 1  # it was written again, with the next one

    assert expected(log.commits(120, 130).behind(100)) == [110, 120, 130]


def test_it_is_read_a_few_records_at_a_time() -> None:
    log = Log().opens(100)
    for at in range(200):
        log.commits(110 + 10 * at)

    assert len(expected(log.behind(100))) == 200
    assert max(high - low for low, high in log.read) <= 64


def test_commits_of_tables_that_are_not_delivered_now_are_not_expected() -> None:
    log = (
        Log().opens(100).commits(110, tables="x").commits(120, tables="xa").commits(130, tables="")
    )

    assert expected(log.behind(100)) == [120]


def test_where_the_catalog_of_then_chooses_each_row_that_was_delivered_is_expected() -> None:
    """`x` is called otherwise now, and `b` had a gap: the source sends both again all the same."""
    log = Log().opens(100).commits(110, tables="x").commits(120, tables="b").states(b=GAP)
    log.loaded("b", 130).commits(140, tables="b").commits(150, tables="")

    assert expected(log.behind(100)) == []
    assert expected(log.behind(100, is_sent=Topics("bank").is_data)) == [110, 120, 140]


def test_where_names_are_of_then_each_state_says_which_tables_are_exact() -> None:
    """Until the next change of a schema, which may be one of names, or a gap of the table."""
    log = Log().opens(100).commits(110).states(a=END, b=GAP).commits(120)
    log.loaded("b", 130).commits(140).commits(150, holes=[Hole("public.a", "seen", "why")])
    log.states(a=END).commits(160, ddl=[DdlPlace(0, 7)]).commits(170).states(a=END).commits(180)
    log.commits(190, holes=[Hole(ANY, "seen", "why")]).commits(200)
    parts = log.states().reaches(210).behind(105, is_sent=Topics("bank").is_data)

    assert names_at(parts, 110) == "ab", "the STATE before says it"
    assert names_at(parts, 120) == "a"
    assert names_at(parts, 140) == "ab"
    assert names_at(parts, 150) == "b"
    assert [names_at(parts, at) for at in (160, 170, 180, 190, 200)] == ["", "", "ab", "", ""]
    assert all(not part.names() for part in log.behind(105)), "of now, and by their topics"
    table = TableLoad(log._head(counts=True), TABLES["b"], LoadPhase.BEGIN, "AGAIN", (), 0, 210)
    log._add(table)
    mends = TableLoad(log._head(counts=True), TABLES["a"], LoadPhase.CHUNK, MEND, (), 0, 210)
    log._add(mends)
    again = log.reaches(220).behind(105, is_sent=Topics("bank").is_data)
    assert names_at(again, 215) == "a", "it is read again"


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ({}, "a"),
        ({"holes": [Hole("public.a", "seen", "why")]}, ""),
        ({"holes": [Hole("public.b", "seen", "why")]}, "a"),
        ({"ddl": [DdlPlace(0, 7)]}, ""),
    ],
)
def test_names_of_then_are_those_of_the_state_before_the_first_record(
    between: dict[str, Any], found: str
) -> None:
    log = Log().opens(100).states(a=END, b=GAP).commits(110).commits(120, **between).commits(130)

    parts = log.commits(140).behind(138, is_sent=Topics("bank").is_data)

    assert names_at(parts, 140) == found
    parts = log.behind(138, first=log.end - 4, is_sent=Topics("bank").is_data)
    assert all(not part.names() for part in parts[:2]), "retention took it"


@pytest.mark.parametrize(("has_triggers", "found"), [(True, [110]), (False, [])])
def test_a_schema_change_alone_is_expected_where_triggers_write_it(
    has_triggers: bool, found: list[int]
) -> None:
    ddl = [DdlPlace(0, 7)]
    log = Log().opens(100).commits(110, tables="", ddl=ddl)
    log.commits(120, tables="", ddl=ddl, xid=0).commits(130, tables="x", ddl=ddl)

    assert expected(log.behind(100, has_triggers=has_triggers)) == found


def test_the_lost_tail_of_an_older_timeline_is_not_expected() -> None:
    """It was promoted at 150, in the middle of a commit; positions go on from there."""
    log = Log().opens(100).commits(110, 130).commits(145, 160).commits(170)
    log.opens(150, continues=True).commits(152, tables="b")

    parts = log.behind(105)

    assert expected(parts) == [110, 130, 152]
    resumes = [part.resume for part in parts]
    assert resumes == sorted(resumes)


def test_several_takeovers_and_records_that_do_not_count_may_be_between() -> None:
    log = Log().opens(100).commits(110).starts().commits(120)
    log._add(Foreign("a stranger's"))
    log._add(log.records[2])
    log.starts().starts().commits(130)

    assert expected(log.behind(100)) == [110, 120, 130]


def test_an_epoch_begins_with_its_load_and_its_slot() -> None:
    log = Log().opens(100).commits(110).opens(300).loaded("a", 300).commits(310)

    assert expected(log.behind(300)) == [310]
    with pytest.raises(HistoryDiffers, match="the slot is older than its load"):
        log.behind(299)


def test_where_retention_took_records_the_rest_is_compared_and_that_is_said() -> None:
    log = Log().opens(100).commits(110).commits(120).commits(130)

    parts = log.behind(100, first=4)

    assert expected(parts) == [130]
    assert exact_at(parts, 127) == ""
    assert exact_at(parts, 128) == "ab"
    (note,) = log.notes
    assert "retention removed records" in note
    assert "0/80 or later" in note


def test_nothing_is_expected_where_retention_took_everything() -> None:
    log = Log().opens(100).commits(110)

    parts = log.behind(100, first=4)

    assert (expected(parts), exact_at(parts, 117)) == ([], "")
    assert "0/76 or later" in log.notes[0]


def test_where_retention_takes_records_before_they_are_compared_the_start_is_made_again() -> None:
    log = Log().opens(100).commits(110).commits(120).commits(130)

    with pytest.raises(GroupUnusable, match="retention removed records"):
        log.behind(100, meanwhile=4)
    with pytest.raises(GroupUnusable, match="retention removed records"):
        log.behind(100, meanwhile=log.end)

    assert expected(log.behind(100, first=4, meanwhile=6)) == [130]
    assert expected(log.behind(100, first=4, meanwhile=4)) == [130]


def test_records_that_do_not_follow_each_other_stop() -> None:
    log = Log().opens(100).commits(110).commits(120).commits(130)
    lost = log.records[4]
    assert isinstance(lost, Commits)
    log.records[4] = Commits(lost.head, (), ())

    with pytest.raises(CutsBroken, match="do not follow"):
        log.behind(100)
    read_from = log.read[-1][0]
    with pytest.raises(CutsBroken, match="do not follow"):  # retention took what is not read
        log.behind(100, meanwhile=read_from)
    with pytest.raises(GroupUnusable, match="retention removed records"):
        log.behind(100, meanwhile=read_from + 1)


# ---------------------------------------------------------------- which tables are exact
def test_a_table_whose_load_is_to_come_is_exact_from_its_end_on() -> None:
    log = Log(named(a=END, b=PENDING)).opens(100).commits(110).loaded("b", 150).commits(160)

    parts = log.behind(100)

    assert [exact_at(parts, at) for at in (110, 149, 150, 160)] == ["a", "a", "ab", "ab"]


def test_a_load_before_the_range_counts_and_one_that_ends_with_it() -> None:
    log = Log(named(a=PENDING, b=PENDING)).opens(100).loaded("a", 100).loaded("b", 100).commits(110)

    assert exact_at(log.behind(100), 110) == "ab"


def test_a_table_that_left_or_is_to_be_read_again_is_not_exact() -> None:
    log = Log().opens(100).commits(110, 120, tables="ab").starts().states(b=LEFT).commits(130)
    log.starts().states(b=PENDING).commits(140).loaded("b", 150).commits(160)

    parts = log.behind(100)

    assert [exact_at(parts, at) for at in (110, 130, 140, 150)] == ["a", "a", "a", "ab"]
    assert expected(parts) == [110, 120, 130, 140, 160]


def test_names_hold_behind_the_last_schema_change() -> None:
    ddl = [DdlPlace(0, 7)]
    log = Log().opens(100).commits(110).commits(120, ddl=ddl).commits(130).reaches(200)
    log.commits(210, tables="", ddl=ddl, xid=0).reaches(300).commits(310)

    parts = log.behind(100)

    assert [(part.resume, part.names_hold) for part in parts[-4:]] == [
        (200, False),
        (218, False),
        (300, True),
        (318, True),
    ]
    assert not any(part.names_hold for part in parts[:-2])
    assert all(part.names_hold for part in log.behind(218)[1:])


def test_of_a_table_with_a_gap_nothing_is_expected() -> None:
    log = Log().opens(100).commits(110, tables="b").commits(120, tables="ab").states(b=GAP)
    log.commits(130).loaded("b", 150).commits(160, tables="b").states(b=GAP).commits(170)

    parts = log.behind(100)

    assert expected(parts) == [120, 130, 170]
    assert [exact_at(parts, at) for at in (110, 130, 150, 170)] == ["a", "a", "ab", "a"]


@pytest.mark.parametrize("loads", [{}, named(a=END, b=END)])
def test_a_table_without_a_load_is_exact_from_its_first_row_on(loads: dict[str, str]) -> None:
    """Made under a publication of all tables, or in an epoch that began without a load."""
    log = Log(loads).opens(100).commits(110).commits(120, tables="c").commits(130).starts()
    log.commits(140).commits(150, tables="c").commits(160)

    parts = log.behind(100)

    exact = ["c" in exact_at(parts, at) for at in (120, 130, 140, 150, 160)]
    assert exact == [False, True, False, False, True]
    assert 120 in expected(parts)


@pytest.mark.parametrize("of", ["public.c", "*"])
def test_a_gap_of_such_a_table_ends_that(of: str) -> None:
    log = Log({}).opens(100).commits(110, tables="ac")
    log.commits(120, tables="", holes=[Hole(of, "seen", "left out")]).commits(130, tables="")

    parts = log.behind(100)

    assert ("c" in exact_at(parts, 119), "c" in exact_at(parts, 130)) == (True, False)
    assert ("a" in exact_at(parts, 130)) == (of != "*")


def test_a_name_that_went_to_another_table_is_not_exact_until_it_is_read() -> None:
    """`c` was dropped, and `b` has its name now."""
    log = Log(named(a=END, b=END, c=END)).opens(100).commits(110, tables="abc")
    log.loads = named(a=END, b=END)
    log.states().commits(120)
    log.loads = named(a=END, c=END)
    log.states().commits(130)

    parts = log.behind(100)

    assert [exact_at(parts, at) for at in (110, 120, 130)] == ["a", "a", "a"]
