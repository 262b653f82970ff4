r"""Splits SQL text into words, with a cursor over them.

For the server's own canonical text, which uses few forms.  A quote that is not
closed takes the rest of the text (openGauss prints a default that holds one
unescaped); the words before it are valid.

>>> [word.text for word in cut('CREATE "T"(a int); -- so')]
['CREATE', '"T"', '(', 'a', 'int', ')', ';']
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_WORD: Final = re.compile(
    r"""\s+ | --[^\n]* | (?P<comment> /\* )
    | (?P<string> [eE]'(?:[^'\\]|''|\\.)*' | [nNxXbB]?'(?:[^']|'')*' )
    | (?P<dollar> \$(?:[^\W\d]\w*)?\$ )
    | (?P<quoted> "(?:[^"]|"")*" | `(?:[^`]|``)*` )
    | (?P<name> [^\W\d][\w$]* )
    | (?P<number> \d+(?:\.\d*)?(?:[eE][+-]?\d+)? | \.\d+ )
    | (?P<broken> ['"`].* )
    | (?P<sign> :: | := | [-+*/<>=~!@\#%^&|?]+ | . )""",
    re.VERBOSE | re.DOTALL,
)
_DOLLAR: Final = re.compile(r"(?=(\$(?:[^\W\d]\w*)?\$))")


class Word(NamedTuple):
    """A word and its position."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """A keyword in capitals; a quoted word is not one."""
        return self.text.upper() if self.kind in {"name", "sign"} else ""

    @property
    def identifier(self) -> str | None:
        """The name that the word denotes, or None."""
        if self.kind == "name":
            return self.text.lower() if self.text.isascii() else self.text
        if self.kind == "quoted" and len(self.text) > 2:
            quote = self.text[0]
            return self.text[1:-1].replace(quote * 2, quote)
        return None


def cut(text: str) -> list[Word]:
    """Split a text into words, without blanks and comments; in time proportional to its length."""
    found: list[Word] = []
    end_of_string = _ends_of_strings(text)
    at, size, comments_end = 0, len(text), True
    while at < size:
        match = _WORD.match(text, at)
        assert match is not None  # any character is a sign
        kind, start, at = match.lastgroup, at, match.end()
        if kind == "comment":
            end = text.find("*/", at) if comments_end else -1
            comments_end = end != -1  # if one is not closed, none after it is
            if comments_end:
                at = end + 2
                continue
            kind = "sign"
        elif kind == "dollar":
            end = end_of_string(match[0], at)
            kind, at = ("string", end) if end else ("sign", start + 1)
        if kind is not None:
            found.append(Word(kind, text[start:at], start, at))
    return found


def _ends_of_strings(text: str) -> Callable[[str, int], int]:
    """Find the end of a dollar-quoted string; 0: none.  All marks are found in one pass."""
    places: dict[str, list[int]] = {}
    if "$" in text:
        for match in _DOLLAR.finditer(text):
            places.setdefault(match[1], []).append(match.start())

    def end(mark: str, behind: int) -> int:
        found = places[mark]
        at = bisect_left(found, behind)
        return found[at] + len(mark) if at < len(found) else 0

    return end


_OPEN, _CLOSE = frozenset("(["), frozenset(")]")
_END: Final = Word("end", "", -1, -1)


def statements(words: list[Word]) -> Iterator[list[Word]]:
    """Split words at the semicolons between statements; the rest after the last one is included."""
    start, depth = 0, 0
    for at, word in enumerate(words):
        depth += (word.text == "(") - (word.text == ")")
        if word.text == ";" and not depth:
            yield words[start:at]
            start = at + 1
    yield words[start:]


class Words:
    """A cursor over words; `take…` advances only if the words match."""

    def __init__(self, text: str, words: list[Word] | None = None) -> None:
        self.text = text
        self._words = cut(text) if words is None else words
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._words)

    def look(self, ahead: int = 0) -> Word:
        """The next word, or one after it."""
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else _END

    def step(self) -> Word:
        """Take the next word."""
        word = self.look()
        self._at += word is not _END
        return word

    def is_next(self, *keywords: str) -> bool:
        """Say whether these keywords come next."""
        return all(self.look(n).upper == keyword for n, keyword in enumerate(keywords))

    def take(self, *keywords: str) -> bool:
        """Take these keywords, if all of them come next."""
        if not self.is_next(*keywords):
            return False
        self._at += len(keywords)
        return True

    def take_any(self, *keywords: str) -> str:
        """Take one of these keywords; "" if none comes next."""
        found = self.look().upper
        if not found or found not in keywords:
            return ""
        self._at += 1
        return found

    def identifier(self) -> str | None:
        """Take a name.  None: none comes next, and nothing is taken."""
        found = self.look().identifier
        self._at += found is not None
        return found

    def dotted(self) -> tuple[str, ...]:
        """Take `a.b.c`; () if no name comes next."""
        found: list[str] = []
        while (part := self.identifier()) is not None:
            found.append(part)
            if not (self.look().text == "." and self.look(1).identifier is not None):
                break
            self.step()
        return tuple(found)

    def brackets(self, opening: str = "(") -> Words | None:
        """Take the contents of parentheses, or of the brackets that open with `[`.

        None: they do not come next.  Where they do not close, all that is left is theirs.
        """
        if self.look().text != opening:
            return None
        start, depth = self._at, 0
        for at in range(start, len(self._words)):
            depth += self._bracket(at)
            if not depth:
                self._at = at + 1
                return Words(self.text, self._words[start + 1 : at])
        self._at = len(self._words)
        return Words(self.text, self._words[start + 1 :])

    def until(self, *keywords: str) -> Words:
        """Take all up to one of these keywords outside of brackets, or the end."""
        start, depth = self._at, 0
        while self:
            is_type = self._words[self._at - 1].text == "::"
            if not depth and not is_type and self.look().upper in keywords and self._at > start:
                break
            depth += self._bracket(self._at)
            self._at += 1
        return Words(self.text, self._words[start : self._at])

    def parts(self) -> Iterator[Words]:
        """Take the rest, split at commas outside of brackets."""
        start, depth = self._at, 0
        for at in range(start, len(self._words)):
            depth += self._bracket(at)
            if not depth and self._words[at].text == ",":
                yield Words(self.text, self._words[start:at])
                start = at + 1
        if start < len(self._words):
            yield Words(self.text, self._words[start:])
        self._at = len(self._words)

    @property
    def left(self) -> str:
        """The text from here on."""
        return self.text[self.look().start : self._words[-1].end] if self else ""

    def rest(self) -> str:
        """Take the text from here on."""
        found = self.left
        self._at = len(self._words)
        return found

    def _bracket(self, at: int) -> int:
        text = self._words[at].text
        return (text in _OPEN) - (text in _CLOSE)
