"""COPY in csv with everything quoted."""

import csv
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DecodeError
from producer.sources.gauss.copy_csv import CsvRows, Row

CELLS = st.none() | st.binary(max_size=8) | st.sampled_from([b'"', b'""', b"\n", b"\\N", b"\\."])


def copied(rows: list[Row]) -> bytes:
    """What a server sends, by the manual: values quoted, quotes doubled, NULL left out."""
    return b"".join(
        b",".join(b"" if c is None else b'"' + c.replace(b'"', b'""') + b'"' for c in row) + b"\n"
        for row in rows
    )


def read(chunks: list[bytes], width: int) -> list[Row]:
    reader = CsvRows(width)
    rows = [row for chunk in chunks for row in reader.feed(chunk)]
    return rows + reader.finish()


@given(st.integers(1, 4), st.data())
def test_rows_come_back_however_they_are_cut(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(CELLS, min_size=width, max_size=width)))
    sent = copied(rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)))))
    places = [0, *cuts, len(sent)]

    chunks = [sent[a:b] for a, b in pairwise(places)]

    assert read(chunks, width) == rows


def test_pythons_own_writer_is_read() -> None:
    file = io.StringIO()
    values = [["1", "it's", 'a "b"'], ["", "line\nbreak", ","]]
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(values)

    rows = read([file.getvalue().encode()], 3)

    assert rows == [[v.encode() for v in row] for row in values]


def test_a_backslash_that_ends_a_character_is_a_byte_like_others() -> None:
    text = "乗\\".encode("gbk")  # 81 5C, and a backslash of its own

    assert text.startswith(b"\x81\x5c\x5c")
    assert read([b'"' + text + b'",\n'], 2) == [[text, None]]


def test_many_rows_are_given_before_the_end() -> None:
    reader = CsvRows(2)
    line = b'"' + b"x" * 1000 + b'",\n'

    given_early = sum(len(reader.feed(line)) for _ in range(1000))

    assert given_early > 900
    assert given_early + len(reader.finish()) == 1000


def test_a_table_without_columns_has_rows_all_the_same() -> None:
    assert read([b"\n", b"\n"], 0) == [[], []]


@pytest.mark.parametrize(
    ("sent", "width"),
    [
        (b'"a', 1),
        (b'"a"', 1),
        (b'"a","b"\n', 1),
        (b'"a"\n', 2),
        (b'"a",\n"b"\n', 2),
        (b"a\n", 1),
        (b'"a"b\n', 1),
        (b'"a"\n\\.\n', 1),
        (b'"a"\n', 0),
    ],
)
def test_what_is_no_row_is_refused(sent: bytes, width: int) -> None:
    with pytest.raises(DecodeError):
        read([sent], width)
