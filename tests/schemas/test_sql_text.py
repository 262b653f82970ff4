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
