import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.core.sql_words import cut


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a $$b 'c$$ d", ["a", "$$b 'c$$", "d"]),
        ("$x$ $$ $x$ y", ["$x$ $$ $x$", "y"]),
        ("$a$ $b$ $a$$b$", ["$a$ $b$ $a$", "$", "b$"]),
        ("$1 $2$ a$b$", ["$", "1", "$", "2", "$", "a$b$"]),
        ("$é$'$é$", ["$é$'$é$"]),
        ("a /* b */ c /* d", ["a", "c", "/*", "d"]),
        ("a -- b\nc", ["a", "c"]),
        (r"e'it\'s' 'it''s' E'\\'", [r"e'it\'s'", "'it''s'", r"E'\\'"]),
        ("a 'b c", ["a", "'b c"]),
    ],
)
def test_words_are_cut_as_the_server_reads_them(text: str, words: list[str]) -> None:
    assert [word.text for word in cut(text)] == words


@given(st.text(st.sampled_from("a$'\"`/*-\n e1 ")))
def test_each_word_stands_where_it_says(text: str) -> None:
    at = 0
    for word in cut(text):
        assert word.start >= at
        assert text[word.start : word.end] == word.text
        at = word.end


# Where each of these began a search of its own to the end of the text, a million would take hours.
@pytest.mark.parametrize("piece", ["$a{}$ -", "$$ - $b{}$ '", "/* - ", "e'\\' - "])
def test_what_is_opened_and_never_closed_is_read_once(piece: str) -> None:
    size = 100_000

    assert len(cut("".join(piece.format(number) for number in range(size)))) > 0
