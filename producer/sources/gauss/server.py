"""Product, version, role and encoding of a server.

`server_version` is 9.2.4 in every openGauss and GaussDB, so it is not used.
One query that all products support returns the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from producer.errors import DecodeError, Unsupported
from producer.wire.commands import Rows
from schemas import servers

# pg_settings instead of current_setting(): a missing setting is NULL, not an error, and an
# error would end a replication session of openGauss.
QUESTION: Final = (
    "SELECT version(), pg_is_in_recovery(), current_database(),"
    " (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'server_encoding'),"
    " (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'sql_compatibility'),"
    " EXISTS (SELECT 1 FROM pg_catalog.pg_attribute"
    " WHERE attrelid = 'pg_catalog.pg_replication_slots'::regclass"
    " AND attname = 'confirmed_csn' AND NOT attisdropped)"
)


class Product(StrEnum):
    """Which family of servers."""

    OPENGAUSS = "opengauss"
    GAUSSDB = "gaussdb"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and the database of the connection."""

    product: Product
    version: str  # as the server prints it: 7.0.0-RC2, 505.2.0, 15.1
    is_primary: bool
    database: str
    encoding: str  # as the server names it, in upper case
    compatibility: str = ""  # A, B, C, PG, M; "" with PostgreSQL
    has_csn_slots: bool = False  # pg_replication_slots.confirmed_csn: GaussDB

    @property
    def number(self) -> tuple[int, ...]:
        """The version for comparisons, as far as it is numeric: (7, 0, 0)."""
        found = re.match(r"\d+(?:\.\d+)*", self.version)
        return tuple(int(part) for part in found[0].split(".")) if found else ()

    @property
    def codec(self) -> str:
        """Python's name of the database's encoding; Unsupported if Python has none."""
        return codec(self.encoding)


def parse_server(rows: Rows) -> Server:
    """Read the answer to QUESTION.  Raises DecodeError for another number of rows or columns."""
    if len(rows) != 1 or len(rows[0]) != 6:
        raise DecodeError("answer with unexpected columns or rows", rows=len(rows))
    said, in_recovery, database, encoding, compatibility, has_csn = rows[0]
    product, version = parse_version(said or "")
    return Server(
        product=product,
        version=version,
        is_primary=in_recovery == "f",
        database=database or "",
        encoding=(encoding or "").upper(),
        compatibility="" if product is Product.POSTGRES else (compatibility or ""),
        has_csn_slots=has_csn == "t",
    )


_PRODUCTS: Final = {
    servers.POSTGRESQL: Product.POSTGRES,
    servers.OPENGAUSS: Product.OPENGAUSS,
    servers.GAUSSDB: Product.GAUSSDB,
}


def parse_version(said: str) -> tuple[Product, str]:
    """Parse the result of version(); raise Unsupported for another product.

    >>> parse_version("(openGauss 5.0.0 build a07d57c3) compiled at 2023-03-29")[1]
    '5.0.0'
    """
    if (found := servers.product_of(said)) is not None:
        return _PRODUCTS[found[0]], found[1]
    raise Unsupported(
        "the server is neither openGauss nor GaussDB nor PostgreSQL", version=said[:80]
    )


# Encodings that a database of openGauss, GaussDB or PostgreSQL may have, and those that only a
# client may (SJIS to UHC): Python's codec, or "" where it has none.  GB18030_2022 differs from
# Python's gb18030 (edition 2005) in some two dozen rare characters.  SQL_ASCII means "unknown
# bytes": what is not ASCII is carried as bytes.
CODECS: Final[Mapping[str, str]] = {
    "SQL_ASCII": "ascii",
    "UTF8": "utf-8",
    "UNICODE": "utf-8",  # its old name
    "GBK": "gbk",
    "ZHS16GBK": "gbk",
    "GB18030": "gb18030",
    "GB18030_2022": "gb18030",
    "EUC_CN": "gb2312",
    "EUC_JP": "euc_jp",
    "EUC_JIS_2004": "euc_jis_2004",
    "EUC_KR": "euc_kr",
    "EUC_TW": "",
    "MULE_INTERNAL": "",
    "LATIN1": "iso8859-1",
    "LATIN2": "iso8859-2",
    "LATIN3": "iso8859-3",
    "LATIN4": "iso8859-4",
    "LATIN5": "iso8859-9",
    "LATIN6": "iso8859-10",
    "LATIN7": "iso8859-13",
    "LATIN8": "iso8859-14",
    "LATIN9": "iso8859-15",
    "LATIN10": "iso8859-16",
    "ISO_8859_5": "iso8859-5",
    "ISO_8859_6": "iso8859-6",
    "ISO_8859_7": "iso8859-7",
    "ISO_8859_8": "iso8859-8",
    "KOI8R": "koi8-r",
    "KOI8": "koi8-r",
    "KOI8U": "koi8-u",
    "WIN866": "cp866",
    "WIN874": "cp874",
    "WIN1250": "cp1250",
    "WIN1251": "cp1251",
    "WIN1252": "cp1252",
    "WIN1253": "cp1253",
    "WIN1254": "cp1254",
    "WIN1255": "cp1255",
    "WIN1256": "cp1256",
    "WIN1257": "cp1257",
    "WIN1258": "cp1258",
    "SJIS": "cp932",
    "SHIFT_JIS_2004": "shift_jis_2004",
    "BIG5": "cp950",
    "UHC": "cp949",
    "JOHAB": "johab",
}


def codec(encoding: str) -> str:
    """Python's name of a server's encoding; raises Unsupported.

    >>> codec("gbk"), codec("LATIN9"), codec("SQL_ASCII")
    ('gbk', 'iso8859-15', 'ascii')
    """
    if found := CODECS.get(encoding.upper().replace("-", "_")):
        return found
    raise Unsupported(
        "an unsupported database encoding",
        encoding=encoding,
        hint="use a database in UTF8, GBK, GB18030 or an ISO encoding",
    )
