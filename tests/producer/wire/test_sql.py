import pytest

from producer.wire import sql


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "NULL"),
        ("", "''"),
        ("it's", "'it''s'"),
        ("a\\", r"E'a\\'"),
        ("\\'; DROP TABLE t; --", r"E'\\''; DROP TABLE t; --'"),
        ("你'", "'你'''"),
    ],
)
def test_values_are_quoted(value: str | None, written: str) -> None:
    assert sql.literal(value) == written


def test_names_are_quoted() -> None:
    assert sql.qualified('a"b', "表 c") == '"a""b"."表 c"'


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        sql.literal("a\0b")
