from typing import Any

import pytest

from producer.sources.postgres.checks import check_key
from schemas.findings import Level
from schemas.tables import Column, TableId, TableSchema

TABLE = TableSchema(TableId("s", "t"), (Column("a", 23, nullable=False),))


@pytest.mark.parametrize(
    ("setting", "key", "warned"),
    [("primary-key", (), True), ("primary-key", ("a",), False), ("table", (), False)],
)
def test_tables_without_a_key_are_reported_for_readers_by_key(
    setting: Any, key: tuple[str, ...], warned: bool
) -> None:
    table = TableSchema(TABLE.id, TABLE.columns, key)

    found = list(check_key(table, setting))

    assert [finding.level for finding in found] == ([Level.WARNING] if warned else [])
