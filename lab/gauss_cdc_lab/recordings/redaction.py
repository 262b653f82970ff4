"""Recorded messages with other values: their structure does not change.

A message is decoded first; only what our decoders accept is parsed, so that its
values, and nothing else, are replaced.  What they do not accept is blanked.
Positions, transaction ids, times and lengths stay; names do unless asked for.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from gauss_cdc_lab.recordings.masks import MaskKind, Masks
from producer.core.changes import Relation
from producer.errors import DecodeError
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.ddl import is_deparsed, is_emitted, is_gauss_ddl
from producer.sources.gauss.decoders.names import NAME, QUALIFIED
from producer.sources.gauss.decoders.sql_rows import DELETE, INSERT, PREDICATE, VALUE, SqlRows
from producer.sources.gauss.decoders.tuples import COLUMN, DOTTED, SPACED
from producer.sources.postgres import pgoutput
from schemas.positions import Lsn

Span: TypeAlias = tuple[int, int, bytes]

_U16: Final = struct.Struct(">H").unpack_from
_U32: Final = struct.Struct(">I").unpack_from
_NULL: Final = 0xFFFF_FFFF
_DDL_AT: Final = 13  # in a record of style b: behind LSN, letter and length
_BOOL, _BITS = 16, (1560, 1562)  # OIDs
_NAME: Final = re.compile(NAME)
_TAG: Final = re.compile(rb" (?:old-key|new-tuple):| \(no-tuple-data\)")
# A string in SQL, which may itself stand in JSON, where it ends at an escaped quote, too.
_STRING: Final = re.compile(rb"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_DOLLARS: Final = re.compile(rb"\$([A-Z_]*)\$(.*?)\$\1\$", re.DOTALL)
# In documents a literal stands in `value`, an enum's in `values`, without SQL's quotes.
_VALUE: Final = re.compile(rb'("value": ?")((?:[^"\\]|\\.)*+)(")', re.DOTALL)
_LABELS: Final = re.compile(rb'"values": ?\[[^\[\]]*\]')
_LABEL: Final = re.compile(rb'([\[,] ?")((?:[^"\\]|\\.)*+)(")', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
_VALUES: Final = ("columns_val", "old_keys_val")
_NAMES: Final = ("columns_name", "old_keys_name")


class Redaction:
    """Replaces the values in the messages of one stream."""

    def __init__(
        self, written: Format, *, names: bool = False, secret: bytes | None = None
    ) -> None:
        self._written, self._with_names = written, names
        self._is_pgoutput = written.plugin == "pgoutput"
        self._masks = Masks("utf-8" if self._is_pgoutput else written.encoding, secret)
        make = NAMING.get((written.plugin, written.style))
        self._decoder = None if make is None else make(written)
        self._oids: dict[int, tuple[int, ...]] = {}  # of pgoutput's relations
        self.blanked = 0  # messages that could not be parsed

    def payload(self, start: Lsn, payload: bytes) -> bytes:
        """Return the message with other values, of the same length."""
        try:
            redact = self._pgoutput if self._is_pgoutput else self._named
            redacted = redact(start, payload)
        except DecodeError:
            self.blanked += 1
            return bytes(len(payload))
        assert len(redacted) == len(payload)
        return redacted

    def _named(self, start: Lsn, payload: bytes) -> bytes:
        if self._decoder is None:
            raise DecodeError("an unknown output plugin")
        for position, record in self._decoder.split(start, payload):
            self._decoder.decode(position, record)
        if self._written.style == "b" or self._written.plugin == "parallel_binary_decoding":
            return self._binary(payload)
        if not self._written.batch or payload[:1] == b"h":
            return self._line(payload)
        out, pos = [], 0
        while length := _U32(payload, pos)[0]:
            end = pos + 4 + length
            out += [payload[pos : pos + 12], self._line(payload[pos + 12 : end])]
            pos = end
        return b"".join([*out, payload[pos:]])

    # ---- lines of text

    def _line(self, line: bytes) -> bytes:
        if line.startswith(b'{"table_name":'):
            return self._json(line)
        if line.startswith((b"insert into ", b"delete from ")):
            return b"".join(map(self._statement, SqlRows.split(line)))
        if line.startswith(b"table "):
            return self._table_line(line)
        if is_emitted(line):
            at = line.index(b" content:") + 9
            return line[:at] + self._masks.value(line[at:])
        if is_gauss_ddl(line) or is_deparsed(line):
            return self._ddl(line)
        return line  # BEGIN, COMMIT, heartbeats: no values

    def _json(self, line: bytes) -> bytes:
        row = json.loads(line.decode("latin-1"))

        def changed(words: list[str], change: Callable[[bytes], bytes]) -> list[str]:
            return [change(word.encode("latin-1")).decode("latin-1") for word in words]

        for part in _VALUES:
            row[part] = changed(row[part], self._literal)
        if self._with_names:
            for part in _NAMES:
                row[part] = changed(row[part], self._quoted)
            (row["table_name"],) = changed([row["table_name"]], self._qualified)
        redacted = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("latin-1")
        if len(redacted) != len(line):
            raise DecodeError("JSON that is not written as the server does", size=len(line))
        return redacted

    def _table_line(self, line: bytes) -> bytes:
        is_spaced = self._written.style == "t" or self._written.plugin == "parallel_text_decoding"
        if is_spaced:
            for match in SPACED.finditer(line):
                found = self._columns(line, match.end())
                if found is not None:
                    pieces = line[6 : match.start()].split(b" ")
                    name = b" ".join(self._name(piece) if piece else piece for piece in pieces)
                    return _put(line, [(6, match.start(), name), *found])
            raise DecodeError("an undecodable row", size=len(line))
        row = DOTTED.match(line)
        if row is None:  # TRUNCATE
            tables = QUALIFIED.finditer(line, 6, line.rindex(b": TRUNCATE:"))
            return _put(line, ((*table.span(), self._qualified(table[0])) for table in tables))
        found = self._columns(line, row.end())
        if found is None:
            raise DecodeError("an undecodable row", size=len(line))
        return _put(line, [(*row.span(1), self._qualified(row[1])), *found])

    def _columns(self, line: bytes, pos: int) -> list[Span] | None:
        spans: list[Span] = []
        while pos < len(line):
            if (match := COLUMN.match(line, pos)) is not None:
                name = _NAME.match(line, match.start(1))
                assert name is not None
                spans.append((*name.span(), self._quoted(name[0])))
                spans.append(self._group(match, 2))
            elif (match := _TAG.match(line, pos)) is None:
                return None
            pos = match.end()
        return spans

    def _statement(self, line: bytes) -> bytes:
        match = INSERT.match(line) or DELETE.match(line)
        if match is None:
            raise DecodeError("an undecodable statement", size=len(line))
        spans: list[Span] = [(*match.span(1), self._qualified(match[1]))]
        is_insert = line.startswith(b"insert")
        pos = match.end()
        while (match := (VALUE if is_insert else PREDICATE).match(line, pos)) is not None:
            if not is_insert:
                spans.append((*match.span(1), self._quoted(match[1])))
            spans.append(self._group(match, 1 if is_insert else 2))
            pos = match.end()
        return _put(line, spans)

    def _ddl(self, line: bytes) -> bytes:
        """Replace strings in the statement; with names, every word of it."""
        if self._with_names:
            head = line.find(b"content: ") + 9 if is_deparsed(line) else 8
            # JSON's own words stay: escapes, keys that openGauss' sentences are made by.
            return line[:head] + self._words(line[head:])
        line = _STRING.sub(lambda m: b"'" + self._words(m[1]) + b"'", line)
        line = _DOLLARS.sub(self._middle, line)
        line = _VALUE.sub(self._middle, line)
        return _LABELS.sub(lambda m: _LABEL.sub(self._middle, m[0]), line)

    def _middle(self, match: re.Match[bytes]) -> bytes:
        """Replace the second group, which one other surrounds or two."""
        start = match.start()
        return (
            match[0][: match.start(2) - start]
            + self._words(match[2])
            + match[0][match.end(2) - start :]
        )

    def _words(self, text: bytes) -> bytes:
        out, pos = b"", 0
        for match in _ESCAPE.finditer(text):
            out += self._masks.value(text[pos : match.start()], MaskKind.NAME) + match[0]
            pos = match.end()
        return out + self._masks.value(text[pos:], MaskKind.NAME)

    # ---- values and names

    def _literal(self, raw: bytes) -> bytes:
        if raw[:1] == b"'":
            return b"'" + self._inner(raw[1:-1]) + b"'"
        if raw[:2] == b"B'":
            return b"B'" + self._masks.value(raw[2:-1], MaskKind.BITS) + b"'"
        return self._bare(raw)

    def _group(self, match: re.Match[bytes], quoted: int) -> Span:
        """Replace the value of a match of LITERAL whose first group is number `quoted`."""
        group = match.lastindex or quoted
        raw = match[group]
        if group == quoted:
            value = self._inner(raw)
        elif group == quoted + 1:
            value = self._masks.value(raw, MaskKind.BITS)
        else:
            value = self._bare(raw)
        return (*match.span(group), value)

    def _inner(self, raw: bytes) -> bytes:
        return self._masks.value(raw.replace(b"''", b"'")).replace(b"'", b"''")

    def _bare(self, raw: bytes) -> bytes:
        """Replace a number; words (null, true, unchanged-toast-datum) have no digits."""
        return self._masks.value(raw) if any(byte in b"0123456789" for byte in raw) else raw

    def _name(self, raw: bytes) -> bytes:
        return self._masks.value(raw, MaskKind.NAME) if self._with_names else raw

    def _quoted(self, raw: bytes) -> bytes:
        if raw[:1] != b'"':
            return self._name(raw)
        return b'"' + self._name(raw[1:-1].replace(b'""', b'"')).replace(b'"', b'""') + b'"'

    def _qualified(self, raw: bytes) -> bytes:
        match = QUALIFIED.fullmatch(raw)
        assert match is not None  # it was decoded
        return self._quoted(match[1]) + b"." + self._quoted(match[2])

    def _cell(self, raw: bytes, oid: int) -> bytes:
        kind = MaskKind.BOOL if oid == _BOOL else MaskKind.BITS if oid in _BITS else MaskKind.TEXT
        return self._masks.value(raw, kind)

    # ---- style b

    def _binary(self, payload: bytes) -> bytes:
        out, pos = [], 0
        while pos < len(payload):
            if payload[pos : pos + 1] == b"h":  # a heartbeat without length, rows may follow
                out.append(payload[pos : pos + 26])
                pos += 26
                continue
            if not (length := _U32(payload, pos)[0]):
                out.append(payload[pos:])
                break
            end = pos + 4 + length
            record = payload[pos + 4 : end]
            letter = record[8:9]
            if letter in {b"I", b"U", b"D"}:
                record = _put(record, self._binary_row(record))
            elif letter == b"B":
                record = _put(record, self._user(record) if self._with_names else ())
            elif is_gauss_ddl(record[_DDL_AT:]):
                record = record[:_DDL_AT] + self._ddl(record[_DDL_AT:])
            out += [payload[pos : pos + 4], record, payload[end : end + 1]]
            pos = end + 1
        return b"".join(out)

    def _binary_row(self, record: bytes) -> Iterable[Span]:
        pos = 9
        for _ in range(2):
            end = pos + 2 + _U16(record, pos)[0]
            yield pos + 2, end, self._name(record[pos + 2 : end])
            pos = end
        while pos < len(record):
            columns = _U16(record, pos + 1)[0]
            pos += 3
            for _ in range(columns):
                end = pos + 2 + _U16(record, pos)[0]
                yield pos + 2, end, self._quoted(record[pos + 2 : end])
                oid, size = _U32(record, end)[0], _U32(record, end + 4)[0]
                pos = end + 8
                if size != _NULL:
                    yield pos, pos + size, self._cell(record[pos : pos + size], oid)
                    pos += size

    def _user(self, record: bytes) -> Iterable[Span]:
        pos = 25
        while pos < len(record):
            letter = record[pos : pos + 1]
            fixed = {b"X": 8, b"O": 4}.get(letter)
            start = pos + 1 if fixed else pos + 5
            pos = start + (fixed or _U32(record, pos + 1)[0])
            if letter == b"N":
                yield start, pos, self._name(record[start:pos])

    # ---- pgoutput

    def _pgoutput(self, _start: Lsn, payload: bytes) -> bytes:
        message = pgoutput.decode(payload)
        if isinstance(message, Relation):
            self._oids[message.relation] = tuple(c.type_oid for c in message.columns)
        match payload[:1]:
            case b"I" | b"U" | b"D":
                return _put(payload, self._pgoutput_row(payload))
            case b"M":
                start = payload.index(b"\0", 10) + 5
                return payload[:start] + self._masks.value(payload[start:])
            case b"R" if self._with_names:
                return _put(payload, self._relation(payload))
            case b"Y" if self._with_names:
                return _put(payload, self._strings(payload, 5, 2))
            case b"O" if self._with_names:
                return _put(payload, self._strings(payload, 9, 1))
        return payload

    def _pgoutput_row(self, payload: bytes) -> Iterable[Span]:
        oids = self._oids.get(_U32(payload, 1)[0], ())
        pos = 5
        while pos < len(payload):
            (columns,) = _U16(payload, pos + 1)
            pos += 3
            for number in range(columns):
                kind = payload[pos : pos + 1]
                pos += 1
                if kind == b"t":
                    start = pos + 4
                    pos = start + _U32(payload, pos)[0]
                    oid = oids[number] if number < len(oids) else 0
                    yield start, pos, self._cell(payload[start:pos], oid)

    def _relation(self, payload: bytes) -> Iterable[Span]:
        spans = list(self._strings(payload, 5, 2))
        pos = spans[-1][1] + 2 + 2  # replica identity, number of columns
        while pos < len(payload):
            spans += self._strings(payload, pos + 1, 1)
            pos = spans[-1][1] + 1 + 8
        return spans

    def _strings(self, payload: bytes, pos: int, number: int) -> Iterable[Span]:
        for _ in range(number):
            end = payload.index(b"\0", pos)
            yield pos, end, self._name(payload[pos:end])
            pos = end + 1


def _put(raw: bytes, spans: Iterable[Span]) -> bytes:
    """Put other bytes of the same length in place; spans are in order."""
    out, pos = [], 0
    for start, end, value in spans:
        out += [raw[pos:start], value]
        pos = end
    return b"".join([*out, raw[pos:]])
