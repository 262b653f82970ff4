"""Rows as COPY text hold what Python reads and writes, byte by byte; or leave it to Python."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.cuts.compact import Collapsed, collapse
from spark_consumers.cuts.complete import ordinals
from spark_consumers.decode import RowDecoder, split
from spark_consumers.decode.rows import COMMIT_ORDER, PlainRows, Rows, pack_plan
from spark_consumers.model import Cell, Change, CommitRows
from spark_consumers.native import IS_BUILT, LastStates, RowsSettled, is_packed, mixed
from tests.producer.core.records.test_encode import changes
from tests.schemas.types.values import SAMPLES, Sample

ID = 42
TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
OPTIONS = (
    TypeOptions("string", "string", "base64", "adaptive-time-microseconds", "map"),
    TypeOptions("double", "numeric", "hex", "connect"),
    TypeOptions(binary_handling="base64-url-safe"),
)
BANK = TableSchema(
    TableId("public", "账户"),
    (
        Column("id", 20, nullable=False),
        Column("余额", 1700, (12 << 16 | 2) + 4),
        Column("note", 25),
        Column("at", 1184),
    ),
    key=("id",),
    identity_columns=("id",),
)
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def filled(decoder: RowDecoder, values: Sequence[bytes]) -> tuple[Rows, int]:
    """Rows of values, and how many of them Python had to read."""
    rows, at, slow = decoder.rows(ID), 0, 0
    while (at := rows.take(list(values), at)) < len(values):
        rows.put(decoder.decode(split(values[at])[1]))
        at, slow = at + 1, slow + 1
    return rows, slow


def line(cells: Sequence[Cell]) -> str:
    texts = [cell.translate(ESCAPES) if isinstance(cell, str) else "\\N" for cell in cells]
    return "\t".join(texts) + "\n"


def same(rows: Rows, wanted: list[Change], key: tuple[int, ...]) -> None:
    """All that rows say of themselves is what Python makes of the changes."""
    assert list(rows) == wanted
    assert len(rows) == len(wanted)
    rows.order()
    wanted.sort(key=COMMIT_ORDER)
    assert list(rows) == wanted
    if not is_packed(rows):
        return
    assert list(sent(rows)) == wanted
    found = rows.last_states(key)
    if found is not None:
        columns = rows.columns
        states = collapse(columns, wanted, tuple(columns[at] for at in key))
        assert states.singles is None
        assert in_any_order(LastStates(*found)) == in_any_order(staged(states))
        fresh = rows.last_states(key, True)
        assert fresh is not None
        assert in_any_order(LastStates(*fresh)) == split_states(states, wanted, key)


def sent(rows: Any) -> Any:
    """Rows as another process gets them."""
    return pickle.loads(pickle.dumps(rows))


def split_states(
    states: Collapsed, changes: list[Change], key: tuple[int, ...]
) -> tuple[LastStates, list[bytes]]:
    """As `last_states` where keys that begin are known to be absent, and the staged lines."""
    seen: set[Any] = set()  # keys, but for those that began and ended
    fresh: set[Any] = set()
    for change in changes:
        if change.op == "t":
            seen.clear()
            fresh.clear()
            continue
        old, new = (
            None if row is None else tuple(row[at] for at in key)
            for row in (change.before if change.op in "ud" else None, change.after)
        )
        if new is not None and change.op in "cr" and new not in seen:
            fresh.add(new)
        seen |= {old, new}
        if old is not None and old != new and old in fresh:
            fresh.discard(old)
            seen.discard(old)
    rest = replace(
        states,
        upserts={k: image for k, image in states.upserts.items() if k not in fresh},
        deletes=[k for k in states.deletes if k in seen],
    )
    lines = "".join(sorted(line(i.cells) for k, i in states.upserts.items() if k in fresh))
    return in_any_order(
        staged(rest)._replace(
            fresh=len(states.upserts) - len(rest.upserts), fresh_lines=lines.encode()
        )
    )


def in_any_order(found: LastStates) -> tuple[LastStates, list[bytes]]:
    """Lines that are sorted: a key that ends and begins again may stand elsewhere."""
    lines = sorted(found.lines.splitlines())
    fresh = b"".join(sorted(found.fresh_lines.splitlines(keepends=True)))
    return found._replace(lines=b"", fresh_lines=fresh), lines


def staged(states: Collapsed) -> LastStates:
    """Lines of a staging table of a target: op, unsent, origin, cells."""
    nowhere = "\t\\N" * (len(states.key) + 1)
    lines = [f"u{nowhere}\t{line(image.cells)}" for image in states.upserts.values()]
    for where in states.deletes:
        cells = dict(zip(states.key, where, strict=True))
        lines.append(f"d{nowhere}\t{line([cells.get(name) for name in states.columns])}")
    text = "".join(lines).encode()
    return LastStates(
        states.is_truncated, len(states.upserts), len(states.deletes), text, net=states.net
    )


# ---------------------------------------------------------------- any table, any row
@settings(max_examples=400, deadline=None)
@given(changes())
def test_packed_rows_hold_what_python_reads(change: tuple[TableSchema, tuple[Any, ...]]) -> None:
    table, arguments = change
    encoder = compile_encoder(table, prefix="bank", schema_id=ID, database="bank")
    decoder = RowDecoder(envelope_schema("bank", table))
    value = encoder.encode(*arguments)

    rows, _ = filled(decoder, [value, value])

    names = table.names()
    key = tuple(names.index(name) for name in table.key)
    same(rows, [decoder.decode(split(value)[1])] * 2, key)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
@pytest.mark.parametrize("nullable", [True, False])
def test_samples_of_every_type(sample: Sample, nullable: bool) -> None:
    of_every(TypeOptions(), sample, nullable=nullable)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
def test_samples_of_every_type_under_every_option(sample: Sample, options: TypeOptions) -> None:
    of_every(options, sample, nullable=True)


def of_every(options: TypeOptions, sample: Sample, *, nullable: bool) -> None:
    table = TableSchema(
        TableId("s", "t"), (Column("n", 23), sample.column(nullable=nullable)), ("n",)
    )
    own = EnvelopeOptions(types=options)
    encoder = compile_encoder(table, prefix="p", schema_id=ID, database="d", options=own)
    decoder = RowDecoder(envelope_schema("p", table, own))
    values = [
        encoder.encode("c", "", None, [b"%d" % at, text.encode()], TX, 1, at)
        for at, text in enumerate(sample.texts)
    ]

    rows, _ = filled(decoder, values)

    same(rows, [decoder.decode(split(value)[1]) for value in values], (0,))


# ---------------------------------------------------------------- what native code takes itself
def bank(*rows: tuple[str, str, Any, Any], table: TableSchema = BANK) -> list[bytes]:
    """Values of (op, kind of the old row, old, new)."""
    encoder = compile_encoder(table, prefix="bank", schema_id=ID, database="bank")
    return [
        encoder.encode(op, kind, before, after, TX, 1, at)
        for at, (op, kind, before, after) in enumerate(rows)
    ]


def row(key: str, note: str | None = "a\tb") -> list[bytes | None]:
    text = None if note is None else note.encode()
    return [key.encode(), b"-0.50", text, b"2024-05-01 12:00:00.5+00"]


OLD_KEY = [b"1", None, None, None]
USUAL = [
    ("c", "", None, row("1")),
    ("u", "", None, row("1", None)),
    ("u", "", None, [*row("1")[:2], UNCHANGED, None]),
    ("u", "K", OLD_KEY, row("2", "金\\")),
    ("u", "O", row("2"), row("2", "")),
    ("d", "K", [b"2", None, None, None], None),
    ("d", "O", row("3"), None),
    ("t", "", None, None),
    ("r", "", None, row("4")),
]


@pytest.mark.parametrize("change", USUAL, ids=str)
def test_what_is_usual_needs_no_python(change: tuple[str, str, Any, Any]) -> None:
    decoder = RowDecoder(envelope_schema("bank", BANK))
    values = bank(change)

    rows, slow = filled(decoder, values)

    assert slow == (0 if IS_BUILT else 1)
    same(rows, [decoder.decode(split(value)[1]) for value in values], (0,))


@pytest.mark.parametrize(
    "cell", [b"NaN", b"123456789012345.00", b"infinity"], ids=["NaN", "too long", "infinity"]
)
def test_exact_values_are_left_to_python_and_arrive(cell: bytes) -> None:
    decoder = RowDecoder(envelope_schema("bank", BANK))
    column = 3 if cell == b"infinity" else 1
    odd = [*row("2")]
    odd[column] = cell
    values = bank(("c", "", None, row("1")), ("c", "", None, odd), ("c", "", None, row("3")))

    rows, slow = filled(decoder, values)

    assert slow == (1 if IS_BUILT else 3)
    assert [one.after and one.after[column] for one in rows][1] == cell.decode()
    same(rows, [decoder.decode(split(value)[1]) for value in values], (0,))


def test_bytes_that_are_no_text_stay_a_change() -> None:
    decoder = RowDecoder(envelope_schema("bank", BANK))
    rows, _ = filled(decoder, bank(("c", "", None, row("1"))))
    odd = Change(1, 1, "c", decoder.columns, None, ["2", "1.00", "a\udcff", None])

    rows.put(odd)

    assert list(rows)[1] is odd
    if is_packed(rows):
        assert rows.last_states((0,)) is None


@pytest.mark.parametrize("without", ["an envelope of another release", "another schema id"])
def test_values_of_others_are_left_to_python(without: str) -> None:
    schema = envelope_schema("bank", BANK)
    values = bank(("c", "", None, row("1")))
    if without == "another schema id":
        assert RowDecoder(schema).rows(ID + 1).take(values, 0) == 0
    else:
        schema["fields"] = schema["fields"][:-1]
        assert isinstance(RowDecoder(schema).rows(ID), PlainRows)


# ---------------------------------------------------------------- many rows
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["c", "u", "moved", "whole", "unsent", "d", "t"]),
        st.sampled_from("12345"),
        st.sampled_from("12345"),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.randoms(use_true_random=False), st.booleans())
def test_last_states_are_those_of_the_changes(
    steps: list[tuple[str, str, str]], chance: Any, is_keyed: bool
) -> None:
    table = BANK if is_keyed else TableSchema(BANK.id, BANK.columns)
    decoder = RowDecoder(envelope_schema("bank", table))
    kinds: dict[str, Any] = {
        "c": lambda a, _: ("c", "", None, row(a)),
        "u": lambda a, b: ("u", "", None, row(a, b)),
        "moved": lambda a, b: ("u", "K", [a.encode(), None, None, None], row(b)),
        "whole": lambda a, b: ("u", "O", row(a), row(b)),
        "unsent": lambda a, _: ("u", "", None, [*row(a)[:2], UNCHANGED, None]),
        "d": lambda a, _: ("d", "K", [a.encode(), None, None, None], None),
        "t": lambda *_: ("t", "", None, None),
    }
    values = bank(*(kinds[kind](a, b) for kind, a, b in steps), table=table)
    if chance.random() < 0.3:  # of several partitions
        chance.shuffle(values)

    rows, _ = filled(decoder, values)

    wanted = [decoder.decode(split(value)[1]) for value in values]
    same(rows, wanted, (0,) if is_keyed else ())
    if is_packed(rows) and is_keyed and not any(kind == "unsent" for kind, *_ in steps):
        assert rows.last_states((0,)) is not None


def test_a_place_counts_once_in_its_commit() -> None:
    decoder = RowDecoder(envelope_schema("bank", BANK))
    values = bank(*[("c", "", None, row(str(at))) for at in range(3)])
    rows, _ = filled(decoder, values)
    if not is_packed(rows):
        return

    places = CommitRows(1, [3]).places().tobytes()
    seen = bytearray(3)

    assert (rows.tick(1, places, seen), seen) == (-1, bytearray(b"\1\1\1"))
    assert rows.tick(1, places, seen) == 0  # twice
    assert rows.tick(1, CommitRows(1, [2, 9]).places().tobytes(), bytearray(11)) == 2  # beyond it
    assert rows.tick(2, places, bytearray(3)) == rows.tick(0, places, bytearray(3)) == 0  # others
    assert rows.tick(1, places, bytearray(2)) == 2  # beyond what can be marked
    assert rows.tick(1, b"", bytearray(3)) == rows.tick(1, places[:8], bytearray(3)) == 0


# ---------------------------------------------------------------- from process to process
ODD = Change(0, 0, "c", BANK.names(), None, ["9", "1.00", "a\udcff", None])
MADE = st.lists(st.sampled_from([*USUAL, "odd", "too long"]), max_size=12)


def made(kinds: Sequence[Any], first: int = 0, step: int = 1) -> tuple[Rows, list[Change]]:
    """Rows at ordinals from one on, and the same as a list; some are no text, some are Python's."""
    decoder = RowDecoder(envelope_schema("bank", BANK))
    rows, plain = decoder.rows(ID), PlainRows()
    for at, kind in enumerate(kinds):
        if kind == "odd":
            change = replace(ODD, seq=1 + at // 5, ordinal=first + step * at)
            rows.put(change)
            plain.put(change)
            continue
        if kind == "too long":
            kind = ("c", "", None, [b"5", b"123456789012345.00", None, None])  # noqa: PLW2901
        tx = replace(TX, seq=1 + at // 5)
        encoder = compile_encoder(BANK, prefix="bank", schema_id=ID, database="bank")
        value = encoder.encode(*kind, tx, 1, first + step * at)
        plain.put(decoder.decode(split(value)[1]))
        if not rows.take([value], 0):
            rows.put(plain[-1])
    return rows, plain


@settings(max_examples=200, deadline=None)
@given(MADE)
def test_rows_that_were_sent_are_the_same_rows(kinds: list[Any]) -> None:
    rows, wanted = made(kinds)
    found = pickle.loads(pickle.dumps(rows))

    assert type(found) is type(rows)
    assert list(found) == wanted
    if is_packed(found) and is_packed(rows):
        assert (found.columns, found.held()) == (rows.columns, rows.held())
        for key in ((0,), (0, 1), ()):
            assert found.last_states(key) == rows.last_states(key)
            assert found.last_states(key, True) == rows.last_states(key, True)
        assert found.ordinals(1) == rows.ordinals(1)


@settings(max_examples=200, deadline=None)
@given(MADE, MADE, st.integers(0, 4), st.integers(-1, 30), st.booleans())
def test_rows_are_split_and_joined_as_lists_are(
    some: list[Any], more: list[Any], seq: int, ordinal: int, again: bool
) -> None:
    rows, wanted = made(some, 0, 2)
    other, others = made(more, 1, 2)
    rest = wanted.split(seq, ordinal)

    behind = rows.split(seq, ordinal)
    assert (list(rows), list(behind)) == (wanted, rest)
    if not (is_packed(rows) and is_packed(behind) and is_packed(other)):
        return
    behind.absorb(sent(other) if again else other)
    joined = [*rest, *others]
    assert list(behind) == joined
    assert list(other) == others  # it was copied
    behind.order()
    joined.sort(key=COMMIT_ORDER)
    assert list(behind) == joined
    behind.put(ODD)
    rows.put(replace(ODD, ordinal=77))
    assert (list(behind), list(rows)) == ([*joined, ODD], [*wanted, replace(ODD, ordinal=77)])
    assert list(sent(behind)) == list(behind)
    behind.absorb(rows)
    assert list(behind) == [*joined, ODD, *rows]


@settings(max_examples=200, deadline=None)
@given(MADE, st.sampled_from([(0,), (0, 1), ()]), st.booleans())
def test_settled_rows_answer_one_question_and_no_other(
    kinds: list[Any], key: tuple[int, ...], absent: bool
) -> None:
    rows, wanted = made(kinds)
    if not is_packed(rows):
        return
    states = rows.last_states(key, absent)

    assert rows.settle(key, absent) is (states is not None)

    if states is None:  # they stay
        assert list(sent(rows)) == wanted
        return
    for one in (rows, sent(rows), sent(sent(rows))):
        assert (len(one), one.columns) == (len(wanted), BANK.names())
        assert one.last_states(key, absent) == states
        assert one.held() == len(states[3]) + len(states[5])
        for ask in asked_else(key, absent):
            with pytest.raises(RowsSettled):
                ask(one)
        assert one.settle(key, absent)


def asked_else(key: tuple[int, ...], absent: bool) -> list[Callable[[Any], object]]:
    return [
        list,
        lambda rows: rows[0],
        lambda rows: rows[-1],
        lambda rows: rows[:],
        lambda rows: rows == [],
        lambda rows: rows.order(),
        lambda rows: rows.tick(0, CommitRows(0, [9]).places().tobytes(), bytearray(9)),
        lambda rows: rows.ordinals(1),
        lambda rows: rows.split(0, 0),
        lambda rows: rows.absorb(rows),
        lambda rows: rows.absorb(sent(rows)),
        lambda rows: rows.last_states(key, not absent),
        lambda rows: rows.last_states((*key, 2), absent),
        lambda rows: rows.settle((*key, 2), absent),
    ]


def test_rows_of_other_columns_are_not_joined() -> None:
    rows, wanted = made([USUAL[0]])
    narrow = TableSchema(BANK.id, BANK.columns[:2], BANK.key)
    other = RowDecoder(envelope_schema("bank", narrow)).rows(ID)
    if is_packed(rows) and is_packed(other):
        with pytest.raises(ValueError, match="columns"):
            rows.absorb(other)
        assert list(rows) == wanted


def test_rows_of_another_layout_are_refused() -> None:
    rows, _ = made([USUAL[0], USUAL[1]])
    if is_packed(rows):
        unpacked, (columns, count, text, places, odd, settled) = rows.__reduce__()[:2]
        for wrong in (places[:-1], b"", places * 2):
            with pytest.raises(ValueError, match="another release"):
                unpacked(columns, count, text, wrong, odd, settled)


@given(st.lists(st.integers(0, 2**40), max_size=20))
def test_ordinals_are_summed_as_python_sums_them(several: list[int]) -> None:
    decoder = RowDecoder(envelope_schema("bank", BANK))
    rows = decoder.rows(ID)
    for at in several:
        rows.put(Change(3, at, "t", decoder.columns, None, None))
    if not is_packed(rows):
        return

    assert rows.ordinals(3) == ordinals(several)
    assert rows.ordinals(4) == (None if several else 0)
    rows.put(Change(4, 0, "t", decoder.columns, None, None))
    assert rows.ordinals(3) is None


@given(st.integers(0, 2**40), st.integers(-3, 60))
def test_a_range_is_summed_as_python_sums_it(start: int, size: int) -> None:
    stop = max(0, start + size)
    if IS_BUILT:
        assert mixed(start, stop) == ordinals([*range(start, stop)]) == ordinals(range(start, stop))


# ---------------------------------------------------------------- any bytes
@settings(max_examples=600, deadline=None)
@given(changes(), st.data())
def test_any_bytes_are_left_to_python_or_read_as_it_does(
    change: tuple[TableSchema, tuple[Any, ...]], data: st.DataObject
) -> None:
    table, arguments = change
    encoder = compile_encoder(table, prefix="bank", schema_id=ID, database="bank")
    decoder = RowDecoder(envelope_schema("bank", table))
    value = bytearray(encoder.encode(*arguments))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(value)))
        match data.draw(st.integers(0, 3)):
            case 0:
                value[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case 1:
                del value[at:]
            case 2:
                del value[at : at + data.draw(st.integers(1, 4))]
            case _:
                value[at:at] = data.draw(st.binary(max_size=12))
    one = bytes(value)
    rows = decoder.rows(ID)

    if rows.take([one], 0):
        same(rows, [decoder.decode(split(one)[1])], ())
    else:
        assert not len(rows)


def test_the_plan_leaves_to_python_what_no_opcode_reads() -> None:
    table = TableSchema(TableId("s", "t"), (Column("a", 1007), Column("n", 23)))
    schema = envelope_schema("p", table)
    fields = schema["fields"][0]["type"][1]["fields"]

    cells = pack_plan(ID, ("a", "n"), fields).cells

    assert [cell.opcode for cell in cells] == ["", "int"]
