"""The recording of Debezium (tests/golden/debezium), and ours of the same changes."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import fastavro

from producer.core.changes import Begin, Cells, Delete, Insert, Relation, Truncate, Update
from producer.core.records.encode import TransactionConstants, compile_encoder
from producer.sources.postgres.pgoutput import decode
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType

FOLDER = Path(__file__).parents[1] / "golden" / "debezium"
POSTGRES_EPOCH_US = 946_684_800_000_000


@cache
def read(name: str) -> Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


@dataclass
class Theirs:
    """One configuration of Debezium: schemas by subject, records by topic."""

    name: str

    @property
    def prefix(self) -> str:
        prefix: str = read(self.name)["configuration"]["topic.prefix"]
        return prefix

    def schema(self, subject: str) -> Any:
        """The newest schema of a subject."""
        return json.loads(json.loads(read(self.name)["registry"][subject][-1])["schema"])

    def records(self, topic: str) -> Iterator[tuple[Any, Any, dict[str, bytes]]]:
        """Key, value and headers of a topic's records, physical values; tombstones are None."""
        schemas = {}
        for answers in read(self.name)["registry"].values():
            for answer in map(json.loads, answers):
                schemas[answer["id"]] = physical(json.loads(answer["schema"]))
        for record in read(self.name)["records"]:
            if record["topic"] == f"{self.prefix}.{topic}":
                key, value = (_unframed(record[side], schemas) for side in ("key", "value"))
                yield key, value, {name: bytes.fromhex(v) for name, v in record["headers"]}


def _unframed(text: str | None, schemas: dict[int, Any]) -> Any:
    if text is None:
        return None
    data = bytes.fromhex(text)
    assert data[0] == 0
    stream = io.BytesIO(data[5:])
    value = fastavro.schemaless_reader(stream, schemas[int.from_bytes(data[1:5], "big")], None)
    assert not stream.read()
    return value


def physical(schema: Any) -> Any:
    """A schema without logical types, so that values are what stands in the bytes."""
    if isinstance(schema, dict):
        return {k: physical(v) for k, v in schema.items() if k != "logicalType"}
    return [physical(item) for item in schema] if isinstance(schema, list) else schema


@cache
def tables() -> dict[str, TableSchema]:
    """The recorded tables as of the beginning, by name."""
    return {said["id"][1]: _table(said) for said in read("source")["tables"]}


def _table(said: dict[str, Any]) -> TableSchema:
    return TableSchema(
        TableId(*said["id"]),
        tuple(_column(column) for column in said["columns"]),
        tuple(said["key"]),
        tuple(Unique(u["name"], tuple(u["columns"])) for u in said["unique"]),
        ReplicaIdentity(said["replica_identity"]),
        tuple(said["identity_columns"]),
    )


def _column(said: dict[str, Any]) -> Column:
    return Column(**{**said, "user_type": _user_type(said["user_type"])})


def _user_type(said: dict[str, Any] | None) -> UserType | None:
    if said is None:
        return None
    return UserType(**{**said, "labels": tuple(said["labels"]), "of": _user_type(said["of"])})


@dataclass
class Ours:
    """What our encoder makes of the same changes, read back by fastavro."""

    prefix: str
    options: EnvelopeOptions

    def schema(self, table: TableSchema) -> Any:
        return envelope_schema(self.prefix, table, self.options)

    def records(self, name: str) -> Iterator[Any]:
        """The values of one table: the rows that were there, then the changes."""
        table = tables()[name]
        start = TransactionConstants(0, 0, 1, 0, 0, 0, 0, snapshot="true")
        for row in read("source")["rows"][name]:
            cells = [None if cell is None else cell.encode() for cell in row]
            yield self._encoded(table, "r", "", None, cells, start, 0)
        known: dict[int, str] = {}
        tx = start
        for lsn, payload in read("source")["messages"]:
            match decode(bytes.fromhex(payload)):
                case Begin(commit_lsn, committed_at, xid):
                    committed = committed_at + POSTGRES_EPOCH_US
                    tx = TransactionConstants(
                        xid, commit_lsn, 1, 1, committed, committed, commit_lsn
                    )
                case Relation() as relation:
                    known[relation.relation] = relation.table
                    if relation.table == name:
                        table = _as_described(table, relation)
                case Insert(at, new) if known[at] == name:
                    yield self._encoded(table, "c", "", None, new, tx, lsn)
                case Update(at, kind, old, new) if known[at] == name:
                    yield self._encoded(table, "u", kind, old, new, tx, lsn)
                case Delete(at, kind, old) if known[at] == name:
                    yield self._encoded(table, "d", kind, old, None, tx, lsn)
                case Truncate(at) if name in {known[one] for one in at}:
                    yield self._encoded(table, "t", "", None, None, tx, lsn)

    def _encoded(
        self,
        table: TableSchema,
        op: str,
        kind: str,
        old: Cells | None,
        new: Cells | None,
        tx: TransactionConstants,
        lsn: int,
    ) -> Any:
        encoder = compile_encoder(
            table, prefix=self.prefix, schema_id=1, database="postgres", options=self.options
        )
        value = encoder.encode(op, kind, old, new, tx, lsn, 0)
        stream = io.BytesIO(value[5:])
        out = fastavro.schemaless_reader(stream, physical(self.schema(table)), None)
        assert not stream.read()
        return out


def _as_described(table: TableSchema, relation: Relation) -> TableSchema:
    """The shape that the stream says, the rest from the reading at the beginning."""
    known = {column.name: column for column in table.columns}
    columns = tuple(
        known.get(said.name, Column(said.name, said.type_oid, said.type_mod))
        for said in relation.columns
    )
    return replace(table, columns=columns)
