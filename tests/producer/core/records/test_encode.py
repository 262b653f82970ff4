"""The native encoder writes what the reference writes, and the consumer reads it back."""

import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer import native
from producer.core.changes import Cells
from producer.core.records.encode import (
    NullInRequired,
    RowEncoder,
    TransactionConstants,
    compile_encoder,
    compile_key_encoder,
    compile_key_texts,
    key_columns,
    reference,
)
from producer.core.records.transaction_topic import Counted
from producer.errors import DecodeError, Unsupported
from schemas.envelope import EnvelopeOptions, envelope_schema, key_schema
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, TableId, TableSchema, UserType
from schemas.types import TypeOptions
from spark_consumers.decode import RowDecoder, split
from tests.schemas.types.values import RANDOM, SURPRISING, numeric_mod

TX = TransactionConstants(
    xid=700,
    csn=99,
    epoch=2,
    seq=5001,
    committed_at_us=1_714_561_200_123_456,
    now_us=1_714_561_200_223_456,
    commit_lsn=0x1_6B37_4D84,
)
ACCOUNT = TableSchema(
    TableId("public", "account"),
    (
        Column("id", 23, nullable=False),
        Column("owner", 25, nullable=False),
        Column("balance", 1700, numeric_mod(12, 2)),
        Column("note", 25),
    ),
    key=("id",),
    identity_columns=("id",),
)
ALICE: Cells = [b"7", b"Alice", b"90.00", None]


def both(table: TableSchema, **options: Any) -> tuple[RowEncoder, RowEncoder]:
    arguments = {"prefix": "bank", "schema_id": 42, "database": "bank", **options}
    parts = native.parts("auto")
    assert parts is not None
    fast = compile_encoder(table, native=parts.encoder, **arguments)
    return fast, reference(table, **arguments)


def read(table: TableSchema, value: bytes) -> Any:
    schema = fastavro.parse_schema(envelope_schema("bank", table))
    import io

    return fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)


# ---------------------------------------------------------------- any table, any row
@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(st.text("ab_金 '1\"\\", min_size=1, max_size=5), unique=True, max_size=7))
    columns = []
    for name in names:
        kind = draw(st.sampled_from(sorted(RANDOM)))
        oid, mod, _ = RANDOM[kind]
        columns.append(Column(name, oid, mod, kind, draw(st.booleans())))
    key = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2))) if names else ()
    return TableSchema(TableId("s", "t 表"), tuple(columns), key, identity_columns=key)


def cells(draw: st.DrawFn, table: TableSchema, *, old: bool) -> Cells:
    out: Cells = []
    for column in table.columns:
        choice = draw(st.integers(0, 11))
        surprising = SURPRISING.get(column.type_name)
        if choice == 0 and column.nullable:
            out.append(None)
        elif choice == 1 and not old:
            out.append(UNCHANGED)
        elif choice == 2 and surprising:
            out.append(draw(st.sampled_from(surprising)).encode())
        else:
            out.append(draw(RANDOM[column.type_name][2]).encode())
    return out


@st.composite
def changes(draw: st.DrawFn) -> tuple[TableSchema, tuple[Any, ...]]:
    table = draw(tables())
    op = draw(st.sampled_from("crudt"))
    kind = draw(st.sampled_from(["", "O", "K"])) if op == "u" else ""
    if op == "d":
        kind = draw(st.sampled_from(["O", "K"]))
    before = cells(draw, table, old=True) if kind else None
    if kind == "K" and before is not None:
        before = [
            cell if column.name in table.key else None
            for column, cell in zip(table.columns, before, strict=True)
        ]
    after = cells(draw, table, old=False) if op in "cru" else None
    tx = replace(TX, seq=draw(st.integers(0, 2**40)), snapshot="first" if op == "r" else "false")
    lsn, ordinal = draw(st.integers(0, 2**62)), draw(st.integers(0, 2**31))
    return table, (op, kind, before, after, tx, lsn, ordinal)


