"""DDL as the plugins print it.

GaussDB (manual, "Logical Decoding of DDL"): `{"TDDL":"<sql>"}` or `{"JDDL":{…}}`.
openGauss 6 and later: a line `prefix: deparse, …, content: <json>`, and the
statement behind `decode to:` on the next; the two "start" types have a literal for
content and no statement.  PostgreSQL's test_decoding prints messages written by
pg_logical_emit_message with the same word, `message:`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from producer.core.changes import Logical
from producer.errors import DecodeError
from producer.sources.gauss.decoders.json_rows import as_bytes
from producer.sources.gauss.decoders.messages import Ddl
from producer.sources.gauss.decoders.names import reader
from schemas.positions import Lsn

_TDDL, _JDDL = b'{"TDDL":', b'{"JDDL":'
_DEPARSED: Final = re.compile(
    rb"(?:prefix: deparse, lsn: \d{1,20}, relid |message: prefix deparse, relid )(\d{1,10}),"
    rb" cmdtype: ([A-Za-z ]{1,40}), (?:size|sz): \d{1,10},? content: (.*?)"
    rb"(?:\ndecode to ?: (.*), \[owner ([^\]]{1,130})\])?",
    re.DOTALL,
)
_EMITTED: Final = re.compile(rb"message: transactional: ([01]) prefix: ")
_SIZE: Final = re.compile(rb", sz: (\d{1,10}) content:")


def is_gauss_ddl(record: bytes) -> bool:
    """Say whether this is GaussDB's DDL."""
    return record.startswith((_TDDL, _JDDL))


def gauss_ddl(record: bytes, encoding: str) -> Ddl:
    """Decode GaussDB's DDL; a TDDL's content is the statement, a JDDL's its JSON.

    Raises DecodeError for any other object.
    """
    document = _parsed(record)
    if isinstance(document, dict) and len(document) == 1:
        ((form, content),) = document.items()
        if form == "TDDL" and isinstance(content, str):
            return Ddl(form, _text(content, encoding))
        if form == "JDDL" and isinstance(content, dict):
            return Ddl(form, _json(content, encoding))
    raise DecodeError("a DDL object that is neither TDDL nor JDDL", size=len(record))


def is_deparsed(record: bytes) -> bool:
    """Say whether this is openGauss' DDL."""
    return record.startswith((b"prefix: deparse,", b"message: prefix deparse,"))


def deparsed(record: bytes, encoding: str) -> Ddl:
    """Decode openGauss' DDL.

    `encoding`: of the database, by Python's name.  Raises DecodeError.
    """
    match = _DEPARSED.fullmatch(record)
    if match is None:
        raise DecodeError("an undecodable DDL message", size=len(record))
    relation, command, content, sql, owner = match.groups()
    is_document = content.startswith(b"{")
    if is_document == (sql is None):  # the two types that have no statement have a literal
        raise DecodeError("a DDL message without its statement", size=len(record))
    text = reader(encoding)
    return Ddl(
        "deparse",
        _json(_parsed(content), encoding) if is_document else text(content),
        None if sql is None else text(sql),
        command.decode("ascii"),
        int(relation),
        None if owner is None else text(owner),
    )


def is_emitted(record: bytes) -> bool:
    """Say whether this is a message written by pg_logical_emit_message."""
    return record.startswith(b"message: transactional: ")


def emitted(position: Lsn, record: bytes, encoding: str) -> Logical:
    """Decode such a message.  Its prefix may contain anything, so each size is tried.

    Raises DecodeError if none fits.
    """
    match = _EMITTED.match(record)
    if match is not None:
        for size in _SIZE.finditer(record, match.end()):
            if int(size[1]) == len(record) - size.end():
                prefix = record[match.end() : size.start()]
                return Logical(
                    match[1] == b"1",
                    position,
                    reader(encoding)(prefix) if prefix else "",
                    record[size.end() :],
                )
    raise DecodeError("a message with a wrong size", size=len(record))


def _text(string: str, encoding: str) -> str:
    raw = as_bytes(string)
    return reader(encoding)(raw) if raw else ""


def _parsed(record: bytes) -> Any:
    """Parse a document whose strings are bytes; numbers stay as they are written.

    A duplicate name is refused: it would be unclear which value counts.
    """
    try:
        return json.loads(
            record.decode("latin-1"),
            object_pairs_hook=_unique,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise DecodeError("not a JSON document", size=len(record)) from None


class _Number(NamedTuple):
    text: str


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DecodeError("a DDL document with a duplicate name")
    return found


def _no_constant(text: str) -> None:
    raise ValueError(text)  # NaN and Infinity are not JSON


def _json(document: Any, encoding: str) -> str:
    """Print a document of `_parsed` again, with its strings decoded."""
    try:
        return "".join(_printed(document, encoding))
    except RecursionError:
        raise DecodeError("a DDL document nested too deeply") from None


def _printed(value: Any, encoding: str) -> Iterator[str]:
    match value:
        case _Number(text):
            yield text
        case str():
            yield json.dumps(_text(value, encoding), ensure_ascii=False)
        case list():
            yield "["
            for number, element in enumerate(value):
                yield ", " * bool(number)
                yield from _printed(element, encoding)
            yield "]"
        case dict():
            yield "{"
            for number, (key, element) in enumerate(value.items()):
                yield ", " * bool(number)
                yield f"{json.dumps(_text(key, encoding), ensure_ascii=False)}: "
                yield from _printed(element, encoding)
            yield "}"
        case _:
            yield json.dumps(value)
