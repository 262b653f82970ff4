"""Publishes table versions: creates the topic, registers the schema, compiles the encoder.

All of it happens once per table version and before its first row, so that a
refusal stops before the row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from producer.core.records.encode import compile_encoder, compile_key_encoder, key_columns
from producer.core.records.messages import MessageWriter
from producer.core.records.reference import CompileNative
from producer.core.records.row_plan import KeyPlan
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.router import Binding, partition_of, placing, table_key
from producer.core.statements.disclosed import without_text
from producer.errors import SchemaRefused
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicAdmin
from producer.options import Options
from schemas.control import SchemaChange, Topic, change_to_avro
from schemas.envelope import (
    EnvelopeOptions,
    envelope_schema,
    key_schema,
    message_key_schema,
    message_schema,
    transaction_key_schema,
    transaction_schema,
)
from schemas.load import CUT, SCHEMA_CHANGE
from schemas.tables import TableId, TableSchema
from schemas.topics import key_subject, value_subject

_AT_ONCE: Final = 8  # requests to the registry


def fingerprint(options: Options, inputs: Mapping[str, object]) -> str:
    """Hashes of the settings that decide which rows exist: of all, and of all but [tables].

    `inputs`: what the kind of source adds to it, such as options that remove changes.
    """
    tables = {"include": sorted(options.include), "exclude": sorted(options.exclude)}
    rest = {
        **inputs,  # its order counts: running prefixes have the hash of it
        "key": options.key,  # keyed rows have tombstones, and key changes are two records
        "partition_by": options.partition_by,  # rows of one key would change partitions
    }
    return f"{_hash({**tables, **rest})}-{_hash(rest)}"


def _hash(said: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]


class Publisher:
    """Makes bindings; knows the topics of the prefix."""

    def __init__(
        self,
        options: Options,
        *,
        admin: TopicAdmin,
        registry: Registry,
        on_topics: Callable[[Mapping[str, Topic]], None],
        note: Callable[[str], None] = lambda _: None,
        native: CompileNative | None = None,
    ) -> None:
        """`native`: compiles encoders of rows; None: the reference writes all."""
        self._options, self._native = options, native
        self._admin = admin
        self._registry = registry
        self._on_topics, self._note = on_topics, note
        self._topics: dict[str, Topic] = {}
        self._ahead: dict[TableId, Future[None]] = {}  # being registered
        self._check: Future[None] | None = None  # of topics that were there
        self._making: Future[None] | None = None  # topics that were not
        self._named: set[str] = set()  # those that cuts may name
        self.encoding = (
            "utf-8"  # of cells; a source with another encoding sets it before the first row
        )

    def prepare(self) -> None:
        """Make or check the control topics, and register our own schemas."""
        topics = self._options.topics
        untracked = [topics.message] if self._options.messages else []
        untracked += [topics.transaction] if self._options.transaction_metadata else []
        self._admin.ensure(untracked, cuts=topics.cuts, ddl=topics.ddl)
        self._registry.own(CUT, value_subject(topics.cuts))
        self._registry.own(SCHEMA_CHANGE, value_subject(topics.ddl))
        self._named |= {topics.cuts, topics.ddl}
        self.look()

    def prepare_tables(self, tables: Sequence[TableId]) -> None:
        """Make or check the data topics of many tables in one go; once in a turn.

        Raises TopicUnfit, also for topics of which it was not known yet (`prepare_beside`).
        """
        self.checked()
        self._prepare(tables)

    def _prepare(self, tables: Sequence[TableId]) -> None:
        if new := self._unnamed(tables):
            self._make_topics(new)
            there = self._topics if new.keys() <= self._topics.keys() else self.look()
            self._named |= {self._options.topics.of(table, there) for table in new.values()}

    def prepare_beside(self, tables: Sequence[TableId]) -> None:
        """Do the same beside what comes next: brokers take seconds for many topics.

        `prepare_tables`, `publish` and `checked` wait for it, and raise what it raises; `is_ours`
        waits until topics that were not there are made.
        """
        if not (new := self._unnamed(tables)):
            return
        pool = ThreadPoolExecutor(1, "topics")
        if new.keys() <= self._topics.keys():
            self._check = pool.submit(self._admin.check, new, there=self._topics)
            self._named |= new.keys()
        else:
            self._making = pool.submit(self._prepare, tables)
        pool.shutdown(wait=False)

    def _unnamed(self, tables: Sequence[TableId]) -> dict[str, TableId]:
        """Topic -> table, of those whose topics no cut may name yet."""
        named = ((self._options.topics.of(table, self._topics), table) for table in tables)
        return {name: table for name, table in named if name not in self._named}

    def checked(self) -> None:
        """Wait until the topics are made, and those that were there checked; raise TopicUnfit."""
        self._made()
        check, self._check = self._check, None
        if check is not None:
            check.result()

    def _made(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            making.result()

    def is_ours(self, topic: str) -> bool:
        """Say whether cuts of this run may name a topic: others below the prefix are readers'."""
        self._made()
        return topic in self._named

    def _make_topics(self, wanted: Mapping[str, TableId]) -> None:
        """Make topics of tables; one whose name Kafka takes for another's is set apart."""
        topics = self._options.topics
        refused = self._admin.ensure_apart(wanted, there=self._topics)
        self._admin.ensure(topics.apart(wanted[name]) for name in refused)
        for name, why in refused.items():
            table = wanted[name]
            self._note(
                f"{table} has the topic {topics.apart(table)}, as Kafka refuses {name}: {why}"
            )

    def look(self) -> dict[str, Topic]:
        """Read the topics of the prefix as they are."""
        found = self._admin.existing(self._admin.list_below(self._options.prefix))
        was = self._topics
        # Partitions added while we run are not used: rows of one key would change partitions.
        self._topics = {
            name: was[name] if name in was and was[name].id == topic.id else topic
            for name, topic in found.items()
        }
        return self._topics

    def topic(self, table: TableId) -> str:
        """Return a table's topic, made if it is not there: a cut may name it from now on.

        Raises TopicUnfit.
        """
        topics = self._options.topics
        topic = topics.of(table, self._topics)
        if topic not in self._topics:
            self._make_topics({topic: table})
            topic = topics.of(table, self.look())
        if not self.is_ours(topic):
            self._named.add(topic)
            self._on_topics({name: t for name, t in self._topics.items() if self.is_ours(name)})
        return topic

    def publish(self, table: TableSchema) -> Binding:
        """Bind one table version; raise SchemaRefused, TopicUnfit, Unsupported.

        A table without a primary key has null keys under `key = "primary-key"`, as Debezium's,
        and stays in one partition.
        """
        self.checked()
        options, topic = self._options, self.topic(table.id)
        if (asked := self._ahead.pop(table.id, None)) is not None:
            asked.result()
        envelope = EnvelopeOptions(types=options.types)
        schema_id, *key_ids = [
            self._register(subject, schema) for subject, schema in self._schemas(table)
        ]
        encoder = compile_encoder(
            table,
            prefix=options.prefix,
            schema_id=schema_id,
            database=options.source.dbname,
            options=envelope,
            encoding=self.encoding,
            native=self._native,
        )
        partitions = self._topics[topic].partitions
        key = table_key(table.id)
        key_of, key_head = None, None
        if key_ids:
            (key_id,) = key_ids
            key_of = compile_key_encoder(
                table,
                prefix=options.prefix,
                schema_id=key_id,
                options=envelope,
                encoding=self.encoding,
            )
            key_head = b"\x00" + key_id.to_bytes(4, "big")
        is_placed = options.partition_by == "primary-key" and bool(table.key)
        is_by_key = key_of is not None or is_placed
        return Binding(
            table=table,
            topic=topic,
            schema_id=schema_id,
            partitions=partitions,
            encoder=encoder,
            key=key if options.key == "table" else None,
            key_of=key_of,
            key_at=tuple(table.names().index(name) for name in table.key) if is_by_key else (),
            partition_of=placing(table, partitions) if is_placed else None,
            partition=partition_of(key, partitions),
            tombstones=key_of is not None,
            key_plan=KeyPlan(
                key_columns(table, envelope),
                key_head,
                partitions if is_placed else 0,
                tombstones=key_of is not None,
            )
            if is_by_key
            else None,
        )

    def register_ahead(self, tables: Sequence[TableSchema]) -> None:
        """Register the schemas of many tables, some at a time, while they are loaded.

        `publish` waits for its table's.  One that the registry refuses is left to it.  Raises
        Unsupported.
        """
        schemas = {table.id: [*self._schemas(table)] for table in tables}

        def register(table: TableId) -> None:
            with suppress(SchemaRefused):
                for subject, schema in schemas[table]:
                    self._registry.register(subject, schema)

        self.close()
        pool = ThreadPoolExecutor(_AT_ONCE, "register")
        self._ahead = {table: pool.submit(register, table) for table in schemas}
        pool.shutdown(wait=False)  # behind the last one

    def close(self) -> None:
        """Register nothing ahead any more; what brokers still say of settings is not heard."""
        for asked in self._ahead.values():
            asked.cancel()
        self._ahead = {}

    def _schemas(self, table: TableSchema) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Give the subjects and schemas of a table: of its values, then of its keys, if any."""
        options, envelope = self._options, EnvelopeOptions(types=self._options.types)
        topic = options.topics.of(table.id, self._topics)
        yield value_subject(topic), envelope_schema(options.prefix, table, envelope)
        if options.key == "primary-key" and table.key:
            yield key_subject(topic), key_schema(options.prefix, table, envelope)

    def messages(self) -> MessageWriter | None:
        """Bind the topic of logical messages, where they are asked for.  None: they are not."""
        options = self._options
        if not options.messages:
            return None
        topic = options.topics.message
        return MessageWriter(
            topic,
            key_id=self._register(key_subject(topic), message_key_schema()),
            value_id=self._register(value_subject(topic), message_schema()),
            prefix=options.prefix,
            database=options.source.dbname,
            options=EnvelopeOptions(),
        )

    def transactions(self) -> TransactionWriter | None:
        """Bind the topic of BEGIN and END, where it is asked for.  None: it is not."""
        if not self._options.transaction_metadata:
            return None
        topic = self._options.topics.transaction
        return TransactionWriter(
            topic,
            key_id=self._register(key_subject(topic), transaction_key_schema()),
            value_id=self._register(value_subject(topic), transaction_schema()),
        )

    def _register(self, subject: str, schema: Mapping[str, object]) -> int:
        if self._options.incompatible == "new-version":
            return self._registry.register_anyway(subject, schema, prefix=self._options.prefix)
        return self._registry.register(subject, schema)

    def encode_change(self, change: SchemaChange) -> bytes:
        """Write a SchemaChange; texts of statements only where that is asked for."""
        published = change if self._options.ddl_text else without_text(change)
        return self._registry.encode(SCHEMA_CHANGE, change_to_avro(published))
