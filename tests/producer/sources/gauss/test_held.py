"""The native walker makes of GaussDB's decode-styles the records that Python makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.model import (
    PROFILES,
    Ddl,
    Field,
    Heartbeat,
    Item,
    Mode,
    Op,
    Row,
    Transaction,
)
from producer.sources.decoders import Format
from producer.sources.gauss import held
from producer.sources.gauss.held import RowLayout
from producer.wire.replication import WalMessage
from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from tests.producer.native.gauss_twins import Gauss, agree
from tests.producer.native.test_walk import KINDS, OPTIONS
from tests.producer.native.twins import World, native
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, capture
from tests.producer.sources.gauss.test_stream import messages_of, tables
from tests.schemas.types.values import SAMPLES, SURPRISING

STYLES = [(style, is_batch) for style in "btj" for is_batch in (False, True)]
ALL = [1 << 30]
WHEN = "2025-05-09 06:13:20.123456+00"


def gauss_of(mode: Mode, **more: Any) -> Gauss:
    written = Format("mppdb_decoding", mode.style, mode.sending_batch)
    return Gauss(written, by_csn=mode.output_order == 1, **more)


def sent(
    items: Sequence[Transaction | Heartbeat], mode: Mode, product: str = "og7"
) -> list[WalMessage]:
    """Messages of a walsender, by the emulator."""
    writer = encoder(mode, PROFILES[product], "utf-8")
    out = [message for item in items for message in writer.feed(item)]
    return [(int(start), int(start), payload) for start, payload in (*out, *writer.idle())]


# ---------------------------------------------------------------- recordings
PARALLEL = [name for name in CAPTURES if "_par_" in name]


@pytest.mark.parametrize("name", PARALLEL)
def test_recorded_streams_are_the_same(name: str) -> None:
    read = capture(name)
    messages, gauss = messages_of(read), Gauss(read.written)
    world = World(tables(read.workload), resume=0, encoding=read.written.encoding, puts_aside=True)

    walked = 0
    ways = [(ALL, 1 << 20), ([1], 3), ([2, 1, 0], 1)]
    for limits, at_once in ways[:1] if "bulk" in name else ways:  # which are large
        walked += agree(world, messages, gauss, limits, at_once).walked_rows

    assert walked or "sqlascii" in name or "gbk" in name


# ---------------------------------------------------------------- any stream
def table(draw: st.DrawFn, name: str) -> TableSchema:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    columns = tuple(
        Column(name, KINDS[kind][0], KINDS[kind][1], kind, draw(st.integers(0, 3)) > 0)
        for name, kind in zip(("id", "V x", "c2", 'q"', "e:[]"), kinds, strict=False)
    )
    names = [column.name for column in columns]
    key = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2)))
    identity = draw(st.sampled_from(list(ReplicaIdentity)))
    sent = key if identity is not ReplicaIdentity.FULL else tuple(names)
    schema = draw(st.sampled_from(["s", "s", "s", "private", "a b"]))
    return TableSchema(TableId(schema, name), columns, key, (), identity, sent)


def fields(
    draw: st.DrawFn, of: TableSchema, only: Sequence[str] | None = None
) -> list[Field] | None:
    out = []
    for column in of.columns:
        if only is not None and column.name not in only:
            continue
        name = column.type_name.split("(")[0]
        out.append(Field(column.name, name, column.type_oid, value(draw, column)))
    return out or None


ODD_TEXTS = [b"it's", b"''", b"back\\slash", b'"q"\n\t\x01', b"\xff", b"'", b"null"]


def value(draw: st.DrawFn, column: Column) -> Any:
    choice = draw(st.integers(0, 30))
    if choice < 3 and (column.nullable or not choice):
        return None
    if choice == 5 and column.type_oid == 25:
        return draw(st.sampled_from(ODD_TEXTS))
    if choice == 6 and (surprising := SURPRISING.get(column.type_name)):
        return draw(st.sampled_from(surprising)).encode()
    return draw(KINDS[column.type_name][2]).encode()


def row(draw: st.DrawFn, of: TableSchema, lsn: int) -> Row:
    op = draw(st.sampled_from([Op.INSERT, Op.INSERT, Op.UPDATE, Op.DELETE]))
    new = None if op is Op.DELETE else fields(draw, of)
    old = None
    if op is not Op.INSERT and draw(st.integers(0, 8)):
        old = fields(draw, of, of.identity_columns or of.key)
    if new is not None and old is not None and draw(st.booleans()):  # the key did not change
        keys = {field.name: field for field in new}
        old = [keys[field.name] for field in old]
    return Row(Lsn(lsn), op, *of.id, new, old)


MODES = st.builds(
    Mode,
    parallel_decode_num=st.just(4),
    decode_style=st.sampled_from("btj"),
    sending_batch=st.booleans(),
    include_xids=st.booleans(),
    include_timestamp=st.booleans(),
    include_originid=st.booleans(),
    include_user=st.sampled_from([False, False, True]),
    skip_empty_xacts=st.booleans(),
    enable_ddl_decoding=st.just(True),
    output_order=st.sampled_from([0, 0, 0, 1]),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[WalMessage], Gauss]:
    of = [table(draw, f"t{n}") for n in range(draw(st.integers(1, 3)))]
    in_force = list(of)
    lsn = draw(st.integers(300, 800))
    items: list[Transaction | Heartbeat] = []
    for xid in range(700, 700 + draw(st.integers(1, 6))):
        changes: list[Item] = []
        for n in range(draw(st.integers(0, 5))):
            at = draw(st.integers(0, len(of) - 1))
            if draw(st.integers(0, 14)) == 0:
                added = Column(f"a{xid}_{n}", 25, type_name="text")
                in_force[at] = replace(in_force[at], columns=(*in_force[at].columns, added))
                where = f'"{in_force[at].id.schema}".{in_force[at].id.name}'
                sql = f"ALTER TABLE {where} ADD COLUMN {added.name} pg_catalog.text;"
                changes.append(Ddl(Lsn(lsn + n), sql=sql.encode()))
                continue
            changes += [row(draw, in_force[at], lsn + n)] * draw(st.sampled_from([1, 3, 4]))
        when = draw(st.sampled_from([WHEN, WHEN, "2025-05-09 14:13:20+05:30", "odd"]))
        user = draw(st.sampled_from([None, "cdc"]))
        end = lsn + 8
        csn = 2_000 + lsn + draw(st.sampled_from([0, 0, 0, -900]))
        items.append(Transaction(xid, csn, Lsn(lsn), Lsn(lsn), Lsn(end), when, changes, user))
        if draw(st.integers(0, 6)) == 0:
            items.append(Heartbeat(lsn, lsn, 7))
        lsn = end + draw(st.integers(0, 200))
    mode = draw(MODES)
    product = draw(st.sampled_from(["og3", "og5", "og7", "gaussdb", "gaussdb"]))
    if product != "gaussdb":
        items = [item for item in items if isinstance(item, Transaction)]
        mode = replace(mode, output_order=0, include_user=False, enable_ddl_decoding=False)
    messages = sent(items, mode, product)
    if messages and draw(st.integers(0, 5)) == 0:
        broken = draw(st.integers(0, len(messages) - 1))
        start, end, payload = messages[broken]
        at = draw(st.integers(0, len(payload)))
        behind = at + draw(st.integers(0, 2))
        payload = payload[:at] + draw(st.binary(max_size=3)) + payload[behind:]
        messages[broken] = start, end, payload
    world = World(
        of,
        {table.id: table for table in in_force},
        draw(st.sampled_from(OPTIONS)),
        resume=500,
        max_row_bytes=draw(st.sampled_from([1 << 20, 1 << 20, 400])),
        puts_aside=draw(st.booleans()),
        keyed=draw(st.booleans()),
        partitions=draw(st.sampled_from([0, 0, 5])),
    )
    gauss = gauss_of(
        mode,
        newest_csn=draw(st.sampled_from([0, 0, 0, 1 << 20])),
        hold_bytes=draw(st.sampled_from([1 << 20, 1 << 20, 500])),
        loses_rows_behind_ddl=product == "gaussdb",
        reads_tables=draw(st.integers(0, 3)) > 0,
    )
    return world, messages, gauss


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    histories(),
    st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    st.sampled_from([1, 2, 7, 1 << 20]),
)
def test_any_stream_is_the_same_with_the_walker_wherever_it_stops(
    history: tuple[World, list[WalMessage], Gauss], limits: list[int], read: int
) -> None:
    world, messages, gauss = history

    agree(world, messages, gauss, limits, read)


# ---------------------------------------------------------------- one fact each
COLUMNS = (
    Column("id", 23, type_name="integer", nullable=False),
    Column("v", 25, type_name="text"),
    Column("ok", 16, type_name="boolean"),
    Column("bits", 1560, 4, type_name="bit(4)"),
    Column("n", 1700, type_name="numeric"),
)
ITEM = TableSchema(TableId("s", "item"), COLUMNS, ("id",), (), identity_columns=("id",))
NARROW = replace(ITEM, columns=COLUMNS[:2])
OTHER = replace(ITEM, id=TableId("private", "item"))
VALUES = [b"7", b"it's \xc3\xa9 \"\\\n", b"t", b"1010", b"-1.50"]


def row_of(
    table: TableSchema, op: Op, new: Sequence[bytes | None] | None, old: bytes | None, lsn: int = 1
) -> Row:
    names = [
        (c.name, "bit" if c.type_oid == 1560 else c.type_name, c.type_oid) for c in table.columns
    ]
    fields = new and [Field(*name, cell) for name, cell in zip(names, new, strict=True)]
    key = None if old is None else [Field(*names[0], old)]
    return Row(Lsn(lsn), op, *table.id, fields, key)


def transaction(at: int, *rows: Item) -> Transaction:
    return Transaction(at, at, Lsn(at), Lsn(at), Lsn(at + 8), WHEN, rows)


def mode_of(style: str, is_batch: bool, **more: Any) -> Mode:
    return Mode(parallel_decode_num=4, decode_style=style, sending_batch=is_batch, **more)


CHANGES = [
    row_of(ITEM, Op.INSERT, VALUES, None),
    row_of(ITEM, Op.UPDATE, VALUES, b"7"),
    row_of(OTHER, Op.INSERT, VALUES, None),
    row_of(ITEM, Op.DELETE, None, b"7"),
    row_of(ITEM, Op.INSERT, [b"8", None, b"f", None, None], None),
]


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_rows_of_known_shapes_are_all_walked(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch)
    first = sent([transaction(1_000, *CHANGES)], mode)
    later = sent([transaction(at, *CHANGES) for at in range(2_000, 2_900, 100)], mode)
    world = World([ITEM, OTHER])

    taken = agree(world, [*first, *later], gauss_of(mode), ALL, 1 << 20)

    assert taken.walked_rows == len(taken.records) - 4  # the first transaction's
    assert len(taken.records) == 10 * 4


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_a_transaction_may_come_in_any_pieces(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch)
    writer = encoder(mode, PROFILES["og7"], "utf-8")
    messages = []
    for at in range(1_000, 1_500, 100):
        changes = [*CHANGES, *CHANGES]
        of = [*writer.feed(transaction(at, *changes)), *writer.idle()]
        messages += [(int(start), int(start), payload) for start, payload in of]

    taken = [agree(World([ITEM]), messages, gauss_of(mode), ALL, read) for read in (1, 2, 3, 7)]

    assert min(one.walked_rows for one in taken) >= 5 * 8 - 6


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_a_transaction_on_disk_is_walked_too(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch)
    messages = sent([transaction(1_000, *CHANGES), transaction(2_000, *CHANGES * 50)], mode)

    taken = agree(World([ITEM]), messages, gauss_of(mode, hold_bytes=2_000), ALL, 1 << 20)

    assert taken.walked_rows >= 51 * 4 - 6


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_a_delivered_transaction_is_passed_over(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch)
    messages = sent([transaction(at, *CHANGES) for at in (100, 1_000, 2_000)], mode)

    taken = agree(World([ITEM], resume=500), messages, gauss_of(mode), ALL, 1 << 20)

    assert len(taken.records) == 2 * 4


@pytest.mark.parametrize("style", "btj")
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(row_of(ITEM, Op.INSERT, [b"7", b"\xff", None, None, None], None), id="text"),
        pytest.param(row_of(ITEM, Op.INSERT, [None, b"a", None, None, None], None), id="NULL"),
        pytest.param(row_of(ITEM, Op.INSERT, [b"7", b"a", None, None, b"NaN"], None), id="NaN"),
        pytest.param(row_of(ITEM, Op.UPDATE, VALUES, None), id="no old key"),
        pytest.param(Ddl(Lsn(5), sql=b"CREATE INDEX i ON s.item (v);"), id="a statement"),
        pytest.param(row_of(NARROW, Op.INSERT, VALUES[:2], None), id="fewer columns"),
    ],
)
def test_what_is_unusual_is_left_to_python(style: str, odd: Item) -> None:
    mode = mode_of(style, True, enable_ddl_decoding=True)
    items = [transaction(1_000, *CHANGES), transaction(2_000, CHANGES[0], odd, CHANGES[0])]
    items.append(transaction(3_000, *CHANGES * 3))
    gauss = gauss_of(mode, loses_rows_behind_ddl=True)

    taken = agree(World([ITEM], puts_aside=True), sent(items, mode, "gaussdb"), gauss, ALL, 1)

    assert taken.walked_rows > 0


def counting(calls: Counter[str]) -> Any:
    """`HeldRecords`, whose calls are counted."""

    class Counting(native().HeldRecords):  # type: ignore[misc]  # it has no type here
        def learn(self, layout: RowLayout) -> None:
            calls["learn"] += 1
            super().learn(layout)

        def adopt(self, records: list[tuple[int, bytes]]) -> bool:
            calls["adopt"] += 1
            return bool(super().adopt(records))

    return Counting


@pytest.mark.parametrize("style", "tj")
def test_a_shape_is_learnt_once_whatever_its_rows_hold(style: str) -> None:
    mode, calls = mode_of(style, False), Counter[str]()
    columns = (COLUMNS[0], Column("f", 701, type_name="double precision"))
    of = replace(ITEM, columns=columns)
    rows = [row_of(of, Op.INSERT, [b"%d" % n, b"Infinity"], None) for n in range(50)]
    gauss = gauss_of(mode, held=counting(calls))

    agree(World([of]), sent([transaction(1_000, *rows)], mode), gauss, ALL, 7)

    assert calls["learn"] == 1


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_layouts_are_forgotten_before_they_fill_the_memory(
    style: str, is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = mode_of(style, is_batch)
    monkeypatch.setattr(held, "_MOST", 2)
    changes = [change for change in CHANGES for _ in range(3)]

    taken = agree(
        World([ITEM, OTHER]),
        sent([transaction(at, *changes) for at in (1_000, 2_000)], mode),
        gauss_of(mode),
        ALL,
        1 << 20,
    )

    assert taken.walked_rows


def test_a_transaction_that_is_left_to_python_is_offered_once() -> None:
    """Each offer goes through all of it: one a message would cost its size squared."""
    mode, calls = mode_of("b", False, include_user=True), Counter[str]()
    of = [replace(transaction(at, *CHANGES * 10), user="cdc") for at in (1_000, 2_000)]
    gauss = gauss_of(mode, held=counting(calls))

    agree(World([ITEM]), sent(of, mode, "gaussdb"), gauss, ALL, 7)

    assert calls["adopt"] == len(of)


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_a_heartbeat_stops_nothing(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch, enable_heartbeat=True)
    items: list[Transaction | Heartbeat] = [transaction(1_000, *CHANGES), Heartbeat(1, 2, 3)]
    messages = sent([*items, transaction(2_000, *CHANGES), Heartbeat(4, 5, 6)], mode, "gaussdb")

    gauss = gauss_of(mode)
    taken = agree(World([ITEM]), messages, gauss, ALL, 1 << 20)

    assert taken.walked_rows == 4
    assert {stream.told_end for stream in gauss.streams} == {5}


def test_a_value_that_was_not_sent_is_marked() -> None:
    """As PostgreSQL's test_decoding prints it, which writes rows of style t otherwise."""
    update = b"table s item UPDATE: old-key: id[integer]:7 new-tuple: id[integer]:7 v[text]:%s"
    lines = [b"BEGIN CSN: 9 first_lsn: 0/3E8 xid: 9"]
    lines += [update % b"'a'", update % b"unchanged-toast-datum", b"commit xid: 9"]
    messages = [(1_000 + n, 1_000 + n, line) for n, line in enumerate(lines)]

    taken = agree(World([NARROW]), messages, Gauss(Format("mppdb_decoding", "t")), ALL, 1 << 20)

    assert taken.walked_rows == 1


