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


V, W = (Column(name, 25, -1, "text") for name in "vw")
AB = replace(T, columns=(*T.columns, V, W))
DROPPED = replace(T, columns=(*T.columns, W))
SWAPPED = replace(T, columns=(*T.columns, replace(W, name="v")))
TYPED = replace(T, columns=(*T.columns, W, replace(V, type_oid=23, type_name="integer")))
TABLE = "ALTER TABLE `public`.`t`"


def change(before: TableSchema, after: TableSchema, **more: object) -> SchemaChange:
    return replace(
        SchemaChange(1, 1, 0, 7, 7, 7, Origin.DEPARSED, "ALTER TABLE", before, after),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("mode", MORE)
def test_texts_have_the_names_of_columns(mode: str) -> None:
    """Also where an older version left one under the name that a column gets."""
    altered, (on_rows,) = altering(
        change(DROPPED, SWAPPED, renamed={"w": "v"}), ["id", "w"], place=T.id, mode=mode
    )

    assert altered == [f"{TABLE} RENAME COLUMN `w` TO `v`"]
    kept = "transform_keys(map_filter(_exact, (k, v) -> lower(k) NOT IN ('v')), (k, v) -> {})"
    kept = kept.format("CASE lower(k) WHEN 'w' THEN 'v' ELSE k END")
    assert f"SET _exact = if(size({kept}) > 0, {kept}, NULL)" in on_rows
    assert (
        "WHERE (_exact IS NOT NULL AND exists(map_keys(_exact), k -> lower(k) IN ('v', 'w')))"
        in on_rows
    )
    assert ("_unsent = transform(" in on_rows) is (mode == "log")


def test_texts_of_a_column_that_went_go_where_it_does() -> None:
    gone = change(AB, DROPPED)
    altered, (on_rows,) = altering(gone, ["id", "v", "w"], place=T.id, mode="scd1")

    assert altered == [f"{TABLE} DROP COLUMN `v`"]
    assert "lower(k) NOT IN ('v')" in on_rows
    for mode in ("scd2", "log"):
        assert altering(gone, ["id", "v", "w"], place=T.id, mode=mode) == ([], [])


@pytest.mark.parametrize("mode", ["scd2", "log"])
@pytest.mark.parametrize(
    ("again", "how"),
    [
        (change(DROPPED, TYPED), "ADD COLUMNS (`v` INT)"),
        (change(DROPPED, SWAPPED, renamed={"w": "v"}), "RENAME COLUMN `w` TO `v`"),
        (change(AB, TYPED, values={"v": "new"}), "ADD COLUMNS (`v` INT)"),
    ],
)
def test_a_column_that_stays_makes_room_for_another_of_its_name(
    mode: str, again: SchemaChange, how: str
) -> None:
    """It may be of another type, and rows that are there have none of the new one's values."""
    there = ["id", "v", "w", "v__dropped"]
    altered, (on_rows,) = altering(again, there, place=T.id, mode=mode)

    assert altered == [f"{TABLE} RENAME COLUMN `v` TO `v__dropped2`", f"{TABLE} {how}"]
    assert "WHEN 'v' THEN 'v__dropped2'" in on_rows


def test_a_column_that_comes_under_a_name_of_another_case_is_there() -> None:
    """Of a statement that nobody read, RENAME "V" TO v is a column that goes and one that comes."""
    upper = replace(T, columns=(*T.columns, replace(V, name="V")))
    lower = replace(change(upper, replace(T, columns=(*T.columns, V))), origin=Origin.INFERRED)

    altered, _ = altering(lower, ["id", "V"], place=T.id, mode="scd1")
    assert altered == [f"{TABLE} DROP COLUMN `V`", f"{TABLE} ADD COLUMNS (`v` STRING)"]
    for mode in ("scd2", "log"):
        altered, _ = altering(lower, ["id", "V"], place=T.id, mode=mode)
        assert altered == [
            f"{TABLE} RENAME COLUMN `V` TO `V__dropped`",
            f"{TABLE} ADD COLUMNS (`v` STRING)",
        ]


def test_the_text_of_a_column_that_comes_is_not_removed_with_that_of_one_that_went() -> None:
    date = replace(V, type_oid=1082, type_name="date", missing="infinity")
    again = replace(T, columns=(*T.columns, date))
    _, on_rows = altering(
        change(replace(T, columns=(*T.columns, V)), again, values={"v": "new"}),
        ["id", "v"],
        place=T.id,
        mode="scd1",
    )

    removed, added = on_rows
    assert "lower(k) NOT IN ('v')" in removed
    assert added.endswith("map('v', 'infinity'))")
