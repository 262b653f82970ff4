"""Identifiers in the bytes of the database, quoted where the server quotes them.

`quote_identifier()` puts quotes around everything but `[a-z_][a-z0-9_]*`, and around
keywords that are not "unreserved".  PostgreSQL's list is what `pg_get_keywords()`
of version 15 says.  openGauss' list was read from the keyword table of its public
sources (between 6 and 7; older ones also quote `fenced`, and lack some);
recordings prove it for select, from, where, group, order, user and table only.  An
extension with a grammar of its own (dolphin in B compatibility) may quote more.
"""

from __future__ import annotations

import re
from typing import Final

from gauss_cdc.emulator.model import Profile

_SAFE: Final = re.compile(rb"[a-z_][a-z0-9_]*")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keywords of PostgreSQL that openGauss, which left it at 9.2, does not quote.
_ONLY_POSTGRES: Final = _words("isnull lateral normalize xmlnamespaces xmltable")
_POSTGRES: Final = _words("""
    all analyse analyze and any array as asc asymmetric authorization between bigint binary
    bit boolean both case cast char character check coalesce collate collation column
    concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user dec decimal default deferrable
    desc distinct do else end except exists extract false fetch float for foreign freeze from
    full grant greatest group grouping having ilike in initially inner inout int integer
    intersect interval into is isnull join lateral leading least left like limit localtime
    localtimestamp national natural nchar none normalize not notnull null nullif numeric
    offset on only or order out outer overlaps overlay placing position precision primary
    real references returning right row select session_user setof similar smallint some
    substring symmetric table tablesample then time timestamp to trailing treat trim true
    union unique user using values varchar variadic verbose when where window with
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi
    xmlroot xmlserialize xmltable
""")
_ONLY_OPENGAUSS: Final = _words("""
    authid binary_double binary_double_infinity binary_double_nan binary_integer bucketcnt
    buckets byteawithoutorder byteawithoutorderwithequal compact csn date decode deltamerge
    excluded groupparent hdfsdirectory imcstored json_exists less minus modify nocycle
    nth_value number nvarchar nvarchar2 nvl performance procedure recyclebin reject rownum
    self share_memory shrink smalldatetime sysdate timecapsule timestampdiff tinyint
    unimcstored varchar2 verify
""")
_OPENGAUSS: Final = (_POSTGRES - _ONLY_POSTGRES) | _ONLY_OPENGAUSS


class Names:
    """Names of one database, in its encoding; the few that a stream has are kept."""

    __slots__ = ("_encoding", "_keywords", "_quoted", "_raw")

    def __init__(self, profile: Profile, encoding: str) -> None:
        """`encoding` is Python's name of the database's encoding."""
        self._encoding = encoding
        self._keywords = _OPENGAUSS if profile.gauss else _POSTGRES
        self._raw: dict[str, bytes] = {}
        self._quoted: dict[str, bytes] = {}

    def raw(self, name: str) -> bytes:
        """The name as the catalog holds it."""
        raw = self._raw.get(name)
        if raw is None:
            # Bytes that are no text (SQL_ASCII) come and go as surrogates.
            raw = self._raw[name] = name.encode(self._encoding, "surrogateescape")
        return raw

    def quoted(self, name: str) -> bytes:
        """What `quote_identifier()` makes of it.

        >>> names = Names(Profile("og7"), "utf-8")
        >>> names.quoted("id"), names.quoted("user"), names.quoted('a"b')
        (b'id', b'"user"', b'"a""b"')
        """
        quoted = self._quoted.get(name)
        if quoted is None:
            quoted = self.raw(name)
            if name in self._keywords or not _SAFE.fullmatch(quoted):
                quoted = b'"%b"' % quoted.replace(b'"', b'""')
            self._quoted[name] = quoted
        return quoted

    def table(self, schema: str, table: str) -> bytes:
        """The qualified name of a table, each part quoted where needed."""
        return b"%b.%b" % (self.quoted(schema), self.quoted(table))
