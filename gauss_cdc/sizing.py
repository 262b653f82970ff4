"""`gauss-cdc size`: what a source needs, by its own statistics and by what was measured.  Pure.

The figures are those that docs/performance.md has from the benchmarks, the slower of each; two
cores were shared by everything there.  A machine and rows of yours differ: hence the margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from producer.sources.session import Asks
from schemas.quoting import literal, qualified
from schemas.tables import TableId

MARGIN: Final = 2.0
# By the headings of docs/performance.md: changes in transactions of five, then rows of a load.
CAPTURE_ROWS_S, CAPTURE_CPU, WALSENDER_CPU, BROKER_CPU = 244_000, 1.84, 3.88, 1.07
APPLY_ROWS_S, APPLY_CPU = 314_000, 1.53
LOAD_ROWS_S = 319_000
RUN_MB, DRIVER_MB, JVM_MB = 186, 358, 464
LAG_P99_MS, LAG_ROWS_S = 87.7, 2_500  # commit to visible, at this rate


class Statistics(NamedTuple):
    """What the source says of the captured tables, and of its log."""

    rows: int  # estimated
    bytes: int
    changes: int  # since the server's statistics begin
    log_end: int


class Rates(NamedTuple):
    """What two looks at the statistics show."""

    rows: int
    bytes: int
    changes_s: float
    log_bytes_s: float

    @classmethod
    def between(cls, one: Statistics, other: Statistics, seconds: float) -> Rates:
        """Compare; statistics that were reset meanwhile count as no change."""
        changes, log = max(0, other.changes - one.changes), max(0, other.log_end - one.log_end)
        return cls(other.rows, other.bytes, changes / seconds, log / seconds)


def statistics(session: Asks, tables: Sequence[TableId], log_end: int) -> Statistics:
    """Ask for the sums over tables and their partitions; raises SourceError."""
    if not tables:
        return Statistics(0, 0, 0, log_end)
    names = ", ".join(f"({literal(qualified(table))}::regclass::oid)" for table in tables)
    ((rows, size, changes),) = session.query(
        f"""
        WITH RECURSIVE wanted(id) AS (
            SELECT id FROM (VALUES {names}) AS named(id)
            UNION SELECT inhrelid FROM pg_catalog.pg_inherits, wanted WHERE inhparent = id)
        SELECT coalesce(sum(n_live_tup), 0), coalesce(sum(pg_catalog.pg_table_size(relid)), 0),
               coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)
        FROM pg_catalog.pg_stat_user_tables JOIN wanted ON relid = id
        """  # noqa: S608  quoted
    )
    return Statistics(int(rows or 0), int(size or 0), int(changes or 0), log_end)


def needs(rates: Rates, *, days: float, retention: float) -> dict[str, float]:
    """What to plan for, with the margin; `days` without Kafka, `retention` in seconds.

    Cores, bytes, seconds, numbers.  A record in Kafka is taken as large as its log.
    """
    busy = MARGIN * rates.changes_s
    return {
        "cores_run": busy * CAPTURE_CPU / 1e6,
        "cores_walsender": busy * WALSENDER_CPU / 1e6,
        "cores_broker": busy * BROKER_CPU / 1e6,
        "cores_apply": busy * APPLY_CPU / 1e6,
        "memory_run_bytes": MARGIN * RUN_MB * 1e6,
        "memory_apply_bytes": MARGIN * (DRIVER_MB + JVM_MB) * 1e6,
        "partitions": max(1, math.ceil(busy / APPLY_ROWS_S)),
        "disk_kafka_bytes": MARGIN * (rates.bytes + rates.log_bytes_s * retention),
        "disk_source_bytes": MARGIN * rates.log_bytes_s * 86_400 * days,
        "first_load_seconds": MARGIN * rates.rows / LOAD_ROWS_S,
    }


def lag(rates: Rates) -> str:
    """What to expect between a commit and its rows at the target."""
    busy = MARGIN * rates.changes_s
    if busy > min(CAPTURE_ROWS_S, APPLY_ROWS_S):
        return "it grows: more changes come than were ever drained; look at spark.md's cluster"
    if busy > LAG_ROWS_S:
        return (
            f"not measured beyond {LAG_ROWS_S:,} changes/s; they are drained faster than they come"
        )
    return f"99 % within {MARGIN * LAG_P99_MS / 1e3:.2f} s"
