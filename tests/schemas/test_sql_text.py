"""SQL text is read strictly: what only a server could read is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.quoting import identifier, literal
from schemas.sql_text import NotRead, Token, tokens


def test_a_text_is_cut_into_what_it_means() -> None:
    assert tokens("\"A \"\"b\" >= E'it''s \\\\' AND x$1::Int4 < -1.5e-7 ; '' 中") == [
        Token("quoted", 'A "b'), Token("sign", ">="), Token("string", "it's \\"),
        Token("name", "and"), Token("name", "x$1"), Token("sign", "::"), Token("name", "int4"),
        Token("sign", "<"), Token("sign", "-"), Token("number", "1.5e-7"), Token("sign", ";"),
        Token("string", ""), Token("name", "中"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["--", "a -- b", "/* b */", "a +/* b */ 1", "$$a$$", "$a$", "$1", "'", '"', '"a', "E'\\n'",
     "E'\\", "E'a", "U&'a'", 'U&"a"', "B'1'", "x'1f'", "N'a'", "1a", "1e", "1$", '""',
     "\0", "'\0'", "`a`",
     "\\", "{", "a" * 1_000_001],
)  # fmt: skip
def test_what_only_a_server_could_read_is_refused(text: str) -> None:
    with pytest.raises(NotRead):
        tokens(text)


@given(st.text(st.characters(exclude_characters="\0")))
def test_what_is_quoted_is_read_back(text: str) -> None:
    assert tokens(literal(text)) == [Token("string", text)]
    if text:
        assert tokens(identifier(text)) == [Token("quoted", text)]


@given(st.text(alphabet="'\"\\$-/*abE&1. ", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = tokens(text)
    except NotRead:
        return
    assert all(token.text or token.kind == "string" for token in found)


SPELLED = st.one_of(
    st.from_regex(r"[a-z_][a-z0-9_$]{0,4}", fullmatch=True).map(lambda x: (Token("name", x), x)),
    st.sampled_from(["Abc", "É", "aÉ", "e", "E", "n1", "z9Z_$"]).map(
        lambda x: (Token("name", x.lower() if x.isascii() else x), x)
    ),
    st.text("aB'\"\\ é", min_size=1, max_size=5).map(lambda x: (Token("quoted", x), identifier(x))),
    st.text("aB'\"\\ é", max_size=5).map(lambda x: (Token("string", x), literal(x))),
    st.text('aB" é', max_size=5).map(lambda x: (Token("string", x), f"'{x}'")),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{0,3})?([eE][+-]?[0-9]{1,2})?", fullmatch=True).map(
        lambda x: (Token("number", x), x)
    ),
    st.from_regex(r"\.[0-9]{1,3}([eE][+-]?[0-9]{1,2})?", fullmatch=True).map(
        lambda x: (Token("number", x), x)
    ),
    st.sampled_from([*"()[],;:", "::", "<=", "+", "@>", "*", "?|", "!~"]).map(
        lambda x: (Token("sign", x), x)
    ),
)


@given(st.lists(SPELLED, max_size=6), st.sampled_from([" ", "\n", "\t\r", "\f\v "]))
def test_what_is_spelled_is_read(spelled: list[tuple[Token, str]], blank: str) -> None:
    text = blank.join(written for _, written in spelled)

    assert tokens(text) == [token for token, _ in spelled]
    assert tokens(f"{blank}{text}{blank}") == [token for token, _ in spelled]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a(b)", ["a", "(", "b", ")"]),
        ("a.b", ["a", ".", "b"]),
        ("a.5", ["a", ".5"]),
        ("1.", ["1."]),
        ("1.,", ["1.", ","]),
        ("1;", ["1", ";"]),
        ("1::a", ["1", "::", "a"]),
        ("a:::b", ["a", "::", ":", "b"]),
        ("1e5)", ["1e5", ")"]),
        ("1e+5", ["1e+5"]),
        ("a'", None),
        ("a&'b'", None),
        ("u&x", ["u", "&", "x"]),
        ("e&'b'", None),
        ("e''", [""]),
        ("E'a''b'c", ["a'b", "c"]),
        ("E'\\\\'''", ["\\'"]),
        ("E'a\\\\\\\\b'", ["a\\\\b"]),
        ("E'a'\\", None),
        ("E'' '\\'", ["", "\\"]),
        ("E'a' || '\\n'", ["a", "||", "\\n"]),
        ("''''", ["'"]),
        ("'a''", None),
        ('"a"""', ['a"']),
        ("a-b", ["a", "-", "b"]),
        ("a-- b", None),
        ("a*/b", ["a", "*/", "b"]),
        ("1é", None),
        ("1_", None),
        ("1e+", None),
        ("1e5e", None),
        ("1.5.5", ["1.5", ".5"]),
        ("..", [".", "."]),
        (".a", [".", "a"]),
        ("é'x'", None),
        ("a" * 1_000_000, ["a" * 1_000_000]),
    ],
)
def test_where_a_token_ends(text: str, texts: list[str] | None) -> None:
    if texts is None:
        with pytest.raises(NotRead):
            tokens(text)
    else:
        assert [token.text for token in tokens(text)] == texts


def test_what_a_token_means() -> None:
    name, quoted, string, sign = tokens("aB \"c\" 'd' >=")

    assert [token.upper for token in (name, quoted, string, sign)] == ["AB", "", "", ">="]
    assert [token.name for token in (name, quoted, string, sign)] == ["ab", "c", None, None]
