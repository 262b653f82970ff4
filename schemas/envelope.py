"""The Avro schemas of a table's keys and values: Debezium's, with our fields appended.

`<prefix>.<schema>.<table>.Envelope` is what Debezium's PostgreSQL connector
writes through Confluent's Avro converter.  Appended to `source`, all optional:

- `csn`, `epoch`, `seq`, `ordinal`: the change's place in the history;
- `exact`, `before_exact`: real column name -> source text, for values of
  `after` and `before` that their Avro type cannot hold;
- `unsent`: real names of columns of `after` that the source did not send
  (unchanged TOAST).  Their fields hold Debezium's placeholder, which alone
  cannot be distinguished from an equal value;
- `before_columns`: real names of the columns of `before` that the source did
  send, null for all of them.  With a replica identity other than FULL only
  the key is sent; NOT NULL columns then hold their type's zero, as Debezium
  writes it.

Avro names allow `[A-Za-z_][A-Za-z0-9_]*`.  Any other character of a column
becomes `_uXXXX`, reversibly; the real name also stands in the field type's
connect.parameters as `__debezium.source.column.name`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.tables import Column, TableSchema
from schemas.topics import unescape
from schemas.types import AvroType, TypeOptions, type_of
from schemas.version import VERSION

UNAVAILABLE: Final = "__debezium_unavailable_value"
SOURCE_NAME: Final = "__debezium.source.column.name"

_CONNECTOR: Final = "io.debezium.connector.postgresql"
_COMMON: Final = "io.debezium.connector.common"
_PLAIN: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
_UNIT: Final = re.compile(r"_u[0-9a-f]{4}")
_SNAPSHOTS: Final = (
    "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
)


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """The parts of the envelope that do not depend on the table."""

    version: str = VERSION  # source.version
    connector: str = "postgresql"  # source.connector; Debezium's readers look for this one
    types: TypeOptions = field(default_factory=TypeOptions)  # how values travel


def field_name(name: str) -> str:
    """Spell a column's name with the letters that Avro allows, reversibly.

    >>> field_name("order_id"), field_name("2nd"), field_name("金额"), field_name("_u0041")
    ('order_id', '_u0032nd', '_u91d1_u989d', '_u005fu0041')
    """
    out = []
    for at, char in enumerate(name):
        plain = char == "_" or (
            char.isascii() and char.isalnum() and not (char.isdigit() and at == 0)
        )
        if plain and not (char == "_" and _UNIT.match(name, at)):
            out.append(char)
            continue
        units = char.encode("utf-16-be")
        out += [f"_u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2)]
    return "".join(out)


def column_name(name: str) -> str:
    """Undo `field_name`."""
    return unescape(name)


def namespace(prefix: str, table: TableSchema) -> str:
    """Return the Avro namespace of a table's schemas."""
    return ".".join(field_name(part) for part in (prefix, table.id.schema, table.id.name))


def envelope_schema(
    prefix: str, table: TableSchema, options: EnvelopeOptions | None = None
) -> dict[str, Any]:
    """Return the schema of a table's values; raise UnknownType."""
    options = options or EnvelopeOptions()
    space = namespace(prefix, table)
    value = {
        "type": "record",
        "name": "Value",
        "fields": _fields(table.columns, options),
        "connect.name": f"{space}.Value",
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": space,
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": _source()},
            {"name": "transaction", "type": ["null", _transaction()], "default": None},
            {"name": "op", "type": "string"},
            _optional("ts_ms", "long"),
            _optional("ts_us", "long"),
            _optional("ts_ns", "long"),
        ],
        "connect.version": 2,
        "connect.name": f"{space}.Envelope",
    }


def message_key_schema() -> dict[str, Any]:
    """Return the schema of the keys of `<prefix>.message`: the message's prefix."""
    return {
        "type": "record",
        "name": "MessageKey",
        "namespace": _CONNECTOR,
        "fields": [_optional("prefix", "string")],
        "connect.version": 1,
        "connect.name": f"{_CONNECTOR}.MessageKey",
    }


def message_schema() -> dict[str, Any]:
    """Return the schema of logical messages, op `m`."""
    content = {
        "type": "record",
        "name": "Message",
        "fields": [_optional("prefix", "string"), _optional("content", "bytes")],
        "connect.version": 1,
        "connect.name": f"{_CONNECTOR}.Message",
    }
    source = {key: value for key, value in _source().items() if key != "namespace"}
    return {
        "type": "record",
        "name": "MessageValue",
        "namespace": _CONNECTOR,
        "fields": [
            {"name": "op", "type": "string"},
            _optional("ts_ms", "long"),
            {"name": "source", "type": source},
            {"name": "transaction", "type": ["null", _transaction()], "default": None},
            {"name": "message", "type": content},
        ],
        "connect.version": 1,
        "connect.name": f"{_CONNECTOR}.MessageValue",
    }


def transaction_key_schema() -> dict[str, Any]:
    """Return the schema of the keys of `<prefix>.transaction`: the transaction's id."""
    return {
        "type": "record",
        "name": "TransactionMetadataKey",
        "namespace": _COMMON,
        "fields": [{"name": "id", "type": "string"}],
        "connect.version": 1,
        "connect.name": f"{_COMMON}.TransactionMetadataKey",
    }


