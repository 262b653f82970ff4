"""Reads PostgreSQL's pgoutput, protocol version 1 with messages (PostgreSQL manual, 55.9).

The emulator's own: the producer's decoder must not be its own judge.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from schemas.tables import UNCHANGED, Missing

Tuple: TypeAlias = list[bytes | Missing | None]


class Begin(NamedTuple):
    """Where the commit record begins; time in µs since 2000."""

    commit_lsn: int
    at: int
    xid: int


class Commit(NamedTuple):
    """Where the commit record begins and ends."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table: columns as (name, type OID)."""

    oid: int
    schema: str
    table: str
    columns: tuple[tuple[str, int], ...]


class RowMessage(NamedTuple):
    """A row: letter I, U or D."""

    letter: str
    relation: int
    old: Tuple | None
    new: Tuple | None


class TruncateMessage(NamedTuple):
    """Tables emptied."""

    relations: tuple[int, ...]
    cascade: bool
    restart: bool


class Logical(NamedTuple):
    """A message of pg_logical_emit_message."""

    lsn: int
    prefix: str
    content: bytes


Message: TypeAlias = Begin | Commit | Relation | RowMessage | TruncateMessage | Logical | None


def read(payload: bytes) -> Message:
    """One payload; None for what does not matter here (origins, types)."""
    letter = payload[:1]
    match letter:
        case b"B":
            return Begin(*struct.unpack_from("!QqI", payload, 1))
        case b"C":
            _, start, end, _ = struct.unpack_from("!BQQq", payload, 1)
            return Commit(start, end)
        case b"R":
            return _relation(payload)
        case b"I" | b"U" | b"D":
            return _change(payload)
        case b"T":
            count, options = struct.unpack_from("!iB", payload, 1)
            oids = struct.unpack_from(f"!{count}I", payload, 6)
            return TruncateMessage(oids, bool(options & 1), bool(options & 2))
        case b"M":
            _, lsn = struct.unpack_from("!BQ", payload, 1)
            end = payload.index(b"\0", 10)
            return Logical(lsn, payload[10:end].decode(), payload[end + 5 :])
        case b"O" | b"Y":
            return None
    raise ValueError(f"pgoutput's letter {letter!r} is unknown")


def _relation(payload: bytes) -> Relation:
    (oid,) = struct.unpack_from("!I", payload, 1)
    schema, at = _string(payload, 5)
    table, at = _string(payload, at)
    (count,) = struct.unpack_from("!xH", payload, at)
    at += 3
    columns = []
    for _ in range(count):
        name, at = _string(payload, at + 1)
        (type_oid,) = struct.unpack_from("!I", payload, at)
        at += 8
        columns.append((name, type_oid))
    return Relation(oid, schema or "pg_catalog", table, tuple(columns))


def _change(payload: bytes) -> RowMessage:
    (oid,) = struct.unpack_from("!I", payload, 1)
    at, old, new = 5, None, None
    while at < len(payload):
        kind = payload[at : at + 1]
        values, at = _tuple(payload, at + 1)
        if kind == b"N":
            new = values
        else:
            old = values
    return RowMessage(chr(payload[0]), oid, old, new)


def _tuple(payload: bytes, at: int) -> tuple[Tuple, int]:
    (count,) = struct.unpack_from("!H", payload, at)
    at += 2
    values: Tuple = []
    for _ in range(count):
        kind = payload[at : at + 1]
        at += 1
        if kind == b"n":
            values.append(None)
        elif kind == b"u":
            values.append(UNCHANGED)
        else:
            (length,) = struct.unpack_from("!I", payload, at)
            at += 4
            values.append(payload[at : at + length])
            at += length
    return values, at


def _string(payload: bytes, at: int) -> tuple[str, int]:
    end = payload.index(b"\0", at)
    return payload[at:end].decode("utf-8", "surrogateescape"), end + 1
