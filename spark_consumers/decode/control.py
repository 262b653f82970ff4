"""Records of `<prefix>.cuts` and `<prefix>.ddl`, by their writer's schema.

A COMMITS record of a source of short transactions has thousands of entries.  Where the native
part was built their array is cut out, read into columns (`ReadEntries`), and the rest is read
like any record: 16 µs whatever their number, instead of 6 for each.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    NewerFormat,
    SchemaChange,
    change_from_avro,
    cut_from_avro,
    entry_from_avro,
)
from schemas.load import CUT, SCHEMA_CHANGE, avsc, check_bounded
from schemas.registry_client import UNREADABLE
from spark_consumers.decode import SchemaOf, split
from spark_consumers.model import ReadEntries
from spark_consumers.native import read_entries

_UNREADABLE: Final = (*UNREADABLE, SchemaParseException, SchemaResolutionError)
_MOST_WRITERS: Final = 64
_NOTHING: Final = b"\x00"  # an array without items

# id of a schema as it was given -> it, it as parsed, and the reader's where that is another.
_writers: dict[int, tuple[dict[str, Any], Any, Any]] = {}


def decode_control(value: bytes, schema_of: SchemaOf, *, native: bool = True) -> Cut | SchemaChange:
    """Read a framed value of `<prefix>.cuts` or `<prefix>.ddl`; raise ValueError for a foreign one.

    `native`: entries become columns where this process can.  Raises ValueError for an unknown
    record, and what `schema_of` raises where the registry does not answer.
    """
    schema_id, payload = split(value)
    writer = schema_of(schema_id)
    try:
        name = writer["name"].rpartition(".")[2]
        if name == avsc(CUT)["name"]:
            return _cut(payload, writer, native=native)
        if name == avsc(SCHEMA_CHANGE)["name"]:
            return change_from_avro(_resolved(payload, writer, SCHEMA_CHANGE))
    except NewerFormat:
        raise
    except _UNREADABLE as error:
        raise ValueError("bytes that do not follow their schema") from error
    raise ValueError(f"schema {schema_id} is {name}: neither a cut nor a schema change")


def decode_cut(value: bytes, schema_of: SchemaOf, *, native: bool = True) -> Cut:
    """Read a framed value of `<prefix>.cuts`; raise ValueError for a foreign one."""
    cut = decode_control(value, schema_of, native=native)
    if isinstance(cut, SchemaChange):
        raise ValueError("a schema change in the cuts topic")  # noqa: TRY004  of the bytes
    return cut


def _cut(payload: memoryview, writer: dict[str, Any], *, native: bool) -> Cut:
    if not native or writer != avsc(CUT):
        return cut_from_avro(_resolved(payload, writer, CUT))
    data = bytes(payload)
    found = read_entries(data)
    if found is None:
        return cut_from_avro(_resolved(payload, writer, CUT))
    start, end, first, last, columns = found
    rest = b"".join((data[:start], _NOTHING, data[end:]))
    cut = cut_from_avro(_resolved(memoryview(rest), writer, CUT))
    assert isinstance(cut, Commits)  # the native part reads no others
    return replace(cut, commits=ReadEntries(data[first:last], columns, _entries))


def _resolved(payload: memoryview, writer: dict[str, Any], name: str) -> Any:
    known = _writers.get(id(writer))
    if known is None or known[0] is not writer:
        check_bounded(writer)
        if len(_writers) >= _MOST_WRITERS:
            _writers.clear()
        reader = None if writer == avsc(name) else fastavro.parse_schema(avsc(name))
        known = _writers[id(writer)] = writer, fastavro.parse_schema(writer), reader
    stream = io.BytesIO(payload)
    record = fastavro.schemaless_reader(stream, *known[1:])
    if stream.read(1):
        raise ValueError("value does not fill its record")
    return record


def _entries(avro: bytes, count: int) -> Sequence[CommitEntry]:
    """Read entries that stand one behind the other."""
    stream = io.BytesIO(avro)
    item = _reader_of_entries()
    return tuple(
        entry_from_avro(fastavro.schemaless_reader(stream, item, None))  # type: ignore[arg-type]
        for _ in range(count)
    )


@cache
def _reader_of_entries() -> Any:
    field = next(field for field in avsc(CUT)["fields"] if field["name"] == "commits")
    return fastavro.parse_schema(field["type"][1]["items"])
