"""Style `b`: records of parallel decoding, all integers big endian.

A record is `u32 length | u64 lsn | letter | body` (manual, "binary format"); what
separates records is the stream's business (`parallel`).  Schema and table are raw
names, columns are quoted ones: so the server does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from gauss_cdc_lab.emulator.formats.literals import known
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.model import Field, Heartbeat, Mode, Op, Profile, Row, Transaction
from schemas.positions import Lsn

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(">IQc")
_BEGIN: Final = struct.Struct(">QQ")
_OID_LENGTH: Final = struct.Struct(">II")
_HEARTBEAT: Final = struct.Struct(">QQq")

_NULL: Final = 0xFFFF_FFFF
_LETTERS: Final = {Op.INSERT: b"I", Op.UPDATE: b"U", Op.DELETE: b"D"}
# The manual says that DDL comes in "bin", and not under which letter: this one is ours.
_DDL: Final = b"L"


def record(lsn: int, letter: bytes, body: bytes) -> bytes:
    """A record; its length counts what follows the length."""
    return _HEAD.pack(len(body) + 9, lsn, letter) + body


def heartbeat_content(beat: Heartbeat) -> bytes:
    """`h` and three numbers, in every style (manual, option enable-heartbeat)."""
    return b"h" + _HEARTBEAT.pack(beat.read, beat.flushed, beat.at)


class BinaryRecords:
    """Prints the records of style `b`."""

    def __init__(self, mode: Mode, profile: Profile, names: Names) -> None:
        self._mode, self._profile, self._names = mode, profile, names

    def begin(self, transaction: Transaction, first_lsn: Lsn) -> bytes:
        """`B`: CSN, first LSN, then blocks X, T, N, O as asked for and known to the product."""
        mode, profile = self._mode, self._profile
        body = _BEGIN.pack(transaction.csn, first_lsn)
        if mode.include_xids and profile.begin_xid:
            body += b"X" + _U64.pack(transaction.xid)
        if mode.include_timestamp:
            body += _block(b"T", transaction.committed_at)
        if mode.include_user and profile.begin_user:
            body += _block(b"N", transaction.user or "")
        if mode.include_originid and profile.origin:
            body += b"O" + _U32.pack(transaction.origin_id)
        return record(first_lsn, b"B", body)

    def commit(self, transaction: Transaction) -> bytes:
        """`C`: blocks X and T."""
        body = b""
        if self._mode.include_xids:
            body += b"X" + _U64.pack(transaction.xid)
        if self._mode.include_timestamp:
            body += _block(b"T", transaction.committed_at)
        return record(transaction.end_lsn, b"C", body)

    def row(self, row: Row) -> bytes:
        """`I`, `U`, `D`: new columns before old ones, either may be missing."""
        known(row)
        parts = [_name(self._names.raw(row.schema)), _name(self._names.raw(row.table))]
        if row.new is not None:
            parts.append(self._tuple(b"N", row.new))
        if row.old is not None:
            parts.append(self._tuple(b"O", row.old))
        return record(row.lsn, _LETTERS[row.op], b"".join(parts))

    def ddl(self, lsn: Lsn, payload: bytes) -> bytes:
        """A DDL record in a layout of our own; the manual gives none."""
        return record(lsn, _DDL, _U32.pack(len(payload)) + payload)

    def heartbeat(self, beat: Heartbeat) -> bytes:
        """A heartbeat as shipped clients read it: an ordinary record."""
        content = heartbeat_content(beat)
        return record(beat.read, content[:1], content[1:])

    def _tuple(self, kind: bytes, fields: Sequence[Field]) -> bytes:
        parts = [kind, _U16.pack(len(fields))]
        for field in fields:
            value = field.value
            parts.append(_name(self._names.quoted(field.name)))
            if value is None:
                parts.append(_OID_LENGTH.pack(field.type_oid, _NULL))
            else:
                assert isinstance(value, bytes)  # `known` looked
                parts += (_OID_LENGTH.pack(field.type_oid, len(value)), value)
        return b"".join(parts)


def _name(name: bytes) -> bytes:
    return _U16.pack(len(name)) + name


def _block(letter: bytes, text: str) -> bytes:
    content = text.encode()
    return letter + _U32.pack(len(content)) + content
