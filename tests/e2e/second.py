"""A second target beside that of a path, and who reads the topics without us."""

from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from producer.core.log.ddl_log import known_tables
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from schemas.envelope import UNAVAILABLE
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.decode import split
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.loop import job
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import Path, pause, until


def restart_without_history(path: Path, tables: Sequence[str]) -> None:
    """Start `run` again, and delete what stood in Kafka before, as retention does."""
    path.stop()
    topics = Topics(path.prefix)
    reader = Consumer({**path.options.client, "group.id": path.prefix})
    _, end = reader.get_watermark_offsets(TopicPartition(topics.cuts, 0))
    reader.close()
    path.start()
    path.catch_up()
    rows = [topics.table(TableId("public", table)) for table in tables]
    gone = [TopicPartition(topics.cuts, 0, end)]
    gone += [TopicPartition(topic, 0, OFFSET_END) for topic in rows]
    admin = AdminClient(path.options.client)
    for place in gone:
        admin.delete_records([place])[place].result()


class Late:
    """A target of its own beside that of a path."""

    def __init__(self, path: Path, target: str, name: str = "postgres") -> None:
        self.target, self._path = target, path
        client = path.options.client
        self._cuts = CutReader(client, path.prefix, path.schema_of)
        self._rows = RangeReader(client, path.prefix, path.schema_of)
        self._sink = PostgresSink(target, path.prefix)
        self._sink.start()
        options = job.PassOptions(target=name)
        self._applier = job.Applier(
            self._cuts, self._rows, self._sink, options, known=self._tables_at
        )

    def _tables_at(self, epoch: int, seq: int) -> list[str]:
        options = self._path.options
        with (
            closing(Registry(options.registry_url, options.registry_options)) as registry,
            closing(CutsReader(options.client, options.topics.ddl)) as reader,
        ):
            return [str(t) for t in known_tables(reader, registry, epoch=epoch, seq=seq)]

    def catch_up(self) -> Ledger:
        """Apply until this target is where the path's is."""
        first = self._path.catch_up()
        until(lambda: self.drain().n >= first.n, "what the first one has", pause)
        return self.drain()

    def drain(self) -> Ledger:
        """Apply what stands in Kafka."""
        return self._applier.drain()

    def close(self) -> None:
        self._cuts.close()
        self._rows.close()
        self._sink.close()


class PlainReader:
    """Keeps a table by the records of its topic alone: without cuts, and by its key."""

    def __init__(self, path: Path, table: str) -> None:
        self._schema_of = path.schema_of
        self._consumer = Consumer(
            {
                **path.options.client,
                "group.id": f"{path.prefix}-plain",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        topic = Topics(path.prefix).table(TableId("public", table))
        self._place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        self._consumer.assign([self._place])
        self.rows: dict[int, dict[str, Any]] = {}
        self.emptied = 0  # times that it was told that the table begins anew

    def read(self) -> None:
        """Take what stands in the topic."""
        _, end = self._consumer.get_watermark_offsets(self._place)
        while True:
            message = self._consumer.poll(10)
            assert message is not None
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF
                if (message.offset() or 0) >= end:
                    return
            elif (value := message.value()) is not None:
                schema_id, payload = split(value)
                self._take(fastavro.schemaless_reader(BytesIO(payload), self._schema_of(schema_id)))

    def _take(self, change: dict[str, Any]) -> None:
        old, new = change["before"], change["after"]
        if change["op"] == "t":
            self.rows.clear()
            self.emptied += 1
        elif new is None:
            del self.rows[old["id"]]
        else:
            key = new["id"] if old is None else old["id"]  # it may come to another one
            was = self.rows.pop(key, {})
            self.rows[new["id"]] = {
                name: was[name] if cell == UNAVAILABLE else cell for name, cell in new.items()
            }

    def close(self) -> None:
        self._consumer.close()
