"""Tables' shapes as the topic of schema changes has them."""

from __future__ import annotations

from contextlib import closing

from gauss_cdc import wiring
from gauss_cdc.config import Config
from producer.core.log.ddl_log import known_tables
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from schemas.tables import TableId, TableSchema


def shapes_at(config: Config, epoch: int, seq: int) -> dict[TableId, TableSchema]:
    """Return the shapes of all tables at a commit; raises CdcError where Kafka does not answer."""
    options = wiring.producer_options(config)
    with (
        closing(Registry(options.registry_url, options.registry_options)) as registry,
        closing(CutsReader(options.client, options.topics.ddl)) as reader,
    ):
        return known_tables(reader, registry, epoch=epoch, seq=seq)
