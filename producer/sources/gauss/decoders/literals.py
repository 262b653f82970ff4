"""SQL literals back to cells: the text that the type's output function printed.

Strings stand in quotes, quotes inside doubled, backslashes alone; bits as B'..';
numbers, booleans and null stand bare (manual of mppdb_decoding and test_decoding).
Any other bare text is refused: no type prints it, so it is truncated.
"""

from __future__ import annotations

import re
from typing import Final

from producer.core.changes import Cell
from producer.errors import DecodeError
from schemas.tables import UNCHANGED

# Of a regular expression: three groups, of which exactly one takes part.
LITERAL: Final = rb"(?:'((?:[^']++|'')*+)'|B'([01]*+)'|([A-Za-z0-9+.\-]++))"
SKIPPED: Final = rb"(?:'(?:[^']++|'')*+'|B'[01]*+'|[A-Za-z0-9+.\-]++)"  # the same, no groups

_WORDS: Final[dict[bytes, Cell]] = {
    b"null": None,
    b"true": b"t",
    b"false": b"f",
    b"unchanged-toast-datum": UNCHANGED,
}
NUMBER: Final = re.compile(
    # openGauss prints no zero before the point; NaN and infinities stand bare as well.
    rb"-?(?:\d++(?:\.\d++)?|\.\d++)(?:[eE][+-]?\d++)?|NaN|-?Infinity"
)
_WHOLE: Final = re.compile(LITERAL)


def cell(match: re.Match[bytes], quoted: int) -> Cell:
    """Make the cell of a match of LITERAL whose first group is number `quoted`."""
    if match.lastindex == quoted:
        value = match[quoted]
        return value.replace(b"''", b"'") if b"''" in value else value
    if match.lastindex == quoted + 1:
        return match[quoted + 1]
    return bare(match[quoted + 2])


def bare(word: bytes) -> Cell:
    """Make the cell of text without quotes.  Raises DecodeError for what no type prints so."""
    if NUMBER.fullmatch(word):
        return word
    try:
        return _WORDS[word]
    except KeyError:
        raise DecodeError("a value that is not a literal", size=len(word)) from None


def literal(raw: bytes) -> Cell:
    """Make the cell of one whole literal.  Raises DecodeError for what is none."""
    if raw[:1] == b"'":  # most
        value = raw[1:-1]
        if b"'" not in value and raw[-1:] == b"'" and len(raw) > 1:
            return value
    match = _WHOLE.fullmatch(raw)
    if match is None:
        raise DecodeError("a value that is not a literal", size=len(raw))
    return cell(match, 1)
