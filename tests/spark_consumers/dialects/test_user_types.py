"""What becomes of a type that the target does not have."""

from dataclasses import replace

import pytest

from schemas.tables import Column, TableId, TableSchema, UserType
from spark_consumers.dialects.postgres import statements
from spark_consumers.dialects.user_types import (
    needed_bases,
    needed_names,
    renamed,
    settled,
    with_new_names,
)
from tests.spark_consumers.feed import alter, create

MOOD = UserType("e", "mood", labels=("sad",))
DAYS = UserType("d", "days", "date[]", 1182)
PRICE = UserType("d", "price", "numeric(10,2)", 1700, (10 << 16 | 2) + 4)
OF = UserType("d", "of", "regclass", 2205)
CHEAP = UserType("d", "cheap", "s.price", 20001, of=PRICE)


def type_at(column: Column, *there: str) -> str:
    change = create(TableSchema(TableId("s", "t"), (Column("id", 23, -1, "integer"), column)))
    after = settled(change, there).after
    assert after is not None
    assert after.columns[0].type_name == "integer"
    return after.columns[1].type_name


@pytest.mark.parametrize(
    ("type_name", "said", "there", "becomes"),
    [
        ("s.mood", MOOD, (), "text"),
        ("s.mood", MOOD, ('"s"."mood"',), "s.mood"),
        ("s.mood[]", UserType("a", "_mood", "s.mood", 20000, of=MOOD), (), "text[]"),
        ("s.mood[]", UserType("a", "_mood", "s.mood", 20000, of=MOOD), ('"s"."mood"',), "s.mood[]"),
        ("s.cheap", CHEAP, (), "numeric(10,2)"),
        ("s.cheap", CHEAP, ('"s"."price"',), "s.price"),
        ("s.cheap[]", UserType("a", "_cheap", "s.cheap", 20002, of=CHEAP), (), "numeric(10,2)[]"),
        ("s.days", DAYS, (), "date[]"),
        ("s.days[]", UserType("a", "_days", "s.days", 20003, of=DAYS), (), "text"),
        ("s.x[]", UserType("a", "_x", "s.x", 20004, delimiter=";", of=UserType("b", "x")), (),
         "text"),
        ("s.of", OF, (), "text"),  # regclass would refuse what the target lacks
        ("s.of", OF, ('"s"."of"',), "text"),
        ("s.of[]", UserType("a", "_of", "s.of", 20006, of=OF), ('"s"."of"',), "text[]"),
        ("s.told", UserType("c", "told", labels=("1:23:-1", "2:2205:-1")), ('"s"."told"',), "text"),
        ("s.of[]", UserType("a", "_of", "s.of", 20006, of=OF), (), "text[]"),
        ("s.all", UserType("d", "all", "regclass[]", 2210), (), "text[]"),
        ("s.pair", UserType("c", "pair"), (), "text"),
        ("s.span", UserType("r", "span"), (), "text"),
        ("public.vector(3)", UserType("b", "vector"), (), "text"),
        ("public.vector(3)", UserType("b", "vector"), ('"public"."vector"',), "public.vector(3)"),
        ("public.vector(3)", UserType("b", "vector"), ('*."vector"="x"."vector"',),
         '"x"."vector"(3)'),
        ("public.vector(3)[]", UserType("a", "_vector", "public.vector", 20005,
                                        of=UserType("b", "vector")), (), "text[]"),
        # What openGauss has and PostgreSQL lacks.
        ("s.title", UserType("d", "title", "nvarchar2(20)", 3969, 24), (), "character varying(20)"),
        ("s.small", UserType("d", "small", "tinyint", 5545), (), "smallint"),
        ("s.title[]", UserType("a", "_title", "s.title", 20005, of=UserType("d", "title",
                               "nvarchar2(20)", 3969, 24)), (), "character varying(20)[]"),
        ('s."a(b"', UserType("e", "a(b"), ('"s"."a(b"',), 's."a(b"'),
    ],
)  # fmt: skip
def test_a_users_type_at_the_target(
    type_name: str, said: UserType, there: tuple[str, ...], becomes: str
) -> None:
    assert type_at(Column("v", 20010, -1, type_name, user_type=said), *there) == becomes


def test_what_domains_are_made_of_in_the_end() -> None:
    arrays = UserType("a", "_cheap", "s.cheap", 20002, of=CHEAP)
    moody = UserType("d", "moody", "s.mood", 20000, of=MOOD)
    title = UserType("d", "title", "nvarchar2(20)", 3969, 24)
    table = TableSchema(
        TableId("s", "t"),
        (
            Column("v", 20010, -1, "s.cheap[]", user_type=arrays),
            Column("w", 20011, -1, "s.moody", user_type=moody),
            Column("x", 20012, -1, "s.title", user_type=title),
        ),
    )
    assert needed_bases(create(table)) == {
        ('"s"."cheap"', "numeric(10,2)", "numeric(10,2)"),
        ('"s"."price"', "numeric(10,2)", "numeric(10,2)"),
        ('"s"."moody"', "text", "s.mood"),
        # Another server of its kind has the source's own.
        ('"s"."title"', "character varying(20)", "nvarchar2(20)"),
    }


def test_a_type_that_is_gone_at_the_source_is_text() -> None:
    assert type_at(Column("v", 20010)) == "text"


def test_every_name_on_the_way_is_looked_for() -> None:
    arrays = UserType("a", "_cheap", "s.cheap", 20002, of=CHEAP)
    table = TableSchema(
        TableId("s", "t"),
        (
            Column("v", 20010, -1, "s.cheap[]", user_type=arrays),
            Column("w", 20011, -1, "public.vector(3)", user_type=UserType("b", "vector")),
        ),
    )
    assert needed_names(create(table)) == [
        '"public"."vector"', '"s"."cheap"', '"s"."price"', '*."vector"',
    ]  # fmt: skip
    assert needed_names(alter(None, None)) == []


def test_names_in_quotes_are_types_whatever_they_hold() -> None:
    special = Column("v", 20010, -1, 's."it\'s --a; type"""', user_type=MOOD)
    change = create(TableSchema(TableId("s", "t"), (special,)))

    assert '"s"."it\'s --a; type"""' in statements(change)[1]


def test_types_are_renamed_wherever_they_are_inside_a_columns() -> None:
    was = UserType(
        "d", "felt", "s.mood[]", 20001, of=UserType("a", "_mood", "s.mood", 20000, of=MOOD)
    )
    now = UserType(
        "d", "Felt", "t.mood[]", 20001, of=UserType("a", "_mood", "t.mood", 20000, of=MOOD)
    )
    before = TableSchema(TableId("s", "t"), (Column("a", 20002, -1, "s.felt", user_type=was),))
    after = TableSchema(TableId("s", "t"), (Column("b", 20002, -1, 's."Felt"', user_type=now),))
    change = replace(alter(before, after), renamed={"a": "b"})

    assert renamed(change) == {'"s"."felt"': '"s"."Felt"', '"s"."mood"': '"t"."mood"'}
    named = with_new_names(change).before
    assert named is not None
    assert [(c.name, c.type_name, c.user_type) for c in named.columns] == [("a", 's."Felt"', now)]


def test_another_type_in_a_columns_place_is_no_new_name() -> None:
    before = TableSchema(TableId("s", "t"), (Column("a", 20002, -1, "s.mood", user_type=MOOD),))
    after = TableSchema(TableId("s", "t"), (Column("a", 20003, -1, "s.moods", user_type=MOOD),))
    change = alter(before, after)

    assert renamed(change) == {}
    assert with_new_names(change) == change
