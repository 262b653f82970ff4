"""Which tables a schema change takes exactness from."""

from schemas.control import Origin, SchemaChange
from schemas.tables import TableId, TableSchema
from spark_consumers.sinks.step import followed

T = TableSchema(TableId("public", "t"), ())


def change(origin: Origin, lossy: str | None) -> SchemaChange:
    return SchemaChange(1, 1, 0, 7, 7, 7, origin, "ALTER TABLE", T, T, lossy=lossy)


def test_values_that_are_not_known_take_it() -> None:
    assert followed({}, change(Origin.INFERRED, "why")) == {"public.t": "why"}


def test_a_clause_that_was_not_deparsed_does_not() -> None:
    """`ON UPDATE` and comments are no rows; rows that a statement lost are a hole of its cut."""
    assert followed({}, change(Origin.DEPARSED, "not deparsed, if there: ON UPDATE")) == {}


def test_a_mark_goes_with_its_table() -> None:
    dropped = SchemaChange(1, 1, 0, 7, 7, 7, Origin.DEPARSED, "DROP TABLE", T, None)

    assert followed({"public.t": "why"}, dropped) == {}


def test_a_table_that_is_made_again_where_it_was_dropped_keeps_the_steps_mark() -> None:
    holed = {"public.t": "suspected: its older rows were not copied"}
    dropped = SchemaChange(1, 1, 0, 7, 7, 7, Origin.INFERRED, "DROP TABLE", T, None)
    made = SchemaChange(1, 1, 1, 7, 7, 7, Origin.INFERRED, "CREATE TABLE", None, T)

    gone = followed(holed, dropped, holed)

    assert gone == {}
    assert followed(gone, made, holed) == holed
