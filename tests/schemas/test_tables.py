import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tables import UNCHANGED, Column, TableId, TableSchema


def test_a_table_names_itself_and_its_columns() -> None:
    table = TableSchema(TableId("public", "t"), (Column("b", 23), Column("a", 25)))
    assert str(table.id) == "public.t"
    assert table.names() == ("b", "a")


NAMES = st.text('ab."', min_size=1, max_size=5)
TABLES = st.builds(TableId, NAMES, NAMES)


@given(TABLES, TABLES)
def test_the_texts_of_two_tables_are_two_and_each_is_read_as_it_was_written(
    one: TableId, other: TableId
) -> None:
    assert (str(one) == str(other)) == (one == other)
    assert TableId.parse(str(one)) == TableId.of(str(one)) == one
    assert TableId.rewritten(str(one)) == str(one)


def test_only_names_with_dots_and_quotes_are_written_in_quotes() -> None:
    plain = [("public", "account"), ("My Schema", "a-b c"), ("s", "日本'")]

    assert [str(TableId(*names)) for names in plain] == [".".join(names) for names in plain]
    assert str(TableId("app.v2", "t")) == '"app.v2".t'
    assert str(TableId("a", 'b"c')) == 'a."b""c"'


@pytest.mark.parametrize(
    ("typed", "table"),
    [
        ("public.account", TableId("public", "account")),
        ('"public"."account"', TableId("public", "account")),
        ('"app.v2".t', TableId("app.v2", "t")),
        ('a."b""c.d"', TableId("a", 'b"c.d')),
    ],
)
def test_a_typed_name_may_have_quotes(typed: str, table: TableId) -> None:
    assert TableId.parse(typed) == table


@pytest.mark.parametrize("typed", ["a.b.c", "a.", ".a", "", '"a.b', 'a.b"c', 'a.""', '"a"b.c', "."])
def test_a_typed_name_that_is_not_one_table_is_refused_with_the_way_to_write_it(typed: str) -> None:
    with pytest.raises(ValueError, match=r'write .* as "a\.b"\.c or a\."b\.c"'):
        TableId.parse(typed)


def test_a_typed_name_without_a_schema_is_refused_or_has_the_one_of_its_place() -> None:
    with pytest.raises(ValueError, match=r"write it as schema\.table, as public\.account"):
        TableId.parse("account")
    with pytest.raises(ValueError, match="double quotes"):
        TableId.parse('"a.b"')

    assert TableId.parse('"a.b"', "public") == TableId("public", "a.b")


def test_texts_of_an_earlier_build_are_divided_at_their_first_dot() -> None:
    old = ["public.t", "a.b.c", 'a.b"c', "*", "topic"]

    assert [TableId.rewritten(text) for text in old] == [
        "public.t", 'a."b.c"', 'a."b""c"', "*", "topic",
    ]  # fmt: skip


def test_a_table_version_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TableSchema(TableId("s", "t"), ()).key = ("a",)  # type: ignore[misc]


def test_unsent_is_not_null_and_equals_only_itself() -> None:
    assert UNCHANGED is not None
    assert UNCHANGED not in (None, b"", "unchanged toast", b"unchanged toast")
