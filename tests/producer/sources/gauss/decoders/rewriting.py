"""Recorded payloads with other names and values, written by code that shares nothing with ours.

Names are mapped character by character and keep their length (63 bytes is the most
a name may have); values keep their kind: digits for digits, longer text for text.
"""

from __future__ import annotations

import json
import re
import struct

# Pairs that change places, so that equal names stay equal and different ones different.
_PAIRS = ("ad", "be", "c.", "nm", "st", 'i"', "o'", "r\\", "u]", "l[")
NAME_MAP = {ord(left): right for pair in _PAIRS for left, right in (pair, pair[::-1])}
SAME = bytes(range(256))  # for numbers that are rounded on the way
DIGITS = bytes.maketrans(b"0123456789", b"1098765432")
# As openGauss prints them bare; everything else stands in quotes.
BARE = (
    *("tinyint", "smallint", "integer", "bigint", "real", "double precision", "numeric", "oid"),
    *("bit", "bit varying", "boolean"),
)
ADDED = b"it's \"new\" \\ [text]:'1' );"


def name(text: str) -> str:
    return text.translate(NAME_MAP)


def value(raw: bytes | None, *, bare: bool, digits: bytes = DIGITS) -> bytes | None:
    """Map the output text of a value; NULL stays, and so do words, which have no digits."""
    if raw is None:
        return None
    return raw.translate(digits) if bare else ADDED + raw


