"""Conditions of partitions: what compares columns with constants, and nothing else."""

import pytest

from schemas.conditions import written
from schemas.sql_text import NotRead


@pytest.mark.parametrize(
    "text",
    ['(("a" IS NOT NULL) AND ("a" >= 1) AND ("a" < 10))',
     '(("c" IS NOT NULL) AND ("c" = ANY (ARRAY[\'x\'::text, \'it\'\'s\'::text])))',
     '(NOT (("b" IS NOT NULL) AND ("b" = TRUE)))',
     '(("d" IS NULL) OR (("d")::text = ANY ((ARRAY[\'a\'::character varying])::text[])))',
     '("m" = \'sad\'::"public"."mood")', '("n" > -1.5)', '("n" > \'-5\'::integer)', "TRUE"],
)  # fmt: skip
def test_a_bound_is_written_again(text: str) -> None:
    assert written(text) == text
    assert written(text.replace('"', "") if "public" not in text else text) == text


@pytest.mark.parametrize(
    "text",
    ["satisfies_hash_partition('16400'::oid, 4, 0, a)", "f(a)", "a = f(b)", "lower(a) = 'x'::text",
     "1=1; DROP TABLE t", "a = 1) OR (1 = 1", "a = 1 -- so", "(SELECT 1)", "a = (SELECT 1)", "",
     "a = ANY (SELECT 1)", "a IN (1)", "a LIKE 'x'", "CURRENT_USER = 'x'", "a.b = 1", "a = ",
     "a OPERATOR(public.=) 1", "(" * 200 + "a" + ")" * 200, "ARRAY[" * 200, "a = ANY (1", "a b"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotRead):
        written(text)


def test_brackets_side_by_side_are_not_deep() -> None:
    text = " AND ".join(['("a" = 1)'] * 200)

    assert written(text) == text


def test_a_hundred_levels_are_read() -> None:
    for levels in (99, 100):
        text = "(" * levels + '"a"' + ")" * levels
        if levels == 99:  # the column is one itself
            assert written(text) == text
            continue
        with pytest.raises(NotRead, match="nested"):
            written(text)
