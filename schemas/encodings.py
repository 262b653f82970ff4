r"""Values that are not text: in a database without an encoding (SQL_ASCII), or with invalid data.

In Kafka the Avro string holds the text with U+FFFD in place of invalid bytes, and
`source.exact` the bytes themselves, as `\x` and hex digits.  No other exact text
begins so: bytea always fits its Avro type.  In Python such a value is a str with
surrogate escapes (PEP 383), which only a target without an encoding can take.
"""

from __future__ import annotations

import codecs
from typing import Any, Final

WITHOUT: Final = "SQL_ASCII"  # the server's name for: bytes, whatever they mean
BYTES_OR_UTF8: Final = "utf-8-or-bytes"  # a codec: UTF-8, and other bytes as surrogate escapes

_MARK: Final = "\\x"


def exact_bytes(cell: bytes) -> str:
    r"""Write the bytes of a value that is not text, for `source.exact`.

    >>> exact_bytes(b"a\xff")
    '\\x61ff'
    """
    return _MARK + cell.hex()


def from_exact(text: str) -> str:
    r"""Read a value of `source.exact`: the source's text, or bytes as surrogate escapes.

    >>> from_exact("NaN"), from_exact(r"\x61ff")
    ('NaN', 'a\udcff')
    """
    if not text.startswith(_MARK):
        return text
    return bytes.fromhex(text[len(_MARK) :]).decode("utf-8", "surrogateescape")


def is_text(value: str) -> bool:
    r"""Say whether a value is text, not bytes as surrogate escapes.

    >>> is_text("金"), is_text("a\udcff")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def of_cells(encoding: str) -> str:
    """Return the codec of cells of a database encoding, named by the server or by Python.

    Without an encoding, text is what reads as UTF-8; raises LookupError for an
    unknown one.

    >>> of_cells("UTF8"), of_cells("SQL_ASCII"), of_cells("EUC_CN"), of_cells("GBK")
    ('utf-8', 'utf-8', 'gb2312', 'gbk')
    """
    name = codecs.lookup(encoding.replace("SQL_ASCII", "ascii").replace("sql_ascii", "ascii")).name
    return "utf-8" if name == "ascii" else name


def _find(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != BYTES_OR_UTF8:
        return None

    def encode(text: str, _errors: str = "strict") -> tuple[bytes, int]:
        return text.encode("utf-8", "surrogateescape"), len(text)

    def decode(data: Any, _errors: str = "strict") -> tuple[str, int]:
        return bytes(data).decode("utf-8", "surrogateescape"), len(data)

    return codecs.CodecInfo(encode, decode, name=BYTES_OR_UTF8)


codecs.register(_find)