def transaction_schema() -> dict[str, Any]:
    """Return the schema of BEGIN and END in `<prefix>.transaction`."""
    collection = {
        "type": "record",
        "name": "collection",
        "namespace": "event",
        "fields": [
            {"name": "data_collection", "type": "string"},
            {"name": "event_count", "type": "long"},
        ],
        "connect.version": 1,
        "connect.name": "event.collection",
    }
    return {
        "type": "record",
        "name": "TransactionMetadataValue",
        "namespace": _COMMON,
        "fields": [
            {"name": "status", "type": "string"},
            {"name": "id", "type": "string"},
            _optional("event_count", "long"),
            _optional("data_collections", {"type": "array", "items": ["null", collection]}),
            {"name": "ts_ms", "type": "long"},
        ],
        "connect.version": 1,
        "connect.name": f"{_COMMON}.TransactionMetadataValue",
    }


def key_schema(
    prefix: str, table: TableSchema, options: EnvelopeOptions | None = None
) -> dict[str, Any]:
    """Return the schema of a table's primary keys; raise ValueError where there is none."""
    options = options or EnvelopeOptions()
    if not table.key:
        raise ValueError(f"{table.id} has no primary key")
    columns = {column.name: column for column in table.columns}
    fields = _fields(tuple(columns[name] for name in table.key), options, key=True)
    space = namespace(prefix, table)
    return {
        "type": "record",
        "name": "Key",
        "namespace": space,
        "fields": fields,
        "connect.name": f"{space}.Key",
    }


def without_null(union: Any) -> AvroType:
    """Return the type of a field, without the null of its union."""
    if isinstance(union, list):
        union = next(branch for branch in union if branch != "null")
    kind: AvroType = union
    return kind


def _fields(
    columns: tuple[Column, ...], options: EnvelopeOptions, *, key: bool = False
) -> list[dict[str, Any]]:
    defined: set[str] = set()
    fields: list[dict[str, Any]] = []
    for column in columns:
        name = field_name(column.name)
        avro = _once(type_of(column, options.types).avro(column), defined)
        if name != column.name:
            avro = _named(avro, column.name)
        if column.nullable and not key:
            fields.append(_optional(name, avro))
        elif key or column.missing is None:
            fields.append({"name": name, "type": avro})
        else:
            fields.append(_defaulted(name, avro, column, options))
    return fields


def _defaulted(
    name: str, avro: AvroType, column: Column, options: EnvelopeOptions
) -> dict[str, Any]:
    """Return a required field with the value of rows older than its column.

    Without a default, older rows could not be read by this schema, and a registry that
    checks it (BACKWARD) would refuse every ADD COLUMN … NOT NULL DEFAULT.
    """
    field = {"name": name, "type": avro}
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind not in _PLAIN or column.missing is None:
        return field
    try:
        value = type_of(column, options.types).load(column.missing, column)
    except (ValueError, LookupError):
        return field
    if isinstance(value, bytes):
        value = value.decode("latin-1")  # Avro's JSON form of bytes
    elif isinstance(value, float) and not math.isfinite(value):
        return field
    typed = avro if isinstance(avro, dict) else {"type": avro}
    return {"name": name, "type": {**typed, "connect.default": value}, "default": value}


def _once(avro: Any, defined: set[str]) -> Any:
    """Define a named type where it stands first, and name it afterwards."""
    if isinstance(avro, list):
        return [_once(branch, defined) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    if avro["type"] == "array":
        return {**avro, "items": _once(avro["items"], defined)}
    if avro["type"] == "record":
        name = f"{avro['namespace']}.{avro['name']}"
        if name in defined:
            return name
        defined.add(name)
    return avro


def _named(avro: AvroType, name: str) -> AvroType:
    """Add a column's real name; a named type's second use has no place for it."""
    if isinstance(avro, str):
        if "." in avro:
            return avro
        avro = {"type": avro}
    elif avro["type"] == "record":
        return avro
    return {**avro, "connect.parameters": {**avro.get("connect.parameters", {}), SOURCE_NAME: name}}


def _optional(name: str, avro: AvroType) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro], "default": None}


def _source() -> dict[str, Any]:
    snapshot = {
        "type": "string",
        "connect.version": 1,
        "connect.parameters": {"allowed": _SNAPSHOTS},
        "connect.default": "false",
        "connect.name": "io.debezium.data.Enum",
    }
    texts = {"type": "map", "values": "string"}
    names = {"type": "array", "items": "string"}
    return {
        "type": "record",
        "name": "Source",
        "namespace": _CONNECTOR,
        "fields": [
            {"name": "version", "type": "string"},
            {"name": "connector", "type": "string"},
            {"name": "name", "type": "string"},
            {"name": "ts_ms", "type": "long"},
            {"name": "snapshot", "type": [snapshot, "null"], "default": "false"},
            {"name": "db", "type": "string"},
            _optional("sequence", "string"),
            _optional("ts_us", "long"),
            _optional("ts_ns", "long"),
            {"name": "schema", "type": "string"},
            {"name": "table", "type": "string"},
            _optional("txId", "long"),
            _optional("lsn", "long"),
            _optional("xmin", "long"),
            _optional("csn", "long"),
            _optional("epoch", "long"),
            _optional("seq", "long"),
            _optional("ordinal", "long"),
            _optional("exact", texts),
            _optional("unsent", names),
            _optional("before_exact", texts),
            _optional("before_columns", names),
        ],
        "connect.version": 1,
        "connect.name": f"{_CONNECTOR}.Source",
    }


def _transaction() -> dict[str, Any]:
    return {
        "type": "record",
        "name": "block",
        "namespace": "event",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "total_order", "type": "long"},
            {"name": "data_collection_order", "type": "long"},
        ],
        "connect.version": 1,
        "connect.name": "event.block",
    }
