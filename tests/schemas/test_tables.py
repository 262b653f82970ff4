import dataclasses

import pytest

from schemas.tables import UNCHANGED, Column, TableId, TableSchema


def test_a_table_names_itself_and_its_columns() -> None:
    table = TableSchema(TableId("public", "t"), (Column("b", 23), Column("a", 25)))
    assert str(table.id) == "public.t"
    assert table.names() == ("b", "a")


def test_a_table_version_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TableSchema(TableId("s", "t"), ()).key = ("a",)  # type: ignore[misc]


def test_unsent_is_not_null_and_equals_only_itself() -> None:
    assert UNCHANGED is not None
    assert UNCHANGED not in (None, b"", "unchanged toast", b"unchanged toast")
