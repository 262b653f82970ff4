"""`quote_identifier()`: names as the server's own deparser writes them.

It puts quotes around everything but `[a-z_][a-z0-9_]*`, and around keywords that
are not "unreserved".  PostgreSQL's list is the result of `pg_get_keywords()` of
version 15.  openGauss' list was read from the keyword table of its public sources
(between 6 and 7; older ones also quote `fenced`, and lack some); recordings prove
it for select, from, where, group, order, user and table only.  GaussDB's is assumed
to be the same.  An extension with a grammar of its own (dolphin in B
compatibility) may quote more.

For text that is compared with the server's.  SQL that we send ourselves quotes
every name (`schemas.quoting`).
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

from schemas.quoting import identifier

_SAFE: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keywords of PostgreSQL that openGauss, which left it at 9.2, does not quote.
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
    shown = name.replace("\0", "")  # of damaged text: no server has such a name, nor an empty one
    return identifier(shown) if shown else '""'
