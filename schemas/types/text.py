"""Text, and everything whose text form is the value.

A string travels as it is.  The names are those that Debezium gives; a type it
does not know is a plain string here, which is more than it sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from schemas.types.base import SqlType, always, plain, same, semantic, shape

STRING: Final = shape("string", same)
UUID: Final = shape("io.debezium.data.Uuid", same)
XML: Final = shape("io.debezium.data.Xml", same)
TSVECTOR: Final = shape("io.debezium.data.Tsvector", same)
ENUM: Final = shape("io.debezium.data.Enum", same)

_string = always("string")
_same = plain(same)


def text_type(name: str, array_oid: int, *oids: int) -> SqlType:
    """Return a type that is a plain string."""
    return SqlType(name, oids, STRING, _string, _same, array_oid, "text")


def _reference(name: str, array_oid: int, *oids: int) -> SqlType:
    """Return a type whose values name objects of the source, which a target may not have."""
    return replace(text_type(name, array_oid, *oids), ddl={"postgres": "text"})


AS_TEXT: Final = text_type("", 0)  # carries a type we do not know, where the operator allows it

TYPES: Final = (
    text_type("text", 1009, 25),
    text_type("character varying", 1015, 1043),
    text_type("character", 1014, 1042),
    text_type("name", 1003, 19),
    text_type('"char"', 1002, 18),
    SqlType("uuid", (2950,), UUID, always(semantic("string", UUID.key)), _same, 2951, "text"),
    SqlType("xml", (142,), XML, always(semantic("string", XML.key)), _same, 143, "text"),
    SqlType(
        "tsvector", (3614,), TSVECTOR, always(semantic("string", TSVECTOR.key)), _same, 3643,
        "text",
    ),
    text_type("tsquery", 3645, 3615),
    text_type("int4range", 3905, 3904),
    text_type("numrange", 3907, 3906),
    text_type("tsrange", 3909, 3908),
    text_type("tstzrange", 3911, 3910),
    text_type("daterange", 3913, 3912),
    text_type("int8range", 3927, 3926),
    text_type("int4multirange", 6150, 4451),
    text_type("nummultirange", 6151, 4532),
    text_type("tsmultirange", 6152, 4533),
    text_type("tstzmultirange", 6153, 4534),
    text_type("datemultirange", 6155, 4535),
    text_type("int8multirange", 6157, 4536),
    text_type("pg_lsn", 3221, 3220),
    text_type("xid", 1011, 28),
    text_type("xid8", 271, 5069),
    text_type("cid", 1012, 29),
    text_type("tid", 1010, 27),
    _reference("regproc", 1008, 24),
    _reference("regprocedure", 2207, 2202),
    _reference("regclass", 2210, 2205),
    _reference("regtype", 2211, 2206),
    _reference("regoper", 2208, 2203),
    _reference("regoperator", 2209, 2204),
    _reference("regrole", 4097, 4096),
    _reference("regnamespace", 4090, 4089),
    _reference("regconfig", 3735, 3734),
    _reference("regdictionary", 3770, 3769),
    _reference("regcollation", 4192, 4191),
    text_type("refcursor", 2201, 1790),
    _reference("aclitem", 1034, 1033),
    text_type("int2vector", 1006, 22),
    text_type("oidvector", 1013, 30),
    text_type("jsonpath", 4073, 4072),
    text_type("txid_snapshot", 2949, 2970),
    text_type("pg_snapshot", 5039, 5038),
)  # fmt: skip


def enum_type(labels: Iterable[str]) -> SqlType:
    """Return an enum: a string, and its labels in the schema."""
    avro = semantic("string", ENUM.key, allowed=",".join(labels))
    return SqlType("enum", (), ENUM, always(avro), _same, 0, "text")
