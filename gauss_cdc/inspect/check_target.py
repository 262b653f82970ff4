"""`gauss-cdc check`, the target's half: what `apply` will need there, by its own rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from gauss_cdc.config import Config
from schemas.control import Origin, SchemaChange
from schemas.findings import Finding, Level
from schemas.tables import TableId, TableSchema
from spark_consumers.cuts import segments
from spark_consumers.errors import ApplyError, KafkaDown, RegistryDown
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres import rights as pg_rights
from spark_consumers.sinks.postgres.apply import Catalog
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES
from spark_consumers.sinks.postgres.tables import shape_problems

_OF_THEIR_OWN = """
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN (SELECT unnest(%s::text[]) AS s, unnest(%s::text[]) AS t) AS w
      ON n.nspname = w.s AND c.relname = w.t
    WHERE t.tgenabled <> 'D')
"""


def refused(subject: str, error: ApplyError, level: Level = Level.ERROR) -> Finding:
    """Show what a rule that `apply` keeps to finds wrong."""
    where = ", ".join(f"{name}={value}" for name, value in error.where.items())
    return Finding(level, subject, f"{error.what} ({where})" if where else error.what, error.hint)


def check_rights(
    cursor: Any,
    tables: Sequence[TableId],
    *,
    follows: bool,
    runs_definitions: bool = False,
    is_postgres: bool,
    has_ledger: bool,
) -> Iterator[Finding]:
    """Rights on tables. `follows`: schema changes; `has_ledger`: the first load is behind us."""
    said = set[str]()
    for problem in pg_rights.load_problems(cursor, tables, has_policies=is_postgres):
        level = Level.WARNING if has_ledger and "schema" in problem.where else Level.ERROR
        yield refused("target rights", problem, level)
        said.add(problem.hint)
    if follows:
        for problem in pg_rights.ownership_problems(cursor, tables):
            if problem.hint not in said:
                yield refused("target rights", problem)
    if runs_definitions:
        for problem in pg_rights.power_problems(cursor):
            yield refused("target rights", problem)
    if not pg_rights.may_replicate(cursor):
        cursor.execute(_OF_THEIR_OWN, ([t.schema for t in tables], [t.name for t in tables]))
        (is_in_the_way,) = cursor.fetchone()
        yield Finding(
            Level.WARNING if is_in_the_way else Level.NOTE,
            "target rights",
            "the role may not switch foreign keys and triggers of the target off",
            pg_rights.replica_hint(cursor),
        )
    else:
        cursor.execute("RESET session_replication_role")


def check_shapes(
    cursor: Any, shapes: Iterable[TableSchema], *, is_postgres: bool, are_loaded: bool
) -> Iterator[Finding]:
    """Tables that cannot hold the source's, of shapes that they are loaded or will be with."""
    catalog = Catalog(product=POSTGRES if is_postgres else OPENGAUSS)
    for shape in shapes:
        subject = f"table {shape.id}"
        try:
            for problem in shape_problems(cursor, catalog, _as_load(shape)):
                yield refused(subject, problem)
            if are_loaded:
                catalog.need(cursor, [shape.id])
        except ApplyError as problem:
            yield refused(subject, problem)


def owned_tables(cursor: Any, source: str) -> set[TableId]:
    """Tables that were loaded or made by `apply` of a source."""
    cursor.execute(
        "SELECT table_schema, table_name FROM gauss_cdc.tables WHERE source = %s", (source,)
    )
    return {TableId(*row) for row in cursor.fetchall()}


def _as_load(shape: TableSchema) -> SchemaChange:
    """The record that a load of the table would begin with."""
    return SchemaChange(
        epoch=0,
        seq=0,
        ordinal=0,
        xid=0,
        csn=0,
        lsn=0,
        origin=Origin.SNAPSHOT,
        tag="CREATE TABLE",
        before=None,
        after=shape,
    )


def check_next_step(config: Config, ledger: Ledger) -> Iterator[Finding]:
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
        except (KafkaDown, RegistryDown):
            return  # their own lines say so
        except ApplyError as problem:
            yield refused("apply", problem)