ROW_J = b"""{"table_name":"s.item","op_type":"INSERT","columns_name":["id","v"],\
"columns_type":["integer","text"],"columns_val":[%s,%s],\
"old_keys_name":[],"old_keys_type":[],"old_keys_val":[]}"""
LINES = {
    "t": (b"table s item INSERT: id[integer]:%s v[text]:%s", b"1", b"'a'"),
    "j": (ROW_J, b'"1"', b"\"'a'\""),
}
LITERALS = """'it''s' '' ' 'a a B'01' B'02' B'0 1. .5e-3 - 1e 1E+9 true false null nul NaN Infinity
'a'x +1 '''' ''' truer 'a'' 'a'b'"""
STRINGS = (
    r"""'\u00e9' '\u00c3\u00a9' '\u0100' '\n\t\r\b\f\/\"' '\x' '\u00 '\\' '\ \u0031 \u0027a'"""
)
ODD_CELLS = {
    "t": [*LITERALS.encode().split(), b"", b"'a' ", b"'a\n'"],
    "j": [
        *(b'"%s"' % text for text in (*LITERALS.encode().split(), *STRINGS.encode().split())),
        *(b"1", b"null", b'"1" ', b'"', b"\"'a", b"\"'a\n'\"", b'"1', b'1"', b'""'),
    ],
}


