"""A set of topics as `run` writes it, made of the recorded changes (tests/golden/debezium)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple

import fastavro

from producer.core.events import Record, RowsAssembled
from producer.core.records.encode import compile_encoder, compile_key_encoder
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.router import Binding, table_key
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.sources.postgres.pgoutput import decode
from schemas.envelope import (
    EnvelopeOptions,
    envelope_schema,
    key_schema,
    message_key_schema,
    message_schema,
    transaction_key_schema,
    transaction_schema,
)
from schemas.tables import TableSchema
from schemas.topics import Topics, key_subject, value_subject
from tests.contract.recorded import physical, read, tables

PREFIX = "bank"


class Kept(NamedTuple):
    """One record: key and value as their bytes say; None where there is none."""

    key: Any
    value: Any
    headers: dict[str, bytes]


@dataclass
class TopicSet:
    """Topics and subjects under one setting of `[kafka] key`; tables of `only` alone."""

    key: Literal["table", "primary-key"]
    only: tuple[str, ...]
    framed: bool = False  # with transaction metadata
    subjects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    schemas: list[dict[str, Any]] = field(default_factory=list)

    @cached_property
    def records(self) -> list[Record]:
        """All of them; made when they are asked for, and their schemas registered."""
        known = {table.id: table for table in tables().values()}
        assembler = Assembler(
            relations=Relations(
                known,
                read_catalog=known.get,
                wanted=lambda table: table.name in self.only,
                new_tables_are_complete=True,
            ),
            ports=AssemblerPorts(self._publish, lambda _: b"", lambda: 1),
            epoch=1,
            seq=0,
            redelivery=Redelivery(0),
            ddl_topic=f"{PREFIX}.ddl",
            max_row_bytes=1 << 20,
            messages=MessageWriter(
                Topics(PREFIX).message,
                key_id=self._register("messages-key", message_key_schema()),
                value_id=self._register("messages-value", message_schema()),
                prefix=PREFIX,
                database="postgres",
                options=EnvelopeOptions(),
            ),
            frames=TransactionWriter(
                Topics(PREFIX).transaction,
                key_id=self._register("transaction-key", transaction_key_schema()),
                value_id=self._register("transaction-value", transaction_schema()),
            )
            if self.framed
            else None,
        )
        messages = (
            (lsn, decode(bytes.fromhex(payload))) for lsn, payload in read("source")["messages"]
        )
        batches = (b.records for b in assembler.feed(messages) if isinstance(b, RowsAssembled))
        return list(chain.from_iterable(batches))

    def topic(self, table: str) -> Iterator[Kept]:
        """The records of one table."""
        name = Topics(PREFIX).table(tables()[table].id)
        for topic, _, key, value, headers in self.records:
            if topic == name:
                yield Kept(self._key(key), self._read(value), dict(headers))

    def messages(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values of the logical messages."""
        return self._of(Topics(PREFIX).message)

    def transactions(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values of BEGIN and END."""
        return self._of(Topics(PREFIX).transaction)

    def _of(self, name: str) -> Iterator[tuple[Any, Any]]:
        for topic, _, key, value, _ in self.records:
            if topic == name:
                yield self._read(key), self._read(value)

    def resolved(self, table: str, reader: dict[str, Any]) -> Iterator[Any]:
        """Values of one table by a schema of the reader's own, as Avro resolves it."""
        name = Topics(PREFIX).table(tables()[table].id)
        for topic, _, _, value, _ in self.records:
            if topic == name and value is not None:
                schema = physical(self.schemas[int.from_bytes(value[1:5], "big")])
                yield fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, reader)

    def subject(self, table: str, side: Literal["key", "value"]) -> dict[str, Any] | None:
        """The newest schema, as a reader asks the registry for it by the topic's name."""
        assert self.records
        name = Topics(PREFIX).table(tables()[table].id)
        found = self.subjects.get({"key": key_subject, "value": value_subject}[side](name))
        return None if found is None else found[-1]

    def _key(self, key: bytes | None) -> Any:
        return key if self.key == "table" else self._read(key)

    def _read(self, data: bytes | None) -> Any:
        """Confluent's framing and Avro, the way a converter takes it."""
        if data is None:
            return None
        assert data[0] == 0
        schema = self.schemas[int.from_bytes(data[1:5], "big")]
        stream = io.BytesIO(data[5:])
        out = fastavro.schemaless_reader(stream, physical(schema), None)
        assert not stream.read()
        return out

    def _publish(self, table: TableSchema) -> Binding:
        topic = Topics(PREFIX).table(table.id)
        schema_id = self._register(value_subject(topic), envelope_schema(PREFIX, table))
        key_of = None
        if self.key == "primary-key" and table.key:
            key_id = self._register(key_subject(topic), key_schema(PREFIX, table))
            key_of = compile_key_encoder(table, prefix=PREFIX, schema_id=key_id)
        return Binding(
            table=table,
            topic=topic,
            schema_id=schema_id,
            partitions=1,
            encoder=compile_encoder(table, prefix=PREFIX, schema_id=schema_id, database="postgres"),
            key=table_key(table.id) if self.key == "table" else None,
            key_of=key_of,
            partition_of=None,
            partition=0,
            key_at=tuple(map(table.names().index, table.key)) if key_of is not None else (),
            tombstones=key_of is not None,
        )

    def _register(self, subject: str, schema: dict[str, Any]) -> int:
        self.subjects.setdefault(subject, []).append(schema)
        self.schemas.append(schema)
        return len(self.schemas) - 1
