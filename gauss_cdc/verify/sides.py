"""One server of the two: a session under a snapshot, and one that sees what is there now.

A table is locked against DDL only while it is read: the lock is taken behind a savepoint, to
which the session returns.  What an error of one table left behind ends there, too.
"""
# ruff: noqa: S608  every name in a statement is quoted

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gauss_cdc.verify.report import RowKind, TableReport
from producer.errors import CdcError, SourceError
from producer.sources.session import Asks
from schemas import servers
from schemas.encodings import WITHOUT
from schemas.quoting import constant, qualified
from schemas.tables import ReplicaIdentity, TableId, TableSchema
from spark_consumers.errors import ApplyError, TargetError
from spark_consumers.model import Change, Ledger
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS
from spark_consumers.sinks.postgres.refusals import ours

Rows = list[list[str | None]]
_EXACT_FLOATS: Final = 120_000  # from here on floats are printed in their shortest exact form
_FETCH: Final = 10_000  # rows
_COLUMNS: Final = """
SELECT a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {name} AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
# What a lock that is not had, a table that is gone, and a shape that is another one are refused by.
_MOVING: Final = frozenset({"55P03", "42P01", "42703", "42809"})


class TableMoved(Exception):
    """A table was altered or emptied after the snapshot: its rows cannot be read as of then."""


class NotComparable(Exception):
    """No other round would decide a table either."""


class ComparedPair(Protocol):
    """Source and target, each as of its place: one way to compare them."""

    @property
    def ledger(self) -> Ledger:
        """What the target holds."""

    def compare(self, shape: TableSchema, changes: Sequence[Change], report: TableReport) -> None:
        """Compare one table; `changes` are what the target holds and the source's snapshot lacks.

        Raises TableMoved, NotComparable, ComparisonStopped.
        """


class ComparisonStopped(Exception):
    """Asked to stop."""


def key_of(shape: TableSchema) -> tuple[str, ...]:
    """Return the columns by which rows are known; (): rows are a multiset."""
    if not shape.key and shape.replica_identity is ReplicaIdentity.INDEX:
        return shape.identity_columns
    return shape.key


def count_missing(report: TableReport, rows: int) -> None:
    """Report the source's rows of a table that the target does not have.

    Raises NotComparable where there is no row either.
    """
    report.notes.append("the target has no such table")
    if not rows:
        raise NotComparable("it has no rows, and the target has no such table")
    report.source_rows = report.counts[RowKind.MISSING] = rows


class TargetSession:
    """A target's connection, with the questions of `Asks`: all rows are text."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def query(self, sql: str) -> Rows:
        """Run one statement; raise TargetError."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
                if getattr(cursor, "description", True) is None:
                    return []
                return [list(row) for row in cursor.fetchall()]
        except DRIVER_ERRORS as error:
            raise ours(error) from error

    def close(self) -> None:
        """Close the connection; the server rolls back what is open."""
        self.connection.close()


@dataclass(frozen=True, slots=True)
class PrintingFacts:
    """What the texts of a server's values depend on."""

    is_postgres: bool
    version: int  # server_version_num of PostgreSQL
    encoding: str

    @property
    def has_exact_floats(self) -> bool:
        """Say whether texts of floats have every bit (PostgreSQL 12: `extra_float_digits`)."""
        return self.is_postgres and self.version >= _EXACT_FLOATS

    @property
    def is_utf8(self) -> bool:
        """Say whether bytes of texts are those of UTF-8, or of no encoding."""
        return self.encoding in {"UTF8", WITHOUT}


