"""A target database with one applier of one feed, for tests of the sink."""

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import fastavro
import psycopg2
import pytest

from gauss_cdc.gauss_dbapi import connect
from producer.sources.dial import parse_dsn
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from schemas.control import LoadPhase
from spark_consumers.cuts.compact import by_columns
from spark_consumers.decode.rows import CellPlan, PackPlan
from spark_consumers.loop.job import Applier
from spark_consumers.model import Change, Rows, Segment
from spark_consumers.native import packed_rows
from spark_consumers.sinks.postgres.products import OPENGAUSS
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.spark_consumers.feed import (
    Feed,
    table,
)

# PostgreSQL tells in another place which columns are generated, and names a session by its pid.
AS_OPENGAUSS = replace(
    OPENGAUSS,
    columns=OPENGAUSS.columns.replace(
        """row_to_json(d)::text LIKE '%%"adgencol":"s"%%'""", "a.attgenerated = 's'"
    ),
    session="pid",
    end_session="SELECT pg_terminate_backend(%(pid)s)",
)


ACCOUNT = table("account", "id integer, name text, note text")


only_postgresql = pytest.mark.parametrize("kind", ["postgres"], indirect=True)


def sink_of(url: str, source: str, kind: str, **options: object) -> PostgresSink:
    """A sink of either kind, at PostgreSQL."""
    if kind == "postgres":
        return PostgresSink(url, source, **options)
    arguments = partial(connect, parse_dsn(url), settings=SESSION_SETTINGS)
    return PostgresSink(arguments, source, product=AS_OPENGAUSS, **options)


class Applied:
    """What tests do with a target's database, and with the applier of a feed."""

    url: str
    feed: Feed
    applier: Applier

    def apply(self, *transactions: Any) -> None:
        self.feed.commits(*transactions)
        self.applier.drain()

    def run(self, statement: str) -> None:
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
        connection.close()

    def rows(self, what: str) -> list[Any]:
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {what} ORDER BY 1, 2")
            found = cursor.fetchall()
        connection.close()
        return found


class Target:
    """A target database with one applier of one feed."""

    def __init__(self, url: str, kind: str, **options: object) -> None:
        self.url, self.feed, self.kind = url, Feed(), kind
        self.sink = self.new_sink(**options)
        self.applier = Applier(self.feed.read_cuts, self.read_rows, self.sink)
        self.feed.start()

    def read_rows(self, segment: Segment) -> Rows:
        """Rows of the feed; at PostgreSQL as the native part has them, else as Python does."""
        rows = self.feed.read_rows(segment)
        if self.kind != "postgres":
            return rows
        return Rows({table: packed(found) for table, found in rows.changes.items()}, rows.ddl)

    def new_sink(self, url: str | None = None, **options: object) -> PostgresSink:
        return sink_of(url or self.url, self.feed.source, self.kind, **options)

    def drain(self):
        return self.applier.drain()

    def apply(self, *rows):
        self.feed.commits(list(rows))
        return self.drain()

    def run(self, statement: str, *arguments: object) -> None:
        with psycopg2.connect(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(statement, arguments)
        conn.close()

    def query(self, statement: str) -> list[tuple]:
        with psycopg2.connect(self.url) as conn, conn.cursor() as cursor:
            cursor.execute(statement)
            rows = cursor.fetchall()
        conn.close()
        return rows


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    stream = io.BytesIO(data)
    stream.seek(at)
    value: int = fastavro.schemaless_reader(stream, "long", None)
    return value, stream.tell()


def packed(changes: Sequence[Change]) -> Sequence[Change]:
    """Changes as COPY text, where they are of one schema and the native part was built."""
    runs = list(by_columns(changes))
    if len(runs) != 1:
        return changes
    ((columns, _),) = runs
    cell = CellPlan("", nullable=True, scale=0, read=_read_long, dump=str, kind="long")
    rows = packed_rows(PackPlan(b"", columns, (cell,) * len(columns)))
    for change in changes:
        if rows is not None:
            rows.put(change)
    return changes if rows is None else rows


def load(target: Target, schema, *rows) -> None:
    target.feed.load(schema, LoadPhase.BEGIN)
    if rows:
        target.feed.load(schema, LoadPhase.CHUNK, *rows)
    target.feed.load(schema, LoadPhase.END)
    target.drain()


def rows(target: Target, name: str) -> list[tuple]:
    return target.query(f"SELECT * FROM {name} ORDER BY 1, 2")
