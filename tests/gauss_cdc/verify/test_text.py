"""Which columns print alike at both servers, and how."""

import pytest

from gauss_cdc.verify.text import ComparedColumn, RowText, Spelling


@pytest.mark.parametrize(
    ("source", "target", "is_cast", "is_plain", "is_ordered"),
    [
        ("bigint", "bigint", False, True, True),
        ("text", "text", False, False, False),
        ("numeric(10,2)", "numeric(12,4)", True, True, False),
        ("integer", "bigint", True, True, False),
        ("integer", "text", False, False, False),
        ("integer", "character varying(20)", True, False, False),
        ("character(3)", "character varying(5)", True, False, False),
        ("public.mood", "text", False, False, False),
        ("public.amount", "numeric(10,2)", False, False, False),
        ("timestamp with time zone", "timestamp with time zone", False, True, True),
        ("integer[]", "integer[]", False, False, False),
    ],
)
def test_a_column_is_read_by_the_targets_type_where_it_differs(
    source, target, is_cast, is_plain, is_ordered
) -> None:
    column = ComparedColumn("c", source, target)

    assert (column.is_cast, column.is_plain, column.is_ordered) == (is_cast, is_plain, is_ordered)


def test_a_row_is_one_hash_of_parts_that_hold_no_separator() -> None:
    columns = (ComparedColumn("id", "bigint", "bigint"), ComparedColumn('"n', "text", "text"))
    source = RowText(columns, columns[:1], Spelling(), is_source=True)
    latin1 = RowText(columns, columns[:1], Spelling(converts=True), is_source=False)

    assert source.row() == (
        'md5(array_to_string(ARRAY[t."id"::text, md5(t."""n"::text)]::text[], \',\', \'~\'))'
    )
    assert 'md5(convert_to(t."""n"::text, \'UTF8\'))' in latin1.row()
    assert source.key_hash("v") == "md5(array_to_string(ARRAY[v.\"id\"::text]::text[], ',', '~'))"


def test_a_text_is_not_cut_at_the_source() -> None:
    """20 characters of nvarchar2, and 20 bytes of character varying, at one server."""
    column = ComparedColumn("c", "nvarchar2(20)", "character varying(20)")

    cell = RowText((column,), (), Spelling(has_num_nulls=False), is_source=True).cell(column, "t.c")

    assert "character varying" not in cell
    assert "concat(t.c)" in cell


@pytest.mark.parametrize(
    ("source", "target", "has_gauss", "is_trimmed"),
    [
        ("character(8)", "character(8)", True, True),
        ("character(8)", "character(8)", False, False),
        ("bpchar", "character(8)", True, True),
        ("character(8)", "text", True, False),  # which has the blanks that were sent
        ("character(8)[]", "character(8)[]", True, False),
    ],
)
def test_blanks_with_which_a_server_pads_are_no_part_of_a_value(
    source, target, has_gauss, is_trimmed
) -> None:
    column = ComparedColumn("c", source, target)
    both = [
        RowText((column,), (), Spelling(has_gauss=has_gauss), is_source=side)
        for side in (True, False)
    ]

    assert ["rtrim" in text.cell(column, "t.c") for text in both] == [is_trimmed] * 2


def test_bytes_that_another_product_prints_without_their_sign_get_it() -> None:
    raw = ComparedColumn("b", "raw", "bytea")

    cell = RowText((raw,), (), Spelling(has_num_nulls=False), is_source=True).cell(raw, "t.b")

    assert r"(E'\\x' || CASE WHEN t.b IS NOT NULL THEN concat(t.b) END)" in cell
