"""Whose rows are nobody's business."""

import pytest

from producer.sources.gauss.system_schemas import is_system_schema
from schemas.system_schemas import OWN_SCHEMA


@pytest.mark.parametrize(
    "schema",
    ["pg_catalog", "pg_toast", "pg_temp_3", "information_schema", "dbe_pldeveloper", "snapshot"],
)
def test_the_servers_own_schemas(schema: str) -> None:
    assert is_system_schema(schema)


@pytest.mark.parametrize("schema", ["public", "PG_CATALOG", "Snapshot", "dbe", "sys", "pgx", ""])
def test_users_schemas_whatever_they_look_like(schema: str) -> None:
    assert not is_system_schema(schema)


def test_we_never_capture_ourselves() -> None:
    assert is_system_schema(OWN_SCHEMA)
