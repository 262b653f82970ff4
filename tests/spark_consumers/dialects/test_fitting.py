import pytest

from spark_consumers.dialects.fitting import fits


@pytest.mark.parametrize(
    ("there", "needed"),
    [
        ("integer", "integer"),
        ("bigint", "smallint"),
        ("numeric", "bigint"),
        ("numeric", "numeric(10,2)"),
        ("numeric(14,4)", "numeric(10,2)"),
        ("text", "integer"),
        ("text", "integer[]"),
        ("text", "character varying(3)"),
        ("character varying", "text"),
        ("character varying(30)", "character varying(20)"),
        ("character varying(30)", "character(20)"),
        ("timestamp without time zone", "timestamp(3) without time zone"),
        ("timestamp(6) without time zone", "timestamp without time zone"),
        ("character", "character(1)"),
        ("bit(8)", "bit(8)"),
        ("double precision", "real"),
        ("bigint[]", "integer[]"),
        ("json", "jsonb"),
        ("mood", "text"),  # of users: not judged
        ("text", "public.mood"),
        ("other.mood", "public.mood"),
        ("geometry(Point,4326)", "public.geometry(Point,4326)"),
    ],
)
def test_what_holds_every_value_fits(there: str, needed: str) -> None:
    assert fits(there, needed)


@pytest.mark.parametrize(
    ("there", "needed"),
    [
        ("integer", "bigint"),
        ("integer", "text"),
        ("numeric(10,1)", "numeric(10,2)"),  # rounds
        ("numeric(8,2)", "numeric(10,2)"),
        ("numeric(10,2)", "numeric"),
        ("numeric(20,2)", "bigint"),
        ("real", "double precision"),
        ("double precision", "numeric"),
        ("character varying(10)", "text"),
        ("character varying(10)", "character varying"),
        ("character varying(10)", "character varying(20)"),
        ("character(20)", "character varying(20)"),  # pads
        ("character(20)", "character(10)"),
        ("bit varying(4)", "bit varying(8)"),
        ("timestamp(0) without time zone", "timestamp without time zone"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("timestamp with time zone", "timestamp without time zone"),
        ("date", "timestamp without time zone"),
        ("boolean", "integer"),
        ("jsonb", "json"),  # forgets spaces and doubles
        ("integer", "integer[]"),
        ("integer[]", "integer"),
        ("uuid", "text"),
    ],
)
def test_what_would_refuse_or_change_values_does_not(there: str, needed: str) -> None:
    assert not fits(there, needed)
