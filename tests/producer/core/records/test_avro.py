import io
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producer.core.records.avro import long, names, varint
from producer.core.records.framing import framed


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@given(st.integers(-(2**63), 2**63 - 1))
def test_long_is_fastavros(number: int) -> None:
    assert long(number) == written({"type": "long"}, number)


@given(st.integers(0, 2**64 - 1))
@example(1 << 14)
@example(1 << 28)
@example(1 << 42)
def test_varint_ends_where_its_last_byte_says(z: int) -> None:
    data = varint(z)
    assert sum((b & 127) << 7 * i for i, b in enumerate(data)) == z
    assert [b >> 7 for b in data] == [1] * (len(data) - 1) + [0]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_what_is_not_a_long(number: int) -> None:
    with pytest.raises(OverflowError):
        long(number)


@given(st.lists(st.text(max_size=5), max_size=3))
def test_names_are_an_array(items: list[str]) -> None:
    assert names(items) == written({"type": "array", "items": "string"}, items)


def test_a_field_that_the_schema_lacks_is_not_left_out_in_silence() -> None:
    """What a look saw of triggers was: no later run compared it."""
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long", "default": 7}]
    schema = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})

    assert framed(1, schema, {"a": 1}) == b"\0\0\0\0\x01\x02\x0e"
    with pytest.raises(ValueError, match="c"):
        framed(1, schema, {"a": 1, "c": 2})
