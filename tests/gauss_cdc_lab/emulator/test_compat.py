"""Which words of a statement the facade sends elsewhere, and which it leaves alone."""

import pytest

from gauss_cdc_lab.emulator.compat import ChangesCall, changes_asked, rewrite
from gauss_cdc_lab.emulator.frames import ErrorResponse

SETTINGS = {"sql_compatibility": "A'"}


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("SELECT version()", "SELECT gauss_compat.version()"),
        ("SELECT pg_catalog.version ()", "SELECT gauss_compat.version ()"),
        ("SELECT * FROM pg_catalog.pg_class c", "SELECT * FROM gauss_compat.pg_class c"),
        ("SELECT pg_current_xlog_location()", "SELECT gauss_compat.pg_current_xlog_location()"),
        ("SHOW sql_compatibility;", "SELECT 'A'''::text AS \"sql_compatibility\""),
    ],
)
def test_names_of_ours_go_to_our_schema(text: str, rewritten: str) -> None:
    assert rewrite(text, SETTINGS) == rewritten


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'version()', \"version\"()",
        "SELECT version FROM t",
        "SELECT my.version()",
        "SELECT pg_class.oid FROM x",
        "SELECT $$version()$$, $a$pg_class$a$",
        "SELECT 1 -- version()",
        "SELECT 1 /* pg_class */",
        "SELECT 'it''s pg_class'",
        "SHOW server_encoding",
        "SELECT my_version(), version_of(1)",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert rewrite(text, SETTINGS) == text


def test_a_call_of_get_is_understood() -> None:
    text = (
        "SELECT * FROM pg_logical_slot_get_binary_changes"
        "('s''1', '0/1F', 10, 'include-xids', '0', 'only-local', NULL)"
    )

    options = (("include-xids", "0"), ("only-local", None))
    assert changes_asked(text) == ChangesCall("s'1", 0x1F, 10, options, is_binary=True, is_get=True)
    assert changes_asked("SELECT 1") is None
    assert changes_asked("SELECT 'pg_logical_slot_'") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'s', NULL", "does not exist"),
        ("NULL, NULL, NULL", "must not be null"),
        ("'s', NULL, NULL, 'a'", "array must have even number of elements"),
        ("'s', NULL, NULL, NULL, 'b'", "array must not contain nulls"),
        ("name, NULL, NULL", "constants"),
    ],
)
def test_a_call_that_cannot_be_answered_is_refused(arguments: str, message: str) -> None:
    with pytest.raises(ErrorResponse, match=message):
        changes_asked(f"SELECT * FROM pg_logical_slot_peek_changes({arguments})")
