"""A load in steps: what each record is, where steps end, and what rows say of themselves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from producer.core.delivery.engine import WriterState
from producer.core.events import Records
from producer.core.key_ranges import Upto
from producer.core.loads.load import Loader
from producer.core.log.cuts_log import CutsLog
from producer.core.ports import RunObserver, ShutdownRequested, Tuning
from producer.core.router import Binding
from producer.native import NativeParts
from schemas.control import Cut, Head, LoadPhase, TableLoad
from schemas.headers import POSITION
from schemas.positions import CommitKey
from schemas.tables import Column, TableId, TableSchema, UserType
from tests.producer.core.assembling import read
from tests.producer.core.streaming import IDENTITY, NAMES, A, B, Calls, Clock, Kafka, Options, shape
from tests.producer.native.twins import native


@dataclass
class Kept(Kafka):
    """Keeps the records that it takes."""

    records: list[Any] = field(default_factory=list)
    ahead: list[TableId] = field(default_factory=list)  # whose schemas were registered at once
    bound: list[TableId] = field(default_factory=list)

    def register_ahead(self, tables: Sequence[TableSchema]) -> None:
        self.ahead += [table.id for table in tables]

    def publish(self, table: TableSchema) -> Binding:
        self.bound.append(table.id)
        return super().publish(table)

    def send(self, records: Records, start: int = 0) -> int:
        self.records += [*records][start:]
        return super().send(records, start)


class Tables:
    """Tables with rows, handed on some at a time."""

    def __init__(self, rows: dict[TableId, list[list[Any]]]) -> None:
        self._rows = rows

    def shapes(self, tables: list[TableId]) -> list[TableSchema]:
        return [shape(table) for table in tables]

    def estimated_rows(self, _table: TableId) -> int:
        return 9

    def copy_rows(self, table: TableId, _columns: Any, hand_on: Callable[[Any], None]) -> None:
        for rows in self._rows[table]:
            hand_on(rows)


def rows(*numbers: int) -> list[list[bytes | None]]:
    return [[b"%d" % n, b"x"] for n in numbers]


class Loading:
    """A loader and its world."""

    def __init__(
        self,
        *,
        leaves: bool = False,
        busy: bool = False,
        native: Any = None,
        targeted: Mapping[str, str] = MappingProxyType({}),
        at: int = 500,
        **options: Any,
    ) -> None:
        self.did: list[Any] = []
        self.kafka = Kept(self.did, {})
        self.calls, self.clock = Calls(), Clock()
        self.calls.is_busy = busy
        parts: Any = self.kafka
        log = CutsLog(
            names=NAMES, accept_gap=False, reader=None, codec=parts, delivery=parts,
            topics=parts, clock=self.clock, note=self.did.append,
        )  # fmt: skip
        asked = iter([False])
        observer = RunObserver(
            on_step=lambda _: None,
            on_load=lambda table, done, of: self.did.append(("load", table, done, of)),
            on_note=self.did.append,
            stop_asked=lambda _: next(asked, True) if leaves else False,
        )
        head = Head(3, 2, 1, "me", 7, 400, 0)
        state = WriterState(head, 5, IDENTITY, "content", "cluster", {}, {}, targeted=targeted)
        self.loader = Loader(
            Options(**options), state,
            log=log, delivery=parts, publisher=parts, observer=observer, clock=self.clock,
            at=at, csn=12, quarantine=parts, behind=self.calls, native=native,
        )  # fmt: skip

    @property
    def steps(self) -> list[tuple[str, LoadPhase, int]]:
        return [(c.table.name, c.phase, c.rows) for c in self.loads]

    @property
    def loads(self) -> list[TableLoad]:
        return [cut for cut in self.kafka.cuts if isinstance(cut, TableLoad)]

    def told(self, table: TableId) -> list[tuple[str, str]]:
        """What each row of a table says of its snapshot, and its kind."""
        found = [r for r in self.kafka.records if r[0] == NAMES.table(table)]
        values = [read(r, shape(table)) for r in found]
        return [(v["op"], v["source"]["snapshot"]) for v in values]

    @property
    def ordinals(self) -> list[int]:
        return [CommitKey.parse(dict(r[4])[POSITION].decode()).ordinal for r in self.kafka.records]


def cut_heads(cuts: Sequence[Cut]) -> list[int]:
    return [cut.head.n for cut in cuts]


class Later(Calls):
    """`Behind`: a call has not ended before it is waited for."""

    def __init__(self) -> None:
        self._left: list[Callable[[], Any]] = []

    def __call__(self, call: Callable[..., Any], *args: Any, **more: Any) -> None:
        self.wait()
        self._left.append(partial(call, *args, **more))

    def wait(self) -> None:
        while self._left:
            self._left.pop(0)()


def test_a_load_has_ended_when_its_last_record_is_durable() -> None:
    loading = Loading()
    loading.loader._behind = Later()

    loading.loader.first(Tables({A: [rows(1)]}), [A])

    assert loading.steps[-1] == ("a", LoadPhase.END, 0)


def test_tables_are_loaded_one_by_one_and_each_record_has_the_next_number() -> None:
    loading = Loading()
    tables = Tables({A: [rows(1, 2, 3)], B: [rows(4), rows(5)]})

    state, shapes = loading.loader.first(tables, [A, B])

    begin, chunk, end = LoadPhase.BEGIN, LoadPhase.CHUNK, LoadPhase.END
    assert loading.steps == [
        ("a", begin, 1), ("a", chunk, 3), ("a", end, 0),
        ("b", begin, 1), ("b", chunk, 2), ("b", end, 0),
    ]  # fmt: skip
    assert cut_heads(loading.loads) == [4, 5, 6, 7, 8, 9]
    assert {(c.as_of, c.head.written_at, c.head.state_from, c.mode) for c in loading.loads} == {
        (500, loading.clock.wall_us(), 5, "EXACT")
    }
    assert loading.ordinals == list(range(7))
    assert loading.told(A) == [("r", "first"), ("r", "true"), ("r", "last_in_data_collection")]
    assert loading.told(B) == [("r", "first_in_data_collection"), ("r", "last")]
    assert (state.head.n, state.head.resume) == (9, 400)
    assert state.loads == {"public.a": "END", "public.b": "END"}
    assert list(shapes) == loading.kafka.ahead == [A, B]
    assert [d for d in loading.did if d[0] == "load"] == [
        ("load", A, 3, 9), ("load", A, 3, 3), ("load", B, 2, 9), ("load", B, 2, 2),
    ]  # fmt: skip


def test_a_table_without_rows_has_its_topic_and_waits_for_no_registry() -> None:
    loading = Loading()

    loading.loader.first(Tables({A: [], B: [rows(1)]}), [A, B])

    assert loading.kafka.bound == [B]
    assert NAMES.table(A) in loading.kafka.topics
    assert loading.steps[:2] == [("a", LoadPhase.BEGIN, 1), ("a", LoadPhase.END, 0)]


def test_a_native_chunk_takes_all_rows_but_the_first_and_the_last() -> None:
    loading = Loading(native=NativeParts(native().Places()))

    loading.loader.first(Tables({A: [rows(1, 2, 3), rows(4, 5)]}), [A])

    assert loading.told(A) == [("r", "first"), *[("r", "true")] * 3, ("r", "last")]
    assert loading.ordinals == list(range(6))


@pytest.mark.parametrize(("of_all", "of_b"), [([A], None), ([A, B], "first_in_data_collection")])
def test_a_table_of_one_row_says_where_it_stands(of_all: list[TableId], of_b: str | None) -> None:
    loading = Loading()

    loading.loader.first(Tables({A: [rows(1)], B: [rows(2)]}), of_all)

    assert loading.told(A) == [("r", "last" if of_b is None else "first")]
    assert loading.told(B) == ([] if of_b is None else [("r", "last")])


def test_a_table_that_is_read_again_is_emptied_for_plain_readers_and_moves_the_place() -> None:
    loading = Loading()

    state = loading.loader.again(Tables({A: [rows(1, 2)]}), shape(A), None, Upto())

    assert loading.told(A) == [("t", "true"), ("r", "first"), ("r", "last")]
    assert {c.mode for c in loading.loads} == {"AGAIN"}
    assert {c.head.resume for c in loading.loads} == {500} == {state.head.resume}
    first, *_, last = loading.ordinals
    assert loading.ordinals == list(range(first, first + 4))
    assert last > 1 << 16, "apart from those of commits"


def test_a_load_for_one_target_says_so_and_tells_plain_readers_nothing_where_rows_have_a_key() -> (
    None
):
    loading, load = Loading(), Upto(request=4, target="lake")

    state = loading.loader.again(Tables({A: [rows(1, 2)]}), shape(A), None, load)

    assert loading.told(A) == [("r", "first"), ("r", "last")]
    assert {c.target for c in loading.loads} == {"lake"}
    reached = [c.upto and Upto.of(c.upto) for c in loading.loads]
    void = Upto(request=4, target="lake", is_void=True)  # an interrupted one begins again
    assert reached == [void, void, None]
    assert (state.loads, state.targeted) == ({}, {})


def test_a_table_without_a_key_begins_anew_for_plain_readers_whomever_it_is_loaded_for() -> None:
    loading, table = Loading(), replace(shape(A), key=())

    loading.loader.again(Tables({A: [rows(1)]}), table, None, Upto(target="lake"))

    assert loading.told(A) == [("t", "true"), ("r", "last")]


def test_a_load_for_all_takes_the_place_of_one_for_a_target() -> None:
    loading = Loading(targeted={str(A): Upto(target="lake").text})

    state = loading.loader.again(Tables({A: [rows(1)]}), shape(A), None, Upto())

    assert (state.loads, state.targeted) == ({str(A): "END"}, {})


def test_a_chunk_ends_with_its_rows_or_its_bytes() -> None:
    parts = [rows(1, 2, 3), rows(4, 5), rows(6)]  # the newest row is held back

    def loaded(tuning: Tuning) -> Loading:
        loading = Loading(tuning=tuning)
        loading.loader.first(Tables({A: parts}), [A])
        return loading

    sizes = [len(r[3]) for r in loaded(Tuning()).kafka.records if r[0] == NAMES.table(A)]
    assert len(sizes) == 6
    for tuning, chunks in (
        (Tuning(chunk_rows=2), [2, 2, 2]),
        (Tuning(chunk_rows=3), [4, 2]),
        (Tuning(chunk_bytes=1), [2, 2, 1, 1]),
        (Tuning(chunk_bytes=sizes[0] + sizes[1]), [2, 3, 1]),
        (Tuning(chunk_bytes=sizes[0] + sizes[1] + 1), [4, 2]),
    ):
        loading = loaded(tuning)

        assert [n for _, phase, n in loading.steps if phase is LoadPhase.CHUNK] == chunks


def transactions(loading: Loading) -> list[int]:
    """How many records of cuts each Kafka transaction has: a marker ends it."""
    out = [0]
    for cut in loading.kafka.cuts:
        if cut is None:
            out.append(0)
        else:
            out[-1] += 1
    return out[:-1]


def test_steps_share_a_transaction_until_they_are_enough_or_nothing_else_is_written() -> None:
    parts = [rows(1, 2, 3), rows(4, 5, 6)]
    for busy, tuning, found in (
        (False, Tuning(), [3]),
        (False, Tuning(chunk_rows=2), [2, 1, 2]),
        (True, Tuning(chunk_rows=2), [5]),
        (True, Tuning(chunk_rows=2, load_steps=2), [2, 2, 1]),
        (True, Tuning(chunk_bytes=1), [2, 1, 1, 1]),
    ):
        loading = Loading(busy=busy, tuning=tuning)

        loading.loader.first(Tables({A: parts}), [A])

        assert transactions(loading) == found


def test_who_wants_to_leave_leaves_behind_a_chunk() -> None:
    loading = Loading(leaves=True, tuning=Tuning(chunk_rows=1))

    with pytest.raises(ShutdownRequested):
        loading.loader.first(Tables({A: [rows(1, 2), rows(3, 4)]}), [A])

    assert [phase for _, phase, _ in loading.steps] == [LoadPhase.BEGIN, LoadPhase.CHUNK]


def test_a_row_too_large_is_put_aside_and_the_end_says_so() -> None:
    loading = Loading(max_row_bytes=300)
    large = [b"2", b"x" * 400]

    loading.loader.first(Tables({A: [[*rows(1), large, *rows(3)]]}), [A])

    assert [step[2] for step in loading.steps] == [1, 2, 0]
    assert loading.loads[-1].lossy is not None
    assert loading.loads[0].lossy is None
    assert [d[:2] for d in loading.did if d[0] == "put aside"] == [("put aside", 500)]


def test_a_range_is_written_with_what_the_stream_completed_and_says_how_far_it_is() -> None:
    loading, upto = Loading(), Upto((b"7",), request=3, rows=40)
    read, completed = rows(1, 2), rows(3)

    state, after = loading.loader.add(shape(A), read, completed, upto, is_last=False, expected=9)

    assert loading.steps == [("a", LoadPhase.CHUNK, 3)]
    assert after == replace(upto, rows=43)
    assert state.upto == {"public.a": after.text}
    assert ("load", A, 43, 9) in loading.did
    assert state.head.resume == 500, "reading the source goes on there"


def test_what_a_range_lacks_is_said_with_it_and_at_the_end() -> None:
    loading = Loading(max_row_bytes=300)

    _, after = loading.loader.add(
        shape(A), [[b"1", b"y" * 400]], [], Upto(), is_last=False, expected=9
    )
    assert after.lossy is not None
    loading.loader.add(shape(A), rows(2), [], after, is_last=True, expected=9)

    assert loading.loads[-1].lossy == after.lossy
    assert ("load", A, 1, 9) in loading.did


def test_it_stands_where_the_newest_commit_does_and_says_for_whom_it_is() -> None:
    loading, upto = Loading(at=399), Upto((b"7",), request=3, target="lake")

    state, _ = loading.loader.add(shape(A), rows(1), [], upto, is_last=False, expected=9)

    assert state.head.resume == 400, "of the record before"
    assert [cut.target for cut in loading.loads] == ["lake"]


def test_a_table_whose_values_change_with_names_is_not_exact_at_its_end() -> None:
    of = Column("of", 90_000, type_name="which", user_type=UserType("d", "which", "regtype", 2206))
    loading, table = Loading(), replace(shape(A), columns=(*shape(A).columns, of))

    loading.loader.begin(table, None, Upto())
    loading.loader.add(table, [], [], Upto(), is_last=True, expected=0)

    assert [cut.phase for cut in loading.loads] == [LoadPhase.BEGIN, LoadPhase.END]
    assert loading.loads[-1].lossy == (
        "values of of name objects of the source, and change with their names unseen"
    )
