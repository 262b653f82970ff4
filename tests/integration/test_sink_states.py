"""Last states that the server finds are those of the driver's lane, after any history."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

from schemas.control import LoadPhase
from schemas.tables import UNCHANGED, TableSchema
from spark_consumers.errors import TargetRefused
from spark_consumers.job import Applier, PassOptions
from spark_consumers.ledger import LACKS_ROW
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.test_sink_bulk import Bulk
from tests.spark_consumers.feed import Row, delete, insert, table, truncate, update

A = table("a", "id integer, v text, w text")
PAIR = table("pair", "k numeric, l character varying(9), v text, n integer", key="k l")
SEEN = table("seen", "id bigint, mail text, v text", unique="mail")
LOG = table("log", "id integer, v text", key="")
KEYS = {
    "a": [(str(n),) for n in range(8)],
    "pair": [(k, x) for k in ("1", "1.0", "2.50") for x in ("", "é\t")],
    "seen": [(str(n),) for n in range(6)],
}
CELLS = {"text": ["", "x", "ÿ\\N", None], "integer": ["0", "-7", None]}


class Histories:
    """A source: its rows by key, and the changes that lead to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tables = {one.id.name: one for one in (A, PAIR, SEEN)}
        self.rows: dict[str, dict[tuple[Any, ...], list[Any]]] = {name: {} for name in KEYS}

    def transaction(self) -> list[Row]:
        out: list[Row] = []
        for _ in range(self.random.randrange(1, 12)):
            out += self.change(self.random.choice(list(KEYS)))
        if self.random.random() < 0.3:
            row = [str(self.random.randrange(3)), "x"]
            out += [insert(LOG, *row), *self.random.choice([[], [Row(LOG, "d", row)]])]
        return out

    def change(self, name: str) -> list[Row]:
        rows = self.rows[name]
        if self.random.random() < 0.04:
            rows.clear()
            return [truncate(self.tables[name])]
        same = self.random.choice(KEYS[name])
        there = self._there(name, same)
        if there is None:
            return [self._insert(name, same)]
        match self.random.randrange(6):
            case 0:
                return [self._delete(name, there)]
            case 1:
                return [self._delete(name, there), self._insert(name, same)]
            case 2:
                return self._moves(name, there, self.random.choice(KEYS[name]))
            case 3:
                return self._swap(name, there)
            case _:
                return [self._update(name, there, there)]

    def _there(self, name: str, key: tuple[str, ...]) -> tuple[str, ...] | None:
        """The key of the row that a database takes for the same."""
        wanted = (float(key[0]), *key[1:])
        return next((k for k in self.rows[name] if (float(k[0]), *k[1:]) == wanted), None)

    def _moves(self, name: str, old: tuple[str, ...], new: tuple[str, ...]) -> list[Row]:
        other = self._there(name, new)
        if other not in (None, old) or new == old:
            return [self._update(name, old, old)]
        return [self._update(name, old, new)]

    def _swap(self, name: str, one: tuple[str, ...]) -> list[Row]:
        other = self.random.choice(list(self.rows[name]))
        if other == one:
            return []
        beside = ("99", *one[1:])
        return [
            self._update(name, one, beside),
            self._update(name, other, one),
            self._update(name, beside, other),
        ]

    def _cells(self, name: str, key: tuple[str, ...]) -> list[Any]:
        columns = self.tables[name].columns[len(key) :]
        cells = [
            None if column.name == "mail" else self.random.choice(CELLS[column.type_name])
            for column in columns
        ]
        return [*key, *cells]

    def _insert(self, name: str, key: tuple[str, ...]) -> Row:
        cells = self.rows[name][key] = self._cells(name, key)
        return insert(self.tables[name], *cells)

    def _delete(self, name: str, key: tuple[str, ...]) -> Row:
        row = self.rows[name].pop(key)
        return Row(self.tables[name], "d", self._old(row, len(key), is_whole=name == "pair"))

    def _update(self, name: str, old: tuple[str, ...], new: tuple[str, ...]) -> Row:
        row = self.rows[name].pop(old)
        after = self._cells(name, new)
        sent: list[Any] = list(after)
        for at in range(len(new), len(row)):
            if self.random.random() < 0.4:
                after[at], sent[at] = row[at], UNCHANGED
        is_whole = name == "pair" and self.random.random() < 0.5
        has_old = old != new or is_whole
        self.rows[name][new] = after
        before = self._old(row, len(old), is_whole=is_whole) if has_old else None
        return Row(self.tables[name], "u", before, sent)

    @staticmethod
    def _old(row: list[Any], keys: int, *, is_whole: bool) -> list[Any]:
        return [c if is_whole or at < keys else UNCHANGED for at, c in enumerate(row)]


