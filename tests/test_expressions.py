"""No expression over foreign text can be made to run for ever.

One test reads the expressions, the other runs them, with the texts that go around their loops.
Python's `re` looks for signals as it goes, so that a time limit ends a match, too.
"""

import re
import sys
from collections.abc import Mapping
from contextlib import suppress

import pytest

from producer.core.statements import sql_words
from producer.sources.gauss.ddl import defaults
from producer.sources.postgres.triggers import follow
from schemas import conditions, sql_text, type_names
from spark_consumers.dialects import definitions, postgres
from tests import expressions

# The text of one comes from a caller, and is a table of the same module; that of the other from a
# schema, and its own test looks at it.
MADE_LATE = {"gauss_cdc_lab.emulator.deparse", "gauss_cdc_reader.tail"}
LIMIT = 300  # seconds for what needs some: only a hang reaches it
TEXTS = [
    "((a IS NOT NULL) AND satisfies_hash_partition('16400'::oid, " + "123456, " * 20_000 + "a))",
    "ARRAY[" * 50_000, "a = ANY (ARRAY[" * 20_000,
    "(" * 50_000, "NOT " * 50_000, "a::" * 50_000, "a = ANY (" * 20_000, "''" * 50_000 + "!",
    "CREATE TYPE a AS ENUM (" + "''" * 50_000, '"a"' * 50_000 + "!", "[" * 50_000, "1" * 50_000,
    "E'" + "\\" * 100_000, "$a$" * 50_000, "/*" * 50_000, "ALTER TABLE " * 20_000,
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Mapping[str, re.Pattern | NameError]:
    return expressions.patterns()


def test_no_expression_reads_a_text_in_two_ways_again_and_again(found) -> None:
    exploding = {}
    for where, pattern in found.items():
        if isinstance(pattern, NameError):
            assert where.partition(":")[0] in MADE_LATE, f"{where}: its text is not known here"
    for where, pattern in expressions.distinct(found).items():
        if (text := expressions.explodes(pattern)) is not None:
            exploding[where] = text

    assert len(found) > 200
    assert exploding == {}


@pytest.mark.parametrize(
    ("pattern", "is_bad"),
    [
        (r"(a*)*b", True),
        (r"(?:a|a)*b", True),
        (r"(?:\s|-?[\d.]+|x)+", True),
        (r"(?:a?b?)*c", True),
        (r'(?:[\w .]|"(?:[^"]|"")+")+', True),
        (r"(?:'(?:[^'\\]|'')*'(?:, )?)+", True),
        (rb"(?:[^']+|'')*x", True),
        (r"(?:[^']++|'')*+", False),
        (r"'(?:[^']|'')*'", False),
        (r"(?:(?:'[^']*')(?:, |$))+", False),
        (r"(?:\w++\s*+)*+;", False),
    ],
)
def test_what_explodes_is_known(pattern: str | bytes, *, is_bad: bool) -> None:
    assert (expressions.explodes(re.compile(pattern)) is not None) == is_bad


@pytest.mark.timeout(LIMIT)
def test_the_worst_texts_of_each_expression_come_to_an_end(found) -> None:
    for where, pattern in expressions.distinct(found).items():
        sys.stdout.write(f"{where}\n")  # shown if this one hangs
        for text in expressions.worst(pattern, 600):
            pattern.match(text)
            pattern.fullmatch(text)


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("text", TEXTS, ids=[text[:24] for text in TEXTS])
def test_what_reads_foreign_sql_comes_to_an_end(text: str) -> None:
    for read in (conditions.written, sql_text.tokens, type_names.written):
        with suppress(sql_text.NotRead):
            read(text)
    follow._where(text)
    postgres._labels(text)
    sql_words.cut(text)
    defaults.value_of(text[:20_000])
    with suppress(ValueError):
        definitions.expression(text)