@settings(max_examples=600, deadline=None)
@given(changes())
def test_the_native_module_writes_what_fastavro_writes(
    change: tuple[TableSchema, tuple[Any, ...]],
) -> None:
    table, arguments = change
    fast, slow = both(table)

    value = fast.encode(*arguments)

    assert value == slow.encode(*arguments)
    comes_back(table, arguments, value)


def comes_back(table: TableSchema, arguments: tuple[Any, ...], value: bytes) -> None:
    """The consumer sees the source's texts, UNCHANGED where nothing was sent."""
    op, kind, before, after, tx, _, ordinal = arguments
    schema_id, payload = split(value)
    change = RowDecoder(envelope_schema("bank", table)).decode(payload)

    assert schema_id == 42
    assert (change.op, change.seq, change.ordinal) == (op, tx.seq, ordinal)
    assert change.columns == table.names()
    if after is not None and kind == "O":
        after = [
            b if a is UNCHANGED and b is not None else a for a, b in zip(after, before, strict=True)
        ]
    elif kind == "K" and table.key:
        before = [
            c if n in table.key else UNCHANGED for n, c in zip(table.names(), before, strict=True)
        ]
    elif kind == "K":
        before = [UNCHANGED if c is None else c for c in before]
    assert same_values(table, change.before, before)
    assert same_values(table, change.after, after)


def same_values(table: TableSchema, got: list[Any] | None, want: Cells | None) -> bool:
    if got is None or want is None:
        return got is want
    return all(map(same_value, table.columns, got, want))


def same_value(column: Column, got: Any, want: Any) -> bool:
    if not isinstance(want, bytes):
        return got is want
    if column.type_oid == 701:
        return float(got) == float(want)
    if got == "2024-05-01 06:30:00+00":
        return want == b"2024-05-01 12:00:00+05:30"
    if want == b"a\\000b":
        return got == "\\x610062"
    return got == want.decode()


# ---------------------------------------------------------------- one fact each
def test_an_insert_is_debeziums_record() -> None:
    fast, _ = both(ACCOUNT)

    value = fast.encode("c", "", None, ALICE, TX, 0x20, 3)

    assert value[:5] == b"\x00\x00\x00\x00\x2a"
    record = read(ACCOUNT, value)
    assert record["before"] is None
    assert json.loads(json.dumps(record["after"], default=str)) == {
        "id": 7,
        "owner": "Alice",
        "balance": "90.00",
        "note": None,
    }
    assert record["source"] == {
        "version": "0.1.0",
        "connector": "postgresql",
        "name": "bank",
        "ts_ms": 1_714_561_200_123,
        "snapshot": "false",
        "db": "bank",
        "sequence": '["6093753732","32"]',
        "ts_us": 1_714_561_200_123_456,
        "ts_ns": 1_714_561_200_123_456_000,
        "schema": "public",
        "table": "account",
        "txId": 700,
        "lsn": 32,
        "xmin": None,
        "csn": 99,
        "epoch": 2,
        "seq": 5001,
        "ordinal": 3,
        "exact": None,
        "unsent": None,
        "before_exact": None,
        "before_columns": None,
    }
    assert record["op"] == "c"
    assert record["transaction"] is None
    assert record["ts_ns"] == 1_714_561_200_223_456_000


def test_a_row_of_a_load_says_so() -> None:
    fast, _ = both(ACCOUNT)
    record = read(ACCOUNT, fast.encode("r", "", None, ALICE, replace(TX, snapshot="true"), 1, 0))

    assert record["op"] == "r"
    assert record["source"]["snapshot"] == "true"


def test_an_unsent_value_is_listed_and_a_value_that_reads_the_same_is_not() -> None:
    fast, _ = both(ACCOUNT)
    placeholder = b"__debezium_unavailable_value"

    unsent = read(ACCOUNT, fast.encode("u", "", None, [*ALICE[:3], UNCHANGED], TX, 1, 0))
    real = read(ACCOUNT, fast.encode("u", "", None, [*ALICE[:3], placeholder], TX, 1, 0))

    assert unsent["after"] == real["after"]
    assert unsent["after"]["note"] == placeholder.decode()
    assert unsent["source"]["unsent"] == ["note"]
    assert real["source"]["unsent"] is None


