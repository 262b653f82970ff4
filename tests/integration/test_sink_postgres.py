"""The sink contract, against a real PostgreSQL."""

from collections.abc import Callable, Iterator

import psycopg2
import pytest

from schemas.control import Phase
from spark_consumers.job import Applier, Options
from spark_consumers.sinks.postgres import PostgresSink
from tests.spark_consumers.feed import Feed, delete, insert, table, truncate, update

ACCOUNT = table("account", "id integer, name text, note text")


class Target:
    """A target database with one applier of one feed."""

    def __init__(self, url: str, **options: object) -> None:
        self.url, self.feed = url, Feed()
        self.sink = PostgresSink(url, self.feed.source, **options)
        self.applier = Applier(self.feed.read_cuts, self.feed.read_rows, self.sink)
        self.feed.start()

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


@pytest.fixture
def target(new_database: Callable[[], str]) -> Iterator[Target]:
    one = Target(new_database())
    yield one
    one.sink.close()


def load(target: Target, schema, *rows) -> None:
    target.feed.load(schema, Phase.BEGIN)
    if rows:
        target.feed.load(schema, Phase.CHUNK, *rows)
    target.feed.load(schema, Phase.END)
    target.drain()


def test_a_load_creates_the_table_and_commits_change_it(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"], ["2", "b", None])

    ledger = target.apply(
        insert(ACCOUNT, "3", "c\t\n\\", "z"), update(ACCOUNT, "1", "A", ...), delete(ACCOUNT, "2")
    )

    assert target.query("SELECT * FROM account ORDER BY id") == [
        (1, "A", "x"),
        (3, "c\t\n\\", "z"),
    ]
    assert (ledger.n, ledger.seq, ledger.state, ledger.inexact) == (5, 1, "EXACT", {})
