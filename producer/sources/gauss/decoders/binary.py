"""Decode-style b: `u32 length | u64 lsn | letter | body`, then P or F; big-endian.

F ends the message, and so does a length of 0.  Letters: B, C, I, U, D, and GaussDB's
heartbeat h.  Parts of B and C are identified by their letter and accepted in any order, as
the products differ: X xid (openGauss 6), T time, N user (GaussDB), O origin.  The letter of
GaussDB's DDL is not documented; it is identified by its content.
Source: GaussDB manual, "Logical Decoding Options"; openGauss, checked byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from producer.core.changes import Cells
from producer.errors import DecodeError
from producer.sources.gauss.decoders.ddl import gauss_ddl, is_gauss_ddl
from producer.sources.gauss.decoders.formats import Format
from producer.sources.gauss.decoders.messages import (
    Ddl,
    DecodedMessage,
    NamedChange,
    NamedRow,
    RowShape,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.decoders.names import Cache, reader, row_shape, unquote
from producer.sources.gauss.decoders.scalars import SEND_US_A_RECORDING, heartbeat, shown, stamp
from schemas.positions import Lsn, lsn_text

_U16: Final = struct.Struct(">H").unpack_from
_U32: Final = struct.Struct(">I").unpack_from
_U64: Final = struct.Struct(">Q").unpack_from
_BEGIN: Final = struct.Struct(">QQ").unpack_from

_B, _C, _I, _U, _D, _H, _N, _O, _F = b"BCIUDhNOF"
_ENDINGS: Final = b"PF"
_LETTER: Final = 8  # where the letter stands, behind the LSN
_DDL_AT: Final = _LETTER + 5  # where a text begins, behind its length
_NULL: Final = 0xFFFF_FFFF
_FIXED: Final = {"X": 8, "O": 4}  # parts of B and C without a length of their own
_KNOWN: Final = frozenset(b"BCIUDhPF")
_OPS: Final = {_I: "c", _U: "u", _D: "d"}


class Binary:
    """Decoder of style b, sent one by one or in batches: the framing is the same."""

    def __init__(self, written: Format) -> None:
        self._encoding = written.encoding
        self._text = reader(written.encoding)
        self._tables = Cache(self._table)
        self._shapes = Cache(self._shape)

    def split(self, start: Lsn, payload: bytes) -> list[tuple[Lsn, bytes]]:
        """Split a message into records: LSN, letter, body.  Raises DecodeError."""
        return list(self.walk(start, payload))

    def walk(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        """Yield the records one by one."""
        pos, size = 0, len(payload)
        try:
            while True:
                if payload[pos] == _H:
                    # The manual can be read so that a heartbeat has no length.  No record
                    # is as long as a length beginning with this byte would say.
                    end = pos + 25
                    record = start.to_bytes(8, "big") + payload[pos:end]
                else:
                    (length,) = _U32(payload, pos)
                    if not length:
                        pos += 4
                        break
                    end = pos + 4 + length
                    record = payload[pos + 4 : end]
                    if length <= _LETTER:
                        raise DecodeError("record without a letter", at=pos, length=length)
                closing = payload[end]  # fails if the record is truncated
                if closing not in _ENDINGS:
                    raise DecodeError(
                        "record with an unknown ending", letter=shown(closing), at=end
                    )
                yield _U64(record, 0)[0], record
                pos = end + 1
                if closing == _F:
                    if payload[pos:] == b"\0\0\0\0":  # both endings, as the manual may be read
                        pos += 4
                    break
        except (IndexError, struct.error):
            raise DecodeError(
                "message ends within a record", position=lsn_text(start), at=pos, size=size
            ) from None
        if pos != size:
            raise DecodeError("bytes after the end of a message", at=pos, size=size)

    def is_row(self, record: bytes) -> bool:
        return record[_LETTER] in _OPS

    def decode(self, position: Lsn, record: bytes) -> DecodedMessage:
        """Decode one record; DecodeError for anything that is not exactly one."""
        try:
            letter = record[_LETTER]
            if letter in _OPS:
                return self._row(letter, record)
            if letter == _B:
                return self._begin(record)
            if letter == _C:
                parts = _parts(record, 9, "XT")
                (end_lsn,) = _U64(record, 0)
                return TxCommit(_xid(parts), None, stamp(parts.get("T")), end_lsn=Lsn(end_lsn))
            if letter == _H:
                return heartbeat(record[_LETTER:])
            if letter not in _KNOWN and is_gauss_ddl(record[_DDL_AT:]):
                return self._ddl(record)
        except (IndexError, struct.error):
            raise DecodeError(
                "record ends early", position=lsn_text(position), size=len(record)
            ) from None
        except DecodeError as error:
            error.where.setdefault("position", lsn_text(position))
            raise
        raise DecodeError(
            "a record of an unknown kind",
            hint=SEND_US_A_RECORDING,
            letter=shown(letter),
            position=lsn_text(position),
            size=len(record),
        )

    def _ddl(self, record: bytes) -> Ddl:
        """Read DDL, which is identified by its content.

        The manual says that it is sent in style b, too, but neither its letter nor its layout:
        a text with its length before it, as elsewhere in this style, is an assumption (unproven).
        """
        (size,) = _U32(record, _DDL_AT - 4)
        if _DDL_AT + size != len(record):
            raise DecodeError("a DDL record with a wrong length", size=len(record))
        return gauss_ddl(record[_DDL_AT:], self._encoding)

    def _begin(self, record: bytes) -> TxBegin:
        csn, first_lsn = _BEGIN(record, 9)
        parts = _parts(record, 25, "XTNO")
        user, origin = parts.get("N"), parts.get("O")
        return TxBegin(
            xid=_xid(parts),
            csn=csn,
            first_lsn=Lsn(first_lsn),
            committed_at=stamp(parts.get("T")),
            user=None if user is None else self._text(user),
            origin_id=None if origin is None else int.from_bytes(origin, "big"),
        )

    def _row(self, letter: int, record: bytes) -> NamedChange:
        size = len(record)
        pos = 11 + _U16(record, 9)[0]
        pos += 2 + _U16(record, pos)[0]
        if pos > size:
            raise DecodeError("record ends within a name", size=size)
        schema, table = self._tables[record[9:pos]]
        new = old = None
        # The new row stands first; each may be missing.
        if pos < size and record[pos] == _N and letter != _D:
            new, pos = self._tuple(record, pos + 1)
        if pos < size and record[pos] == _O and letter != _I:
            old, pos = self._tuple(record, pos + 1)
        if pos != size:
            raise DecodeError("bytes outside of rows", at=pos, size=size)
        # A row without columns (of an older layout) is treated as one that was not sent.
        if new is not None and not new.cells:
            new = None
        if old is not None and not old.cells:
            old = None
        return NamedChange(_OPS[letter], schema, table, new, old)

    def _tuple(self, record: bytes, pos: int) -> tuple[NamedRow, int]:
        """Read a row; return it and its end.  Hot: one loop, nothing called but `struct`.

        `pos` never goes back, so the next read or the check after the loop detects a
        length that exceeds the record.
        """
        (count,) = _U16(record, pos)
        pos += 2
        heads: list[bytes] = []
        cells: Cells = []
        add_head, add_cell, u16, u32 = heads.append, cells.append, _U16, _U32
        for _ in range(count):
            start = pos + 2
            pos = start + u16(record, pos)[0] + 4
            add_head(record[start:pos])  # name and type's OID
            (size,) = u32(record, pos)
            pos += 4
            if size == _NULL:
                add_cell(None)
            else:
                start, pos = pos, pos + size
                add_cell(record[start:pos])
        if pos > len(record):
            raise DecodeError("row ends within a value", size=len(record))
        return NamedRow(self._shapes[tuple(heads)], cells), pos

    def _table(self, raw: bytes) -> tuple[str, str]:
        """Read schema and table: raw names, each behind its length."""
        middle = 2 + _U16(raw, 0)[0]
        return self._text(raw[2:middle]), self._text(raw[middle + 2 :])

    def _shape(self, heads: tuple[bytes, ...]) -> RowShape:
        # Column names, other than those of tables, went through quote_identifier.
        names = tuple(self._text(unquote(head[:-4])) for head in heads)
        oids = tuple(int.from_bytes(head[-4:], "big") for head in heads)
        return row_shape(names, oids, ("",) * len(heads))


def pieces(record: bytes) -> list[bytes]:
    """Return what stands around the cells of a row, from its letter on.

    A cell is its length and its bytes.
    """
    out, start = [], _LETTER
    pos = 11 + _U16(record, 9)[0]
    pos += 2 + _U16(record, pos)[0]
    while pos < len(record):
        (count,) = _U16(record, pos + 1)
        pos += 3
        for _ in range(count):
            pos += 6 + _U16(record, pos)[0]
            out.append(record[start:pos])
            (size,) = _U32(record, pos)
            start = pos = pos + 4 + (0 if size == _NULL else size)
    return [*out, record[start:]]


def _parts(record: bytes, pos: int, known: str) -> dict[str, bytes]:
    """Read the optional parts of BEGIN or COMMIT, by letter."""
    parts: dict[str, bytes] = {}
    while pos < len(record):
        letter = chr(record[pos])
        if letter not in known:
            raise DecodeError(
                "BEGIN or COMMIT with an unknown part",
                hint=SEND_US_A_RECORDING,
                letter=shown(record[pos]),
                at=pos,
            )
        if letter in parts:
            raise DecodeError("BEGIN or COMMIT with a duplicate part", letter=letter, at=pos)
        pos += 1
        size = _FIXED.get(letter)
        if size is None:
            (size,) = _U32(record, pos)
            pos += 4
        parts[letter] = record[pos : pos + size]
        pos += size
    if pos != len(record):
        raise DecodeError("record ends early", at=pos, size=len(record))
    return parts


def _xid(parts: dict[str, bytes]) -> int | None:
    raw = parts.get("X")
    return None if raw is None else int.from_bytes(raw, "big")
