"""Rules about tables: which cannot be captured, or not as they are defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producer.sources import patterns
from producer.sources.gauss import gaps
from producer.sources.gauss.checks.case import Case
from producer.sources.gauss.readings import TableReading
from schemas.findings import Finding, Level
from schemas.tables import ReplicaIdentity
from schemas.types import UnknownType, type_of

# The manual's list of types that are decoded, as format_type() names them.
DECODED_TYPES: Final = frozenset({
    "integer", "bigint", "smallint", "tinyint", "real", "double precision", "boolean", "bit",
    "bit varying", "date", "time without time zone", "timestamp without time zone", "character",
    "character varying", "text", "clob",
})  # fmt: skip


def tables(case: Case) -> Iterator[Finding]:
    """Every table that [tables] matches."""
    tables = case.readings.tables
    if not any(table.shape for table in tables):
        yield Finding(
            Level.ERROR,
            "tables",
            f"nothing matches {', '.join(case.options.include)}",
            "create tables, or correct [tables]",
        )
    options = case.options
    for name in patterns.absent((t.id for t in tables), options.include, options.exclude):
        yield Finding(Level.ERROR, f"table {name}", patterns.ABSENT, "correct [tables]")
    for table in tables:
        yield from _table(table, case)


def _table(table: TableReading, case: Case) -> Iterator[Finding]:
    subject = f"table {table.id}"
    if unlogged := _not_in_the_log(table):
        yield Finding(Level.WARNING, subject, f"is {unlogged}: not captured")
        return
    if table.is_interval:
        yield Finding(
            Level.ERROR,
            subject,
            "has interval partitions, which logical decoding does not support",
            "exclude it, or make the partitions by range",
        )
    if table.is_ledger:
        yield Finding(
            Level.ERROR,
            subject,
            "is a ledger table, which logical decoding does not support",
            "exclude it",
        )
    yield from _identity(table, subject)
    yield from _types(table, subject, case)
    if table.shape and (what := gaps.not_sent(table.shape, gaps.decoding_mode(case.decided))):
        yield Finding(Level.NOTE, subject, what, "a view at the target may compute them")


def _not_in_the_log(table: TableReading) -> str:
    if table.is_columnar:
        return "in column storage"
    return {"u": "unlogged", "g": "global temporary", "t": "temporary"}.get(table.persistence, "")


def _identity(table: TableReading, subject: str) -> Iterator[Finding]:
    shape = table.shape
    if shape is None:
        return
    identity = shape.replica_identity
    if table.has_system_key and identity not in (ReplicaIdentity.FULL, ReplicaIdentity.INDEX):
        yield Finding(
            Level.ERROR,
            subject,
            "has a primary key over a system column: old rows cannot be identified",
            "ALTER TABLE … REPLICA IDENTITY FULL, or USING INDEX of a unique one over NOT NULL "
            "columns of its own",
        )
        return
    keyless = not shape.key
    if identity is ReplicaIdentity.NOTHING or (
        identity is ReplicaIdentity.DEFAULT and keyless and not table.is_ustore
    ):
        yield Finding(
            Level.WARNING,
            subject,
            "has no replica identity: INSERT works, UPDATE and DELETE do not identify a row",
            "a primary key, or ALTER TABLE … REPLICA IDENTITY FULL; else tables.without-identity",
        )
    elif keyless and identity is not ReplicaIdentity.INDEX:
        yield Finding(
            Level.WARNING, subject, "has no primary key: each change is matched by the whole row"
        )


def _types(table: TableReading, subject: str, case: Case) -> Iterator[Finding]:
    if table.shape is None:
        return
    for column in table.shape.columns:
        try:
            type_of(column, case.options.types)
        except UnknownType:
            yield Finding(
                Level.ERROR,
                subject,
                f"column {column.name} is of type {column.type_name}, which is not supported",
                'set [types] unknown-types = "text", or exclude the table',
            )
            continue
        bare = column.type_name.removeprefix("pg_catalog.").partition("(")
        name = f"{bare[0]}{bare[2].partition(')')[2]}".strip()  # timestamp(3) without time zone
        if case.is_gaussdb and name not in DECODED_TYPES:
            yield Finding(
                Level.WARNING,
                subject,
                f"column {column.name} is of type {column.type_name}, which is not in the manual's "
                "list of types that are decoded",
                "compare after the first changes",
            )
