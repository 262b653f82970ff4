"""Rows of COPY's text: cells between tabs, made when they are asked for."""

import pytest

from producer.core.loads.copy_lines import CopyLines
from producer.errors import DecodeError
from schemas.tables import TableId

TABLE = TableId("public", "account")


def test_lines_are_rows_one_by_one_and_in_slices() -> None:
    lines = CopyLines([b"1\tAnn", b"2\t\\N", b"3\ta\\tb\\\\c"], 2, TABLE)

    assert len(lines) == 3
    assert list(lines) == [[b"1", b"Ann"], [b"2", None], [b"3", b"a\tb\\c"]]
    assert lines[2] == [b"3", b"a\tb\\c"]
    assert list(lines[1:]) == [[b"2", None], [b"3", b"a\tb\\c"]]
    assert lines.some([0, 2]).lines == [b"1\tAnn", b"3\ta\\tb\\\\c"]
    assert list(lines.some([1])) == [[b"2", None]]


def test_a_row_of_no_columns_is_empty() -> None:
    assert list(CopyLines([b"", b""], 0, TABLE)) == [[], []]


def test_a_row_of_another_number_of_columns_is_refused() -> None:
    with pytest.raises(DecodeError, match="another number of columns"):
        list(CopyLines([b"1\t2\t3"], 2, TABLE))