class Rewriter:
    def __init__(self, encoding: str, digits: bytes = DIGITS) -> None:
        self.digits = digits
        self.encoding = "utf-8" if encoding == "ascii" else encoding

    def raw_name(self, raw: bytes) -> bytes:
        return name(raw.decode(self.encoding)).encode(self.encoding)

    def quoted_name(self, raw: bytes) -> bytes:
        """Map a name as quote_identifier writes it; quoting more than is needed is the same."""
        if raw.startswith(b'"'):
            raw = raw[1:-1].replace(b'""', b'"')
        mapped = self.raw_name(raw)
        if re.fullmatch(rb"[a-z_][a-z0-9_]*", mapped):
            return mapped
        return b'"' + mapped.replace(b'"', b'""') + b'"'

    def qualified(self, raw: bytes) -> bytes:
        parts = re.findall(rb'"(?:[^"]|"")*"|[^".]+', raw)
        assert b".".join(parts) == raw
        return b".".join(map(self.quoted_name, parts))

    def literal(self, raw: bytes) -> bytes:
        if raw.startswith(b"'"):
            mapped = value(raw[1:-1].replace(b"''", b"'"), bare=False)
            return b"'" + mapped.replace(b"'", b"''") + b"'"
        return raw.translate(self.digits)  # words hold no digits, and bits stay bits

    # ---- styles

    def binary(self, payload: bytes) -> bytes:
        out, pos = b"", 0
        while pos < len(payload):
            (length,) = struct.unpack_from(">I", payload, pos)
            pos += 4
            if not length:
                return out + bytes(4)
            body = payload[pos : pos + length]
            if body[8:9] in (b"I", b"U", b"D"):
                body = self.binary_row(body)
            out += struct.pack(">I", len(body)) + body + payload[pos + length : pos + length + 1]
            pos += length + 1
        return out

    def binary_row(self, body: bytes) -> bytes:
        out, pos = body[:9], 9

        def counted(form: str) -> bytes:
            nonlocal pos
            size = struct.calcsize(form)
            (length,) = struct.unpack_from(form, body, pos)
            pos += size + length
            return body[pos - length : pos]

        for _ in range(2):
            mapped = self.raw_name(counted(">H"))
            out += struct.pack(">H", len(mapped)) + mapped
        while pos < len(body):
            letter, columns = body[pos : pos + 1], body[pos + 1 : pos + 3]
            pos += 3
            out += letter + columns
            for _ in range(int.from_bytes(columns, "big")):
                mapped = self.quoted_name(counted(">H"))
                oid = body[pos : pos + 4]
                pos += 4
                out += struct.pack(">H", len(mapped)) + mapped + oid
                if body[pos : pos + 4] == b"\xff" * 4:
                    out, pos = out + b"\xff" * 4, pos + 4
                    continue
                cell = value(counted(">I"), bare=int.from_bytes(oid, "big") in BARE_OIDS)
                out += struct.pack(">I", len(cell)) + cell
        return out

    def json(self, line: bytes) -> bytes:
        if not line.startswith(b'{"table_name"'):
            return line
        row = json.loads(line.decode("latin-1"))

        def mapped(words: list[str], change) -> list[str]:
            return [change(word.encode("latin-1")).decode("latin-1") for word in words]

        row["table_name"] = self.qualified(row["table_name"].encode("latin-1")).decode("latin-1")
        for part in ("columns", "old_keys"):
            row[f"{part}_name"] = mapped(row[f"{part}_name"], self.quoted_name)
            row[f"{part}_val"] = mapped(row[f"{part}_val"], self.literal)
        # As the server: control characters are escaped, all other bytes stand as they are.
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("latin-1")

    def columns(self, text: bytes) -> bytes:
        """Map ` name[type]:literal …`, and leave tags as they are."""
        token = re.compile(
            rb' ("(?:[^"]|"")*"|[a-z0-9_]+)(\[(?:"[^"]*"|\[\]|[^\]])*\]:)'
            rb"('(?:[^']|'')*'|B'[01]*'|[^ ]+)| [a-z(][a-z-]*[:)]"
        )
        out, pos = b"", 0
        while pos < len(text):
            found = token.match(text, pos)
            assert found, text[pos:]
            if found[1] is None:
                out += found[0]
            else:
                out += b" " + self.quoted_name(found[1]) + found[2] + self.literal(found[3])
            pos = found.end()
        return out

    def dotted(self, line: bytes) -> bytes:
        if not line.startswith(b"table ") or b": TRUNCATE:" in line:
            return re.sub(
                rb"^table (.*)(: TRUNCATE: .*)$",
                lambda m: b"table " + b", ".join(map(self.qualified, m[1].split(b", "))) + m[2],
                line,
            )
        found = re.match(
            rb'table ((?:"(?:[^"]|"")*"|[^".])+\.(?:"(?:[^"]|"")*"|[^".])+?)(: [A-Z]+:)', line
        )
        return b"table " + self.qualified(found[1]) + found[2] + self.columns(line[found.end() :])

    def spaced(self, line: bytes) -> bytes:
        if not line.startswith(b"table "):
            return line
        found = re.match(rb"table (.*?)( (?:INSERT|UPDATE|DELETE):)", line, re.DOTALL)
        return b"table " + self.raw_name(found[1]) + found[2] + self.columns(line[found.end() :])

    def sql(self, line: bytes) -> bytes:
        token = re.compile(
            rb"insert into |delete from | values \(|\);|, | where | and | = |;| \(no-tuple-data\)"
            rb"|('(?:[^']|'')*'|B'[01]*'|-?[.0-9][-+.0-9e]*|(?:null|true|false|-?Infinity|NaN)"
            rb"(?=[,;) ]))|"
            rb'((?:"(?:[^"]|"")*"|[a-z_][a-z0-9_]*)(?:\.(?:"(?:[^"]|"")*"|[a-z_][a-z0-9_]*))?)'
        )
        if not line.startswith((b"insert", b"delete")):
            return self.dotted(line)
        out, pos = b"", 0
        while pos < len(line):
            found = token.match(line, pos)
            assert found, line[pos:]
            if found[1] is not None:
                out += self.literal(found[1])
            elif found[2] is not None:
                out += self.qualified(found[2])
            else:
                out += found[0]
            pos = found.end()
        return out

    def batch(self, payload: bytes, change) -> bytes:
        out, pos = b"", 0
        while payload[pos : pos + 4] != bytes(4):
            length, lsn = struct.unpack_from(">IQ", payload, pos)
            line = change(payload[pos + 12 : pos + 4 + length])
            out += struct.pack(">IQ", len(line) + 8, lsn) + line
            pos += 4 + length
        return out + bytes(4)


# pg_type: int2 int4 int8 oid float4 float8 numeric bit varbit bool, and openGauss' tinyint.
BARE_OIDS = (21, 23, 20, 26, 700, 701, 1700, 1560, 1562, 16, 5545)