@pytest.fixture
def bulk(new_database: Callable[[], str]) -> Iterator[Bulk]:
    notes: list[str] = []
    one = Bulk(new_database(), on_note=notes.append)
    one.notes = notes
    yield one
    one.sink.close()


def begin(bulk: Bulk, *tables: TableSchema) -> None:
    for one in tables:
        bulk.load(one)


@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_as_in_the_driver_s_lane(
    bulk: Bulk, new_database: Callable[[], str], seed: int
) -> None:
    other, source = new_database(), Histories(seed)
    begin(bulk, A, PAIR, SEEN, LOG)
    sink = PostgresSink(other, "bank")
    driver = Applier(
        bulk.feed.read_cuts, bulk.feed.read_rows, sink, PassOptions(max_rows=1_000_000, attempts=1)
    )
    for _ in range(12):
        bulk.apply(*[source.transaction() for _ in range(source.random.randrange(1, 6))])
        driver.drain()

        for name in ("a", "pair", "seen", "log"):
            found = texts(bulk.url, name)
            assert found == texts(other, name)
            if name in source.rows:
                assert found == sorted(source.rows[name].values(), key=repr)
    sink.close()
    assert {note.partition(" go ")[0].rpartition(" of ")[2] for note in bulk.notes} <= {
        "public.log"
    }


def texts(url: str, name: str) -> list[list[str | None]]:
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        columns = {"pair": "k l v n", "log": "id v", "seen": "id mail v"}.get(name, "id v w")
        cursor.execute(f"SELECT {', '.join(c + '::text' for c in columns.split())} FROM {name}")
        rows = cursor.fetchall()
    connection.close()
    return sorted(map(list, rows), key=repr)


def test_new_rows_win_over_rows_of_another_client(bulk: Bulk) -> None:
    begin(bulk, A)
    with psycopg2.connect(bulk.url) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO a VALUES (2, 'mine', NULL)")
    connection.close()

    bulk.apply([insert(A, "1", "x", None), insert(A, "2", "y", "z")])

    assert bulk.rows("a") == [(1, "x", None), (2, "y", "z")]


def test_new_rows_go_into_a_table_with_a_key_of_its_own(bulk: Bulk) -> None:
    begin(bulk, A)
    bulk.sink.close()
    with psycopg2.connect(bulk.url) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE a DROP CONSTRAINT a_pkey, ADD own serial PRIMARY KEY")
    connection.close()

    bulk.apply([insert(A, "7", "x", None), insert(A, "8", "y", "z")])

    assert bulk.rows("a") == [(7, "x", None, 1), (8, "y", "z", 2)]


def test_a_value_is_the_newest_that_any_key_of_its_row_sent(bulk: Bulk) -> None:
    begin(bulk, A)
    bulk.apply([insert(A, "1", "v1", "w1"), insert(A, "2", "v2", "w2")])

    bulk.apply(
        [update(A, "1", "V1", ...), update(A, "7", ..., ..., old="1")],
        [update(A, "1", ..., "W2", old="2"), update(A, "2", ..., ..., old="1")],
        [update(A, "1", ..., ..., old="7"), delete(A, "2"), insert(A, "2", "new", "new")],
    )

    assert bulk.rows("a") == [(1, "V1", "w1"), (2, "new", "new")]
    assert bulk.notes == []


def test_what_a_truncation_removed_has_no_values(bulk: Bulk) -> None:
    begin(bulk, A)
    bulk.apply([insert(A, "1", "v", "w")])

    bulk.apply([update(A, "1", "V", "W"), truncate(A), update(A, "1", "x", ...)])

    assert bulk.rows("a") == []
    assert bulk.applier.drain().inexact == {"public.a": LACKS_ROW}


def test_a_value_that_the_target_s_type_does_not_take_names_the_table(bulk: Bulk) -> None:
    bulk.feed.load(A, LoadPhase.BEGIN)
    bulk.applier.drain()

    bulk.feed.load(A, LoadPhase.CHUNK, ["no number", "x", "y"])
    with pytest.raises(AssertionError, match="22P02"):  # what a task says; it is no exception
        bulk.applier.drain()
    error = bulk.tasks.loader.explained(bulk.tasks.refused, bulk.tasks.shapes)

    assert isinstance(error, TargetRefused)
    assert str(error.where["table"]) == "public.a"
    assert "no number" not in str(error)
