"""What is done at the source, and how what arrives is compared with it.

W4     inserts into one table of 6 columns, 100 to 1,000 rows a transaction
W5     70/20/10 insert/update/delete over 5 tables, about 5 rows a transaction
bulk   one transaction: inserts, or inserts, updates and deletes

Two copies of a table are equal if their number of rows and the sum of a hash of each row are.
"""

# ruff: noqa: INP001, S608  not a package; statements of its own

from __future__ import annotations

import hashlib
import io
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import fastavro
import psycopg2
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from rig import PUBLICATION, Different, Rig, ask

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES: Final = "g, mod(g, 1000)::int, g * 1.25, 'some text ' || g, now(), mod(g, 2) = 0"
_COLUMNS: Final = (
    ("id", "bigint"),
    ("a", "int"),
    ("b", "numeric(12,2)"),
    ("c", "text"),
    ("d", "timestamptz"),
    ("e", "boolean"),
)


@dataclass(frozen=True)
class Table:
    """A table in schema public; the first column is its key."""

    name: str
    columns: tuple[tuple[str, str], ...] = _COLUMNS

    @property
    def create(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({self.columns[0][0]}))"


TABLES: Final = tuple(Table(f"t{n}") for n in range(5))


@dataclass(frozen=True)
class Content:
    """Rows of a table, and the sum of their hashes."""

    rows: int
    hashes: int


@dataclass(frozen=True)
class Truth:
    """What a workload did: changes by operation, and what each table holds then."""

    operations: Counter[str]
    tables: dict[Table, Content]

    @property
    def changes(self) -> int:
        return self.operations.total()


