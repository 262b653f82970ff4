"""Which schema changes rows are joined over, and what rows from before them have."""

from dataclasses import replace

import pytest

from schemas.control import Moved, SchemaChange
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.sinks.lakes.joined import Joined, joined
from tests.spark_consumers.feed import alter

ID, V = Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text")
W = Column("w", 25, -1, "text")
T = TableSchema(TableId("public", "t"), (ID, V), ("id",))
WIDE = replace(T, columns=(ID, V, W))


def names(shape: Joined | None) -> list[str] | None:
    return None if shape is None else [column.name for column in shape.columns]


def test_a_column_that_comes_is_empty_before_and_one_that_went_is_left_out() -> None:
    came = joined(None, alter(T, WIDE), keeps_columns=False)
    went = joined(came, alter(WIDE, replace(T, columns=(ID, W))), keeps_columns=False)

    assert names(came) == ["id", "v", "w"]
    assert names(went) == ["id", "w"]
    assert went is not None
    assert went.come.keys() == {"w"}


def test_where_columns_stay_their_values_do() -> None:
    came = joined(None, alter(T, WIDE), keeps_columns=True)

    assert names(joined(came, alter(WIDE, T), keeps_columns=True)) == ["id", "v", "w"]


def test_a_name_that_comes_again_divides() -> None:
    """Spark does not see the case of a name."""
    went = joined(None, alter(WIDE, T), keeps_columns=False)

    assert joined(went, alter(T, WIDE), keeps_columns=False) is None
    again = replace(T, columns=(ID, V, replace(W, name="W")))
    assert joined(went, alter(T, again), keeps_columns=False) is None


def test_a_value_of_older_rows_is_known_where_the_table_is_a_copy() -> None:
    """In a history it is of states that hold then, and of no others."""
    change = alter(T, replace(T, columns=(ID, V, replace(W, missing="x"))))

    assert names(joined(None, change, keeps_columns=False)) == ["id", "v", "w"]
    assert joined(None, change, keeps_columns=True) is None


MOVED = replace(alter(T, WIDE), moved=Moved(TableId("public", "u"), "move"))
DIVIDING = {
    "a new table": alter(None, T),
    "a table that goes": alter(T, None),
    "another name of the table": alter(T, replace(WIDE, id=TableId("public", "u"))),
    "another key": alter(T, replace(WIDE, key=("id", "v"))),
    "another type": alter(T, replace(T, columns=(ID, replace(V, type_oid=1043)))),
    "another name of a column": replace(alter(T, replace(T, columns=(ID, W))), renamed={"v": "w"}),
    "values that only the source computed": replace(alter(T, WIDE), values={"w": "lost"}),
    "a default that is no constant": alter(
        T, replace(T, columns=(ID, V, replace(W, has_default=True)))
    ),
    "rows that moved": MOVED,
    "rows that are not known": replace(alter(T, WIDE), lossy="rewritten"),
}


@pytest.mark.parametrize("change", DIVIDING.values(), ids=DIVIDING.keys())
def test_other_changes_divide(change: SchemaChange) -> None:
    assert joined(None, change, keeps_columns=False) is None