class ComparedServer:
    """Source or target, for the time of one snapshot."""

    def __init__(self, reading: Asks, now: Asks, *, is_source: bool) -> None:
        """`reading` is in a transaction, under the snapshot; `now` is in none."""
        self.reading, self.now, self.is_source = reading, now, is_source
        ((said, version, encoding),) = now.query(
            "SELECT version(), current_setting('server_version_num'),"
            " current_setting('server_encoding')"
        )
        product = servers.product_of(said or "")
        is_postgres = product is not None and product[0] == servers.POSTGRESQL
        self.facts = PrintingFacts(is_postgres, int(version or 0), encoding or "")

    @contextmanager
    def holding(self, table: TableId) -> Iterator[str]:
        """Give the FROM item of a table's rows; DDL on it waits meanwhile.

        Raises TableMoved where its rows as of the snapshot are not there any more.
        """
        reading = self.reading
        reading.query("SAVEPOINT verified")
        try:
            if self.facts.is_postgres:
                reading.query("SET LOCAL lock_timeout = '5s'")
            reading.query(f"LOCK TABLE {qualified(table)} IN ACCESS SHARE MODE")
            if self.facts.is_postgres:
                reading.query("SET LOCAL lock_timeout = 0")
            files = _files(table)
            if (found := reading.query(files)) != self.now.query(files) or not found:
                raise TableMoved("it was emptied, rewritten or altered meanwhile")
            yield _rows_of(reading, table)
        except (SourceError, TargetError) as error:
            if (state := error.where.get("sqlstate")) not in _MOVING:
                raise
            # The server's message may hold a value: a regclass is the name of a table.
            raise TableMoved(f"it is being altered (sqlstate={state})") from error
        finally:
            with suppress(
                CdcError, ApplyError
            ):  # of a session that is gone: the first error counts
                reading.query("ROLLBACK TO SAVEPOINT verified")

    def not_copied(self, shape: TableSchema) -> list[str]:
        """Name the table's columns that no copy has, for the notes of a report."""
        schema, name = map(constant, shape.id)
        there = self.reading.query(_COLUMNS.format(schema=schema, name=name))
        names = [name for (name,) in there if name is not None and name not in shape.names()]
        return [f"columns that are not copied: {', '.join(names)}"] if names else []

    def rows(self, select: str) -> Iterator[list[str | None]]:
        """Read rows a few at a time, under the snapshot."""
        self.reading.query(f"DECLARE verified_rows NO SCROLL CURSOR FOR {select}")
        while some := self.reading.query(f"FETCH FORWARD {_FETCH} FROM verified_rows"):
            yield from some
        self.reading.query("CLOSE verified_rows")


def settled(session: Asks, settings: Mapping[str, str] | None = None) -> None:
    """Print values alike, whatever the server, the database or the role prefer.

    `settings`: those that the login has not set (`producer/sources/session_settings.py`).
    """
    for name, value in {**(settings or {}), "xmloption": "content"}.items():
        # SET would take a list of schemas for the name of one.
        session.query(f"SELECT pg_catalog.set_config('{name}', {constant(value)}, false)")


def estimated_rows(server: ComparedServer, table: TableId) -> tuple[int, int]:
    """The planner's estimate, 0 where it has none; and the bytes of all rows."""
    rows = server.now.query(
        f"{_BELOW.format(schema=constant(table.schema), name=constant(table.name))}"
        " SELECT greatest(coalesce(sum(c.reltuples), 0), 0)::bigint::text,"
        " coalesce(sum(pg_relation_size(c.oid)), 0)::text"
        " FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid"
    )
    return int(rows[0][0] or 0), int(rows[0][1] or 0)


_BELOW: Final = """
WITH RECURSIVE below (oid) AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = {schema} AND c.relname = {name} AND c.relkind IN ('r', 'p')
    UNION SELECT i.inhrelid FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid)
"""


def _files(table: TableId) -> str:
    """A table and all below it, with the files of their rows: TRUNCATE and rewrites make others."""
    below = _BELOW.format(schema=constant(table.schema), name=constant(table.name))
    return (
        f"{below} SELECT c.oid::text, c.relfilenode::text"
        " FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid ORDER BY c.oid"
    )


def _rows_of(session: Asks, table: TableId) -> str:
    """Without the rows of tables that inherit from it: they are tables of their own."""
    parents = session.query(
        "SELECT c.oid::text FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {constant(table.schema)} AND c.relname = {constant(table.name)}"
        " AND c.relkind = 'r'"
        " AND EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)"
    )
    return f"ONLY {qualified(table)} AS t" if parents else f"{qualified(table)} AS t"
