"""A row change becomes the bytes of its Kafka value: Confluent framing and Avro.

One encoder per table version.  What is constant in a table version, and what
is constant in a transaction, is made once; a row costs one generated function
(`row_code`) and one join, a row with unsent or exact values a slower one.
`reference` says what the bytes must be: it builds the record as a dict and
lets fastavro write it; it also serves, or refuses, what is left.

Confluent's wire format: 0x00, the schema's registry id in four big-endian
bytes, Avro binary.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, TypeAlias

import fastavro

from producer.core.row_code import (
    SHORT,
    SURPRISES,
    Plan,
    counted,
    long,
    names,
    odd_row_function,
    row_function,
    text,
    varint,
)
from producer.decoders.messages import Cell, Cells
from producer.errors import CdcError, DecodeError, Unsupported
from schemas.envelope import UNAVAILABLE, EnvelopeOptions, envelope_schema, field_name
from schemas.tables import UNCHANGED, TableSchema
from schemas.types import NotRepresentable, UnknownType, type_of

_PLAIN: Final = b"\x00\x00\x00\x00"  # exact, unsent, before_exact, before_columns
_OPS: Final = {op: b"\x00" + text(op.encode()) for op in "crudt"}  # transaction: null; op


class NullInRequired(CdcError):
    """A NULL in a column that the schema calls NOT NULL: widen the schema and encode again."""

    def __init__(self, column: str, table: str) -> None:
        super().__init__("NULL in a NOT NULL column", table=table, column=column)
        self.column = column


@dataclass(frozen=True)
class TransactionConstants:
    """What all rows of a source transaction share; its bytes are made at the first row."""

    xid: int
    csn: int
    epoch: int
    seq: int
    committed_at_us: int  # µs since 1970-01-01 UTC
    now_us: int  # µs since 1970-01-01 UTC, when we read it
    commit_lsn: int
    snapshot: bool = False  # a row of a load

    @cached_property
    def head(self) -> bytes:
        """source.ts_ms and source.snapshot."""
        return long(self.committed_at_us // 1000) + b"\x00" + text(self._snapshot.encode())

    @cached_property
    def sequence(self) -> bytes:
        """The part of source.sequence before the row's own LSN."""
        return b'["%d","' % self.commit_lsn

    @cached_property
    def times(self) -> bytes:
        """source.ts_us and source.ts_ns."""
        return b"\x02" + long(self.committed_at_us) + b"\x02" + long(self.committed_at_us * 1000)

    @cached_property
    def txid(self) -> bytes:
        """source.txId, and that an LSN follows."""
        return b"\x02" + long(self.xid) + b"\x02"

    @cached_property
    def place(self) -> bytes:
        """source.xmin (null), csn, epoch, seq, and that an ordinal follows."""
        csn, epoch, seq = long(self.csn), long(self.epoch), long(self.seq)
        return b"\x00\x02" + csn + b"\x02" + epoch + b"\x02" + seq + b"\x02"

    @cached_property
    def tail(self) -> bytes:
        """ts_ms, ts_us, ts_ns of the envelope."""
        now = self.now_us
        return b"\x02" + long(now // 1000) + b"\x02" + long(now) + b"\x02" + long(now * 1000)

    @property
    def _snapshot(self) -> str:
        return "true" if self.snapshot else "false"


Encode: TypeAlias = Callable[
    [str, str, Cells | None, Cells | None, TransactionConstants, int, int], bytes
]


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """The encoder of one table version.

    `encode(op, old_kind, before, after, tx, lsn, ordinal)`: op is one of c r u d t,
    old_kind "O" (whole old row), "K" (its key) or "", cells in the table's column
    order.  Raises NullInRequired, DecodeError.
    """

    table: TableSchema
    schema_id: int
    encode: Encode


def compile_encoder(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    database: str,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
) -> RowEncoder:
    """Return the fast encoder of a table version; raise Unsupported for an unknown type."""
    options = options or EnvelopeOptions()
    encoding = _normal(encoding)
    plans = _plans(table, options)
    slow = reference(
        table,
        prefix=prefix,
        schema_id=schema_id,
        database=database,
        options=options,
        encoding=encoding,
    ).encode
    identity = _identity(table)
    row = row_function(plans, encoding=encoding)
    row_odd = odd_row_function(plans, encoding=encoding)
    row_key = row_function(plans, encoding=encoding, only=identity)
    sent = [name for name in table.names() if name in identity]
    key_columns = b"\x02" + names(sent)
    key_only = b"\x00\x00\x00" + key_columns
    header = b"\x00" + schema_id.to_bytes(4, "big")
    nothing, only_after = header + b"\x00\x00", header + b"\x00\x02"
    some_before = header + b"\x02"
    origin = b"".join(text(part.encode()) for part in (options.version, options.connector, prefix))
    db = text(database.encode()) + b"\x02"
    table_name = text(table.id.schema.encode()) + text(table.id.name.encode())
    width = len(plans)

    def odd(
        old_kind: str, before: Cells | None, after: Cells | None
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """Head, old row, new row and optional fields of a change with unsent or exact values."""
        head, old, new = nothing[:5], b"\x00", b"\x00"
        exact = unsent = before_exact = before_columns = b"\x00"
        if before is not None:
            if old_kind == "K":
                if not sent:
                    raise ValueError
                old, before_columns = b"\x02" + row_key(before), key_columns
            else:
                old, count, _, number, entries = row_odd(before)
                if count:
                    raise ValueError  # an old row with holes is the reference's
                old, before_exact = b"\x02" + old, counted(number, entries)
                if after is not None:
                    after = _filled(before, after)
        if after is not None:
            new, count, items, number, entries = row_odd(after)
            new = b"\x02" + new
            exact, unsent = counted(number, entries), counted(count, items)
        return head, old, new, exact + unsent + before_exact + before_columns

    known: TransactionConstants | None = None
    before_lsn = sequence = after_sequence = place = tail = b""
    sequence_size = 0

    def encode(  # noqa: PLR0917  called once per row: keywords cost
        op: str,
        old_kind: str,
        before: Cells | None,
        after: Cells | None,
        tx: TransactionConstants,
        lsn: int,
        ordinal: int,
    ) -> bytes:
        nonlocal known, before_lsn, sequence, after_sequence, place, tail, sequence_size
        if tx is not known:
            before_lsn = origin + tx.head + db
            sequence = tx.sequence
            sequence_size = 2 * (len(sequence) + 2)
            after_sequence = b'"]' + tx.times + table_name + tx.txid
            place = tx.place
            tail = tx.tail
            known = tx
        optional = _PLAIN
        try:
            if op == "u" and after is not None and UNCHANGED in after:
                head, old, new, optional = odd(old_kind, before, after)
            elif before is None:
                old = b""
                if after is None:
                    head, new = nothing, b""
                else:
                    head, new = only_after, row(after)
            else:
                head = some_before
                if old_kind != "K":
                    old = row(before)
                elif sent:
                    old, optional = row_key(before), key_only
                else:
                    raise ValueError  # the reference looks at the cells
                new = b"\x00" if after is None else b"\x02" + row(after)
        except SURPRISES:
            try:
                head, old, new, optional = odd(old_kind, before, after)
            except SURPRISES:
                if _length(before, width) and _length(after, width):
                    return slow(op, old_kind, before, after, tx, lsn, ordinal)
                raise DecodeError(
                    "row has another number of cells than its table", table=table.id, want=width
                ) from None
        own = b"%d" % lsn
        return b"".join(
            (
                head,
                old,
                new,
                before_lsn,
                SHORT[sequence_size + 2 * len(own)],
                sequence,
                own,
                after_sequence,
                varint(lsn + lsn),
                place,
                varint(ordinal + ordinal),
                optional,
                _OPS[op],
                tail,
            )
        )

    return RowEncoder(table, schema_id, encode)


def reference(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    database: str,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
) -> RowEncoder:
    """Return the encoder that says what is right: a dict, written by fastavro."""
    options = options or EnvelopeOptions()
    plans = _plans(table, options)
    identity = _identity(table)
    schema = fastavro.parse_schema(envelope_schema(prefix, table, options))
    header = b"\x00" + schema_id.to_bytes(4, "big")

    def value(plan: Plan, cell: Cell, exact: dict[str, str], unsent: list[str]) -> Any:
        if cell is None:
            if not plan.nullable:
                raise NullInRequired(plan.column.name, str(table.id))
            return None
        if cell is UNCHANGED:
            unsent.append(plan.column.name)
            return plan.placeholder
        try:
            source = cell.decode(encoding)
        except UnicodeDecodeError:
            raise DecodeError(
                f"value is not {encoding}", table=table.id, column=plan.column.name
            ) from None
        try:
            return plan.type.load(source, plan.column)
        except (ValueError, LookupError, OverflowError) as exc:
            exact[plan.column.name] = source
            nearest = exc.nearest if isinstance(exc, NotRepresentable) else None
            return plan.absent if nearest is None else nearest

    def encode(  # noqa: PLR0917  called once per row: keywords cost
        op: str,
        old_kind: str,
        before: Cells | None,
        after: Cells | None,
        tx: TransactionConstants,
        lsn: int,
        ordinal: int,
    ) -> bytes:
        exact: dict[str, str] = {}
        unsent: list[str] = []
        before_exact: dict[str, str] = {}
        before_columns: list[str] | None = None
        old = new = None
        if before is not None:
            old = {}
            absent: list[str] = []
            sent = identity or {p.column.name for p, c in zip(plans, before, strict=True) if c}
            for plan, cell in zip(plans, before, strict=True):
                if old_kind == "K" and plan.column.name not in sent:
                    absent.append(plan.column.name)
                    old[plan.field] = plan.absent
                else:
                    old[plan.field] = value(plan, cell, before_exact, absent)
            if absent or old_kind == "K":
                before_columns = [n for n in table.names() if n not in absent]
            if after is not None and old_kind != "K":
                after = _filled(before, after)
        if after is not None:
            cells = zip(plans, after, strict=True)
            new = {plan.field: value(plan, cell, exact, unsent) for plan, cell in cells}
        committed, now = tx.committed_at_us, tx.now_us
        record = {
            "before": old,
            "after": new,
            "source": {
                "version": options.version,
                "connector": options.connector,
                "name": prefix,
                "ts_ms": committed // 1000,
                "snapshot": "true" if tx.snapshot else "false",
                "db": database,
                "sequence": f'["{tx.commit_lsn}","{lsn}"]',
                "ts_us": committed,
                "ts_ns": committed * 1000,
                "schema": table.id.schema,
                "table": table.id.name,
                "txId": tx.xid,
                "lsn": lsn,
                "xmin": None,
                "csn": tx.csn,
                "epoch": tx.epoch,
                "seq": tx.seq,
                "ordinal": ordinal,
                "exact": exact or None,
                "unsent": unsent or None,
                "before_exact": before_exact or None,
                "before_columns": before_columns,
            },
            "transaction": None,
            "op": op,
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
        }
        out = io.BytesIO()
        out.write(header)
        fastavro.schemaless_writer(out, schema, record)
        return out.getvalue()

    return RowEncoder(table, schema_id, encode)


def compile_key_encoder(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
) -> Callable[[Cells], bytes]:
    """Return `row's cells -> framed Avro key`, for `key = "primary-key"`.

    The row is the new one, or the old one of a delete.  A key value without an
    Avro form has no exact twin beside it, so it is refused (Unsupported).
    """
    del prefix  # names stand in the schema, not in the bytes
    pick = _pick(table)
    by_name = {plan.column.name: plan for plan in _plans(table, options or EnvelopeOptions())}
    plans = [_required(by_name[name]) for name in table.key]
    row = row_function(plans, encoding=_normal(encoding))
    header = b"\x00" + schema_id.to_bytes(4, "big")

    def encode(cells: Cells) -> bytes:
        key = pick(cells)
        for name, cell in zip(table.key, key, strict=True):
            if cell is None or cell is UNCHANGED:
                raise NullInRequired(name, str(table.id))
        try:
            data: bytes = row(key)
        except SURPRISES:
            data = b"".join(
                _key_value(plan, cell, encoding, table)
                for plan, cell in zip(plans, key, strict=True)
            )
        return header + data

    return encode


def plain_key(table: TableSchema) -> bytes:
    """Return the record key `schema.table`, the default."""
    return str(table.id).encode()


def compile_key_texts(table: TableSchema) -> Callable[[Cells], Sequence[Cell]]:
    """Return `row's cells -> the primary key's cells, in key order`, for partitioning."""
    return _pick(table)


def _pick(table: TableSchema) -> Callable[[Cells], Sequence[Cell]]:
    if not table.key:
        raise Unsupported("table has no primary key", table=table.id, hint='use key = "table"')
    at = [table.names().index(name) for name in table.key]
    if len(at) == 1:
        only = at[0]
        return lambda cells: (cells[only],)
    return itemgetter(*at)


def _key_value(plan: Plan, cell: Cell, encoding: str, table: TableSchema) -> bytes:
    if not isinstance(cell, bytes):
        raise NullInRequired(plan.column.name, str(table.id))
    try:
        return plan.write(plan.type.load(cell.decode(encoding), plan.column))
    except (ValueError, LookupError, OverflowError):
        raise Unsupported(
            "key value has no Avro form",
            table=table.id,
            column=plan.column.name,
            hint='use key = "table" for this table',
        ) from None


def _required(plan: Plan) -> Plan:
    return Plan(plan.column, plan.field, plan.type, plan.avro, False, None, None)  # noqa: FBT003


def _plans(table: TableSchema, options: EnvelopeOptions) -> list[Plan]:
    plans = []
    for column in table.columns:
        try:
            entry = type_of(column, unknown=options.unknown)
        except UnknownType as exc:
            raise Unsupported(
                f"unknown type {column.type_name or column.type_oid}",
                table=table.id,
                column=column.name,
                hint="carry it as text with unknown-types = text, or exclude the column",
            ) from exc
        avro = entry.avro(column)
        absent = None if column.nullable else entry.zero_of(column)
        held = _placeholder(avro)
        placeholder = absent if held is None else held
        plans.append(
            Plan(column, field_name(column.name), entry, avro, column.nullable, placeholder, absent)
        )
    return plans


def _placeholder(avro: Any) -> Any:
    """Return Debezium's mark for an unsent value, or None where the type has no room for it."""
    kind = avro["type"] if isinstance(avro, dict) else avro
    name = avro.get("connect.name", "") if isinstance(avro, dict) else ""
    if kind == "string" and not name.startswith("io.debezium.time."):
        return UNAVAILABLE
    if kind == "bytes" and not name:
        return UNAVAILABLE.encode()
    if kind == "array" and _placeholder(avro["items"][1]) == UNAVAILABLE:
        return [UNAVAILABLE]
    return None


def _identity(table: TableSchema) -> frozenset[str]:
    return frozenset(table.identity_columns or table.key)


def _filled(before: Cells, after: Cells) -> Cells:
    """An unsent new value is the old one, where the whole old row was sent."""
    return [old if new is UNCHANGED else new for old, new in zip(before, after, strict=True)]


def _length(cells: Cells | None, width: int) -> bool:
    return cells is None or len(cells) == width


def _normal(encoding: str) -> str:
    return "utf-8" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