def test_an_unsent_value_is_taken_from_a_whole_old_row() -> None:
    fast, slow = both(ACCOUNT)
    old: Cells = [b"7", b"Alice", b"1.00", b"long"]
    arguments = ("u", "O", old, [b"7", b"Bob", b"2.00", UNCHANGED], TX, 1, 0)

    record = read(ACCOUNT, fast.encode(*arguments))

    assert record["after"]["note"] == "long"
    assert record["source"]["unsent"] is None
    assert fast.encode(*arguments) == slow.encode(*arguments)


def test_a_key_only_old_row_names_its_columns_and_fills_the_others_with_zeros() -> None:
    fast, _ = both(ACCOUNT)

    record = read(ACCOUNT, fast.encode("d", "K", [b"7", None, None, None], None, TX, 1, 0))

    assert record["before"] == {"id": 7, "owner": "", "balance": None, "note": None}
    assert record["source"]["before_columns"] == ["id"]


def test_values_that_avro_cannot_hold_travel_as_text_of_their_own_row() -> None:
    fast, _ = both(ACCOUNT)
    old, new = [b"7", b"Alice", b"NaN", None], [b"7", b"Alice", b"1.00", None]

    record = read(ACCOUNT, fast.encode("u", "O", old, new, TX, 1, 0))

    assert record["source"]["before_exact"] == {"balance": "NaN"}
    assert record["source"]["exact"] is None
    assert record["before"]["balance"] is None


def test_null_in_a_not_null_column_asks_for_a_wider_schema() -> None:
    for encoder in both(ACCOUNT):
        with pytest.raises(NullInRequired, match="column=owner") as caught:
            encoder.encode("c", "", None, [b"7", None, None, None], TX, 1, 0)
        assert caught.value.column == "owner"


def test_a_row_of_another_width_is_refused() -> None:
    fast, _ = both(ACCOUNT)
    with pytest.raises(DecodeError, match="want=4"):
        fast.encode("c", "", None, [b"7"], TX, 1, 0)


@pytest.mark.parametrize(
    ("encoding", "texts"),
    [
        ("gbk", ["金额", "a\\亾|", "丂"]),  # the second byte of 亾 and 丂 is ASCII
        ("gb18030", ["金额", "€ 🐘"]),
        ("latin-1", ["naïve £", "\x80"]),
        ("euc_cn", ["金额"]),
        ("EUC_JP", ["金額カ"]),
        ("SQL_ASCII", ["plain", "金额, which happens to be UTF-8"]),
    ],
)
def test_other_encodings_arrive_as_utf_8(encoding: str, texts: list[str]) -> None:
    table = TableSchema(TableId("s", "t"), (Column("v", 25), Column("a", 1009), Column("n", 23)))
    fast, slow = both(table, encoding=encoding)
    python = "utf-8" if encoding == "SQL_ASCII" else encoding
    for text in texts:
        array = "{" + '"' + text.replace("\\", "\\\\") + '"' + ",NULL}"
        arguments = (
            "c", "", None, [text.encode(python), array.encode(python), b"1"], TX, 1, 0,
        )  # fmt: skip

        record = read(table, fast.encode(*arguments))
        assert (record["after"]["v"], record["after"]["a"]) == (text, [text, None])
        assert record["source"]["exact"] is None
        assert fast.encode(*arguments) == slow.encode(*arguments)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "utf-8", "gbk"])
