"""What the values of the simulated Kafka are: Avro by the product's encoders, and its registry.

The registry is one for all worlds: its ids are those of table versions, which are compiled once.
"""

from __future__ import annotations

import io
from typing import Any, Final, NamedTuple

import fastavro

from producer.core.records.cut_code import encode_commits
from producer.core.records.encode import RowEncoder, TransactionConstants, compile_encoder
from producer.core.records.framing import framed
from schemas.accept import Foreign
from schemas.control import (
    Commits,
    Cut,
    SchemaChange,
    change_from_avro,
    change_to_avro,
    cut_from_avro,
    cut_to_avro,
)
from schemas.envelope import envelope_schema, message_schema
from schemas.load import CUT, SCHEMA_CHANGE, avsc
from schemas.tables import UNCHANGED, TableId, TableSchema
from tests.sim.broker import Entry

SOURCE: Final = "bank"
_FRAME: Final = 5  # bytes before a record: a zero, and its schema's id
_CUT, _CHANGE = 1, 2
_PARSED: Final = {
    _CUT: fastavro.parse_schema(avsc(CUT)),
    _CHANGE: fastavro.parse_schema(avsc(SCHEMA_CHANGE)),
}
_MESSAGE: Final = fastavro.parse_schema(message_schema())
_SCHEMAS: Final[dict[int, dict[str, Any]]] = {_CUT: avsc(CUT), _CHANGE: avsc(SCHEMA_CHANGE)}
_ENCODERS: Final[dict[TableSchema, RowEncoder]] = {}
GARBAGE: Final = b"\xffnone of ours"  # in cuts; readers are given what `judge` says of such


class Value(NamedTuple):
    """A row as it is in Kafka."""

    table: TableId
    columns: tuple[str, ...]
    op: str
    after: tuple[Any, ...] | None
    epoch: int
    seq: int
    ordinal: int
    xid: int
    lsn: int = 1
    csn: int = 0
    old_key: str | None = None


def schema_of(schema_id: int) -> dict[str, Any]:
    """The registry, as readers ask it."""
    return _SCHEMAS[schema_id]


def encoder_of(table: TableSchema) -> RowEncoder:
    """The encoder of a table version, whose schema is registered."""
    if table not in _ENCODERS:
        schema_id = len(_SCHEMAS) + 1
        _SCHEMAS[schema_id] = schema = envelope_schema(SOURCE, table)
        _PARSED[schema_id] = fastavro.parse_schema(schema)
        _ENCODERS[table] = compile_encoder(
            table, prefix=SOURCE, schema_id=schema_id, database=SOURCE
        )
    return _ENCODERS[table]


def encode_cut(cut: Cut) -> bytes:
    """A record of cuts."""
    if isinstance(cut, Commits):
        return b"\x00" + _CUT.to_bytes(4, "big") + encode_commits(cut)
    return framed(_CUT, _PARSED[_CUT], cut_to_avro(cut))


def encode_change(change: SchemaChange) -> bytes:
    """A record of ddl."""
    return framed(_CHANGE, _PARSED[_CHANGE], change_to_avro(change))


def encode_row(table: TableSchema, row: Value) -> bytes:
    """A row without its old one."""
    tx = TransactionConstants(row.xid, 1, row.epoch, row.seq, 0, 0, 1)
    after = None if row.after is None else list(row.after)
    return encoder_of(table).encode(row.op, "", None, after, tx, row.lsn, row.ordinal)


class Decoded:
    """The values of one world, each read once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def of(self, entry: Entry) -> Any:
        """A Cut, a SchemaChange, a Value; Foreign for other bytes, None for none."""
        value = entry.value
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = _read(value)
        return self._known[value]

    def cut(self, value: bytes) -> Cut:
        """A record of cuts; ValueError: it is none."""
        cut = self._known.get(value) or self._known.setdefault(value, _read(value))
        if isinstance(cut, Foreign):
            raise ValueError(cut.why)  # noqa: TRY004  as the registry says it
        return cut


def lone_message(value: bytes) -> int | None:
    """The position of a logical message that is in no transaction of the source."""
    record: Any = fastavro.schemaless_reader(io.BytesIO(value[_FRAME:]), _MESSAGE, None)
    return None if record["source"]["txId"] is not None else int(record["source"]["lsn"])


def change(value: bytes) -> SchemaChange:
    """A record of ddl."""
    return change_from_avro(_record(value))


def _record(value: bytes) -> Any:
    schema_id = int.from_bytes(value[1:_FRAME], "big")
    return fastavro.schemaless_reader(io.BytesIO(value[_FRAME:]), _PARSED[schema_id], None)


def _read(value: bytes) -> Any:
    """What readers find, and that whoever wrote it, wrote Avro as fastavro does."""
    if value == GARBAGE:
        return Foreign("no record")
    record, schema_id = _record(value), int.from_bytes(value[1:_FRAME], "big")
    assert framed(schema_id, _PARSED[schema_id], record) == value
    if schema_id == _CUT:
        return cut_from_avro(record)
    if schema_id == _CHANGE:
        return change_from_avro(record)
    return _row(record)


def _row(record: dict[str, Any]) -> Value:
    source, after = record["source"], record["after"]
    names = after or record["before"] or {}
    cells = None
    if after is not None:
        unsent = source["unsent"] or ()
        cells = tuple(
            UNCHANGED if name in unsent else None if cell is None else cell.encode()
            for name, cell in after.items()
        )
    return Value(
        TableId(source["schema"], source["table"]),
        tuple(names),
        record["op"],
        cells,
        source["epoch"],
        source["seq"],
        source["ordinal"],
        source["txId"],
        source["lsn"],
        source["csn"],
        (record["before"] or {}).get("id"),
    )
