"""Whatever is encoded, the producer decodes to the same rows, in every mode."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.model import PROFILES, Field, Item, Mode, Op, Row, Sent, Transaction
from producer.sources.gauss.decoders.messages import (
    DecodedMessage,
    NamedChange,
    NamedRow,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn
from tests.gauss_cdc_lab.emulator.formats.made import transaction
from tests.gauss_cdc_lab.emulator.formats.reread import naming

CHARACTERS = st.characters(blacklist_characters="\0", codec="gbk")
NAMES = st.one_of(
    st.sampled_from(["id", "user", 'a"b', "a.b", "new-tuple:", "x[integer]:1", " a", "INSERT:"]),
    st.text(CHARACTERS, min_size=1, max_size=12),
)
# Style t separates schema and table by a blank, so names with blanks are ambiguous there.
PLAIN_NAMES = st.text(st.sampled_from("abcXYZ_0é'\".,"), min_size=1, max_size=8)
TEXTS = st.one_of(
    st.sampled_from(["", "null", "'", "''", "\\", "it's", "a b[text]:'c'", " and x = 1;", "', '"]),
    st.text(CHARACTERS, max_size=30),
)


# Made once: a strategy that is made at each draw costs more than what it draws.
TYPES = st.sampled_from(
    [
        (type_name, oid, st.none() | values)
        for type_name, oid, values in (
            ("text", 25, TEXTS),
            ("character varying", 1043, TEXTS),
            ("integer", 23, st.integers(-(2**31), 2**31 - 1).map(str)),
            ("numeric", 1700, st.sampled_from(["NaN", "-.5", "100.00", "1e10"])),
            ("boolean", 16, st.sampled_from("tf")),
            ("bit varying", 1562, st.text("01", max_size=9)),
            ("bytea", 17, st.binary(max_size=9).map(lambda raw: "\\x" + raw.hex())),
            ("integer[]", 1007, st.just('{1,NULL,"3"}')),
        )
    ]
)
COLUMNS = st.lists(NAMES, min_size=1, max_size=4, unique=True)
STARTS = st.integers(0x110, 0x170).map(Lsn)
OPS = st.sampled_from(Op)


def field(draw: st.DrawFn, name: str) -> Field:
    type_name, oid, values = draw(TYPES)
    value = draw(values)
    return Field(name, type_name, oid, None if value is None else value.encode("gbk"))


@st.composite
def rows(draw: st.DrawFn, tables: st.SearchStrategy[str]) -> Row:
    columns = draw(COLUMNS)
    new = tuple(field(draw, column) for column in columns)
    old = tuple(field(draw, column) for column in columns) if draw(st.booleans()) else None
    op = draw(OPS)
    return Row(
        draw(STARTS),
        op,
        draw(tables),
        draw(tables),
        new=None if op is Op.DELETE else new,
        old=None if op is Op.INSERT else old,
    )


def transactions(tables: st.SearchStrategy[str]) -> st.SearchStrategy[list[Transaction]]:
    return st.lists(
        st.lists(rows(tables), max_size=4).map(lambda items: transaction(*items)), max_size=4
    )


SERIAL = [Mode(plugin=plugin) for plugin in ("mppdb_decoding", "test_decoding", "sql_decoding")]
PARALLEL = [
    Mode(parallel_decode_num=2, decode_style=style, sending_batch=batch)
    for style in "bjt"
    for batch in (False, True)
]
MODES = [
    replace(mode, skip_empty_xacts=skip) for mode in SERIAL + PARALLEL for skip in (False, True)
]


@pytest.mark.parametrize("mode", MODES, ids=repr)
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_what_is_encoded_is_decoded_to_the_same(mode: Mode, data: st.DataObject) -> None:
    done = data.draw(transactions(PLAIN_NAMES if mode.style == "t" else NAMES))
    pauses = data.draw(st.lists(st.booleans(), min_size=len(done), max_size=len(done)))
    stream, decoder = encoder(mode, PROFILES["og7"], "gbk"), naming(mode, "gbk")

    sent: list[Sent] = []
    for each, is_paused in zip(done, pauses, strict=True):
        sent += stream.feed(each)
        sent += stream.idle() if is_paused else ()
    sent += stream.idle()
    reported = [
        decoder.decode(position, record)
        for start, payload in sent
        for position, record in decoder.split(start, payload)
    ]

    kept = [each for each in done if each.items or not mode.skip_empty_xacts]
    assert [words(each) for each in reported] == [
        word
        for each in kept
        for word in (
            "BEGIN",
            *(said for item in each.items for said in expected(item, mode)),
            "END",
        )
    ]


def words(reported: DecodedMessage) -> Any:
    match reported:
        case TxBegin():
            return "BEGIN"
        case TxCommit():
            return "END"
        case NamedChange(op, schema, table, new, old):
            return op, schema, table, cells(new), cells(old)
    raise AssertionError(reported)


def cells(row: NamedRow | None) -> Any:
    """Name, type, OID, and value of each column; "" and 0 where the wire is silent."""
    if row is None:
        return None
    count = len(row.cells)
    names = row.shape.names or ("",) * count
    types = row.shape.types or ("",) * count
    oids = row.shape.oids or (0,) * count
    return list(zip(names, types, oids, row.cells, strict=True))


def expected(item: Item, mode: Mode) -> Iterator[Any]:
    """The words of a row, as far as its mode has them."""
    assert isinstance(item, Row)
    new, old = columns(item.new, mode, named=mode.plugin != "sql_decoding"), columns(item.old, mode)
    table = item.schema, item.table
    if item.op is Op.UPDATE and mode.plugin == "sql_decoding":
        yield "d", *table, None, old
        yield "c", *table, new, None
    else:
        letter = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}[item.op]
        yield letter, *table, new, old


def columns(fields: Sequence[Field] | None, mode: Mode, *, named: bool = True) -> Any:
    if fields is None:
        return None
    typed = mode.style != "b" and mode.plugin != "sql_decoding"
    return [
        (
            field.name if named else "",
            field.type_name if typed else "",
            field.type_oid if mode.style == "b" else 0,
            field.value,
        )
        for field in fields
    ]