@pytest.mark.parametrize("nullable", [True, False])
def test_bytes_that_are_no_text_travel_as_bytes(encoding: str, nullable: bool) -> None:
    types = {"t": 25, "v": 1043, "j": 114, "a": 1009, "x": 142, "e": 16390}
    table = TableSchema(
        TableId("s", "t"),
        tuple(Column(name, oid, nullable=nullable) for name, oid in types.items()),
    )
    fast, slow = both(table, encoding=encoding)
    decoder = RowDecoder(envelope_schema("bank", table))
    row: Cells = [b"\xff", b"a\xc3", b'"\xfe"', b'{"\xff",a}', b"<a>\xff</a>", b"(\xff)"]
    for arguments in (
        ("c", "", None, row, TX, 1, 0),
        ("u", "O", row, [UNCHANGED, *row[1:]], TX, 1, 0),
        ("d", "O", row, None, TX, 1, 0),
    ):
        value = fast.encode(*arguments)  # type: ignore[arg-type]
        assert value == slow.encode(*arguments)  # type: ignore[arg-type]
        change = decoder.decode(split(value)[1])
        for cells in (change.before, change.after):
            if cells is not None:
                arrived = [str(cell).encode("utf-8", "surrogateescape") for cell in cells]
                assert arrived == row
    fallback = read(table, fast.encode("c", "", None, row, TX, 1, 0))
    assert fallback["after"]["t"] == "\ufffd"
    assert fallback["source"]["exact"]["j"] == "\\x22fe22"


def test_a_key_that_is_not_text_is_refused() -> None:
    table = TableSchema(TableId("s", "t"), (Column("k", 25, nullable=False),), ("k",))
    encode = compile_key_encoder(table, prefix="p", schema_id=1, encoding="SQL_ASCII")

    with pytest.raises(Unsupported, match="column=k") as caught:
        encode([b"secret \xff"])
    assert "secret" not in str(caught.value)


def test_an_unknown_type_is_refused_before_the_first_row() -> None:
    table = TableSchema(TableId("s", "t"), (Column("m", 16385, type_name="mood"),))

    with pytest.raises(Unsupported, match=r"mood.*column=m"):
        both(table, options=EnvelopeOptions(types=TypeOptions(unknown_types="fail")))

    fast, slow = both(table)
    arguments = ("c", "", None, [b"happy"], TX, 1, 0)
    assert fast.encode(*arguments) == slow.encode(*arguments)


def test_a_new_transaction_changes_the_constants() -> None:
    fast, slow = both(ACCOUNT)
    for tx in (TX, replace(TX, seq=5002, xid=701, commit_lsn=Lsn(1)), TX):
        arguments = ("c", "", None, ALICE, tx, Lsn(2**40), 0)
        assert fast.encode(*arguments) == slow.encode(*arguments)


@pytest.mark.parametrize("row", [ALICE, [b"7", b"Alice", b"NaN", None]], ids=["plain", "exact"])
def test_events_are_numbered_in_their_transaction_and_in_their_table(row: Cells) -> None:
    """By the native code, and by what it is checked against."""
    fast, slow = both(ACCOUNT)
    other, _ = both(replace(ACCOUNT, id=TableId("public", "other")))

    def written(encoder: RowEncoder) -> list[bytes]:
        tx = replace(TX, counted=Counted("700:99"))
        events = [(other, ALICE), (encoder, row), (other, ALICE), (encoder, row)]
        return [e.encode("c", "", None, cells, tx, 1, n) for n, (e, cells) in enumerate(events)]

    assert written(fast) == written(slow)
    blocks = [read(ACCOUNT, value)["transaction"] for value in written(fast)[1::2]]
    assert blocks == [
        {"id": "700:99", "total_order": 2, "data_collection_order": 1},
        {"id": "700:99", "total_order": 4, "data_collection_order": 2},
    ]


def test_keys() -> None:
    table = replace(ACCOUNT, key=("owner", "id"))
    encode = compile_key_encoder(table, prefix="bank", schema_id=7)
    import io

    data = encode(ALICE)

    schema = fastavro.parse_schema(key_schema("bank", table))
    assert data[:5] == b"\x00\x00\x00\x00\x07"
    record = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
    assert record == {"owner": "Alice", "id": 7}
    assert list(compile_key_texts(table)(ALICE)) == [b"Alice", b"7"]
    assert list(compile_key_texts(ACCOUNT)(ALICE)) == [b"7"]