# ---------------------------------------------------------------- the source
def make_tables(url: str, tables: Sequence[Table] = TABLES, *, published: bool = True) -> None:
    """Make empty tables and, at a source, their publication."""
    for start in range(0, len(tables), 500):
        ask(url, "; ".join(table.create for table in tables[start : start + 500]))
    if published:
        ask(url, f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES")


def w4(url: str, rows: int, *, first: int = 1) -> Counter[str]:
    """Inserts in transactions of 100 to 1,000."""
    done = turn = 0
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while done < rows:
            size = min(100 + (turn * 379) % 901, rows - done)
            cursor.execute(
                f"INSERT INTO t0 SELECT {_VALUES} FROM generate_series(%s, %s) g",
                (first + done, first + done + size - 1),
            )
            done, turn = done + size, turn + 1
    return Counter(c=done)


def w5(url: str, rows: int) -> Counter[str]:
    """Short transactions over five tables; the server loops, so that no client limits it."""
    values = _VALUES.replace("'", "''")
    transactions = max(rows * 2 // 9, 10)
    ask(
        url,
        f"""
        CREATE OR REPLACE PROCEDURE w5(transactions int) LANGUAGE plpgsql AS $$
        BEGIN
          FOR n IN 0 .. transactions - 1 LOOP
            EXECUTE format('INSERT INTO t%s SELECT {values}
              FROM generate_series(%s, %s) g', n % 5, n * 4, n * 4 + 2);
            EXECUTE format('UPDATE t%s SET a = a + 1 WHERE id = %s', n % 5, n * 4 + 1);
            IF n % 2 = 0 THEN
              EXECUTE format('DELETE FROM t%s WHERE id = %s', n % 5, n * 4 + 2);
            END IF;
            COMMIT;
          END LOOP;
        END $$
        """,
    )
    ask(url, f"CALL w5({transactions})")
    return Counter(c=3 * transactions, u=transactions, d=(transactions + 1) // 2)


def one_of_each(url: str, tables: Sequence[Table]) -> None:
    """Insert a row into each table, with the key 0."""
    ask(
        url, "; ".join(f"INSERT INTO {t.name} SELECT {_VALUES} FROM (SELECT 0 g) x" for t in tables)
    )


def turns(url: str, tables: Sequence[Table], *, size: int, rows: int) -> Counter[str]:
    """Inserts in transactions of a size, each into one table, in turns; at least so many rows."""
    values = _VALUES.replace("'", "''")
    times = -(-rows // size)
    ask(
        url,
        f"""
        DO $$ BEGIN
          FOR n IN 0 .. {times - 1} LOOP
            EXECUTE format('INSERT INTO %s SELECT {values} FROM generate_series(%s, %s) g',
              ('{{{",".join(t.name for t in tables)}}}'::text[])[n % {len(tables)} + 1],
              n::bigint * {size} + 1, (n::bigint + 1) * {size});
            COMMIT;
          END LOOP;
        END $$
        """,
    )
    return Counter(c=times * size)


def bulk_inserts(url: str, rows: int, *, first: int = 1) -> Counter[str]:
    """One transaction that inserts."""
    last = first + rows - 1
    ask(url, f"INSERT INTO t0 SELECT {_VALUES} FROM generate_series({first}, {last}) g")
    return Counter(c=rows)


def bulk_mixed(url: str, rows: int, *, first: int = 1) -> Counter[str]:
    """One transaction: of ten changes seven insert, two update and one deletes."""
    parts = max(rows // 10, 1)
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO t0 SELECT {_VALUES} FROM generate_series(%s, %s) g",
            (first, first + 7 * parts - 1),
        )
        cursor.execute(
            "UPDATE t0 SET a = a + 1 WHERE id >= %s AND id < %s", (first, first + 2 * parts)
        )
        cursor.execute(
            "DELETE FROM t0 WHERE id >= %s AND id < %s", (first + 3 * parts, first + 4 * parts)
        )
    return Counter(c=7 * parts, u=2 * parts, d=parts)


WORKLOADS: Final[dict[str, Callable[[str, int], Counter[str]]]] = {"w4": w4, "w5": w5}


# ---------------------------------------------------------------- comparing
def truth(url: str, operations: Counter[str], tables: Sequence[Table] = TABLES) -> Truth:
    """Ask the source what its tables hold after a workload."""
    return Truth(+operations, {table: content(url, table) for table in tables})


def content(url: str, table: Table) -> Content:
    """Let a database sum up a table."""
    cells = ", ".join(
        f"coalesce((extract(epoch FROM {name}) * 1000000)::bigint::text, '~')"
        if kind == "timestamptz"
        else f"coalesce({name}::text, '~')"
        for name, kind in table.columns
    )
    ((rows, hashes),) = ask(
        url,
        f"SELECT count(*), coalesce(sum(('x' || substr(md5(array_to_string(ARRAY[{cells}], '|')),"
        f" 1, 15))::bit(60)::bigint), 0) FROM {table.name}",
    )
    return Content(int(rows), int(hashes))


def compare_copy(source: str, target: str, tables: Sequence[Table] = TABLES) -> int:
    """Compare the tables of two databases; the number of rows.  Raises Different."""
    rows = 0
    for table in tables:
        ours, theirs = content(source, table), content(target, table)
        if ours != theirs:
            raise Different(f"{table.name} is {theirs} at the target, {ours} at the source")
        rows += ours.rows
    return rows


def compare_topics(at: Rig, prefix: str, expected: Truth) -> int:
    """Read all topics of a prefix as a subscriber does, and compare; the number of records.

    Raises Different.
    """
    tables = {f"{prefix}.public.{table.name}": table for table in expected.tables}
    there = [topic for topic in at.topics(prefix) if topic in tables]
    copies = {topic: _Copy(topic, table) for topic, table in tables.items()}
    decode = _Decoder(at.addresses.registry_url)
    for topic, value in values(at.addresses.kafka_bootstrap, there):
        copies[topic].follow(decode(value))
    operations: Counter[str] = Counter()
    for topic, table in tables.items():
        ours, theirs = copies[topic].content, expected.tables[table]
        operations += copies[topic].operations
        if ours != theirs:
            raise Different(f"{topic} is {ours}, the source's table {theirs}")
    if operations != expected.operations:
        raise Different(f"{prefix}: {operations} in Kafka, {expected.operations} done")
    return operations.total()


class _Copy:
    """A table that follows its topic."""

    def __init__(self, topic: str, table: Table) -> None:
        self.operations: Counter[str] = Counter()
        self._topic, self._key, self._hashed = topic, table.columns[0][0], _hasher(table)
        self._rows: dict[Any, int] = {}

    def follow(self, record: dict[str, Any]) -> None:
        op, before, after = record["op"], record["before"], record["after"]
        self.operations[op] += 1
        if op in "cr" and after[self._key] in self._rows:
            raise Different(f"{self._topic}: a row was inserted twice")
        if op == "d" and self._rows.pop(before[self._key], None) is None:
            raise Different(f"{self._topic}: a row was deleted that is not there")
        if after is not None:
            self._rows[after[self._key]] = self._hashed(after)

    @property
    def content(self) -> Content:
        return Content(len(self._rows), sum(self._rows.values()))


def values(bootstrap: str, topics: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Committed values of topics of one partition, from their beginnings to their ends of now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.max.bytes": 16 << 20,
            "queued.max.messages.kbytes": 64 << 10,
        }
    )
    left = set(topics)
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        while left:
            for message in consumer.consume(10_000, 0.1):
                topic = str(message.topic())
                if (error := message.error()) is None:
                    if (value := message.value()) is not None:
                        yield topic, value
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its name
                    left.discard(topic)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


class _Decoder:
    """Framed Avro to records, by fastavro: nothing of what is measured checks itself."""

    def __init__(self, registry: str) -> None:
        self._registry, self._schemas = registry, dict[bytes, Any]()

    def __call__(self, value: bytes) -> dict[str, Any]:
        number = value[1:5]
        if number not in self._schemas:
            url = f"{self._registry}/schemas/ids/{int.from_bytes(number, 'big')}"
            with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  our registry
                text = json.load(answer)["schema"]
            self._schemas[number] = fastavro.parse_schema(json.loads(text))
        record: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._schemas[number], None)
        return dict(record)


def _hasher(table: Table) -> Callable[[dict[str, Any]], int]:
    names = [name for name, _ in table.columns]
    texts = [_micros if kind == "timestamptz" else _text for _, kind in table.columns]
    md5 = hashlib.md5

    def hashed(row: dict[str, Any]) -> int:
        cells = [text(row[name]) for name, text in zip(names, texts, strict=True)]
        return int(md5("|".join(cells).encode()).hexdigest()[:15], 16)

    return hashed


def _text(value: object) -> str:
    if value is None:
        return "~"
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _micros(value: str | None) -> str:
    if value is None:
        return "~"
    return str((datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1))
