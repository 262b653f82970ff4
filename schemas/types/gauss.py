r"""Types of openGauss and GaussDB that PostgreSQL does not have.

Their texts are those of the server's own output functions; what a PostgreSQL
target makes of each stands in `ddl`, where `{}` is the modifier as the source
spells it.  `raw` and `blob` are printed as hex digits without PostgreSQL's
`\x`; they travel as bytes and come back as the text of `bytea`.

Other spellings of known types have no entry: `number` is `numeric`, `int1` is
`tinyint`, `varchar2` is `character varying`, `date` of an A-compatible database
is `timestamp(0)` with that type's oid, and a number below one is printed
without its leading zero (`.1`), which the loaders of numbers take.

Oids: openGauss' pg_type.  Texts: as recorded from openGauss 7 in A and PG
compatibility; int16, tinterval and the arrays were not recorded.  Types of the
B and M compatibility plugins get another oid in each database, and their text
forms are not documented: they are unknown types, refused or carried as text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from schemas.tables import Column
from schemas.types import binary, numeric, temporal
from schemas.types.base import SqlType, always, plain
from schemas.types.text import text_type

_KNOWN: Final = {entry.name: entry for entry in (*numeric.TYPES, *binary.TYPES, *temporal.TYPES)}
_TO_THE_SECOND: Final = Column("v", 1114, 0)  # timestamp(0)
_39_DIGITS: Final = Column("v", 1700, (39 << 16) + 4)  # numeric(39,0), for -2^127 .. 2^127-1


def _like(known: str, name: str, oid: int, array_oid: int, *, target: str) -> SqlType:
    """Return a type whose texts are also those of another one."""
    return replace(
        _KNOWN[known], name=name, oids=(oid,), array_oid=array_oid, ddl={"postgres": target}
    )


def _hex_digits(text: str) -> bytes:
    r"""Read `raw` and `blob`; the placeholder of an unsent value comes as bytea's text.

    >>> _hex_digits("CAFE"), _hex_digits(r"\xcafe")
    (b'\xca\xfe', b'\xca\xfe')
    """
    return bytes.fromhex(text.removeprefix("\\x"))


def _bytes(name: str, oid: int) -> SqlType:
    """Return a type printed as hex digits; no inlined code reads them.

    Its array is another entry, of text: exact text of one that Avro cannot hold
    (two dimensions) would be read by `bytea` as other bytes, without an error.
    """
    as_bytea = _like("bytea", name, oid, 0, target="bytea")
    return replace(
        as_bytea,
        loader=plain(_hex_digits),
        opcode="",
        variants=binary.variants(_hex_digits),
    )


def _always(column: Column, name: str, oid: int, array_oid: int, *, target: str) -> SqlType:
    """Return a type that is another one with a modifier of its own."""
    known = next(entry for entry in _KNOWN.values() if column.type_oid in entry.oids)
    return replace(
        _like(known.name, name, oid, array_oid, target=target),
        avro=always(known.avro(column)),
        loader=plain(known.loader(column)),
        opcode="",
    )


def _text(name: str, oid: int, array_oid: int, *, target: str = "text") -> SqlType:
    return replace(text_type(name, array_oid, oid), ddl={"postgres": target})


TYPES: Final = (
    _like("smallint", "tinyint", 5545, 5546, target="smallint"),  # 0..255
    _always(_39_DIGITS, "int16", 34, 1234, target="numeric(39,0)"),
    _text("nvarchar2", 3969, 3968, target="character varying{}"),
    _text("clob", 90, 3202),
    _bytes("raw", 86),
    _text("raw[]", 87, 0, target="text[]"),
    _bytes("blob", 88),
    _text("blob[]", 3201, 0, target="text[]"),
    _always(_TO_THE_SECOND, "smalldatetime", 9003, 9005, target="timestamp(0) without time zone"),
    # Its value `invalid` is not a timestamp: a target refuses it.
    _like("timestamp with time zone", "abstime", 702, 1023, target="timestamp with time zone"),
    _like("interval", "reltime", 703, 1024, target="interval"),
    _text("tinterval", 704, 1025),
    _like("bytea", "hll", 4301, 4302, target="bytea"),  # printed with `\x`
    _text("hash16", 5801, 5803),
    _text("hash32", 5802, 5804),
    _text("vector", 8305, 0),  # a target may well have pgvector, whose input is the same
)