@pytest.mark.parametrize(
    ("style", "cell"), [(style, cell) for style, cells in ODD_CELLS.items() for cell in cells]
)
def test_any_literal_is_read_as_python_reads_it(style: str, cell: bytes) -> None:
    row, one, text = LINES[style]
    lines = [b"BEGIN CSN: 9 first_lsn: 0/3E8"]
    lines += [row % (one, text), row % (one, cell), row % (cell, text), row % (one, text)]
    messages = [(1_000 + n, 1_000 + n, line) for n, line in enumerate([*lines, b"COMMIT XID: 7"])]

    agree(
        World([NARROW], puts_aside=True),
        messages,
        Gauss(Format("mppdb_decoding", style)),
        ALL,
        1 << 20,
    )


# ---------------------------------------------------------------- every type
@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_every_sample_of_every_type(style: str, is_batch: bool) -> None:
    mode, of, items = mode_of(style, is_batch), [], []
    for number, sample in enumerate(SAMPLES):
        name, _, _ = sample.type_name.partition("(")
        id_, column = COLUMNS[0], replace(sample.column(), name="v")
        table = TableSchema(TableId("s", f"t{number}"), (id_, column), ("id",))
        of.append(replace(table, identity_columns=("id",)))
        kinds = ("id", "integer", 23), ("v", name, column.type_oid)
        cells = (None, *(text.encode() for text in sample.texts))
        news = [[Field(*kinds[0], b"1"), Field(*kinds[1], cell)] for cell in cells]
        rows = [Row(Lsn(5), Op.INSERT, *table.id, new, None) for new in news]
        items.append(transaction(1_000 + 10 * number, *rows))

    taken = agree(World(of), sent(items, mode), gauss_of(mode), ALL, 1 << 20)

    assert taken.walked_rows > len(taken.records) / 3
