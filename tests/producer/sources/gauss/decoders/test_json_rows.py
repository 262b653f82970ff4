import json

import pytest

from producer.errors import DecodeError
from producer.sources.gauss.decoders.json_rows import JsonRows
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, RowShape

ROW = {
    "table_name": 'public."T t"',
    "op_type": "UPDATE",
    "columns_name": ["a", '"B""b"'],
    "columns_type": ["integer", "text"],
    "columns_val": ["1", "'it''s'"],
    "old_keys_name": ["a"],
    "old_keys_type": ["integer"],
    "old_keys_val": ["null"],
}


def dumped(**changes: object) -> bytes:
    return json.dumps({**ROW, **changes}, separators=(",", ":")).encode()


def test_a_row() -> None:
    assert JsonRows("utf-8").decode(dumped()) == NamedChange(
        "u",
        "public",
        "T t",
        NamedRow(RowShape(("a", 'B"b'), (0, 0), ("integer", "text")), [b"1", b"it's"]),
        NamedRow(RowShape(("a",), (0,), ("integer",)), [None]),
    )


@pytest.mark.parametrize("encoding", ["gbk", "gb18030"])
def test_a_trail_byte_that_is_a_backslash_comes_doubled(encoding: str) -> None:
    raw = "縗".encode(encoding)
    assert raw.endswith(b"\\")
    record = (
        dumped(table_name='public."@"', columns_name=["a", '"@"'], columns_val=["1", "'@'"])
    ).replace(b"@", raw + b"\\")

    change = JsonRows(encoding).decode(record)

    assert (change.table, change.new.shape.names[1]) == ("縗", "縗")
    assert change.new.cells[1] == raw


def test_bytes_of_a_database_without_encoding_survive() -> None:
    change = JsonRows("ascii").decode(dumped(columns_val=["1", "'@'"]).replace(b"@", b"\xd6\xd0"))

    assert change.new.cells[1] == b"\xd6\xd0"


def test_control_characters_come_escaped() -> None:
    change = JsonRows("utf-8").decode(dumped(columns_val=["1", "'\t\n\x01\\n'"]))

    assert change.new.cells[1] == b"\t\n\x01\\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"op_type": "MERGE"},
        {"op_type": "DELETE"},  # with a new row
        {"op_type": "INSERT"},  # with an old one
        {"op_type": ["INSERT"]},
        {"table_name": "public"},
        {"table_name": 'public."T'},
        {"table_name": None},
        {"columns_val": ["1"]},
        {"columns_val": ["1", None]},
        {"columns_val": ["1", "'x"]},
        {"columns_val": ["1", "'x'y'"]},
        {"columns_val": ["1", "x"]},
        {"columns_val": ["1", "'"]},
        {"columns_val": "12"},
        {"columns_name": ["a", ["b"]]},
        {"columns_name": ["a", "a"]},
        {"columns_name": ["a", ""]},
        {"columns_type": ["integer", 1]},
        {"columns_val": ["1", "'\u4e2d'"]},  # as an escape, which no server writes
        {"more": 1},
    ],
)
def test_what_is_no_row_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        JsonRows("utf-8").decode(dumped(**changes))


def test_no_prefix_of_a_row_is_a_row() -> None:
    record = dumped()
    for size in range(len(record)):
        with pytest.raises(DecodeError):
            JsonRows("utf-8").decode(record[:size])
    with pytest.raises(DecodeError):
        JsonRows("utf-8").decode(record + b"}")


def test_a_document_nested_without_end_is_refused() -> None:
    with pytest.raises(DecodeError):
        JsonRows("utf-8").decode(b'{"table_name":' + b"[" * 100_000)
