"""A native chunk of a load holds the records that Python makes of the same rows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.core.changes import Cells
from producer.core.events import Record, RowsAssembled, sizes_of
from producer.core.loads.copy_lines import CopyLines
from producer.core.records.chunk import Chunk, PlainChunk
from producer.core.records.encode import (
    RowEncoder,
    TransactionConstants,
    compile_encoder,
)
from producer.native import NativeParts
from schemas.tables import Column, TableId, TableSchema
from tests.producer.native.test_walk import KINDS, OPTIONS
from tests.producer.native.twins import native

TOPIC, KEY = "bank.public.account", b"public.account"
POINT = 0x1_0000_0200
CONSTANTS = TransactionConstants(
    xid=0,
    csn=POINT,
    epoch=3,
    seq=0,
    committed_at_us=1_714_561_200_223_456,
    now_us=1_714_561_200_323_456,
    commit_lsn=POINT,
    snapshot="true",
)
ESCAPES = {9: rb"\t", 10: rb"\n", 13: rb"\r", 8: rb"\b", 11: rb"\v", 12: rb"\f", 92: rb"\\"}
ACCOUNT = TableSchema(
    TableId("public", "account"),
    (Column("id", 20, nullable=False), Column("owner", 25), Column("note", 25)),
    ("id",),
)


def line(cells: Cells) -> bytes:
    """A row as COPY's text format has it."""
    return b"\t".join(
        rb"\N" if cell is None else b"".join(ESCAPES.get(at, bytes((at,))) for at in cell)
        for cell in cells
        if cell is None or isinstance(cell, bytes)
    )


def chunks(
    encoder: RowEncoder,
    max_row_bytes: int = 1 << 20,
    constants: TransactionConstants = CONSTANTS,
) -> tuple[Chunk, Chunk]:
    """One in Python and a native one."""
    assert encoder.plan is not None
    made = NativeParts(native().Places()).chunk(
        encoder.plan, constants, topic=TOPIC, partition=2, key=KEY, max_row_bytes=max_row_bytes
    )
    return PlainChunk(TOPIC, constants.epoch, constants.seq, POINT, constants.csn), made


def load(
    chunk: Chunk,
    encoder: RowEncoder,
    rows: Sequence[Cells],
    constants: TransactionConstants = CONSTANTS,
) -> tuple[list[Record], int]:
    """The records of rows as the loader puts them, and how many the chunk took itself."""
    ordinal, at, taken = 40, 0, 0
    while at < len(rows):
        after = chunk.take(rows, at, len(rows), ordinal)
        taken += after - at
        ordinal, at = ordinal + after - at, after
        if at < len(rows):
            value = encoder.encode("r", "", None, rows[at], constants, POINT, ordinal)
            chunk.put(2, KEY, value, ordinal)
            ordinal, at = ordinal + 1, at + 1
    return list(chunk.finish()), taken


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, list[Cells]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    table = replace(
        ACCOUNT,
        columns=tuple(
            Column(f"c{at}", KINDS[kind][0], KINDS[kind][1], kind) for at, kind in enumerate(kinds)
        ),
        key=(),
    )
    texts = [KINDS[kind][2].map(str.encode) for kind in kinds]
    odd = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"\\", b"\\N", b"a\tb\n"]))
    row = st.tuples(*[st.one_of(text, text, text, odd) for text in texts]).map(list)
    return table, draw(st.lists(row, min_size=1, max_size=6))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.sampled_from(OPTIONS), st.booleans(), st.booleans())
def test_a_native_chunk_is_what_python_makes(found, options, are_lines, has_csn) -> None:
    table, rows = found
    constants = CONSTANTS if has_csn else replace(CONSTANTS, csn=0)
    encoder = compile_encoder(table, prefix="bank", schema_id=7, database="bank", options=options)
    given_rows: Sequence[Cells] = (
        CopyLines([line(cells) for cells in rows], len(table.columns), table.id)
        if are_lines
        else rows
    )
    plain, made = chunks(encoder, constants=constants)

    native_records = load(made, encoder, given_rows, constants)[0]
    assert native_records == load(plain, encoder, rows, constants)[0]
    assert all(("csn" in dict(headers)) is has_csn for *_, headers in native_records)


@pytest.mark.parametrize("are_lines", [True, False])
def test_common_rows_are_taken_and_unusual_ones_left(are_lines: bool) -> None:
    encoder = compile_encoder(ACCOUNT, prefix="bank", schema_id=7, database="bank")
    rows: list[Cells] = [
        [b"1", b"Alice", None],
        [b"2", b"a\tb\\c\nd", b""],
        [b"3", b"\xff", None],  # no text
        [b"4", "Zoë".encode(), b"\\N"],
    ]
    plain, made = chunks(encoder)
    source = CopyLines([line(cells) for cells in rows], 3, ACCOUNT.id) if are_lines else rows

    records, taken = load(made, encoder, source)

    assert taken == 3
    assert records == load(plain, encoder, rows)[0]


@pytest.mark.parametrize("text", [b"1\tx", b"1\tx\ty\tz", b"", b"1\tx\ty\\"])
def test_a_line_of_another_width_or_with_a_lone_escape_is_left(text: bytes) -> None:
    encoder = compile_encoder(ACCOUNT, prefix="bank", schema_id=7, database="bank")
    _, made = chunks(encoder)

    assert made.take(CopyLines([text], 3, ACCOUNT.id), 0, 1, 0) == 0
    assert len(made) == made.size == 0


def test_a_row_that_is_too_large_is_left() -> None:
    encoder = compile_encoder(ACCOUNT, prefix="bank", schema_id=7, database="bank")
    rows: list[Cells] = [[b"1", b"x", None], [b"2", b"x" * 500, None]]
    _, made = chunks(encoder, max_row_bytes=400)

    assert made.take(rows, 0, 2, 0) == 1


def test_records_are_counted_by_where_they_go() -> None:
    encoder = compile_encoder(ACCOUNT, prefix="bank", schema_id=7, database="bank")
    _, made = chunks(encoder)

    made.take([[b"1", b"x", None], [b"2", b"y", None]], 0, 2, 0)
    made.put(0, KEY, b"value", 2)
    batch = made.finish()

    assert isinstance(batch, native().Batch)
    assert batch.transactions() == [({(TOPIC, 2): 2, (TOPIC, 0): 1}, None)]
    assert batch.sizes() == sizes_of(RowsAssembled(list(batch), batch.size)) != {}
    assert list(made.finish()) == []
