"""Type names -> oids, for streams that name types without oids.

GaussDB's text and JSON formats print what format_type() says without modifier
(`character varying`, `integer[]`); its DDL names types as the catalog does
(`pg_catalog.int4`).  Oids of what is built in are the same in every database;
a type of users (enum, domain, composite, extension) is not found
here: the catalog knows it.

`clob` reaches the text formats as `text`, so a clob column's oid is known from
the catalog only; the two travel alike.
"""

from __future__ import annotations

import re
from typing import Final

from schemas.types import BY_OID

# Built in, and not in the table of types: names of the catalog itself.
_LEFT_OUT: Final = {
    "int2vector": 22, "int2vector[]": 1006, "oidvector": 30, "oidvector[]": 1013, "cstring[]": 1263,
    "record[]": 2287, "pg_node_tree": 194, "aclitem": 1033, "aclitem[]": 1034,
    "refcursor": 1790, "refcursor[]": 2201, "regoper": 2203, "regoper[]": 2208,
    "regoperator": 2204, "regoperator[]": 2209, "regconfig": 3734, "regconfig[]": 3735,
    "regdictionary": 3769, "regdictionary[]": 3770, "regrole": 4096, "regrole[]": 4097,
    "regnamespace": 4089, "regnamespace[]": 4090, "regcollation": 4191, "regcollation[]": 4192,
    "xid32": 31, "xid32[]": 1029,
}  # fmt: skip

# pg_type.typname, and how people write it in DDL, where format_type() says something else.
_OTHER_NAMES: Final = {
    "bool": "boolean", "char": "character", "bpchar": "character", "varchar": "character varying",
    "varchar2": "character varying", "nvarchar": "nvarchar2", "int1": "tinyint",
    "int2": "smallint", "int4": "integer", "int": "integer", "int8": "bigint",
    "float4": "real", "float8": "double precision", "decimal": "numeric", "number": "numeric",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone",
    "time": "time without time zone", "timetz": "time with time zone", "varbit": "bit varying",
}  # fmt: skip

_BUILT_IN: Final[dict[str, int]] = {
    **_LEFT_OUT,
    **{entry.name: oid for oid, entry in BY_OID.items()},
}
_MODIFIER: Final = re.compile(r"\([0-9, -]*\)")
_FIELDS: Final = re.compile(r"interval (?:year|month|day|hour|minute|second)\b[a-z ]*")


def oid_of(type_name: str) -> int | None:
    """Return the oid of a built-in type by its name, or None for any other name.

    A modifier is passed over; arrays end in `[]`, however often, or begin with `_`
    as in pg_type.

    >>> oid_of("character varying(20)"), oid_of("integer[]"), oid_of("pg_catalog._int4")
    (1043, 1007, 1007)
    >>> oid_of('"char"'), oid_of("tinyint"), oid_of("mood")
    (18, 5545, None)
    """
    name = " ".join(_MODIFIER.sub("", type_name).removeprefix("pg_catalog.").split())
    bare = name.rstrip("[]")
    is_array = bare != name
    if not is_array and bare.startswith("_"):
        bare, is_array = bare[1:], True
    if _FIELDS.fullmatch(bare):  # `interval day to second`: the fields are a modifier
        bare = "interval"
    bare = _OTHER_NAMES.get(bare, bare)
    return _BUILT_IN.get(f"{bare}[]" if is_array else bare)
