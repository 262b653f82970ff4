"""Defines the bytes of a row: a dict, written by fastavro.

The native module writes the same, and leaves to this code what is rare: values that Avro
cannot hold, texts that are none.  Without that module every row is written here.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import fastavro

from producer.core.changes import Cell, Cells
from producer.core.records.avro import long, text
from producer.core.records.row_plan import FieldPlan, RowPlan, avro_value
from producer.core.records.transaction_topic import Counted
from producer.errors import CdcError, DecodeError, Unsupported
from schemas.encodings import of_cells
from schemas.envelope import UNAVAILABLE, EnvelopeOptions, envelope_schema, field_name
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, TableSchema
from schemas.types import SqlType, UnknownType, type_of
from schemas.types.binary import ENCODED
from schemas.types.extensions import HSTORE


class NullInRequired(CdcError):
    """A NULL in a column that the schema calls NOT NULL: widen the schema and encode again."""

    def __init__(self, column: str, table: str) -> None:
        super().__init__("NULL in a NOT NULL column", table=table, column=column)
        self.column = column


@dataclass(slots=True)
class TransactionConstants:
    """What all rows of a source transaction share; an encoder asks once per transaction."""

    xid: int
    csn: int  # 0: it is not known
    epoch: int
    seq: int
    committed_at_us: int  # µs since 1970-01-01 UTC
    now_us: int  # µs since 1970-01-01 UTC, when we read it
    commit_lsn: Lsn
    snapshot: str = "false"  # of a load: "true", or which row of it: first, last … as Debezium says
    counted: Counted | None = None  # where events are numbered in their transaction

    # Their bytes, made once: a transaction may touch many tables, each with an encoder.
    head: bytes = field(init=False)  # source.ts_ms and source.snapshot
    sequence: bytes = field(init=False)  # the part of source.sequence before the row's own LSN
    times: bytes = field(init=False)  # source.ts_us and source.ts_ns
    txid: bytes = field(init=False)  # source.txId, and that an LSN follows
    place: bytes = field(init=False)  # source.xmin (null), csn, epoch, seq; an ordinal follows
    tail: bytes = field(init=False)  # ts_ms, ts_us, ts_ns of the envelope

    def __post_init__(self) -> None:
        at, now = self.committed_at_us, self.now_us
        self.head = long(at // 1000) + b"\x00" + text(self.snapshot.encode())
        self.sequence = b'["%d","' % self.commit_lsn
        self.times = b"\x02" + long(at) + b"\x02" + long(at * 1000)
        self.txid = b"\x02" + long(self.xid) + b"\x02"
        csn = b"\x02" + long(self.csn) if self.csn else b"\x00"
        self.place = b"\x00" + csn + b"\x02" + long(self.epoch) + b"\x02" + long(self.seq) + b"\x02"
        self.tail = b"\x02" + long(now // 1000) + b"\x02" + long(now) + b"\x02" + long(now * 1000)


Encode: TypeAlias = Callable[
    [str, str, Cells | None, Cells | None, TransactionConstants, Lsn, int], bytes
]
# Native code for the rows of a plan, and what encodes those that it leaves.
CompileNative: TypeAlias = Callable[[RowPlan, Encode], Encode]


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
    plan: RowPlan | None = None  # for the native walker; None: it cannot write these rows


def reference(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    database: str,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
) -> RowEncoder:
    """Return the reference encoder: a dict, written by fastavro."""
    options = options or EnvelopeOptions()
    encoding = of_cells(encoding)
    plans = plans_of(table, options)
    old_key = identity(table)
    schema = fastavro.parse_schema(envelope_schema(prefix, table, options))
    header = b"\x00" + schema_id.to_bytes(4, "big")

    def value(plan: FieldPlan, cell: Cell, exact: dict[str, str], unsent: list[str]) -> Any:
        if cell is None:
            if not plan.nullable:
                raise NullInRequired(plan.column.name, str(table.id))
            return None
        if cell is UNCHANGED:
            unsent.append(plan.column.name)
            return plan.placeholder
        found, said = avro_value(plan, cell, encoding)
        if said is not None:
            exact[plan.column.name] = said
        return found

    def encode(  # noqa: PLR0917  called once per row: keywords cost
        op: str,
        old_kind: str,
        before: Cells | None,
        after: Cells | None,
        tx: TransactionConstants,
        lsn: Lsn,
        ordinal: int,
    ) -> bytes:
        if any(cells is not None and len(cells) != len(plans) for cells in (before, after)):
            raise DecodeError(
                "row has another number of cells than its table", table=table.id, want=len(plans)
            )
        exact: dict[str, str] = {}
        unsent: list[str] = []
        before_exact: dict[str, str] = {}
        before_columns: list[str] | None = None
        old = new = None
        if before is not None:
            old = {}
            absent: list[str] = []
            sent = old_key or {p.column.name for p, c in zip(plans, before, strict=True) if c}
            for plan, cell in zip(plans, before, strict=True):
                if old_kind == "K" and plan.column.name not in sent:
                    absent.append(plan.column.name)
                    old[plan.field] = plan.absent
                else:
                    old[plan.field] = value(plan, cell, before_exact, absent)
            if absent or old_kind == "K":
                before_columns = [n for n in table.names() if n not in absent]
            if after is not None and old_kind != "K":
                after = filled(before, after)
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
                "snapshot": tx.snapshot,
                "db": database,
                "sequence": f'["{tx.commit_lsn:d}","{lsn:d}"]',
                "ts_us": committed,
                "ts_ns": committed * 1000,
                "schema": table.id.schema,
                "table": table.id.name,
                "txId": tx.xid,
                "lsn": lsn,
                "xmin": None,
                "csn": tx.csn or None,
                "epoch": tx.epoch,
                "seq": tx.seq,
                "ordinal": ordinal,
                "exact": exact or None,
                "unsent": unsent or None,
                "before_exact": before_exact or None,
                "before_columns": before_columns,
            },
            "transaction": numbered(tx, str(table.id)),
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


def numbered(tx: TransactionConstants, table: str) -> dict[str, Any] | None:
    """Count the event, which is complete here, and return its place in the transaction.

    None: transactions are not counted.
    """
    if tx.counted is None:
        return None
    total, place = tx.counted.number(table)
    return {"id": tx.counted.id, "total_order": total, "data_collection_order": place}


def plans_of(table: TableSchema, options: EnvelopeOptions) -> list[FieldPlan]:
    """Return what encoding needs to know of each column; raise Unsupported."""
    plans = []
    for column in table.columns:
        try:
            entry = type_of(column, options.types)
        except UnknownType as exc:
            raise Unsupported(
                f"unknown type {column.type_name or column.type_oid}",
                table=table.id,
                column=column.name,
                hint='carry it as text with [types] unknown-types = "text", or exclude the table',
            ) from exc
        avro = entry.avro(column)
        absent = None if column.nullable else entry.zero_of(column)
        held = _placeholder(avro, entry, column)
        placeholder = absent if held is None else held
        plans.append(
            FieldPlan(
                column, field_name(column.name), entry, avro, column.nullable, placeholder, absent
            )
        )
    return plans


def _placeholder(avro: Any, entry: SqlType, column: Column) -> Any:
    """Return Debezium's mark for an unsent value, or None where the type has no room for it."""
    kind = avro["type"] if isinstance(avro, dict) else avro
    name = avro.get("connect.name", "") if isinstance(avro, dict) else ""
    if entry.shape is ENCODED:
        return entry.load("\\x" + UNAVAILABLE.encode().hex(), column)
    if kind == "map":
        return {UNAVAILABLE: UNAVAILABLE}
    if entry.shape is HSTORE:
        return json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":"))
    if kind == "string" and not name.startswith("io.debezium.time."):
        return UNAVAILABLE
    if kind == "bytes" and not name:
        return UNAVAILABLE.encode()
    if kind == "array" and entry.element is not None and column.user_type is None:
        return _unsent_items(entry.element.name, entry.element.shape.key)
    return None


