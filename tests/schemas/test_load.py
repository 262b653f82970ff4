import json

import avro.schema
import fastavro
import pytest

from schemas.load import CUT, SCHEMA_CHANGE, avsc, canonical, check_bounded


@pytest.mark.parametrize("name", [CUT, SCHEMA_CHANGE])
def test_our_schemas_are_avro_for_both_libraries(name: str) -> None:
    fastavro.parse_schema(avsc(name))
    avro.schema.parse(canonical(name))
    assert json.loads(canonical(name)) == avsc(name)
    assert avsc(name)["namespace"] == "gauss_cdc"


def record(items: object) -> dict[str, object]:
    field = {"name": "a", "type": {"type": "array", "items": items}}
    return {"type": "record", "name": "R", "fields": [field]}


@pytest.mark.parametrize("name", [CUT, SCHEMA_CHANGE])
def test_our_schemas_end_with_their_bytes(name: str) -> None:
    check_bounded(avsc(name))


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "record", "name": "E", "fields": []},
        {"type": "fixed", "name": "F", "size": 0},
        "R",  # of itself
        "of.another.schema",
    ],
)
def test_a_schema_in_which_nothing_stands_for_any_number_of_items_is_refused(
    items: object,
) -> None:
    with pytest.raises(ValueError, match="no bytes"):
        check_bounded(record(items))
    with pytest.raises(ValueError, match="no bytes"):
        check_bounded(["null", {"type": "map", "values": record(items)}])


def test_a_type_that_is_named_again_is_as_long_as_it_was() -> None:
    for first in ({"type": "enum", "name": "E", "symbols": ["a"]},
                  {"type": "fixed", "name": "E", "size": 2}):  # fmt: skip
        items = {"type": "array", "items": "E"}
        fields = [{"name": "a", "type": first}, {"name": "b", "type": items}]
        check_bounded({"type": "record", "name": "R", "fields": fields})
        check_bounded({"type": "array", "items": first})


def test_a_record_that_is_named_again_is_as_long_as_it_was() -> None:
    first = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
    items = {"type": "array", "items": "E"}
    fields = [{"name": "a", "type": first}, {"name": "b", "type": items}]
    check_bounded({"type": "record", "name": "R", "fields": fields})
