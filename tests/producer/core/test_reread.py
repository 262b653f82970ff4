"""Which tables a start must read again."""

from producer.core.reread import asked
from schemas.tables import TableId

A, B, C = (TableId("public", name) for name in "abc")


def everything(_: TableId) -> bool:
    return True


def test_tables_whose_load_did_not_end_come_first_and_added_ones_behind() -> None:
    loads = {"public.a": "END", "public.b": "CHUNK"}

    found = asked([A, B, C], loads, [A, B], everything)

    assert found.tables == [B, C]
    assert found.noted == {"public.c": "PENDING"}
    assert found.left == []


def test_a_table_that_the_stream_made_is_complete() -> None:
    assert asked([A, C], {"public.a": "END"}, [A, C], everything).tables == []


def test_an_epoch_that_began_without_a_load_reads_none() -> None:
    assert asked([A, B], {}, [], everything).tables == []


def test_the_load_of_a_table_that_is_gone_is_forgotten() -> None:
    found = asked([A], {"public.a": "END", "public.b": "PENDING"}, [A], everything)

    assert found.tables == []
    assert found.noted == {"public.b": None}


def test_a_table_that_left_is_noted_once_and_read_again_when_it_comes_back() -> None:
    loads = {"public.a": "END", "public.b": "END"}

    first = asked([A], loads, [A, B], lambda table: table == A)
    later = asked([A], {**loads, "public.b": "LEFT"}, [A, B], lambda table: table == A)
    back = asked([A, B], {**loads, "public.b": "LEFT"}, [A, B], everything)

    assert (first.left, first.noted) == ([B], {"public.b": "LEFT"})
    assert (later.left, later.noted) == ([], {})
    assert (back.tables, back.left) == ([B], [])