@pytest.mark.parametrize("decimals", ["precise", "string", "double"])
@pytest.mark.parametrize("user_type", [None, UserType("d", "price", "numeric", 1700)])
def test_one_key_of_the_source_has_one_spelling(decimals: Any, user_type: UserType | None) -> None:
    """Else an upsert by key would keep the row under its old spelling, too."""
    column = Column("k", 1700 if user_type is None else 99_001, user_type=user_type, nullable=False)
    table = TableSchema(TableId("s", "t"), (column,), ("k",))
    options = EnvelopeOptions(types=TypeOptions(decimal_handling=decimals))
    encode = compile_key_encoder(table, prefix="p", schema_id=1, options=options)
    texts = compile_key_texts(table)

    for spellings in ([b"1.5", b"1.50", b"1.500"], [b"100", b"100.00"], [b"0", b"0.0", b".0"]):
        assert len({encode([cell]) for cell in spellings}) == 1
        assert {bytes(texts([cell])[0]) for cell in spellings} == {spellings[0]}
    assert encode([b"1.5"]) != encode([b"15"])
    assert encode([b"100"]) != encode([b"1"])


def test_characters_of_no_length_are_a_key_without_their_blanks_and_others_keep_them() -> None:
    def key(type_mod: int, cell: bytes) -> bytes:
        column = Column("k", 1042, type_mod, nullable=False)
        table = TableSchema(TableId("s", "t"), (column,), ("k",))
        return compile_key_encoder(table, prefix="p", schema_id=1)([cell])[5:]

    assert key(-1, b"a ") == key(-1, b"a") == b"\x02a"
    assert key(3 + 4, b"a  ") == b"\x06a  "  # as Debezium


def _key_of(type_oid: int, cell: bytes, **options: Any) -> bytes:
    table = TableSchema(TableId("s", "t"), (Column("k", type_oid, nullable=False),), ("k",))
    envelope = EnvelopeOptions(types=TypeOptions(**options))
    return compile_key_encoder(table, prefix="p", schema_id=1, options=envelope)([cell])[5:]


def test_infinity_and_far_years_are_keys_since_nothing_else_is_written_as_they_are() -> None:
    days = [b"infinity", b"-infinity", b"5874897-12-31", b"0044-03-15 BC", b"10000-01-01"]
    stamps = [b"infinity", b"-infinity", b"292276-12-31 00:00:00", b"0044-03-15 12:00:00 BC"]
    zoned = [b"infinity", b"-infinity", b"12345-01-01 00:00:00+00", b"0044-03-15 12:00:00+00 BC"]

    for oid, cells in ((1082, days), (1114, stamps), (1184, zoned)):
        assert len({_key_of(oid, cell) for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("type_oid", "cell", "options"),
    [
        (1114, b"294276-12-31 23:59:59.999999", {}),  # written as infinity is
        (1082, b"infinity", {"time_precision": "connect"}),  # as the last day of 9999
        (1186, b"1 day", {}),  # as 24:00:00
        (1562, b"0011", {}),  # as 11
    ],
)
def test_a_key_that_another_value_would_share_is_refused(
    type_oid: int, cell: bytes, options: dict[str, Any]
) -> None:
    with pytest.raises(Unsupported, match="no Avro form"):
        _key_of(type_oid, cell, **options)


def test_what_has_no_opcode_is_written_into_a_native_key_by_python() -> None:
    table = replace(ACCOUNT, columns=(ACCOUNT.columns[0], Column("at", 1083)), key=("id", "at"))

    number, at = key_columns(table)

    assert (number.plan.opcode, number.plan.write) == ("int4", None)
    assert at.plan.opcode == "python"
    assert at.plan.write is not None
    assert (
        at.plan.write(b"00:00:01")
        == compile_key_encoder(replace(table, key=("at",)), prefix="p", schema_id=1)(
            [b"1", b"00:00:01"]
        )[5:]
    )


def test_keys_that_have_no_avro_form_are_refused() -> None:
    table = replace(ACCOUNT, key=("balance",))
    encode = compile_key_encoder(table, prefix="bank", schema_id=7)

    with pytest.raises(Unsupported, match="no Avro form"):
        encode([b"7", b"Alice", b"NaN", None])
    with pytest.raises(NullInRequired):
        encode([b"7", b"Alice", None, None])
    with pytest.raises(Unsupported, match="no primary key"):
        compile_key_encoder(replace(ACCOUNT, key=()), prefix="bank", schema_id=7)
