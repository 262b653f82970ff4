"""Names of types, parsed and printed again."""

import pytest

from schemas.sql_text import NotRead
from schemas.type_names import parse, written
from schemas.types import BY_OID


@pytest.mark.parametrize(
    "text",
    ["integer", "numeric(10,2)", "numeric(5,-2)", "character varying(20)[]", "double precision",
     "timestamp(3) with time zone", "time without time zone", "interval", "interval(3)",
     "interval day to second(3)", "bit varying(5)", "text[][][][][][]", '"char"', '"bit"', "uuid",
     '"public"."mood"', '"S x"."a""b"[]', '"public"."geometry"("Point",4326)', "nvarchar2(20)"],
)  # fmt: skip
def test_what_is_written_is_read_back_the_same(text: str) -> None:
    assert written(text) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("public.mood", '"public"."mood"'),
        ("mood", '"mood"'),
        ("pg_catalog.int4", '"pg_catalog"."int4"'),
        ("TEXT", "text"),
        ("integer[3]", "integer[]"),
        ("numeric ( 10 , 2 )", "numeric(10,2)"),
        ("public.geometry(Point,4326)", '"public"."geometry"("point",4326)'),
    ],
)
def test_any_spelling_becomes_one(text: str, same: str) -> None:
    assert written(text) == same


@pytest.mark.parametrize(
    "name",
    ["xid8", "inet", "macaddr8", "circle", "pg_lsn", "timetz", "bool", "varbit", "tsrange",
     "daterange", "int8multirange", "tstzmultirange", "abstime", "hash32", "int1", "regclass",
     "regrole", "regconfig", "aclitem"],
)  # fmt: skip
def test_names_of_the_servers_own_types_have_no_quotes(name: str) -> None:
    assert written(name) == name
    assert written(f'"{name}"') == f'"{name}"'


def test_each_type_of_the_table_of_types_is_a_name() -> None:
    for entry in BY_OID.values():
        assert parse(entry.name).bare


@pytest.mark.parametrize(
    "text",
    ["", "int4 OWNER TO mallory", "int4; DROP TABLE t", "integer DEFAULT f()", "numeric(f())",
     "numeric(10,2", "numeric(10,-", "numeric(10,", "numeric(", "numeric()", "a.b.c", "integer[",
     "integer[1", "integer[x]", "numeric(1.5)",
     "integer[][][][][][][]", "interval day (3) to", "timestamp with time", "'a'", "(integer)",
     "integer -- so", "text COLLATE x", "x" * 3000],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotRead):
        parse(text)


def test_modifiers_keep_their_order_and_a_name_its_length() -> None:
    assert parse("public.box(a,b,3)").modifiers == ("a", "b", "3")
    longest = "x" * 2_000
    assert written(longest) == f'"{longest}"'
    with pytest.raises(NotRead, match="too long"):
        parse(longest + "x")
