import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.core.statements.sql_words import Words, cut, statements


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


def test_a_word_says_what_it_is_and_where() -> None:
    words = cut('Ab "c""D" `e``F` \'g\' $$h$$ 1.5e-7 .5 :: a$1 /* x */ :=\n-- i\n( é É')

    assert [(word.kind, word.text) for word in words] == [
        ("name", "Ab"), ("quoted", '"c""D"'), ("quoted", "`e``F`"), ("string", "'g'"),
        ("string", "$$h$$"), ("number", "1.5e-7"), ("number", ".5"), ("sign", "::"),
        ("name", "a$1"), ("sign", ":="), ("sign", "("), ("name", "é"), ("name", "É"),
    ]  # fmt: skip
    assert [word.upper for word in words if word.upper] == [
        "AB", "::", "A$1", ":=", "(", "É", "É",
    ]  # fmt: skip
    assert [word.identifier for word in words if word.identifier] == [
        "ab", 'c"D', "e`F", "a$1", "é", "É",
    ]  # fmt: skip
    assert [word.identifier for word in cut('"" "x" `y`')] == [None, "x", "y"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a /* b", ["a", "/*", "b"]),
        ("/* a */ /* b", ["/*", "b"]),
        ("/**/a", ["a"]),
        ("/* a */b/* c */", ["b"]),
        ("/* a /* b */ c", ["c"]),
        ("a$$", ["a$$"]),
        ("$$a", ["$", "$", "a"]),
        ("$$$$ a $$b$$c", ["$$$$", "a", "$$b$$", "c"]),
        ("1 $q$x$q$", ["1", "$q$x$q$"]),
        ("x", ["x"]),
        ("", []),
    ],
)
def test_what_is_open_ends_where_it_ends(text: str, words: list[str]) -> None:
    assert [word.text for word in cut(text)] == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a; b c;", [["a"], ["b", "c"], []]),
        ("f(a; b); c", [["f", "(", "a", ";", "b", ")"], ["c"]]),
        ("((a;);b);c", [["(", "(", "a", ";", ")", ";", "b", ")"], ["c"]]),
        ("", [[]]),
    ],
)
def test_statements_end_at_semicolons_outside_of_parentheses(
    text: str, expected: list[list[str]]
) -> None:
    assert [[word.text for word in one] for one in statements(cut(text))] == expected


def test_a_cursor_looks_ahead_and_takes_what_matches() -> None:
    words = Words('alter "Table" A.b."C" .d')

    assert words
    assert (words.look().text, words.look(1).text, words.look(9).kind) == (
        "alter",
        '"Table"',
        "end",
    )
    assert words.is_next()
    assert words.is_next("ALTER")
    assert not words.is_next("ALTER", "TABLE"), "it is quoted"
    assert not words.take("ALTER", "TABLE")
    assert words.take("ALTER")
    assert words.take_any("TABLE") == ""
    assert words.identifier() == "Table"
    assert words.take_any("B", "A") == "A"
    assert words.take(".")
    assert words.dotted() == ("b", "C", "d")
    assert not words
    assert (words.identifier(), words.dotted(), words.step().kind) == (None, (), "end")
    assert (words.left, words.rest(), words.take_any("")) == ("", "", "")


def test_a_dotted_name_ends_where_no_name_follows() -> None:
    words = Words("a.b.* c")

    assert words.dotted() == ("a", "b")
    assert [words.step().text for _ in range(3)] == [".", "*", "c"]


def test_brackets_are_taken_whole_and_one_that_is_open_takes_the_rest() -> None:
    words = Words("(a (b) [c]) [1] (d (e)")
    inside = words.brackets()
    assert inside is not None
    assert inside.left == "a (b) [c]"
    assert words.brackets() is None
    index = words.brackets("[")
    assert index is not None
    assert index.rest() == "1"
    rest = words.brackets()
    assert rest is not None
    assert rest.left == "d (e)"
    assert not words


def test_a_text_up_to_a_keyword_is_taken_outside_of_brackets() -> None:
    words = Words("default (a, not null) :: not null not null check (x)")

    assert words.until("NOT", "CHECK").left == "default (a, not null) :: not null"
    assert words.take("NOT", "NULL")
    assert words.until("CHECK").left == "check (x)", "the first word is of what is taken"
    assert not words
    assert words.until("X").left == ""
    assert Words("[not] a not").until("NOT").left == "[not] a"


def test_parts_are_divided_at_commas_outside_of_brackets() -> None:
    words = Words("a, f(b, c), d[1, 2]")
    assert [part.left for part in words.parts()] == ["a", "f(b, c)", "d[1, 2]"]
    assert not words
    assert [part.left for part in Words("a, b,").parts()] == ["a", "b"]
    later = Words("x a, b")
    later.step()
    assert [part.left for part in later.parts()] == ["a", "b"]
    assert [part.left for part in Words("").parts()] == []


def test_the_rest_of_a_text_is_as_it_was_written() -> None:
    words = Words("set  x = /* y */ 'Z'  ")
    words.step()

    assert words.left == "x = /* y */ 'Z'"
    assert words.rest() == "x = /* y */ 'Z'"
    assert not words
