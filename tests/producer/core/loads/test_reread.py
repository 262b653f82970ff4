"""Which tables are read again, and when."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from producer.core.catalog.look import Before
from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Insert,
    Logical,
    Lost,
    Mark,
    Relation,
    RelationColumn,
    Update,
)
from producer.core.delivery.engine import WriterState
from producer.core.events import Fate
from producer.core.key_ranges import Key, NamedKeys, RangeRead, Upto, Visible
from producer.core.loads.beside import Beside, Piece
from producer.core.loads.queue import EVERYTHING, Due, LoadQueue, asked
from producer.core.loads.reread import ROWS_MOVED, Rereads
from producer.core.loads.window import UNSEEN, MarkTokens, QuietWindow
from producer.core.ports import Wish
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.errors import (
    CdcError,
    ConnectionLost,
    NotPermitted,
    SourceBusy,
    SourceError,
    TableChanging,
)
from schemas.control import ANY, Head, Moved, Origin
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema

A, B, C = (TableId("public", name) for name in "abc")


def everything(_: TableId) -> bool:
    return True


def test_tables_whose_load_did_not_end_come_first_and_added_ones_behind() -> None:
    loads = {"public.a": "END", "public.b": "CHUNK"}

    found = asked([A, B, C], loads, [A, B], everything)

    assert found.tables == [B, C]
    assert found.noted == {"public.c": "PENDING"}
    assert found.left == []


def test_a_table_that_the_stream_made_is_complete() -> None:
    assert asked([A, C], {"public.a": "END"}, [A, C], everything).tables == []


def test_tables_that_left_are_said_by_name() -> None:
    assert asked([], {"public.a": "END"}, [C, B, A], lambda _: False).left == [A, B, C]


def test_an_epoch_that_began_without_a_load_reads_none() -> None:
    assert asked([A, B], {}, [], everything, notes_loads=False).tables == []
    assert asked([A, B], {}, [], everything).tables == [A, B], "the tables of its loads are gone"


def test_the_load_of_a_table_that_is_gone_is_forgotten() -> None:
    found = asked([A], {"public.a": "END", "public.b": "CHUNK"}, [A, B], everything)

    assert found.tables == []
    assert found.noted == {"public.b": None}
    # Also where the stream has dropped it: it was begun, so a point is not needed.
    assert asked([A], {"public.a": "END", "public.b": "CHUNK"}, [A], everything) == found
    assert asked([A], {"public.a": "END", "public.b": "PENDING"}, [A, B], everything) == found


@pytest.mark.parametrize("odd", [TableId("public", "x.y"), TableId("app.v2", "t")])
def test_a_schema_or_a_name_may_hold_dots(odd: TableId) -> None:
    loads = {"public.a": "END", str(odd): "PENDING"}

    assert asked([A], loads, [A], {A, odd}.__contains__).tables == [odd]


def test_a_gap_is_of_one_of_two_tables_whose_names_differ_by_the_place_of_a_dot() -> None:
    with_gap, other = TableId("a", "b.c"), TableId("a.b", "c")
    loads = {str(with_gap): "GAP", str(other): "END"}

    found = asked([with_gap, other], loads, [with_gap, other], everything, repairs=True)

    assert (found.tables, found.noted) == ([with_gap], {})


def test_a_table_that_was_not_begun_is_forgotten_only_where_the_stream_has_passed_it() -> None:
    loads = {"public.a": "END", "public.b": "PENDING"}

    assert asked([A], loads, [A], everything) == Due([B], [], {})
    assert asked([A], loads, [A], lambda table: table == A).noted == {"public.b": None}


def test_a_table_that_left_is_noted_once_and_read_again_when_it_comes_back() -> None:
    loads = {"public.a": "END", "public.b": "END"}

    first = asked([A], loads, [A, B], lambda table: table == A)
    later = asked([A], {**loads, "public.b": "LEFT"}, [A, B], lambda table: table == A)
    back = asked([A, B], {**loads, "public.b": "LEFT"}, [A, B], everything)

    assert (first.left, first.noted) == ([B], {"public.b": "LEFT"})
    assert (later.left, later.noted) == ([], {})
    assert (back.tables, back.left, back.noted) == ([B], [], {"public.b": "PENDING"})


def test_a_table_with_a_gap_is_read_where_gaps_are_repaired() -> None:
    loads = {"public.a": "GAP", "public.b": "GAP", "public.c": "END"}

    assert asked([A, C], loads, [A, B, C], everything, repairs=True).tables == [A]
    assert asked([A, C], loads, [A, B, C], everything).tables == []
    assert asked([A], loads, [A, B], everything).noted == {}


def test_a_gap_of_a_table_that_was_dropped_before_its_takeover_is_none() -> None:
    """The takeover marks whatever has a topic: targets may have it, if it was not dropped."""
    loads = {"public.a": "GAP", "public.b": "GAP", "public.c": "GAP"}

    assert asked([A], loads, [B], everything).noted == {"public.c": None}


def test_a_load_waits_for_the_stream_to_rename_its_table() -> None:
    found = asked([], {"public.a": "CHUNK"}, [A], everything, renamed=[A])

    assert (found.tables, found.noted) == ([], {})


# ---------------------------------------------------------------- the order of re-reads
def shape(table: TableId, oid: int = 0) -> TableSchema:
    return TableSchema(table, (), (), (), ReplicaIdentity.DEFAULT, (), oid=oid)


class Point:
    """A place at which a table has its shape."""

    at, looked = 7, None

    def __init__(self, table: TableId) -> None:
        self.reading, self._table, self.is_open = self, table, True

    def shapes(self, _tables: list[TableId]) -> list[Any]:
        return [shape(self._table, 5)]

    def close(self) -> None:
        self.is_open = False


DESCRIBED = {
    1: Relation(
        1,
        *A,
        ReplicaIdentity.DEFAULT,
        tuple(RelationColumn(name, 25, None, identity=name == "id") for name in ("v", "id")),
    )
}


class Play:
    """Re-reads with a clock that stands still, and a source that always has a point."""

    reads_ranges = False
    ids_are_oids = True

    def __init__(self, *, repairs: bool = True, wants: tuple[TableId, ...] = (A, B, C)) -> None:
        self.time, self.read, self.notes = 0.0, list[str](), list[str]()
        self.asked: dict[TableId, int] = {}
        self.answered: list[tuple[str, int]] = []
        self.alone: list[bool] = []
        self.asked_for: dict[Wish, int] = {}  # for one target
        self.anew: list[str] = []  # loads for one that begin again
        self.loaded: list[Upto] = []
        self.captured, self.looks = {A, B, C}, 0
        self.took = 0.0  # to read a table
        self.points: list[TableId] = []
        self.fails: CdcError | None = None
        self.hidden = set[TableId]()

        def blocking(call: Any, *args: Any, **more: Any) -> Any:
            return call(*args, **more)

        self.queue = LoadQueue(
            self.hidden, source=self, captured=wants.__contains__, repairs=repairs,
            look_seconds=1.0, rest_seconds=10.0, blocking=blocking, clock=self,
            note=self.notes.append,
        )  # fmt: skip
        self.rereads = Rereads(
            self.queue, source=self, mark_seconds=600.0, rate=0, writing=self,
            publish=lambda _: None, look_up=lambda number: DESCRIBED[number],
            begin_anew=self.anew.append, blocking=blocking, clock=self,
            note=self.notes.append, warn=self.notes.append,
        )  # fmt: skip

    def now(self) -> float:
        return self.time

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        self.points.append(table)
        if self.fails is not None:
            raise self.fails
        return Point(table) if table in self.captured else None

    def requests(self) -> dict[Wish, int]:
        self.looks += 1
        return {**{Wish(table): number for table, number in self.asked.items()}, **self.asked_for}

    def answer(self, wish: Wish, number: int, *, alone: bool = False) -> None:
        self.answered.append((wish.table.name, number))
        self.alone.append(alone)
        if wish in self.asked_for:
            del self.asked_for[wish]
        else:
            self.asked.pop(wish.table, None)
            self.asked_for = {w: n for w, n in self.asked_for.items() if w.table != wish.table}

    def again(self, state: Any, _point: Any, table: TableSchema, load: Upto) -> Any:
        self.read.append(table.id.name)
        self.loaded.append(load)
        self.time += self.took
        return state

    def go(self, seconds: float, *gaps: str) -> str:
        """Let time pass, and read what is due; the names of what was read."""
        self.time += seconds
        self.read.clear()
        self.rereads.follow({f"public.{name}": "GAP" for name in gaps}, {}, {}, {})
        for _ in gaps or list(self.asked):
            self.rereads.make_point({})
            if self.rereads.has_point:
                self.rereads.read(cast("Any", None), {})
        self.rereads.follow({f"public.{n}": "GAP" for n in gaps if n not in self.read}, {}, {}, {})
        return "".join(self.read)


def test_the_catalog_at_the_point_goes_on_with_what_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play, looked = Play(), Before(7, "", {}, {})
    monkeypatch.setattr(Point, "looked", looked)
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({})

    placed = play.rereads.read(cast("Any", None), {})

    assert placed.looked is looked
    assert placed.shape == shape(A, 5)


class Gone(Play):
    """A source whose table goes before its load begins."""

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        self.captured.discard(table)
        return Place(table) if if_gone else None


class Place(Point):
    """A place where the table is gone."""

    def shapes(self, _tables: list[TableId]) -> list[Any]:
        return []


def test_a_table_that_is_gone_is_hidden_up_to_a_place_that_shows_it_gone() -> None:
    play = Gone()
    play.queue.hide(A)
    play.rereads.follow({"public.a": "PENDING"}, {}, {}, {})

    assert play.rereads.make_point({}) == {}
    assert play.rereads.needless() is None
    assert not play.rereads.stops(Begin(Lsn(6), 0, 1))
    assert play.rereads.stops(Begin(Lsn(7), 0, 1))
    head = Head(5, 1, 1, "", 3, 2, 0)
    passed = play.rereads.pass_gone(WriterState(head, 0, *(cast("Any", None),) * 5))
    assert passed is not None
    assert (passed[0].head.resume, passed[1]) == (7, A)
    assert not play.rereads.has_point


def test_the_source_is_not_read_again_from_a_point_that_was_passed_before() -> None:
    play = Gone()
    play.queue.hide(A)
    play.rereads.follow({"public.a": "PENDING"}, {}, {}, {})
    play.rereads.make_point({})
    head = Head(5, 1, 1, "", 3, 20, 0)

    passed = play.rereads.pass_gone(WriterState(head, 0, *(cast("Any", None),) * 5))

    assert passed is not None
    assert passed[0].head.resume == 20


def test_a_table_that_gets_gaps_again_and_again_is_read_less_and_less_often() -> None:
    play = Play()

    assert play.go(0, "a", "b") == "ab"
    assert play.go(1, "a") == ""
    assert play.go(8, "a", "c") == "c"
    assert play.go(1, "a") == "a"
    assert play.go(19, "a") == ""
    assert play.go(1, "a") == "a"
    again = "public.a has a gap again, {} s after it was read: it is read again in {} s, and less"
    assert play.notes == [
        f"{again.format(after, left)} often while this goes on"
        for after, left in ((1, 9), (19, 1), (39, 1), (40, 0))[:2]
    ]


def test_a_gap_long_after_the_last_one_is_mended_at_once() -> None:
    play = Play()

    assert play.go(100, "a") == "a"
    assert play.go(40, "a") == "a"
    assert play.go(10, "a") == "a", "the rest began anew"
    assert play.notes == []


def test_a_table_rests_for_as_long_as_others_had_to_wait_for_it_and_no_longer_than_that() -> None:
    play = Play()
    play.took = 2.0
    assert play.go(0, "a") == "a"
    assert play.go(39, "a") == ""
    assert play.go(1, "a") == "a"

    play.took = 1000.0
    assert play.go(200, "a") == "a"
    assert play.go(599, "a") == ""
    assert play.go(1, "a") == "a"


def test_a_table_rests_for_its_gaps_only() -> None:
    play = Play()
    play.asked[A] = 1
    assert play.go(0) == "a"
    assert play.go(1, "a") == "a"

    play.rereads.follow({"public.a": "CHUNK"}, {}, {}, {})
    assert play.rereads.make_point({}) == {}
    assert play.rereads.has_point


def test_where_gaps_are_not_repaired_nothing_is_read_for_them() -> None:
    play = Play(repairs=False)

    assert play.go(0, "a") == ""
    play.rereads.follow({"public.b": "PENDING"}, {}, {}, {})
    play.rereads.make_point({})
    assert play.points == [B]


def test_the_table_that_has_the_gap_is_read_and_no_other_one_with_the_same_dots() -> None:
    play = Play()
    hidden, odd, other = TableId("a.b", "c"), TableId("a", "b.c"), TableId("public", "x.y")
    play.queue.hide(hidden)
    names = {str(hidden): "PENDING", str(odd): "GAP", str(other): "GAP"}
    play.rereads.follow(names, {}, {}, {hidden: cast("Any", None), odd: cast("Any", None)})
    for _ in names:
        play.fails = SourceBusy("later")
        play.rereads.make_point({})
        play.time += 30

    assert play.points == [hidden] * 3
    play.fails = ConnectionLost("gone")
    for _ in names:
        play.rereads.make_point({})
    assert play.points[3:] == [hidden, odd, other]


def test_tables_are_read_in_the_order_in_which_they_came() -> None:
    play = Play()
    play.rereads.follow({"public.c": "GAP"}, {}, {}, {})
    play.rereads.follow({"public.a": "GAP", "public.b": "GAP", "public.c": "GAP"}, {}, {}, {})
    play.asked[B] = 3

    assert play.go(0, "a", "b", "c") == "cab"
    assert play.answered == [("b", 3)]


def test_a_request_does_not_wait_for_the_rest_of_its_table() -> None:
    play = Play()
    assert play.go(0, "a") == "a"
    assert play.go(1, "a") == ""
    play.asked[A] = 1

    assert play.go(1, "a") == "a"


def test_nothing_is_read_while_there_is_a_pause() -> None:
    play = Play()
    play.asked |= {EVERYTHING: 1, B: 2}
    assert play.go(2, "a") == ""
    del play.asked[EVERYTHING]

    assert play.go(2, "a", "c") == "ab"
    assert play.notes == [
        "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told",
        "re-reads go on, as `gauss-cdc snapshot` was told",
    ]


def test_requests_are_looked_for_once_in_a_while_and_taken_back_by_who_made_them() -> None:
    play = Play(wants=(A, B))
    play.asked = {A: 1, C: 2}
    play.rereads.make_point({})
    assert play.notes == ["public.c is not captured, and is not read again"]
    assert (play.answered, play.looks) == ([("c", 2)], 1)
    play.rereads.let_go()
    play.asked.clear()
    play.rereads.make_point({})
    assert (play.points, play.looks) == ([A, A], 1)
    play.rereads.let_go()
    play.time += 1
    play.rereads.make_point({})
    assert (play.points, play.looks) == ([A, A], 2)


def test_a_request_is_answered_as_of_its_point_and_the_next_one_is_seen_at_once() -> None:
    play = Play()
    play.asked[A] = 1
    play.rereads.make_point({})
    play.rereads.read(cast("Any", None), {})
    assert play.answered == [("a", 1)]
    play.rereads.make_point({})
    assert (play.points, play.looks) == ([A], 2)

    play.asked[A] = 2
    play.time += 1
    play.rereads.make_point({})
    play.asked[A] = 3
    play.rereads.read(cast("Any", None), {})
    play.asked[A] = 3
    play.rereads.make_point({})
    assert (play.answered, play.points) == ([("a", 1), ("a", 2)], [A, A, A])


@pytest.mark.parametrize(("error", "waits"), [(SourceBusy("busy"), "ab"), (NotPermitted("?"), "a")])
def test_a_table_without_a_point_is_tried_again_and_the_others_too_where_any_would_fail(
    error: CdcError, waits: str
) -> None:
    play = Play()
    play.time = 500.0
    play.rereads.follow({"public.a": "GAP", "public.b": "GAP"}, {}, {}, {})
    play.fails = error
    play.rereads.make_point({})
    assert not play.rereads.has_point
    assert play.notes == [f"public.a is read again later: {error}"]
    play.fails = None

    play.rereads.make_point({})
    assert play.rereads.has_point is (waits == "a")
    assert play.points == ([A, B] if waits == "a" else [A])
    play.rereads.let_go()
    play.time += 29
    play.points.clear()
    play.asked[B] = 1  # nothing new for a: its request is older
    play.rereads.make_point({})
    assert A not in play.points
    play.rereads.let_go()
    play.time += 1
    play.points.clear()
    play.rereads.make_point({})
    assert play.points == [A]


def test_a_request_that_is_new_does_not_wait_and_one_that_stays_does() -> None:
    play = Play()
    play.asked[A] = 1
    play.fails = NotPermitted("?")
    for _ in range(3):
        play.rereads.make_point({})
        play.time += 2
    assert play.points == [A]

    del play.asked[A]
    play.rereads.make_point({})
    play.asked[A] = 2
    play.time += 2
    play.rereads.make_point({})
    assert play.points == [A, A]


def test_a_table_that_is_being_renamed_is_read_later() -> None:
    play = Play()
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    made: list[Point] = []
    play.point = lambda table, **_: made.append(Point(table)) or made[-1]  # type: ignore[method-assign]

    play.rereads.make_point({A: shape(A, 5), C: shape(C, 6)})
    assert play.rereads.has_point
    play.rereads.let_go()
    assert not made[0].is_open
    play.rereads.make_point({B: shape(B, 5)})
    assert not play.rereads.has_point
    assert not made[1].is_open
    assert play.notes == ["public.a is read again later: it is being renamed (was=public.b)"]


def test_a_table_that_gets_another_name_before_its_point_is_read_later() -> None:
    """The stream would have it twice; no look could tell which name is its own."""
    play = Play()
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({A: shape(A, 5)})

    assert play.rereads.read(cast("Any", None), {B: shape(A, 5), C: shape(B, 5)}) is None
    assert (play.read, play.rereads.has_point) == ([], False)
    assert play.notes == ["public.a is read again later: it is being renamed (was=public.b)"]
    play.time += 31.0
    play.rereads.make_point({A: shape(A, 5)})
    assert play.rereads.read(cast("Any", None), {A: shape(A, 5)}) is not None
    assert play.read == ["a"]


def test_a_table_that_is_not_captured_keeps_its_gap_until_it_is() -> None:
    play = Play()
    play.time = 100.0
    play.captured.discard(A)
    assert play.go(0, "a", "b") == "b"
    play.captured.add(A)
    play.points.clear()
    play.time += 9
    play.rereads.make_point({})
    assert play.points == []
    play.time += 1
    play.rereads.make_point({})

    assert play.points == [A]


@pytest.mark.parametrize(
    ("loads", "known", "is_over"),
    [
        ({}, [], True),  # somebody asked for it
        ({}, [A], False),
        ({"public.a": "PENDING"}, [], True),
        ({"public.a": "PENDING"}, [A], False),  # the stream may rename it
        ({"public.a": "GAP"}, [], False),
        ({"public.a": "GAP"}, [A], False),
    ],
)
@pytest.mark.parametrize("shows", [False, True])
def test_a_table_that_is_gone_has_no_load_unless_it_may_come_back(
    loads: dict[str, str], known: list[TableId], is_over: bool, shows: bool
) -> None:
    """Either there is no point of it, or a point that shows it gone."""
    play = Play()
    play.rereads.follow(loads, {}, {}, {})
    play.asked = {} if loads else {A: 9}
    place = Place(A)
    play.point = lambda *_, **__: place if shows else None  # type: ignore[method-assign,assignment]

    gone = play.rereads.make_point({table: shape(table) for table in known})

    assert gone == ({"public.a": None} if is_over else {})
    assert not play.rereads.has_point
    assert place.is_open is not shows
    assert play.answered == ([("a", 9)] if is_over and not loads else [])


@pytest.mark.parametrize("phase", ["BEGIN", "PENDING"])  # also of one that [tables] name again
def test_a_load_that_begins_again_is_a_gap_where_its_table_stays_uncaptured(phase: str) -> None:
    """The stream has time to tell of another name; who waits for END does not wait for ever."""
    play, known = Play(), {A: shape(A)}
    play.captured.discard(A)
    play.rereads.follow({"public.a": phase}, {}, {}, {})
    assert play.rereads.make_point(known) == {}
    assert play.rereads.make_point(known) == {}  # not before its next turn
    play.time += 10.0
    assert play.rereads.make_point(known) == {"public.a": "GAP"}
    assert "public.a: its load cannot begin" in play.notes[-1]

    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.captured.add(A)
    play.time += 10.0
    assert play.rereads.make_point(known) == {}
    assert play.rereads.has_point


def test_a_table_that_was_captured_meanwhile_has_as_long_again() -> None:
    play, known = Play(), {A: shape(A)}
    play.captured.discard(A)
    play.rereads.follow({"public.a": "BEGIN"}, {}, {}, {})
    play.rereads.make_point(known)
    play.captured.add(A)
    play.time += 10.0
    play.rereads.make_point(known)
    play.rereads.read(cast("Any", None), known)
    play.captured.discard(A)
    play.rereads.follow({"public.a": "BEGIN"}, {}, {}, {})
    assert play.rereads.make_point(known) == {}


def test_a_table_that_the_stream_has_made_needs_no_point() -> None:
    play = Play()
    play.queue.hide(A)
    play.rereads.follow({"public.a": "PENDING", "public.b": "PENDING"}, {}, {}, {})
    hidden = play.hidden
    assert play.rereads.needless() is None
    hidden.discard(A)  # the stream reports its creation

    play.rereads.make_point({})
    assert play.points == [A]
    assert play.rereads.needless() == A
    assert not play.rereads.has_point
    assert play.rereads.needless() is None
    play.rereads.make_point({})
    assert play.points == [A, B]


@pytest.mark.parametrize("lost", ["public.a", ANY])
def test_a_table_that_the_stream_has_made_is_read_where_rows_of_it_were_not_sent(lost) -> None:
    play = Play()
    play.queue.hide(A)
    play.queue.hide(B)
    play.rereads.follow({"public.a": "PENDING", "public.b": "PENDING"}, {}, {}, {})
    play.hidden.clear()  # CREATE TABLE, which CREATE TABLE AS looks like
    play.rereads.meet((), {lost})

    assert play.rereads.needless() == (None if lost == ANY else B)
    play.rereads.make_point({A: shape(A, 5)})
    assert play.points == [A]
    assert play.rereads.needless() is None


@pytest.mark.parametrize("is_of_rows", [False, True])
def test_a_table_that_takes_the_name_of_one_that_waits_is_read(is_of_rows: bool) -> None:
    """Its own load was open, and goes on under that name; the name alone is shown."""
    play = Play()
    play.queue.hide(A)
    play.rereads.follow({"public.a": "PENDING", "public.b": "CHUNK"}, {}, {}, {})
    play.hidden.clear()
    play.rereads.meet([Fate("public.b", "public.a", is_of_rows=is_of_rows)], ())

    assert play.rereads.needless() is None
    play.rereads.make_point({A: shape(A, 5)})
    assert play.points == [A]


def test_a_table_that_the_stream_has_made_is_read_where_somebody_asks() -> None:
    play = Play()
    play.queue.hide(A)
    play.asked[A] = 1
    play.rereads.make_point({})
    play.hidden.discard(A)

    assert play.rereads.needless() is None


def test_who_nears_the_point_of_another_table_is_not_disturbed() -> None:
    play = Play()
    assert play.go(0, "b") == "b"
    play.queue.hide(A)
    play.hidden.discard(A)
    assert play.rereads.needless() == A, "b was read"
    play.rereads.follow({"public.b": "PENDING"}, {}, {}, {})
    play.rereads.make_point({})
    play.queue.hide(A)
    play.hidden.discard(A)

    assert play.rereads.needless() is None
    assert play.rereads.has_point


def test_a_table_that_failed_and_was_made_by_the_stream_does_not_wait_for_its_next_gap() -> None:
    play = Play()
    play.queue.hide(A)
    play.rereads.follow({"public.a": "PENDING"}, {}, {}, {})
    play.fails = NotPermitted("?")
    play.rereads.make_point({})
    play.fails = None
    play.hidden.discard(A)
    assert play.rereads.needless() == A

    assert play.go(1, "a") == "a"


def test_hidden_tables_can_be_shown_again() -> None:
    play = Play()
    play.queue.hide(A)
    play.queue.show(A)

    assert play.hidden == set()
    assert play.rereads.needless() is None


# ---------------------------------------------------------------- how a point is neared
def test_messages_of_no_transaction_that_end_at_the_point_are_before_it() -> None:
    play = Play()
    assert play.rereads.waits_for == ""
    assert not play.rereads.stops(Begin(Lsn(8), 0, 1)), "there is no point"
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({})
    play.time += 3

    assert play.rereads.waits_for == "public.a: the position 0/7, for 3 s"
    assert not play.rereads.stops(Logical(False, Lsn(7), "", b""))
    assert not play.rereads.stops(Logical(True, Lsn(9), "", b""))
    assert not play.rereads.stops(Commit(Lsn(9), Lsn(9), 0))
    play.rereads.reach(6, {}, is_between=True)
    assert not play.rereads.is_standing
    assert play.rereads.stops(Logical(False, Lsn(8), "", b""))
    assert (play.rereads.is_standing, play.rereads.waits_for) == (True, "")


def test_a_position_is_a_way_to_the_point_too() -> None:
    play = Play()
    play.rereads.reach(9, {}, is_between=True)
    assert not play.rereads.is_standing
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({})
    play.rereads.reach(7, {}, is_between=True)

    assert play.rereads.is_standing
    play.rereads.let_go()
    assert not play.rereads.is_standing
    assert play.rereads.waits_for == ""


def test_a_point_that_does_not_come_is_said_once() -> None:
    play = Play()
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({})
    for seconds in (59, 1, 1):
        play.time += seconds
        play.rereads.be_patient()

    assert play.notes == ["the stream is waited for, to read public.a: the position 0/7, for 60 s"]
    play.time += 10_000
    play.rereads.be_patient()
    assert play.rereads.has_point, "it is no window"
    play.rereads.read(cast("Any", None), {})
    play.rereads.follow({"public.b": "PENDING"}, {}, {}, {})
    play.rereads.make_point({})
    play.time += 60
    play.rereads.be_patient()
    assert play.notes[1:] == [
        "the stream is waited for, to read public.b: the position 0/7, for 60 s"
    ]


def test_a_table_that_is_there_is_read_not_passed() -> None:
    play = Play()
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {})
    play.rereads.make_point({})
    play.rereads.reach(7, {}, is_between=True)

    assert play.rereads.pass_gone(cast("Any", None)) is None
    assert play.rereads.has_point


# ---------------------------------------------------------------- marks that do not come
class WindowPlay(Play):
    """The next points are windows, whose marks are rows of ours."""

    windows = 0

    def point(self, table: TableId, *, if_gone: bool = False) -> Any:
        self.windows += 1
        marks = MarkTokens(10 * self.windows + 1, 10 * self.windows + 2)
        return QuietWindow(table, cast("Any", Point(table)), let_go=int, marks=marks)

    def show(self, *tokens: int) -> None:
        """Have the stream show transactions with a row of ours, as far as it does not stop."""
        for token in tokens:
            if not self.rereads.stops(Begin(Lsn(token), 0, 1)):
                self.rereads.stops(Mark(token))
                self.rereads.stops(Commit(Lsn(token), Lsn(token + 1), 0))
                self.rereads.reach(token + 1, {}, is_between=True)

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.rereads.be_patient()


def windowed() -> WindowPlay:
    play = WindowPlay()
    play.rereads.follow({"public.a": "PENDING"}, {}, {}, {})
    play.rereads.make_point({})
    return play


def test_a_window_whose_mark_does_not_come_is_said_and_then_given_up_and_tried_again() -> None:
    play = windowed()
    play.wait(59)
    assert play.notes == []
    assert play.rereads.waits_for == "public.a: the low mark, 11, for 59 s"
    play.show(5, 11, 6)
    play.wait(1)
    play.wait(539)
    assert play.rereads.has_point
    play.wait(1)

    assert not play.rereads.has_point
    assert play.notes == [
        "the stream is waited for, to read public.a: the high mark, 12, for 60 s",
        (
            "public.a is not read yet: the high mark, 12, did not come in 600 s (the"
            f" stream showed 3 others); tried again in 30 s, for up to 1200 s: {UNSEEN}"
        ),
    ]
    play.rereads.make_point({})
    assert not play.rereads.has_point, "others would meet the same"
    play.time += 30
    play.rereads.make_point({})
    play.wait(1199)
    assert play.rereads.has_point, "a stream that is far behind comes to a later window"
    play.show(21, 22)
    assert play.rereads.is_standing


def test_a_window_whose_low_mark_was_left_out_is_no_point() -> None:
    play = windowed()

    play.show(5, 12)

    assert not play.rereads.has_point
    assert play.notes[0].startswith(
        "public.a is not read yet: the low mark, 11, was left out by the stream"
    )


def test_the_next_window_is_not_made_at_once_where_a_mark_was_left_out() -> None:
    play = windowed()

    play.show(12)
    play.rereads.make_point({})

    assert not play.rereads.has_point, "others would meet the same"


def test_a_point_is_behind_its_high_mark_whatever_transaction_has_its_id() -> None:
    play = windowed()

    play.show(11, 5)
    assert not play.rereads.stops(Begin(Lsn(12), 0, 12))
    assert not play.rereads.stops(Mark(99))
    assert not play.rereads.is_standing
    play.show(12)

    assert play.rereads.is_standing


def test_a_window_in_which_the_table_was_changed_is_followed_by_another_one_at_once() -> None:
    play = windowed()
    relation = Relation(1, *A, ReplicaIdentity.DEFAULT, ())
    play.rereads._look_up = lambda _: relation
    play.show(11)
    play.rereads.stops(Begin(Lsn(12), 0, 1))
    play.rereads.stops(Insert(1, []))
    play.show(12)
    assert not play.rereads.stops(Begin(Lsn(99), 0, 1))
    assert not play.rereads.has_point
    assert play.notes == []

    play.rereads.make_point({})
    assert play.windows == 2


def test_patience_with_windows_grows_up_to_some_hours_and_begins_anew_behind_a_quiet_one() -> None:
    play, waited = windowed(), []
    for _ in range(7):
        waited.append(play.rereads._patience)
        play.wait(play.rereads._patience)
        play.time += 30
        play.rereads.make_point({})
    assert waited == [600, 1200, 2400, 4800, 9600, 14_400, 14_400]

    low = 10 * play.windows + 1
    play.show(low, low + 1)
    assert (play.rereads.is_standing, play.rereads._patience) == (True, 600)


def test_a_window_whose_high_mark_came_is_not_given_up() -> None:
    play = windowed()
    play.rereads.stops(Begin(Lsn(11), 0, 1))
    play.rereads.stops(Mark(11))
    play.rereads.stops(Begin(Lsn(12), 0, 1))
    play.rereads.stops(Mark(12))
    play.wait(5000)

    assert play.rereads.has_point


@pytest.mark.parametrize("phase", ["CHUNK", "END"])
def test_a_row_that_moves_in_part_is_a_gap_while_a_load_is_open_that_nobody_reads(phase) -> None:
    play, columns = Play(), (Column("v", 25), Column("id", 25))
    known = {A: TableSchema(A, columns, ("id",))}
    play.rereads.follow({"public.a": phase}, {"public.a": Upto((b"1",)).text}, {}, known)

    def gap(old: Cells | None, new: Cells) -> Lost | None:
        return play.rereads.watch(Update(1, "K", old, new))

    is_open = phase == "CHUNK"
    assert play.rereads.looks_at_all == is_open
    assert play.rereads.is_read_beside(A) == is_open, "what the catalog shows of it counts"
    assert (gap([None, b"1"], [UNCHANGED, b"2"]) is not None) == is_open
    assert gap([None, b"1"], [b"v", b"2"]) is None
    assert gap([b"v", b"1"], [UNCHANGED, b"1"]) is None
    assert gap(None, [UNCHANGED, b"1"]) is None


def test_a_row_that_moves_in_part_right_behind_a_load_is_no_gap() -> None:
    play = Play()
    known = {A: TableSchema(A, (Column("v", 25), Column("id", 25)), ("id",))}
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto((b"1",)).text}, {}, known)
    play.rereads.make_point({})
    assert play.rereads.is_read_beside(A)

    play.rereads.read(cast("Any", None), {})

    assert not play.rereads.is_read_beside(A), "no note would say that it is to be read again"
    assert play.rereads.watch(Update(1, "K", [None, b"1"], [UNCHANGED, b"2"])) is None


# ---------------------------------------------------------------- for one target
KNOWN = {A: shape(A, 5)}


def state_of(loads: dict[str, str]) -> WriterState:
    return WriterState(Head(1, 1, 1, "i", 0, 0, 0), 0, cast("Any", None), "", "", {}, loads)


def read_for(play: Play, loads: dict[str, str], known: Any = KNOWN, *, late: Any = None) -> Any:
    """Read what is asked for; `late`: loads as they are by the time of the point."""
    play.rereads.follow(loads, {}, {}, known)
    play.rereads.make_point(known)
    return play.rereads.read(state_of(late or loads), known)


def test_a_request_for_one_target_is_a_load_for_it_and_changes_nothing_for_others() -> None:
    play = Play()
    play.asked_for = {Wish(A, "lake"): 3, Wish(A, "other"): 5}

    placed = read_for(play, {"public.a": "END"})

    assert play.loaded == [Upto(request=3, target="lake")]
    assert placed.shape is None
    assert play.asked_for == {Wish(A, "other"): 5}, "each target has its own load"


def test_a_request_for_all_answers_those_for_one() -> None:
    play = Play()
    play.asked, play.asked_for = {A: 4}, {Wish(A, "lake"): 3}

    read_for(play, {"public.a": "END"})

    assert (play.loaded, play.asked_for) == ([Upto(request=4)], {})


@pytest.mark.parametrize("phase", ["GAP", "PENDING", "BEGIN"])
def test_a_table_that_is_not_exact_for_any_is_loaded_for_all(phase: str) -> None:
    play = Play(repairs=False)
    play.asked_for = {Wish(A, "lake"): 3}

    placed = read_for(play, {"public.a": phase})

    assert (play.loaded, placed.shape) == ([Upto(request=3)], shape(A, 5))
    assert play.notes == [
        "public.a is loaded for all targets, not for lake alone: it is not exact for any"
    ]


def test_a_gap_that_comes_before_the_point_makes_it_a_load_for_all() -> None:
    play = Play()
    play.asked_for = {Wish(A, "lake"): 3}

    read_for(play, {"public.a": "END"}, late={"public.a": "GAP"})

    assert play.loaded == [Upto(request=3)]


@pytest.mark.parametrize("was", [shape(A, 6), replace(shape(A, 5), key=("id",))])
def test_a_table_that_is_not_as_the_stream_has_it_is_loaded_for_all(was: TableSchema) -> None:
    play = Play()
    play.asked_for = {Wish(A, "lake"): 3}

    placed = read_for(play, {"public.a": "END"}, {A: was})

    assert (play.loaded, placed.shape) == ([Upto(request=3)], shape(A, 5))


def test_an_open_load_for_one_is_brought_to_its_end_though_nobody_asks_any_more() -> None:
    play = Play()
    play.rereads.follow({"public.a": "END"}, {}, {"public.a": Upto(target="lake").text}, KNOWN)

    play.rereads.make_point(KNOWN)
    play.rereads.read(state_of({"public.a": "END"}), KNOWN)

    assert play.loaded == [Upto(target="lake")]


def test_a_row_that_moves_in_part_is_no_gap_while_only_one_target_may_lack_it() -> None:
    play = Play()
    moved = Update(1, "K", [b"x", b"1"], [UNCHANGED, b"2"])
    play.rereads.follow({"public.a": "END"}, {}, {"public.a": Upto(target="lake").text}, KEYED)

    assert play.rereads.looks_at_all
    assert play.rereads.watch(moved) is None
    assert play.anew == ["public.a"]


@pytest.mark.parametrize(
    ("name", "is_lost"),
    [("another key", True), ("its name", True), ("its type", True), ("its place", True),
     ("none", True), ("another column", False)],
)  # fmt: skip
def test_a_load_beside_the_stream_begins_again_with_another_key(name: str, is_lost: bool) -> None:
    """How far it has come is told by the key of its BEGIN."""
    id_, g = Column("id", 23, -1, "integer"), Column("g", 23, -1, "integer")
    was = TableSchema(A, (id_, g), ("id",))
    text = replace(id_, type_oid=25, type_name="text")
    now = {
        "another key": replace(was, key=("g",)),
        "its name": replace(was, columns=(replace(id_, name="n"), g), key=("n",)),
        "its type": replace(was, columns=(text, g)),
        "its place": replace(was, columns=(g, id_)),
        "none": replace(was, key=()),
        "another column": replace(was, columns=(id_, g, replace(g, name="w"))),
    }[name]
    said = StatementChanges((ShapeChange(was, now, "ALTER TABLE"),), Origin.TRIGGER)
    play = Play()
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto(key=(b"1",)).text}, {}, {A: was})

    found = play.rereads.watch(said)

    why = "its key was altered while it was loaded"
    assert found == (Lost(*A, "seen", why) if is_lost else None)
    play.rereads.follow({"public.a": "END"}, {}, {"public.a": Upto(target="lake").text}, {A: was})
    assert play.rereads.watch(said) is None
    assert play.anew == (["public.a"] if is_lost else [])


class Ranges:
    """Ranges that come when they are given."""

    fileno, estimated_rows = 0, 0

    def __init__(self) -> None:
        self.asked: list[Key | NamedKeys | None] = []
        self.answer: RangeRead | CdcError | None = None

    def ask(self, after: Key | NamedKeys | None) -> None:
        self.asked.append(after)

    def take(self) -> RangeRead | CdcError | None:
        answer, self.answer = self.answer, None
        return answer

    def close(self) -> None:
        """Nothing is open."""


class InRanges(Play):
    """A source whose tables are read beside the stream."""

    reads_ranges = True

    def __init__(self) -> None:
        super().__init__()
        self.given, self.places = Ranges(), list[tuple[int, Upto]]()
        self.keys: dict[Wish, tuple[int, Sequence[Key]]] = {}
        self.sizes: list[bool] = []

    def ranges(self, table: TableId, *, of_any_size: bool = False) -> tuple[TableSchema, Ranges]:
        self.sizes.append(of_any_size)
        return KEYED[table], self.given

    def named(self, wish: Wish) -> tuple[int, Sequence[Key]]:
        return self.keys.get(wish, (0, ()))

    def beside(
        self, state: Any, at: int, _table: TableSchema, load: Beside, piece: Piece
    ) -> tuple[Any, Upto]:
        self.places.append((at, load.upto))
        return state, replace(load.upto, key=piece.upto.key)

    def comes(self, high: int, *, last: Key | None = None) -> Any:
        """Take a range at the position 500, where the stream stands, and write it."""
        self.rereads.reach(400, KEYED, is_between=True)
        self.given.answer = RangeRead(KEYED[A], Visible(9), high, last=last)
        self.rereads.reach(500, KEYED, is_between=True)
        assert self.rereads.is_standing
        return self.rereads.place(state_of({"public.a": "END"}), 500, KEYED)


KEYED = {A: TableSchema(A, (Column("v", 25), Column("id", 25)), ("id",), oid=1)}


def test_an_open_load_beside_the_stream_goes_on_behind_what_was_written() -> None:
    play, upto = InRanges(), Upto((b"7",), request=3)
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": upto.text}, {}, KEYED)
    play.rereads.make_point(KEYED)

    assert play.notes[-1] == "public.a: its load goes on where it was left"
    play.comes(480, last=(b"8",))
    assert play.given.asked == [(b"7",)]
    assert play.places == [(500, upto)]


def test_one_that_begins_is_for_the_request_and_nothing_of_it_was_read() -> None:
    play = InRanges()
    play.asked_for = {Wish(A, "lake"): 3}
    play.rereads.follow({"public.a": "END"}, {}, {}, KEYED)
    play.rereads.make_point(KEYED)

    placed = play.comes(480)

    assert (play.given.asked, play.notes) == ([None], [])
    assert play.places == [(500, Upto(request=3, target="lake"))]
    assert placed.shape is None, "for others it changes nothing"


def test_one_for_all_is_said_to_begin_with_the_shape_of_its_place() -> None:
    play = InRanges()
    play.asked_for = {Wish(A, "lake"): 3}
    play.rereads.follow({"public.a": "GAP"}, {}, {}, KEYED)
    play.rereads.make_point(KEYED)
    play.queue.hide(A)

    placed = play.comes(480)

    assert play.places == [(500, Upto(request=3))]
    assert placed.shape == KEYED[A]
    assert not play.hidden, "and its rows are delivered from here on"


def test_one_that_begins_again_does_not_go_on_where_it_was() -> None:
    play = InRanges()
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto((b"7",)).text}, {}, KEYED)
    play.rereads.make_point(KEYED)

    play.rereads.meet((), {"public.a"})
    play.rereads.make_point(KEYED)
    play.comes(480)

    assert play.notes[0] == "public.a: its load goes on where it was left"
    assert play.notes[1].startswith("public.a: its load begins again: ")
    assert (len(play.notes), play.given.asked) == (2, [None])


def test_a_pause_ends_one_that_is_under_way_and_it_goes_on_where_it_was() -> None:
    play, upto = InRanges(), {"public.a": Upto((b"7",)).text}
    play.rereads.follow({"public.a": "CHUNK"}, upto, {}, KEYED)
    play.rereads.make_point(KEYED)
    play.asked[EVERYTHING] = 1
    play.rereads.reach(400, KEYED, is_between=True)
    assert play.rereads.is_under_way, "nobody looked yet"

    play.time += 1
    play.rereads.reach(400, KEYED, is_between=True)
    assert not play.rereads.is_under_way
    play.rereads.make_point(KEYED)
    assert not play.rereads.is_under_way
    del play.asked[EVERYTHING]
    play.time += 1
    play.rereads.make_point(KEYED)

    assert play.rereads.is_under_way
    assert play.notes[-1] == "public.a: its load goes on where it was left"
    play.comes(480)
    assert play.given.asked == [(b"7",)] * 2


def test_one_that_begins_again_and_again_is_read_at_a_point() -> None:
    play = InRanges()
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto((b"7",)).text}, {}, KEYED)
    for again in range(3):
        play.rereads.make_point(KEYED)
        if again:
            play.comes(480)
        play.rereads.meet((), {"public.a"})

    assert "again, while the stream waits" in play.notes[-1]
    play.rereads.make_point(KEYED)
    assert play.rereads.has_point


def test_one_for_a_target_whose_table_is_not_captured_now_goes_on_nowhere() -> None:
    play = InRanges()
    upto = {"public.a": Upto((b"7",), target="lake").text}
    play.rereads.follow({"public.a": "END"}, {}, upto, {})
    play.rereads.make_point({})
    assert play.given.asked == []


def test_one_whose_table_is_another_one_by_now_does_not_begin_at_once() -> None:
    play = InRanges()
    play.rereads.follow({"public.a": "GAP"}, {}, {}, KEYED)
    play.rereads.make_point(KEYED)
    play.rereads.reach(400, KEYED, is_between=True)
    play.given.answer = RangeRead(replace(KEYED[A], oid=99), Visible(9), 480)
    play.rereads.reach(500, KEYED, is_between=True)

    assert play.rereads.place(state_of({"public.a": "GAP"}), 500, KEYED) is None
    assert play.notes[-1].startswith("public.a is read again later: the table is another one")
    assert not play.rereads.is_under_way
    play.rereads.make_point(KEYED)
    assert not play.rereads.is_under_way, "it rests"


def test_one_that_gets_another_name_before_it_begins_is_read_later() -> None:
    play, now = InRanges(), replace(KEYED[A], oid=5)
    play.ranges = lambda _: (now, play.given)  # type: ignore[method-assign]
    play.rereads.follow({"public.a": "GAP"}, {}, {}, {A: now})
    play.rereads.make_point({A: now})
    play.rereads.reach(400, {A: now}, is_between=True)
    play.given.answer = RangeRead(now, Visible(9), 480)
    play.rereads.reach(500, {A: now}, is_between=True)

    known = {B: replace(now, id=B)}
    assert play.rereads.place(state_of({"public.a": "GAP"}), 500, known) is None
    assert (play.places, play.rereads.is_under_way) == ([], False)
    assert play.notes == ["public.a is read again later: it is being renamed (was=public.b)"]


def test_the_stream_stops_before_the_commit_where_a_range_may_be_written() -> None:
    play = InRanges()
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto((b"7",)).text}, {}, KEYED)
    play.rereads.make_point(KEYED)
    play.rereads.reach(400, KEYED, is_between=True)
    play.given.answer = RangeRead(KEYED[A], Visible(9), 480)
    play.rereads.reach(400, KEYED, is_between=False)

    assert not play.rereads.stops(Begin(Lsn(470), 0, 5))
    assert not play.rereads.is_standing
    assert play.rereads.stops(Begin(Lsn(480), 0, 6))
    assert play.rereads.is_standing
    play.rereads.place(state_of({"public.a": "CHUNK"}), 470, KEYED)
    assert play.places == [(480, Upto((b"7",)))], "its rows are of no earlier place"


@pytest.mark.parametrize("phase", ["GAP", "CHUNK"])
def test_a_table_rests_behind_a_load_that_mended_a_gap(phase: str) -> None:
    play = InRanges()
    upto = {"public.a": Upto((b"7",)).text} if phase == "CHUNK" else {}
    play.rereads.follow({"public.a": phase}, upto, {}, KEYED)
    play.rereads.make_point(KEYED)
    if phase == "GAP":
        play.comes(480)
    play.comes(480)
    assert not play.rereads.is_under_way
    play.rereads.follow({"public.a": "END"}, {}, {}, KEYED)

    play.rereads.follow({"public.a": "GAP"}, {}, {}, KEYED)

    assert ("less often while this goes on" in "".join(play.notes)) is (phase == "GAP")


def test_the_end_of_a_load_for_one_target_is_the_end_of_its_rows_between_commits() -> None:
    play = InRanges()
    upto = Upto((b"7",), target="lake")
    play.rereads.follow({"public.a": "END"}, {}, {"public.a": upto.text}, KEYED)
    play.rereads.make_point(KEYED)
    assert play.rereads.is_read_beside(A)

    play.comes(480)

    assert not play.rereads.is_read_beside(A)


def test_and_what_is_read_of_it_is_let_go() -> None:
    play = InRanges()
    play.rereads.follow({"public.a": "END"}, {}, {"public.a": Upto(target="lake").text}, KEYED)
    play.rereads.make_point(KEYED)
    assert play.rereads.table_beside == A, "it goes on where it was left"

    assert play.rereads.watch(Update(1, "K", [b"x", b"1"], [UNCHANGED, b"2"])) is None

    assert (play.rereads.is_under_way, play.anew) == (False, ["public.a"])
    assert "public.a: its load begins again: " in play.notes[-1]


def test_a_request_for_a_table_that_is_not_captured_is_answered_for_each_target() -> None:
    play = Play(wants=(B,))
    play.asked_for = {Wish(A, "lake"): 3, Wish(A, "other"): 4}

    play.rereads.make_point({})

    assert (play.answered, play.asked_for) == ([("a", 3), ("a", 4)], {})


@pytest.mark.parametrize("is_root", [True, False])
def test_rows_of_a_partition_that_come_or_go_begin_a_load_beside_the_stream_again(is_root) -> None:
    play, part = InRanges(), TableSchema(B, KEYED[A].columns, ())
    play.rereads.follow({"public.a": "CHUNK"}, {"public.a": Upto((b"7",)).text}, {}, KEYED)
    play.rereads.make_point(KEYED)
    root = KEYED[A] if is_root else TableSchema(C, KEYED[A].columns, ())
    for op in ("move", "delete"):
        change = ShapeChange(root, root, "ALTER TABLE", moved=Moved(op, part.id))
        found = play.rereads.watch(StatementChanges((change,), Origin.TRIGGER))

        assert found == (Lost(*A, "seen", ROWS_MOVED) if is_root else None)


# ---------------------------------------------------------------- rows of some keys
END = {"public.a": "END"}
KEYS = [(b"1",), (b"2",)]
FOR_ALL, FOR_ONE = Wish(A), Wish(A, "lake")


def asked_by_key(wish: Wish = FOR_ALL) -> InRanges:
    play = InRanges()
    play.asked_for, play.keys = {wish: 3}, {wish: (2, KEYS)}
    play.rereads.follow(END, {}, {}, KEYED)
    play.rereads.make_point(KEYED)
    return play


@pytest.mark.parametrize("wish", [FOR_ALL, FOR_ONE])
def test_rows_of_some_keys_are_no_load_and_answer_their_request_alone(wish: Wish) -> None:
    play = asked_by_key(wish)

    placed = play.comes(480)

    assert play.given.asked == [NamedKeys(tuple(KEYS))]
    assert play.places == [(500, Upto(target=wish.target))]
    assert (placed.shape, play.answered, play.alone, play.sizes) == (
        None, [("a", 2)], [True], [True]
    )  # fmt: skip
    assert play.rereads.table_beside is None
    assert not play.rereads.is_under_way


@pytest.mark.parametrize(
    ("loads", "more"),
    [
        ({"public.a": "GAP"}, {}),
        ({"public.a": "CHUNK"}, {}),
        (END, {FOR_ONE: 1}),  # and somebody asks for all rows of one target
    ],
)
def test_all_rows_are_read_where_some_keys_do_not_mend_it(loads: Any, more: Any) -> None:
    play = InRanges()
    play.asked_for, play.keys = {FOR_ALL: 3, **more}, {FOR_ALL: (2, KEYS)}
    play.rereads.follow(loads, {}, {}, KEYED)
    play.rereads.make_point(KEYED)
    play.rereads.reach(400, KEYED, is_between=True)

    assert play.given.asked == [None]


def test_all_rows_are_read_of_a_table_whose_oid_an_older_release_did_not_say() -> None:
    play, shapes = InRanges(), {A: replace(KEYED[A], oid=0)}
    play.asked_for, play.keys = {FOR_ALL: 3}, {FOR_ALL: (2, KEYS)}
    play.rereads.follow(END, {}, {}, shapes)
    play.rereads.make_point(shapes)
    play.rereads.reach(400, shapes, is_between=True)

    assert play.given.asked == [None]


def test_a_row_that_moves_in_part_is_no_gap_while_rows_of_some_keys_are_read() -> None:
    play = asked_by_key()
    moves = Update(1, "K", [None, b"1"], [UNCHANGED, b"2"])

    assert play.rereads.watch(moves) is None


@pytest.mark.parametrize("fails", [SourceError("no such value"), None])
def test_all_rows_are_read_where_keys_cannot_be_read_alone(fails: CdcError | None) -> None:
    play = asked_by_key()
    play.rereads.reach(400, KEYED, is_between=True)
    if fails is not None:
        play.given.answer = fails
        play.rereads.reach(500, KEYED, is_between=True)
    else:
        play.rereads.meet((), {"public.a"})

    assert not play.rereads.is_under_way
    assert "all of its rows are read" in play.notes[-1]
    play.rereads.make_point(KEYED)
    play.rereads.reach(500, KEYED, is_between=True)
    assert play.given.asked[-1] is None, "the shape of a load"
    assert play.answered == []


@pytest.mark.parametrize(
    ("error", "seconds"), [(TableChanging("a statement met it"), 5), (ConnectionLost("away"), 30)]
)
def test_a_table_that_a_statement_met_is_tried_again_sooner(error: CdcError, seconds: int) -> None:
    play = Play()
    play.asked, play.fails = {A: 1}, error
    assert play.go(0) == ""
    play.fails = None
    assert (play.go(seconds - 1), play.go(2)) == ("", "a")


def test_keys_are_read_again_later_where_the_source_was_away() -> None:
    play = asked_by_key()
    play.rereads.reach(400, KEYED, is_between=True)
    play.given.answer = ConnectionLost("away")
    play.rereads.reach(500, KEYED, is_between=True)
    play.time += 60
    play.rereads.make_point(KEYED)
    play.comes(480)

    assert play.answered == [("a", 2)]
