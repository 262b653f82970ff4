"""The shapes of a lake's tables: what they are called by, and what is refused by name."""

from dataclasses import replace

import pytest

from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.errors import NotExpressible
from spark_consumers.sinks.lakes.changes import MORE, WORKING
from spark_consumers.sinks.lakes.shapes import altering, columns

T = TableSchema(TableId("public", "t"), (Column("id", 23, -1, "integer", nullable=False),), ("id",))
TAKEN = [
    *((mode, name) for mode, names in MORE.items() for name in names),
    *(("scd1", name) for name in WORKING),
    ("scd1", "_KEY"),
]


@pytest.mark.parametrize(("mode", "name"), TAKEN)
def test_a_column_with_a_name_of_ours_is_refused(mode: str, name: str) -> None:
    """Also one that comes later: values of one would stand in the other."""
    taken = replace(T, columns=(*T.columns, Column(name, 23, -1, "integer")))
    change = SchemaChange(1, 1, 0, 7, 7, 7, Origin.DEPARSED, "ALTER TABLE", T, taken)

    with pytest.raises(NotExpressible, match="columns=" + name.casefold()):
        columns(taken, mode)
    with pytest.raises(NotExpressible, match="columns=" + name.casefold()):
        altering(change, ["id"], place=T.id, mode=mode)


def test_names_of_another_mode_are_free() -> None:
    kept = replace(T, columns=(*T.columns, Column("_kept", 23, -1, "integer")))

    assert "`_kept` INT" in columns(kept, "log")
