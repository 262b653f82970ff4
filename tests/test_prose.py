"""How documents are written: lines of 100 columns, sentences of at most 25 words.

Code, tables and blocks that a program fills are not prose.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gauss_cdc_lab.reference import ROOT, documents

COLUMNS, WORDS = 100, 25
# Documents that are not rewritten yet; none is added here.
OLDER = {
    "tests/golden/opengauss/README.md",
}
_NO_PROSE = re.compile(
    r"^ *```.*?^ *```|^ *<!-- begin:? [\w-]+ -->.*?<!-- end[ \w-]* -->|^ *\|.*?$|^ *<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)
# A paragraph ends with an empty line, a heading, or where a list goes on.
_PARAGRAPH = re.compile(r"\n\s*\n|^#.*$|\n(?=\s*(?:[-*]|\d+\.) )", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])[)*_\"]*\s+(?=[^a-z])")


def prose(text: str) -> str:
    """The text without code, tables and what is generated; its lines keep their places."""
    return _NO_PROSE.sub(lambda found: "\n" * found[0].count("\n"), text)


def sentences(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(prose(text)):
        words = re.sub(r"`[^`]*`", "CODE", " ".join(paragraph.split()))
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words)
        yield from _SENTENCE.split(re.sub(r"^(?:[-*]|\d+\.) ", "", words))


def long_lines(text: str) -> list[str]:
    return [line for line in prose(text).splitlines() if len(line) > COLUMNS]


def long_sentences(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > WORDS]


WRITTEN = [path for path in documents() if str(path.relative_to(ROOT)) not in OLDER]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_and_sentences_are_short(path: Path) -> None:
    text = path.read_text("utf-8")

    assert long_lines(text) == []
    assert long_sentences(text) == []


def test_what_is_older_still_exists() -> None:
    assert [name for name in OLDER if not (ROOT / name).is_file()] == []


def test_what_is_too_long_is_found() -> None:
    line, sentence = "x" * 101, " ".join(["Word"] * 26) + "."

    assert long_lines(f"short\n{line}\n| {line} |\n```text\n{line}\n```\n") == [line]
    assert long_sentences(f"Short. {sentence} Short.\n\n- {sentence}") == [sentence, sentence]
    assert long_sentences("- " + "word " * 20 + "\n- " + "word " * 20) == []
    assert long_sentences("See `" + "word " * 30 + "`.") == []
