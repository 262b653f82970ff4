"""SQL as one text: nothing in a value may become a statement."""

import pytest

from schemas.quoting import constant, identifier, literal, one_of, qualified
from schemas.tables import TableId


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("", "''"),
        (None, "NULL"),
        ("a\\", r"E'a\\'"),
        ("\\'; DROP TABLE t; --", r"E'\\''; DROP TABLE t; --'"),
        ("你'", "'你'''"),
        ("it's", "'it''s'"),
        ("'; DROP TABLE t; --", "'''; DROP TABLE t; --'"),
        ("\\", "E'\\\\'"),
        ("\\'; --", "E'\\\\''; --'"),  # read the same with either setting of backslashes
        ("中文", "'中文'"),
    ],
)
def test_constants(value: str | None, quoted: str) -> None:
    assert constant(value) == quoted


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        constant("a\0b")
    with pytest.raises(ValueError, match="zero byte"):
        literal("a\0")
    with pytest.raises(ValueError, match="identifier"):
        identifier("a\0")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="identifier"):
        identifier("")


def test_lists_and_names() -> None:
    assert one_of([]) == "(NULL)"
    assert qualified(TableId("a.b", 'c"d')) == '"a.b"."c""d"'
    assert qualified(TableId('a"b', "表 c")) == '"a""b"."表 c"'
