"""Serial decoding: one message each for BEGIN, row, COMMIT; BEGIN's header is its first LSN.

That header is 0 where BEGIN is written late (skip-empty-xacts).  COMMIT's header is
the end of its record.  mppdb_decoding and test_decoding print xids at both ends and
the CSN at COMMIT; sql_decoding prints the CSN at both and no xid.  test_decoding is
PostgreSQL's as well, which has no CSN, sends no unchanged TOAST values, and
prints messages of pg_logical_emit_message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from producer.errors import DecodeError
from producer.sources.gauss.decoders.ddl import (
    deparsed,
    emitted,
    gauss_ddl,
    is_deparsed,
    is_emitted,
    is_gauss_ddl,
)
from producer.sources.gauss.decoders.formats import Format
from producer.sources.gauss.decoders.json_rows import JsonRows
from producer.sources.gauss.decoders.messages import DecodedMessage, TxBegin, TxCommit
from producer.sources.gauss.decoders.scalars import number, stamp, unknown_line
from producer.sources.gauss.decoders.sql_rows import SqlRows
from producer.sources.gauss.decoders.tuples import DottedRows, emptied
from schemas.positions import Lsn, lsn_text

_BEGIN: Final = re.compile(rb"BEGIN(?: (\d{1,20}))?(?: ORIGIN_ID (\d{1,10}))?")
_COMMIT: Final = re.compile(
    rb"COMMIT(?: (\d{1,20}))?(?: \(at ([^()]{1,64})\))?(?: CSN (\d{1,20}))?"
)
_SQL_BEGIN: Final = re.compile(rb"BEGIN (\d{1,20})")
_SQL_COMMIT: Final = re.compile(rb"COMMIT \(at ([^()]{1,64})\) (\d{1,20})")


class _SerialRows(Protocol):
    def is_row(self, record: bytes) -> bool: ...
    def decode(self, record: bytes) -> DecodedMessage: ...


class SerialDecoder:
    """A decoder of rows, with what stands between them."""

    def __init__(
        self,
        rows: _SerialRows,
        between: Callable[[Lsn, bytes], DecodedMessage | None],
        statements: Callable[[bytes], Sequence[bytes]] | None = None,
    ) -> None:
        """`between` gives None for an unknown line; `statements` splits a payload of several."""
        self._rows, self._between, self._statements = rows, between, statements

    def split(self, start: Lsn, payload: bytes) -> list[tuple[Lsn, bytes]]:
        if self._statements is None:
            return [(start, payload)]
        return [(start, statement) for statement in self._statements(payload)]

    def walk(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        yield from self.split(start, payload)

    def is_row(self, record: bytes) -> bool:
        return self._rows.is_row(record)

    def decode(self, position: Lsn, record: bytes) -> DecodedMessage:
        """Decode one record, or raise DecodeError."""
        try:
            if self._rows.is_row(record):
                return self._rows.decode(record)
            if (found := self._between(position, record)) is None:
                raise unknown_line(record)
        except DecodeError as error:
            error.where.setdefault("position", lsn_text(position))
            raise
        return found


def mppdb(written: Format) -> SerialDecoder:
    """mppdb_decoding: rows as JSON."""

    def between(position: Lsn, record: bytes) -> DecodedMessage | None:
        found = _bounds(position, record) or _rare(record, written.encoding)
        return None if isinstance(found, TxCommit) and found.csn is None else found

    return SerialDecoder(JsonRows(written.encoding), between)


def test(written: Format) -> SerialDecoder:
    """test_decoding, openGauss' and PostgreSQL's: rows as `name[type]:literal`."""

    def between(position: Lsn, record: bytes) -> DecodedMessage | None:
        if is_emitted(record):
            return emitted(position, record, written.encoding)
        return _bounds(position, record) or _rare(record, written.encoding)

    return SerialDecoder(DottedRows(written.encoding), between)


def sql(written: Format) -> SerialDecoder:
    """sql_decoding: rows as statements; an UPDATE is its DELETE and its INSERT."""

    def between(position: Lsn, record: bytes) -> DecodedMessage | None:
        if (match := _SQL_BEGIN.fullmatch(record)) is not None:
            return TxBegin(csn=int(match[1]), first_lsn=position or None)
        if (match := _SQL_COMMIT.fullmatch(record)) is not None:
            return TxCommit(None, int(match[2]), stamp(match[1]), end_lsn=position)
        return _rare(record, written.encoding)

    rows = SqlRows(written.encoding)
    return SerialDecoder(rows, between, rows.split)


def _bounds(position: Lsn, record: bytes) -> TxBegin | TxCommit | None:
    """Decode BEGIN and COMMIT of mppdb_decoding and test_decoding."""
    if (match := _BEGIN.fullmatch(record)) is not None:
        xid, origin = number(match[1]), number(match[2])
        return TxBegin(xid, None, position or None, None, None, origin)
    if (match := _COMMIT.fullmatch(record)) is not None:
        return TxCommit(number(match[1]), number(match[3]), stamp(match[2]), end_lsn=position)
    return None


def _rare(record: bytes, encoding: str) -> DecodedMessage | None:
    """Decode TRUNCATE and DDL."""
    if record.startswith(b"table "):
        return emptied(record, encoding)
    if is_deparsed(record):
        return deparsed(record, encoding)
    if is_gauss_ddl(record):
        return gauss_ddl(record, encoding)
    return None
