"""pgoutput, protocol version 1: one payload in, one message out.

Format: PostgreSQL manual, chapter "Logical Replication Message Formats".
The decoder never queries the server: the stream describes a relation, at the
position where the description is true.  Streaming of open transactions, two-phase
commit and binary values are never requested, so their messages are unknown here,
and an unknown message is an error.
"""

from __future__ import annotations

import struct
from typing import Final

from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Logical,
    Message,
    OriginMessage,
    Relation,
    RelationColumn,
    Truncate,
    TypeMessage,
    Update,
)
from producer.errors import DecodeError
from producer.wire.cursor import Cursor
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, ReplicaIdentity

_U16: Final = struct.Struct(">H").unpack_from
_U32: Final = struct.Struct(">I").unpack_from
_BEGIN: Final = struct.Struct(">xQqI")
_COMMIT: Final = struct.Struct(">xBQQq")

_I, _U, _D, _B, _C = b"IUDBC"
_N, _K, _O = b"NKO"
_TEXT, _NULL, _UNCHANGED = b"tnu"


def decode(payload: bytes) -> Message:
    """Decode one message, or raise DecodeError."""
    try:
        # By frequency.  A payload may end anywhere: reading past its end is an
        # IndexError or a struct.error, which costs nothing until it happens.
        tag = payload[0]
        if tag == _I:
            return _insert(payload)
        if tag == _U:
            return _update(payload)
        if tag == _D:
            return _delete(payload)
        if tag == _B:
            lsn, committed_at, xid = _BEGIN.unpack(payload)
            return Begin(Lsn(lsn), committed_at, xid)
        if tag == _C:
            return _commit(payload)
    except (IndexError, struct.error):
        raise DecodeError("pgoutput message of a wrong size", size=len(payload)) from None
    return _rare(payload)


def _insert(payload: bytes) -> Insert:
    (relation,) = _U32(payload, 1)
    if payload[5] != _N:
        raise DecodeError("insert without a new row", kind=payload[5])
    new, pos = _cells(payload, 6)
    _filled(payload, pos)
    return Insert(relation, new)


def _update(payload: bytes) -> Update:
    (relation,) = _U32(payload, 1)
    kind, pos = payload[5], 6
    old_kind, old = "", None
    if kind in (_K, _O):
        old_kind = chr(kind)
        old, pos = _cells(payload, pos)
        kind, pos = payload[pos], pos + 1
    if kind != _N:
        raise DecodeError("update without a new row", kind=kind)
    new, pos = _cells(payload, pos)
    _filled(payload, pos)
    return Update(relation, old_kind, old, new)


def _delete(payload: bytes) -> Delete:
    (relation,) = _U32(payload, 1)
    kind = payload[5]
    if kind not in (_K, _O):
        raise DecodeError("delete without an old row", kind=kind)
    old, pos = _cells(payload, 6)
    _filled(payload, pos)
    return Delete(relation, chr(kind), old)


def _cells(data: bytes, pos: int) -> tuple[Cells, int]:
    """Read the tuple at `pos`; return it and its end.  Hot: keep it one loop.

    `pos` never goes back, so the next read or `_filled` detects a length that exceeds
    the frame; the truncated slice is discarded.
    """
    (count,) = _U16(data, pos)
    pos += 2
    cells: Cells = []
    append, size_at = cells.append, _U32
    for _ in range(count):
        kind = data[pos]
        if kind == _TEXT:
            start = pos + 5
            pos = start + size_at(data, pos + 1)[0]
            append(data[start:pos])
        elif kind == _NULL:
            append(None)
            pos += 1
        elif kind == _UNCHANGED:
            append(UNCHANGED)
            pos += 1
        else:
            raise DecodeError("cell of an unrequested kind", kind=kind, at=pos)
    return cells, pos


def _filled(data: bytes, pos: int) -> None:
    if pos != len(data):
        raise DecodeError("tuple does not fill its frame", at=pos, size=len(data))


def _commit(payload: bytes) -> Commit:
    flags, commit_lsn, end_lsn, committed_at = _COMMIT.unpack(payload)
    if flags:
        raise DecodeError("commit with unknown flags", flags=flags)
    return Commit(Lsn(commit_lsn), Lsn(end_lsn), committed_at)


def _rare(payload: bytes) -> Message:
    """Decode messages that come once per table or statement."""
    cur = Cursor(payload)
    message: Message
    match chr(cur.u8()):
        case "R":
            message = _relation(cur)
        case "Y":
            message = TypeMessage(cur.u32(), _schema(cur), cur.cstr())
        case "T":
            message = _truncate(cur)
        case "M":
            message = _logical(cur)
        case "O":
            message = OriginMessage(cur.lsn(), cur.cstr())
        case tag:
            raise DecodeError("unknown pgoutput message", tag=tag)
    cur.finish()
    return message


def _relation(cur: Cursor) -> Relation:
    relation, schema, table, letter = cur.u32(), _schema(cur), cur.cstr(), chr(cur.u8())
    try:
        identity = ReplicaIdentity(letter)
    except ValueError:
        raise DecodeError("unknown replica identity", letter=letter) from None
    columns = []
    for _ in range(cur.u16()):
        flags = cur.u8()
        if flags > 1:
            raise DecodeError("column with unknown flags", flags=flags)
        columns.append(RelationColumn(cur.cstr(), cur.u32(), cur.i32(), identity=bool(flags)))
    return Relation(relation, schema, table, identity, tuple(columns))


def _schema(cur: Cursor) -> str:
    # The server writes an empty name for its own schema, to save bytes.
    return cur.cstr() or "pg_catalog"


def _truncate(cur: Cursor) -> Truncate:
    count, flags = cur.u32(), cur.u8()
    if flags > 3:  # CASCADE and RESTART IDENTITY
        raise DecodeError("truncate with unknown flags", flags=flags)
    relations = cur.take(4 * count)
    return Truncate(
        tuple(oid for (oid,) in struct.iter_unpack(">I", relations)),
        cascade=bool(flags & 1),
        restart_identity=bool(flags & 2),
    )


def _logical(cur: Cursor) -> Logical:
    flags = cur.u8()
    if flags > 1:
        raise DecodeError("logical message with unknown flags", flags=flags)
    lsn, prefix = cur.lsn(), cur.cstr()
    return Logical(bool(flags), lsn, prefix, cur.take(cur.u32()))
