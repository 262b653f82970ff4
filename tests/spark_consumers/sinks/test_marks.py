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
