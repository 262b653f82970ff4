import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import SourceError
from producer.sources.patterns import Pattern, absent, choose, parse, refuse
from schemas.tables import TableId


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("public.t", Pattern("public", "t")),
        ("public.*", Pattern("public", None)),
        ("*.t", Pattern(None, "t")),
        ("*.*", Pattern(None, None)),
        (" public.T ", Pattern("public", "T")),  # no folding
        ('"a.b"."c ""d"" *"', Pattern("a.b", 'c "d" *')),
        ("模式.表", Pattern("模式", "表")),
        ('"*".t', Pattern("*", "t")),
    ],
)
def test_patterns_are_read(text: str, pattern: Pattern) -> None:
    assert parse(text) == pattern


@pytest.mark.parametrize(
    "text", ["", "t", "a.b.c", "public.t*", "a b.c", '"a.b', 'a."', ".t", '"".t']
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="not a table pattern"):
        parse(text)


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@given(NAMES, NAMES)
def test_every_name_can_be_written(schema: str, name: str) -> None:
    assert parse(str(Pattern(schema, name))) == Pattern(schema, name)


def test_a_star_matches_every_name_and_nothing_else_does() -> None:
    assert parse("*.t").matches(TableId("any", "t"))
    assert not parse("*.t").matches(TableId("any", "u"))
    assert parse("a.t").exact == TableId("a", "t")
    assert parse("a.*").exact is None


def test_tables_are_chosen_by_what_is_included_and_not_excluded() -> None:
    tables = {TableId("a", "x"), TableId("a", "y"), TableId("b", "x")}

    assert choose(tables, ["a.*", "*.x"], ["b.*"]) == [TableId("a", "x"), TableId("a", "y")]


def test_a_table_named_without_a_star_must_be_there() -> None:
    include = ["a.nothing", '"a, b"."c, d"', "b.*", "a.x", "a.excluded"]
    missing = absent({TableId("a", "x")}, include, ["*.excluded"])

    assert missing == [TableId("a", "nothing"), TableId("a, b", "c, d")]
    with pytest.raises(SourceError, match=r'a\.nothing, "a, b"\."c, d"\)'):
        refuse(missing)
    refuse([])
