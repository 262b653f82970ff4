"""A table that is read in ranges of its key, beside a stream that is given message by message."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from producer.core.changes import (
    Begin,
    Cells,
    Delete,
    Insert,
    Lost,
    Message,
    Relation,
    RelationColumn,
    Truncate,
    Update,
)
from producer.core.key_ranges import Key, NamedKeys, RangeRead, Upto, Visible
from producer.core.loads.beside import Beside
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.errors import CdcError, ConnectionLost, TableChanging
from schemas.control import Moved, Origin
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema, Unique

TABLE = TableId("public", "t")
COLUMNS = (Column("v", 25), Column("id", 23), Column("long", 25))
SHAPE = TableSchema(TABLE, COLUMNS, ("id",), oid=7)
MINE, OTHER = 1, 2
ALL = Visible(1 << 40)
DESCRIBED = {
    number: Relation(
        number,
        "public",
        name,
        ReplicaIdentity.DEFAULT,
        tuple(RelationColumn(c.name, c.type_oid, None, identity=c.name == "id") for c in COLUMNS),
    )
    for number, name in ((MINE, "t"), (OTHER, "o"))
}


class Ranges:
    """Answers when it is told what to answer."""

    estimated_rows, fileno = 0, -1

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


class Load:
    """A load, the stream, and time."""

    def __init__(
        self, *, is_begun: bool = True, upto: Upto | None = None, named: Sequence[Key] = ()
    ) -> None:
        self.ranges, self.now, self.position = Ranges(), 0.0, 100
        self.load = Beside(
            SHAPE,
            self.ranges,
            upto=upto or Upto(),
            is_begun=is_begun,
            look_up=DESCRIBED.__getitem__,
            now=lambda: self.now,
            named=named,
        )

    def commit(self, *messages: Message, xid: int = 0) -> None:
        self.position += 10
        self.load.pass_by(Begin(Lsn(self.position), 0, xid))
        for message in messages:
            self.load.watch(message)

    def read(
        self,
        *rows: Cells,
        shown: Visible = ALL,
        last: int | None = None,
        high: int = 0,
        gone: Sequence[int] = (),
        left: Sequence[int] = (),
    ) -> None:
        """Answer what was asked for."""
        answer = RangeRead(SHAPE, shown, high or self.position, rows=rows)
        self.ranges.answer = replace(
            answer,
            last=None if last is None else _key(last),
            gone=tuple(map(_key, gone)),
            left=tuple(map(_key, left)),
        )
        self.load.take()

    def written(self) -> Sequence[Cells]:
        return self.brought()[0]

    def brought(self) -> tuple[list[Cells], list[Key], bool]:
        """Rows and keys without one, which are written; whether that is all."""
        assert self.load.stands_at(self.position)
        piece = self.load.next(SHAPE)
        self.load.written(piece, piece.upto)
        return [*piece.rows, *piece.completed], [*piece.gone], piece.is_last


def _key(number: int) -> Key:
    return (b"%d" % number,)


def row(number: int, v: str = "v", *, long: bytes | None = b"long") -> Cells:
    return [v.encode(), b"%d" % number, long]


def partly(number: int, v: str) -> Cells:
    return [v.encode(), b"%d" % number, UNCHANGED]


def old(number: int) -> Cells:
    return [None, b"%d" % number, None]


def test_a_range_is_written_as_it_was_read_where_nothing_happened() -> None:
    one = Load()
    one.load.rest()
    one.read(row(1), row(2))

    assert one.written() == [row(1), row(2)]
    assert one.ranges.asked == [()]


@pytest.mark.parametrize(
    ("message", "rest"),
    [
        (Insert(MINE, row(2, "new")), [1, 2, 3]),  # a snapshot that has it shows it so
        (Update(MINE, "", None, row(2, "new")), [1, 3]),
        (Delete(MINE, "K", old(2)), [1, 3]),
        (Update(MINE, "K", old(2), row(9, "new")), [1, 3]),
        (Update(MINE, "K", old(9), row(3, "new")), [1, 2, 3]),
        (Insert(OTHER, row(2, "new")), [1, 2, 3]),
        (Truncate((OTHER,), cascade=False, restart_identity=False), [1, 2, 3]),
    ],
)
def test_what_the_stream_brought_is_left_out(message, rest) -> None:
    for is_read_before in (True, False):
        one = Load()
        one.load.rest()
        if is_read_before:
            one.read(row(1), row(2), row(3))
        one.commit(message)
        if not is_read_before:
            one.read(row(1), row(2), row(3))

        assert one.written() == [row(number) for number in rest]


def test_a_row_that_was_updated_in_part_is_completed() -> None:
    one = Load()
    one.load.rest()
    one.commit(Update(MINE, "", None, partly(2, "first")), Update(MINE, "", None, partly(3, "x")))
    one.commit(Update(MINE, "", None, partly(2, "second")), Delete(MINE, "K", old(3)))
    one.read(row(1), row(2), row(3))

    assert one.written() == [row(1), row(2, "second")]


def test_one_that_came_whole_and_was_updated_in_part_then_is_left_out() -> None:
    one = Load()
    one.load.rest()
    one.commit(Update(MINE, "", None, row(2)), Update(MINE, "", None, partly(2, "later")))
    one.read(row(2))

    assert one.written() == []


@pytest.mark.parametrize(
    "message",
    [
        Truncate((OTHER, MINE), cascade=False, restart_identity=False),
        Lost("public", "t", "seen", "why"),
        Lost("", "", "seen", "why"),
        Relation(MINE, "public", "t", ReplicaIdentity.FULL, ()),
        StatementChanges(
            (
                ShapeChange(None, replace(SHAPE, id=TableId("public", "o")), "CREATE TABLE"),
                ShapeChange(SHAPE, None, "DROP TABLE"),
            ),
            Origin.TRIGGER,
        ),
    ],
)
def test_what_was_read_is_thrown_away(message) -> None:
    one = Load()
    one.load.rest()
    one.read(row(1), last=1)
    one.load.rest()  # the next range is being read
    one.commit(message)

    assert not one.load.stands_at(1 << 40)
    one.read(row(2))
    assert not one.load.stands_at(1 << 40), "it was asked for before"
    one.load.rest()
    assert one.ranges.asked == [(), (b"1",), ()]


def test_a_range_stands_behind_all_that_it_shows() -> None:
    one = Load()
    one.load.rest()
    one.read(row(1), high=one.position + 1)

    assert not one.load.stands_at(one.position)
    assert one.load.stands_at(one.position + 1)


def test_a_snapshot_counts_if_it_shows_what_was_delivered_before() -> None:
    one = Load()
    one.commit(xid=50)  # the first range is asked for before it
    one.read(row(1), last=1, shown=Visible(50))
    one.commit(xid=51)
    one.read(row(2), last=2, shown=Visible(52, frozenset({50})))
    one.now += 1
    one.load.rest()
    assert one.ranges.asked == [(), (b"1",), (b"1",)], "the same range again"
    one.read(row(2), shown=Visible(52, frozenset({51})))
    one.now += 1
    one.load.rest()
    one.read(row(2), shown=Visible(52))

    assert one.written() == [row(1)]
    assert one.written() == [row(2)]


def test_what_ran_when_the_load_began_is_waited_for() -> None:
    one = Load()
    for running in ({40, 41}, {41, 60}, {41}):
        one.load.rest()
        one.read(row(1), shown=Visible(70, frozenset(running)))
        assert not one.load.stands_at(1 << 40)
        assert one.load.waits_for_others
        one.now += 1
    one.load.rest()
    one.read(row(1), shown=Visible(70, frozenset({60})))

    assert one.written() == [row(1)]


def test_nothing_is_read_before_begin_stands() -> None:
    one = Load(is_begun=False)
    one.load.rest()
    one.read()
    one.load.rest()
    assert one.ranges.asked == [None]

    piece = one.load.next(None)
    one.load.written(piece, piece.upto)
    one.load.rest()
    assert (piece.shape, one.ranges.asked) == (SHAPE, [None, ()])


def test_the_shape_is_given_once_it_was_read() -> None:
    """It is taken before the place comes at which it holds."""
    one = Load(is_begun=False)
    one.load.rest()
    assert one.load.take() is None
    one.ranges.answer = RangeRead(SHAPE, ALL, 100)

    assert one.load.take() == SHAPE
    assert one.load.take() is None


def test_the_key_is_where_the_shape_of_begin_has_it() -> None:
    """The table was made again, with its columns in another order, since the load was opened."""
    one = Load(is_begun=False)
    turned = replace(SHAPE, columns=(COLUMNS[1], COLUMNS[0], COLUMNS[2]))
    one.load.rest()
    one.ranges.answer = RangeRead(turned, ALL, 100)
    one.load.take()
    one.load.written(one.load.next(None), one.load.upto)
    one.load.rest()
    one.commit(Delete(MINE, "K", [b"2", None, None]))
    one.ranges.answer = RangeRead(turned, ALL, 110, rows=[[b"1", b"2", None], [b"2", b"1", None]])
    one.load.take()

    assert list(one.load.next(turned).rows) == [[b"1", b"2", None]]


@pytest.mark.parametrize("order", ["100", ""])
def test_a_key_in_another_order_tells_nothing_of_what_was_read(order: str) -> None:
    """No shape says which collation a column has.  An older release did not note it."""
    one = Load(upto=Upto((b"7",), order=order))
    for now in ("100", "950"):
        one.load.rest()
        one.ranges.answer = RangeRead(SHAPE, ALL, Lsn(100), rows=[row(8)], last=(b"8",), order=now)
        one.load.take()

    one.written()
    assert Upto.of(one.load.upto.text) == Upto((b"8",), order="100")
    with pytest.raises(TableChanging, match="collation"):
        one.written()


def test_a_load_goes_on_behind_a_key() -> None:
    one = Load(upto=Upto((b"7",), request=3, rows=40))
    one.load.rest()
    one.read(row(8), last=8)
    one.load.rest()

    assert one.ranges.asked == [(b"7",), (b"8",)]
    one.written()
    assert one.load.upto == Upto((b"8",), request=3, rows=40), "the loader adds to them"


def test_some_ranges_are_read_ahead() -> None:
    one = Load()
    for number in range(9):
        one.load.rest()
        if len(one.ranges.asked) == number + 1:
            one.read(row(number), last=number)

    assert one.ranges.asked == [(), (b"0",), (b"1",)]


def test_a_table_that_is_another_one_by_now_is_refused() -> None:
    altered = TableSchema(TABLE, COLUMNS[:2], ("id",), oid=7)
    one = Load()
    one.load.rest()
    one.read(row(1))

    with pytest.raises(TableChanging):
        one.load.next(altered)


def test_an_error_of_the_reader_is_raised() -> None:
    one = Load()
    one.load.rest()
    one.ranges.answer = ConnectionLost("the session broke")

    with pytest.raises(ConnectionLost):
        one.load.take()


def test_a_range_that_does_not_count_is_not_read_again_at_once() -> None:
    one = Load()
    one.load.rest()
    one.read(row(1), shown=Visible(70, frozenset({40})))
    one.load.rest()
    assert one.ranges.asked == [()]
    one.now += 1
    one.load.rest()
    assert one.ranges.asked == [(), ()]


def test_ranges_are_written_in_the_order_of_their_keys() -> None:
    one = Load()
    for number in (1, 2):
        one.load.rest()
        one.read(row(number), last=number)

    assert (one.written(), one.written()) == ([row(1)], [row(2)])


def mending(*numbers: int) -> Load:
    """Keys that somebody named; their rows are being read."""
    one = Load(named=[_key(number) for number in numbers])
    one.load.rest()
    return one


def test_named_keys_are_what_they_are_and_those_without_a_row_are_gone() -> None:
    one = mending(1, 2, 3)
    assert one.ranges.asked == [NamedKeys((_key(1), _key(2), _key(3)))]

    one.read(row(1), gone=(2,), left=(3,))
    assert one.brought() == ([row(1)], [_key(2)], False)
    one.load.rest()
    assert one.ranges.asked[1:] == [NamedKeys((_key(3),))]
    one.read(row(3))
    assert one.brought() == ([row(3)], [], True)


@pytest.mark.parametrize(
    ("message", "rows", "gone"),
    [
        (Insert(MINE, row(1, "new")), [2], [3]),  # the snapshot may show an older one of it
        (Insert(MINE, row(3, "new")), [1, 2], []),
        (Update(MINE, "", None, row(2, "new")), [1], [3]),
        (Delete(MINE, "K", old(2)), [1], [3]),
        (Delete(MINE, "K", old(3)), [1, 2], []),
        (Update(MINE, "K", old(2), partly(3, "new")), [1], []),
        (Update(MINE, "K", old(9), row(2, "new")), [1], [3]),
        (Insert(OTHER, row(3, "new")), [1, 2], [3]),
    ],
)
def test_a_named_key_of_which_the_stream_brought_anything_is_left_out(message, rows, gone) -> None:
    for is_read_before in (True, False):
        one = mending(1, 2, 3)
        if is_read_before:
            one.read(row(1), row(2), gone=(3,))
        one.commit(message)
        if not is_read_before:
            one.read(row(1), row(2), gone=(3,))

        assert one.brought() == ([row(n) for n in rows], [_key(n) for n in gone], True)


def test_named_keys_are_read_again_where_what_was_read_is_thrown_away() -> None:
    one = mending(1, 2)
    one.read(row(1), left=(2,))
    one.commit(Truncate((MINE,), cascade=False, restart_identity=False))
    one.load.rest()
    assert one.ranges.asked == [NamedKeys((_key(1), _key(2)))] * 2


def test_rows_that_a_detached_partition_took_along_are_read_again() -> None:
    """It is captured as a table of its own: no shape of the root is in the statement."""
    part = replace(SHAPE, id=TableId("public", "part"))
    detached = ShapeChange(None, part, "ALTER TABLE", moved=Moved("move", TABLE, "id < 2"))
    one = mending(1, 2)
    one.read(row(1), row(2))
    one.commit(StatementChanges((detached,), Origin.TRIGGER))
    one.load.rest()
    one.read(row(2), gone=(1,))

    assert one.brought() == ([row(2)], [_key(1)], True)


def test_rows_of_another_table_that_the_stream_has_under_another_name_are_refused() -> None:
    """Nobody said yet that it was renamed: targets would move these rows along."""
    one = mending(1)
    one.read(row(1))

    with pytest.raises(TableChanging, match="another table has its name"):
        one.load.next(replace(SHAPE, oid=8))
    piece = one.load.next(replace(SHAPE, oid=0))  # an older release did not say
    assert [*piece.rows] == [row(1)]


def test_named_keys_of_a_table_with_a_unique_index_are_of_one_reading() -> None:
    """Between two, a row with its value of now would meet one that has that value still."""
    known = replace(SHAPE, unique=(Unique("one", ("v",)),))
    answer = RangeRead(known, ALL, Lsn(100), rows=[row(1)], last=None)
    for left in ((), (_key(2),)):
        one = mending(1, 2)
        one.ranges.answer = replace(answer, left=left)
        one.load.take()
        if not left:
            assert [*one.load.next(known).rows] == [row(1)]
        else:
            with pytest.raises(TableChanging, match="too many at once for its unique index"):
                one.load.next(known)


def test_only_one_reading_of_named_keys_is_under_way() -> None:
    one = mending(1, 2)
    one.read(row(1), left=(2,))
    one.load.rest()
    assert len(one.ranges.asked) == 1, "which are left is known when these are written"
