"""Quotes of the emulator: `quote_identifier()` as the products have it, and for its own SQL.

The decoders have a list of their own: a word that one of the two lacks is a difference that
tests see.  PostgreSQL's words are those of `pg_get_keywords()` of version 15 that are not
"unreserved"; openGauss left PostgreSQL at 9.2 and added some.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

_SAFE: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ONLY_POSTGRES: Final = _words("isnull lateral normalize xmlnamespaces xmltable")
POSTGRES: Final = _words("""
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
OPENGAUSS: Final = (POSTGRES - _ONLY_POSTGRES) | _ONLY_OPENGAUSS


def quote_identifier(name: str, keywords: AbstractSet[str] = OPENGAUSS) -> str:
    """Quote a name where the server would.

    >>> quote_identifier("id"), quote_identifier("varchar"), quote_identifier('a"b')
    ('id', '"varchar"', '"a""b"')
    """
    if _SAFE.fullmatch(name) and name not in keywords:
        return name
    return identifier(name)


def identifier(name: str) -> str:
    """Quote a name in SQL of our own.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text in SQL of our own.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
