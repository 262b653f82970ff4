"""Rows as JSON: what is a number, and what stays text."""

import json
from decimal import Decimal

import pytest

from gauss_cdc.inspect.rows import _nested, _read, _typed, dumps

DECIMAL = {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}
DOCUMENT = {"type": "string", "connect.name": "io.debezium.data.Json"}


@pytest.mark.parametrize(
    ("avro", "text", "said"),
    [
        ("long", "9007199254740993", "9007199254740993"),
        ("double", "1.5e+300", "1.5E+300"),
        ("double", "NaN", '"NaN"'),
        ("double", "-Infinity", '"-Infinity"'),
        ({"type": "int", "connect.type": "int16"}, "-7", "-7"),
        (DECIMAL, "0.10", "0.10"),
        (DECIMAL, "$1.00", '"$1.00"'),
        ("boolean", "t", "true"),
        ("boolean", "f", "false"),
        ("string", "12", '"12"'),
        ({"type": "int", "connect.name": "io.debezium.time.Date"}, "2024-05-01", '"2024-05-01"'),
        (DOCUMENT, '{"a": [1.10, null]}', '{"a": [1.10, null]}'),
        (DOCUMENT, "not json", '"not json"'),
        (DOCUMENT, "[" * 100_000, None),
    ],
)
def test_values_have_the_types_of_json(avro: object, text: str, said: str | None) -> None:
    written = dumps(_typed(avro, text))  # type: ignore[arg-type]

    assert written == (json.dumps(text) if said is None else said)


def test_null_is_null_and_arrays_are_nested() -> None:
    array = {"type": "array", "items": ["null", "int"]}

    assert dumps(_typed("long", None)) == "null"
    assert dumps(_nested(array, [1, None, 3])) == "[1, null, 3]"
    assert dumps(_nested({"type": "array", "items": array}, [[1], None])) == "[[1], null]"


@pytest.mark.parametrize(
    ("items", "text", "said"),
    [
        ("int", "{{1,2},{NULL,4}}", "[[1, 2], [null, 4]]"),
        ("string", r'{{"a,\"b","NULL"},{c d,NULL}}', r'[["a,\"b", "NULL"], ["c d", null]]'),
        ("int", "{{{1}},{{2}}}", "[[[1]], [[2]]]"),
        ("int", "[0:1][1:1]={{1},{2}}", '"[0:1][1:1]={{1},{2}}"'),
        ("string", "{{(1,1),(0,0);(2,2),(1,1)}}", '"{{(1,1),(0,0);(2,2),(1,1)}}"'),
        ("int", "{" * 9 + "}" * 9, json.dumps("{" * 9 + "}" * 9)),
        ("int", "{{1}", '"{{1}"'),
        ("int", "", '""'),
    ],
)
def test_an_array_of_several_dimensions_is_nested_too(items: str, text: str, said: str) -> None:
    assert dumps(_read({"type": "array", "items": ["null", items]}, text)) == said


@pytest.mark.parametrize("text", ["a\x1bb", "\udcff", "\u202e", '"', "数据", "\n"])
def test_every_text_is_one_line_of_json_that_steers_no_terminal(text: str) -> None:
    written = dumps({text: [text, Decimal(1)]})

    assert json.loads(written) == {text: [text, 1]}
    assert written.isprintable()
    written.encode()
