"""Messages as pgoutput's bytes: what a server would send; `pgoutput.decode` backwards."""

from __future__ import annotations

import struct
from typing import assert_never

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
    Truncate,
    TypeMessage,
    Undecoded,
    Update,
)
from schemas.tables import UNCHANGED


def payload(message: Message) -> bytes:
    """The bytes of one message."""
    match message:
        case Begin(commit_lsn, committed_at, xid):
            return struct.pack(">cQqI", b"B", commit_lsn, committed_at, xid)
        case Commit(commit_lsn, end_lsn, committed_at):
            return struct.pack(">cBQQq", b"C", 0, commit_lsn, end_lsn, committed_at)
        case Insert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + _tuple(new)
        case Update(relation, old_kind, old, new):
            before = b"" if old is None else old_kind.encode() + _tuple(old)
            return b"U" + struct.pack(">I", relation) + before + b"N" + _tuple(new)
        case Delete(relation, old_kind, old):
            return b"D" + struct.pack(">I", relation) + old_kind.encode() + _tuple(old)
        case Relation():
            return _relation(message)
        case Truncate(relations, cascade, restart_identity):
            flags = cascade | restart_identity << 1
            oids = struct.pack(f">{len(relations)}I", *relations)
            return struct.pack(">cIB", b"T", len(relations), flags) + oids
        case TypeMessage(type_oid, schema, name):
            return struct.pack(">cI", b"Y", type_oid) + _schema(schema) + _text(name)
        case Logical(transactional, lsn, prefix, content):
            head = struct.pack(">c?Q", b"M", transactional, lsn)
            return head + _text(prefix) + struct.pack(">I", len(content)) + content
        case OriginMessage(lsn, name):
            return struct.pack(">cQ", b"O", lsn) + _text(name)
        case Undecoded(known):
            return known
        case _:
            raise TypeError(f"no message of pgoutput: {message}")


def _relation(message: Relation) -> bytes:
    columns = [
        struct.pack(">?", column.identity)
        + _text(column.name)
        + struct.pack(">Ii", column.type_oid, column.type_mod)
        for column in message.columns
    ]
    return (
        struct.pack(">cI", b"R", message.relation)
        + _schema(message.schema)
        + _text(message.table)
        + message.replica_identity.value.encode()
        + struct.pack(">H", len(columns))
        + b"".join(columns)
    )


def _tuple(cells: Cells) -> bytes:
    parts = [struct.pack(">H", len(cells))]
    for cell in cells:
        if cell is None:
            parts.append(b"n")
        elif cell is UNCHANGED:
            parts.append(b"u")
        elif isinstance(cell, bytes):
            parts += (b"t", struct.pack(">I", len(cell)), cell)
        else:
            assert_never(cell)
    return b"".join(parts)


def _schema(name: str) -> bytes:
    return _text("" if name == "pg_catalog" else name)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
