"""A row as text: JSON of mppdb_decoding, the line of test_decoding, SQL of sql_decoding.

Parallel styles `j` and `t` print the same rows; `t` differs in how it names the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from gauss_cdc_lab.emulator.formats.literals import known, literal, short_literal
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.model import Field, Op, Row

# ---- JSON, as cJSON prints it

_SPECIAL: Final = re.compile(rb'[\x01-\x1f"\\]')
_ESCAPES: Final = {
    **{bytes([code]): b"\\u%04x" % code for code in range(1, 0x20)},
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
}


def json_string(text: bytes) -> bytes:
    r"""A JSON string, escaped byte by byte without a thought for characters.

    So the second byte of a GBK character may be doubled, and a string ends at NUL
    (manual, constraints of logical decoding).

    >>> json_string(b'a"\\\x01\n/')
    b'"a\\"\\\\\\u0001\\n/"'
    """
    text = text.partition(b"\0")[0]
    return b'"%b"' % _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def _array(texts: Iterable[bytes]) -> bytes:
    return b"[%b]" % b",".join(map(json_string, texts))


def _type_name(field: Field, names: Names) -> bytes:
    # All plugins call a clob text (manual, constraints of logical decoding).
    return b"text" if field.type_name == "clob" else names.raw(field.type_name)


class RowFormat(Protocol):
    """One way to print a row."""

    def row(self, row: Row) -> bytes:
        """The text of a row's change."""


class JsonRowWriter:
    """mppdb_decoding and style `j`: one object, all eight keys, in this order."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def row(self, row: Row) -> bytes:
        """Print a row; a DELETE has only old columns, an INSERT only new ones."""
        known(row)
        return b'{"table_name":%b,"op_type":"%b",%b,%b}' % (
            json_string(self._names.table(row.schema, row.table)),
            row.op.encode(),
            self._columns(b"columns", row.new or ()),
            self._columns(b"old_keys", row.old or ()),
        )

    def _columns(self, kind: bytes, fields: Sequence[Field]) -> bytes:
        names = _array(self._names.quoted(field.name) for field in fields)
        types = _array(_type_name(field, self._names) for field in fields)
        values = _array(map(literal, fields))
        return b'"%b_name":%b,"%b_type":%b,"%b_val":%b' % (
            *(kind, names),
            *(kind, types),
            *(kind, values),
        )


# ---- the line of test_decoding


class TextRowWriter:
    """test_decoding, `table s.t: INSERT:`; and style `t`, `table s t INSERT:` with raw names."""

    def __init__(self, names: Names, *, parallel: bool) -> None:
        self._names, self._parallel = names, parallel

    def row(self, row: Row) -> bytes:
        """Print a row."""
        if self._parallel:
            table = b"%b %b" % (self._names.raw(row.schema), self._names.raw(row.table))
        else:
            table = self._names.table(row.schema, row.table) + b":"
        return b"table %b %b:%b" % (table, row.op.encode(), self._change(row))

    def _change(self, row: Row) -> bytes:
        if row.op is Op.DELETE:
            return self._tuple(row.old)
        if row.op is Op.UPDATE and row.old is not None:
            return b" old-key:%b new-tuple:%b" % (self._tuple(row.old), self._tuple(row.new))
        return self._tuple(row.new)

    def _tuple(self, fields: Sequence[Field] | None) -> bytes:
        if fields is None:
            return b" (no-tuple-data)"
        names = self._names
        return b"".join(
            b" %b[%b]:%b" % (names.quoted(field.name), _type_name(field, names), literal(field))
            for field in fields
        )


# ---- SQL


class SqlRowWriter:
    """sql_decoding: an UPDATE is a DELETE and an INSERT in one message."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def row(self, row: Row) -> bytes:
        """Print a row as statements."""
        known(row)
        table = self._names.table(row.schema, row.table)
        match row.op:
            case Op.INSERT:
                return _insert(table, row)
            case Op.UPDATE:
                return self._delete(table, row.old) + _insert(table, row)
            case Op.DELETE:
                return self._delete(table, row.old)

    def _delete(self, table: bytes, old: Sequence[Field] | None) -> bytes:
        if old is None:
            return b"delete from %b where  (no-tuple-data);" % table
        # `col = null` is what the plugin prints, though it is never true.
        found = b" and ".join(
            b"%b = %b" % (self._names.quoted(field.name), short_literal(field)) for field in old
        )
        return b"delete from %b where %b;" % (table, found)


def _insert(table: bytes, row: Row) -> bytes:
    values = b", ".join(map(short_literal, row.new or ()))
    # The plugin writes the separator before it sees that no column follows.
    dangling = b", " if row.last_dropped else b""
    return b"insert into %b values (%b%b);" % (table, values, dangling)
