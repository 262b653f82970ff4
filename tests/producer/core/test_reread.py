"""Which tables are read again, and when."""

from typing import Any, cast

from producer.core.changes import Begin, Commit, Mark
from producer.core.engine import WriterState
from producer.core.reread import EVERYTHING, Due, Rereads, asked
from producer.core.window import UNSEEN, MarkTokens, QuietWindow
from schemas.control import Head
from schemas.positions import Lsn
from schemas.tables import ReplicaIdentity, TableId, TableSchema

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


def test_an_epoch_that_began_without_a_load_reads_none() -> None:
    assert asked([A, B], {}, [], everything).tables == []


def test_the_load_of_a_table_that_is_gone_is_forgotten() -> None:
    found = asked([A], {"public.a": "END", "public.b": "CHUNK"}, [A, B], everything)

    assert found.tables == []
    assert found.noted == {"public.b": None}


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
    assert (back.tables, back.left) == ([B], [])


def test_a_table_with_a_gap_is_read_where_gaps_are_repaired() -> None:
    loads = {"public.a": "GAP", "public.b": "GAP"}

    assert asked([A], loads, [A, B], everything, repairs=True).tables == [A]
    assert asked([A], loads, [A, B], everything).tables == []
    assert asked([A], loads, [A, B], everything).noted == {}


def test_a_load_waits_for_the_stream_to_rename_its_table() -> None:
    found = asked([], {"public.a": "CHUNK"}, [A], everything, renamed=[A])

    assert (found.tables, found.noted) == ([], {})


# ---------------------------------------------------------------- the order of re-reads
class Point:
    """A place at which a table has its shape."""

    at = 7

    def __init__(self, table: TableId) -> None:
        self.reading, self._table = self, table

    def shapes(self, _tables: list[TableId]) -> list[Any]:
        return [TableSchema(self._table, (), (), (), ReplicaIdentity.DEFAULT, ())]

    def close(self) -> None:
        """Nothing is held."""


class Play:
    """Re-reads with a clock that stands still, and a source that always has a point."""

    def __init__(self) -> None:
        self.time, self.read, self.notes = 0.0, list[str](), list[str]()
        self.asked: dict[TableId, int] = {}
        self.captured = {A, B, C}
        self.rereads = Rereads(
            (A, B, C), set(), source=self, captured=everything, repairs=True, look_seconds=1.0,
            rest_seconds=10.0, mark_seconds=600.0, read=self._read, publish=lambda _: None,
            look_up=cast("Any", None),
            blocking=lambda call, *args, **more: call(*args, **more), clock=self,
            note=self.notes.append, warn=self.notes.append,
        )  # fmt: skip

    def now(self) -> float:
        return self.time

    def point(self, table: TableId, *, if_gone: bool = False) -> Point | None:
        return Point(table) if table in self.captured else None

    def requests(self) -> dict[TableId, int]:
        return self.asked

    def answer(self, table: TableId, _number: int) -> None:
        self.asked.pop(table)

    def _read(self, state: Any, _point: Any, table: TableSchema) -> Any:
        self.read.append(table.id.name)
        return state

    def go(self, seconds: float, *gaps: str) -> str:
        """Let time pass, and read what is due; the names of what was read."""
        self.time += seconds
        self.read.clear()
        self.rereads.follow({f"public.{name}": "GAP" for name in gaps}, ())
        for _ in gaps or self.asked:
            self.rereads.make_point({})
            if self.rereads.has_point:
                self.rereads.read(cast("Any", None))
        self.rereads.follow({f"public.{n}": "GAP" for n in gaps if n not in self.read}, ())
        return "".join(self.read)


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
    play.rereads.hide(A)
    play.rereads.follow({"public.a": "PENDING"}, ())

    assert play.rereads.make_point({}) is None
    assert play.rereads.needless() is None
    assert not play.rereads.stops(Begin(Lsn(6), 0, 1))
    assert play.rereads.stops(Begin(Lsn(7), 0, 1))
    head = Head(5, 1, 1, "", 3, 2, 0)
    passed = play.rereads.pass_gone(WriterState(head, 0, *(cast("Any", None),) * 5))
    assert passed is not None
    assert (passed[0].head.resume, passed[1]) == (7, A)
    assert not play.rereads.has_point


def test_a_table_that_gets_gaps_again_and_again_is_read_less_and_less_often() -> None:
    play = Play()

    assert play.go(0, "a", "b") == "ab"
    assert play.go(1, "a") == ""
    assert play.go(8, "a", "c") == "c"
    assert play.go(1, "a") == "a"
    assert play.go(19, "a") == ""
    assert play.go(1, "a") == "a"
    assert play.notes[0] == (
        "public.a has a gap again, 1 s after it was read: it is read again in 9 s, and less often"
        " while this goes on"
    )


def test_a_gap_long_after_the_last_one_is_mended_at_once() -> None:
    play = Play()

    assert play.go(0, "a") == "a"
    assert play.go(50, "a") == "a"
    assert play.go(10, "a") == "a"


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
    assert not play.rereads.is_due()
    del play.asked[EVERYTHING]

    assert play.go(2, "a", "c") == "ab"
    assert play.notes == [
        "re-reads are paused: tables wait, as `gauss-cdc snapshot` was told",
        "re-reads go on, as `gauss-cdc snapshot` was told",
    ]


def test_a_table_that_is_not_captured_keeps_its_gap_until_it_is() -> None:
    play = Play()
    play.captured.discard(A)
    assert play.go(0, "a", "b") == "b"
    play.captured.add(A)

    assert play.go(11, "a") == "a"


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
                self.rereads.reach(token + 1)

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.rereads.be_patient()


def windowed() -> WindowPlay:
    play = WindowPlay()
    play.rereads.follow({"public.a": "PENDING"}, ())
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
