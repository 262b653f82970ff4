import json

import avro.schema
import fastavro
import pytest

from schemas.load import CUT, SCHEMA_CHANGE, avsc, canonical


@pytest.mark.parametrize("name", [CUT, SCHEMA_CHANGE])
def test_our_schemas_are_avro_for_both_libraries(name: str) -> None:
    fastavro.parse_schema(avsc(name))
    avro.schema.parse(canonical(name))
    assert json.loads(canonical(name)) == avsc(name)
    assert avsc(name)["namespace"] == "gauss_cdc"