def _unsent_items(element: str, shape: str) -> list[Any] | None:
    """Return the mark of an unsent array, by its elements: Debezium has one for these types."""
    if element in ("integer", "bigint", "date"):
        return list(UNAVAILABLE.encode())
    if element == "uuid":  # Java's UUID.nameUUIDFromBytes: a digest, version 3
        digest = hashlib.md5(UNAVAILABLE.encode(), usedforsecurity=False).digest()
        return [str(uuid.UUID(bytes=digest, version=3))]
    if element in ("text", "character varying", "character", "json", "jsonb"):
        return [UNAVAILABLE]
    if element == "bytea" and shape == "bytes":
        return [UNAVAILABLE.encode()]
    return None


def identity(table: TableSchema) -> frozenset[str]:
    """Return the columns that an old key holds; empty where the catalog does not say."""
    return frozenset(table.identity_columns or table.key)


def filled(before: Cells, after: Cells) -> Cells:
    """Return the new row; an unsent value is the old one, where the whole old row was sent.

    An old one that is NULL was not sent either: NULL is never unsent.  PostgreSQL says that an old
    row is whole where a root's identity is FULL, and sends what the partition's identity has.

    >>> filled([b"1", None, b"v"], [b"2", UNCHANGED, UNCHANGED]) == [b"2", UNCHANGED, b"v"]
    True
    """
    return [
        old if new is UNCHANGED and old is not None else new
        for old, new in zip(before, after, strict=True)
    ]
