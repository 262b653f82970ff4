r"""SQL text that the source printed, read strictly and never passed on.

Any client may have written the text of a record.  The parts that a statement
needs are split into tokens here, parsed, and printed again from the result.
Text that only a server could read (comments, dollar quotes, escapes other than a
doubled backslash, prefixes of strings) is refused.  Time and memory are
proportional to the length of the text.

>>> [token.text for token in tokens('"A b" >= E\'it\'\'s \\\\\'')]
['A b', '>=', "it's \\"]
>>> tokens("1 -- so")
Traceback (most recent call last):
schemas.sql_text.NotRead: a comment
"""

from __future__ import annotations

from typing import Final, NamedTuple

_STARTS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS: Final = frozenset("0123456789")
_SIGNS: Final = frozenset("+-*/<>=~!@#%^&|?")
_SINGLE: Final = frozenset("()[],.;:")
_BLANKS: Final = frozenset(" \t\n\r\f\v")
MOST: Final = 1_000_000  # characters that are read at all


class NotRead(ValueError):
    """The text is not what the server prints, or longer than the limit."""


class Token(NamedTuple):
    """A piece of SQL: `name` (in lower case), `quoted`, `string`, `number`, or `sign`.

    `text` is what it means: names and strings without their quotes.
    """

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """A keyword in capitals, or a sign; empty for quoted text."""
        return self.text.upper() if self.kind in {"name", "sign"} else ""

    @property
    def name(self) -> str | None:
        """The name that it means.  None: it is no name."""
        return self.text if self.kind in {"name", "quoted"} else None


def tokens(text: str) -> list[Token]:
    """Cut a text into tokens; raise NotRead where it is not plain SQL."""
    if len(text) > MOST or "\0" in text:
        raise NotRead("a text of more than a million characters, or with a zero byte")
    found: list[Token] = []
    at, size = 0, len(text)
    while at < size:
        here = text[at]
        if here in _BLANKS:
            at += 1
        elif here in _STARTS or not here.isascii():
            end = at + 1
            while end < size and (
                text[end] in _STARTS or text[end] in _DIGITS or not text[end].isascii()
                or text[end] == "$"
            ):  # fmt: skip
                end += 1
            word = text[at:end]
            if text[end : end + 1] == "'" or text[end : end + 2] in {"&'", '&"'}:
                if word not in {"E", "e"} or text[end] == "&":
                    raise NotRead("a string or a name with a prefix")
                string, at = _string(text, end, has_escapes=True)
                found.append(Token("string", string))
                continue
            # The server folds ASCII only, as long as its encoding has several bytes.
            found.append(Token("name", word.lower() if word.isascii() else word))
            at = end
        elif here == '"':
            name, at = _quoted(text, at, '"')
            if not name:
                raise NotRead("an empty name")
            found.append(Token("quoted", name))
        elif here == "'":
            string, at = _string(text, at, has_escapes=False)
            found.append(Token("string", string))
        elif here in _DIGITS or (here == "." and text[at + 1 : at + 2] in _DIGITS):
            end = _number(text, at)
            found.append(Token("number", text[at:end]))
            at = end
        elif text.startswith("::", at):
            found.append(Token("sign", "::"))
            at += 2
        elif here in _SINGLE:
            found.append(Token("sign", here))
            at += 1
        elif here in _SIGNS:
            end = at + 1
            while end < size and text[end] in _SIGNS:
                end += 1
            sign = text[at:end]
            if "--" in sign or "/*" in sign:
                raise NotRead("a comment")
            found.append(Token("sign", sign))
            at = end
        else:
            raise NotRead("an invalid character, or a dollar quote")
    return found


def _quoted(text: str, at: int, mark: str) -> tuple[str, int]:
    """Read what stands in quotes from `at` on, and where it ends."""
    parts, start = list[str](), at + 1
    while True:
        end = text.find(mark, start)
        if end < 0:
            raise NotRead("an unterminated quote")
        parts.append(text[start:end])
        if text[end + 1 : end + 2] != mark:
            return mark.join(parts), end + 1
        start = end + 2


def _string(text: str, at: int, *, has_escapes: bool) -> tuple[str, int]:
    if not has_escapes:
        return _quoted(text, at, "'")
    parts, start = list[str](), at + 1
    while True:
        quote_at, slash_at = text.find("'", start), text.find("\\", start)
        if quote_at < 0:
            raise NotRead("an unterminated quote")
        if 0 <= slash_at < quote_at:
            if text[slash_at + 1 : slash_at + 2] != "\\":
                raise NotRead("an escape")
            parts.append(text[start : slash_at + 1])
            start = slash_at + 2
            continue
        parts.append(text[start:quote_at])
        if text[quote_at + 1 : quote_at + 2] != "'":
            return "".join(parts), quote_at + 1
        parts.append("'")
        start = quote_at + 2


def _number(text: str, at: int) -> int:
    """Find the end of `12`, `1.5`, `.5` or `1e-7`; what follows a number directly is refused."""
    end = _digits(text, at)
    if text[end : end + 1] == ".":
        end = _digits(text, end + 1)
    if text[end : end + 1] in {"e", "E"}:
        sign = 1 if text[end + 1 : end + 2] in {"+", "-"} else 0
        last = _digits(text, end + 1 + sign)
        if last == end + 1 + sign:
            raise NotRead("an invalid number")
        end = last
    behind = text[end : end + 1]
    if behind and (behind in _STARTS or behind == "$" or not behind.isascii()):
        raise NotRead("an invalid number")
    return end


def _digits(text: str, at: int) -> int:
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    return at
