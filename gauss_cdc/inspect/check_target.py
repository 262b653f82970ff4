"""`gauss-cdc check`, the target's half: what `apply` will need there, by its own rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from gauss_cdc import target
from gauss_cdc.config import Config
from gauss_cdc.shapes import shapes_at
from producer.errors import CdcError
from schemas.findings import Finding, Level, refused
from schemas.tables import TableId, TableSchema
from spark_consumers.cuts.segments import segments
from spark_consumers.errors import ApplyError, KafkaDown, RegistryDown, TopicMissing
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.model import Ledger


def check_target(
    config: Config,
    tables: Sequence[TableId],
    shapes: Sequence[TableSchema],
    *,
    reads_cuts: bool,
) -> Iterator[Finding]:
    """Yield the findings of any kind of sink; `reads_cuts`: Kafka and the registry answer."""
    with closing(target.kind_of(config).inspector(target.setup(config))) as inspector:
        is_barred = False
        for finding in inspector.reach():
            yield finding
            is_barred |= finding.level is Level.ERROR and finding.subject == "target rights"
        ledger = None if is_barred else inspector.ledger()
        has_ledger = ledger is not None and ledger.epoch > 0
        yield from inspector.rights(tables, has_ledger=has_ledger)
        if ledger is None or not has_ledger:
            yield from inspector.tables(shapes, are_loaded=False)
            return
        yield Finding(Level.OK, "ledger", f"{ledger.state} at {ledger.epoch}/{ledger.seq}")
        for name, why in ledger.inexact.items():
            yield Finding(Level.WARNING, f"table {name}", f"is not exact: {why}")
        if reads_cuts:
            yield from inspector.tables(_loaded_shapes(config, ledger), are_loaded=True)
            yield from _check_next_step(config, ledger)


def _loaded_shapes(config: Config, ledger: Ledger) -> list[TableSchema]:
    """Shapes of tables at the ledger's commit; none where Kafka does not answer."""
    try:
        return list(shapes_at(config, ledger.epoch, ledger.seq).values())
    except CdcError:
        return []  # the findings about Kafka report it


def _check_next_step(config: Config, ledger: Ledger) -> Iterator[Finding]:
    """Read the cuts behind the ledger as the next step of `apply` will."""
    client, prefix = config.kafka.client_settings(), config.kafka.prefix
    schema_of = registry_at(config.registry.url, config.registry.client())
    with (
        closing(CutReader(client, prefix, schema_of)) as cuts,
        closing(RangeReader(client, prefix, schema_of)) as rows,
    ):
        try:
            for segment in segments(ledger, cuts(ledger), max_rows=1):
                rows.check_identity(segment)
                break
        except TopicMissing as problem:
            yield refused("apply", problem)
        except (KafkaDown, RegistryDown):
            return  # the findings about Kafka and the registry report it
        except ApplyError as problem:
            yield refused("apply", problem)
