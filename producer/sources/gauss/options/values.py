"""Values of decoding options, read exactly as the server reads them.

Each reader takes the text of a value and returns it in one canonical form, or
raises ValueError.  Booleans and integers follow the rules of the server's own
settings; the grammar of `white-table-list` is the manual's, which forbids every
blank (openGauss accepts some around commas).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

INT32_MAX: Final = (1 << 31) - 1
UINT64_MAX: Final = (1 << 64) - 1
_BLANKS: Final = " \t\n\r\v\f"  # C's isspace

_INTEGER: Final = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")
_DURATION: Final = re.compile(r"(.*?[0-9a-fA-F])\s*(ms|s|min|h|d)?\s*", re.DOTALL)
_MILLISECONDS: Final[Mapping[str, int]] = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_POSITION: Final = re.compile(r"([0-9]+)/([0-9]+)")


def boolean(text: str) -> bool:
    """Read a boolean: unique prefixes of true, false, yes, no, in any case; on, off, 1, 0.

    >>> [boolean(text) for text in ("t", "FALSE", "of", "on", "1")]
    [True, False, False, True, True]
    """
    word = text.lower()
    if word and any(name.startswith(word) for name in ("true", "yes")):
        return True
    if word and any(name.startswith(word) for name in ("false", "no")):
        return False
    if word in ("on", "1"):
        return True
    if word in ("off", "of", "0"):  # "o" alone could be either
        return False
    raise ValueError("write true or false")


def integer(text: str) -> int:
    """Read an integer as C's strtol with base 0 does: 0x10 is 16, and 010 is 8.

    Blanks around it are accepted, a value beyond 32 bits is not.

    >>> [integer(text) for text in ("4", " 0x10 ", "-1", "010")]
    [4, 16, -1, 8]
    """
    if (match := _INTEGER.fullmatch(text.strip(_BLANKS))) is None:
        raise ValueError("write a whole number")
    sign, hexadecimal, octal, decimal = match.groups()
    if hexadecimal:
        value = int(hexadecimal, 16)
    elif octal:
        value = int(octal, 8)
    else:
        value = int(decimal)
    value = -value if sign == "-" else value
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise ValueError("write a number of 32 bits")
    return value


def milliseconds(text: str) -> int:
    """Read a time as the server's settings do: a bare number is milliseconds.

    >>> [milliseconds(text) for text in ("30000", "60s", "2 min")]
    [30000, 60000, 120000]
    """
    stripped = text.strip(_BLANKS)
    # A hexadecimal number may end in d, so a number is tried before a unit.
    if _INTEGER.fullmatch(stripped):
        return integer(stripped)
    if (match := _DURATION.fullmatch(stripped)) is None or match[2] is None:
        raise ValueError("write milliseconds, or a number with ms, s, min, h or d")
    value = integer(match[1]) * _MILLISECONDS[match[2]]
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise ValueError("write a number of 32 bits, in milliseconds")
    return value


def style(text: str) -> str:
    """Read decode-style: the first character counts, and only j, t and b are styles.

    >>> style("binary")
    'b'
    """
    if text[:1] not in ("j", "t", "b") or not text:
        raise ValueError("write j, t or b")
    return text[0]


def tables(text: str, *, blanks: bool) -> tuple[tuple[str, str], ...]:
    """Read white-table-list into (schema, table); "*" stands for every name.

    The first dot splits, so that a table's name may hold more of them.  `blanks`
    tolerates blanks around commas and at both ends, as openGauss does.  An empty
    list is no filter.

    >>> tables("public.t1,*.t3,my_schema.*", blanks=False)
    (('public', 't1'), ('*', 't3'), ('my_schema', '*'))
    """
    if blanks:
        text = text.strip(_BLANKS)
    if not text:
        return ()
    out = []
    for item in text.split(","):
        whole = item.strip(_BLANKS) if blanks else item
        if any(letter in _BLANKS for letter in whole):
            raise ValueError(f"the list must not contain blanks: {whole!r}")
        schema, dot, table = whole.partition(".")
        if not (schema and dot and table):
            raise ValueError(f"write schema.table, with * for a whole part; got {whole!r}")
        out.append((schema, table))
    return tuple(out)


def names(text: str) -> tuple[str, ...]:
    """Read a list of user names, which need not exist.

    >>> names("etl,batch")
    ('etl', 'batch')
    """
    out = tuple(text.split(","))
    if not all(out):
        raise ValueError("write names with commas between them, none empty")
    return out


def oids(text: str) -> tuple[int, ...]:
    """Read a list of user OIDs.

    >>> oids("10,16384")
    (10, 16384)
    """
    out = []
    for item in text.split(","):
        if not (item.isascii() and item.isdigit()) or int(item) >= 1 << 32:
            raise ValueError("write OIDs with commas between them")
        out.append(int(item))
    return tuple(out)


def csn_and_lsn(text: str) -> tuple[int, int]:
    """Read start-position: a CSN and an LSN, both decimal, with a slash between.

    >>> csn_and_lsn("2357/217976896")
    (2357, 217976896)
    """
    if (match := _POSITION.fullmatch(text)) is None:
        raise ValueError("write CSN/LSN, two decimal numbers")
    csn, lsn = int(match[1]), int(match[2])
    if max(csn, lsn) > UINT64_MAX:
        raise ValueError("write two numbers of 64 bits")
    return csn, lsn
