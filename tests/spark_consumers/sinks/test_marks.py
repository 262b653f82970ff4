"""Which tables a schema change takes exactness from."""

from dataclasses import replace

from schemas.control import Moved, Origin, SchemaChange
from schemas.tables import TableId, TableSchema
from spark_consumers.cuts.ledger import NOT_LOADED
from spark_consumers.sinks.step import followed

T = TableSchema(TableId("public", "t"), ())


def change(origin: Origin, lossy: str | None) -> SchemaChange:
    return SchemaChange(1, 1, 0, 7, 7, 7, origin, "ALTER TABLE", T, T, lossy=lossy)


def test_values_that_are_not_known_take_it() -> None:
    assert followed({}, change(Origin.INFERRED, "why")) == {"public.t": "why"}


def test_a_clause_that_was_not_deparsed_does_not() -> None:
    """`ON UPDATE` and comments are not rows; rows that a statement lost are a gap of its cut."""
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


def renamed(to: TableSchema, *, of: TableSchema = T) -> SchemaChange:
    return SchemaChange(1, 1, 0, 7, 7, 7, Origin.TRIGGER, "ALTER TABLE", of, to)


U = TableSchema(TableId("public", "u"), ())


def test_a_mark_moves_with_a_name() -> None:
    assert followed({"public.t": "why"}, renamed(U)) == {"public.u": "why"}


def test_a_new_table_does_not_inherit_the_mark_of_an_older_one_of_its_name() -> None:
    made = SchemaChange(1, 1, 0, 7, 7, 7, Origin.TRIGGER, "CREATE TABLE", None, T)

    assert followed({"public.t": "why"}, made) == {}
    assert followed({"public.u": "old"}, renamed(U)) == {}


def test_a_table_that_a_row_brings_keeps_the_mark_that_the_catalog_gave_it() -> None:
    made = SchemaChange(1, 1, 0, 7, 7, 7, Origin.INFERRED, "CREATE TABLE", None, T)

    assert followed({"public.t": "suspected: it has older rows"}, made) == {
        "public.t": "suspected: it has older rows"
    }
    assert followed({"public.t": NOT_LOADED}, made) == {}, "it begins here"


def test_a_mark_of_this_very_step_stays_with_a_new_table() -> None:
    made = SchemaChange(1, 1, 0, 7, 7, 7, Origin.TRIGGER, "CREATE TABLE", None, T)

    assert followed({"public.t": "seen"}, made, {"public.t": "seen"}) == {"public.t": "seen"}


def test_a_change_of_a_table_that_keeps_its_name_keeps_its_mark() -> None:
    assert followed({"public.t": "why"}, renamed(T)) == {"public.t": "why"}


def test_rows_that_move_to_another_table_take_along_what_is_not_known_of_them() -> None:
    moved = replace(renamed(U, of=U), moved=Moved(op="move", table=T.id, where=None))

    assert followed({"public.t": "why"}, moved) == {"public.t": "why", "public.u": "why"}
    assert followed({}, moved) == {}
    deleted = replace(moved, moved=Moved(op="delete", table=T.id, where=None))
    assert followed({"public.t": "why"}, deleted) == {"public.t": "why"}
    gone = replace(moved, before=U, after=None)
    assert followed({"public.t": "why"}, gone) == {"public.t": "why"}
    late = {"public.t": "why", "public.u": NOT_LOADED}
    assert followed(late, moved) == late, "changes of a table that is not here are left out"


def test_values_that_are_not_known_are_those_of_the_table_by_its_new_name() -> None:
    lossy = replace(renamed(U), lossy="why")

    assert followed({"public.t": "old; readers see commit 1/2"}, lossy) == {
        "public.u": "why; readers see commit 1/2"
    }


def test_a_table_that_was_dropped_is_not_waited_for_whatever_its_statement_lost() -> None:
    """A statement may be too long to be kept: then it is lossy, whatever it does."""
    dropped = replace(renamed(U), before=T, after=None, lossy="the statement is left out")

    assert followed({"public.t": "why", "public.u": "why"}, dropped) == {"public.u": "why"}
