"""The server's words in our errors: names of objects, and no values."""

import pytest

from schemas.errors import with_objects

DETAIL = "view v depends on table a\nview w depends on table a"


@pytest.mark.parametrize("sqlstate", ["2BP01", "0A000"])
def test_what_depends_on_a_table_is_named_on_one_line(sqlstate: str) -> None:
    said = with_objects("cannot drop table a", DETAIL, sqlstate)

    assert said == "cannot drop table a; view v depends on table a, view w depends on table a"


@pytest.mark.parametrize("sqlstate", ["23505", "22P02", "P0001", None])
def test_a_detail_that_may_hold_values_is_left_out(sqlstate: str | None) -> None:
    assert (
        with_objects("duplicate key", "Key (id)=(1) already exists.", sqlstate) == "duplicate key"
    )


@pytest.mark.parametrize("detail", ["", None])
def test_a_message_without_a_detail_stays_as_it_is(detail: str | None) -> None:
    assert with_objects("cannot drop table a", detail, "2BP01") == "cannot drop table a"
