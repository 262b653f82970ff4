"""Rows that Spark's tasks settled end as all rows do, after any history."""

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from schemas.control import LoadPhase
from schemas.tables import UNCHANGED, TableSchema
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import TargetRefused
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.model import Asked, Rows, Segment
from spark_consumers.native import IS_BUILT, is_packed
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.integration.postgres_target import Applied, packed
from tests.spark_consumers.feed import Feed, Row, delete, insert, table, truncate, update

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


class Settling(Applied):
    """A target whose rows come as tasks send them: settled, where its sink asked for that."""

    def __init__(self, url: str) -> None:
        self.url, self.feed = url, Feed()
        self.asked: Asked = {}
        self.notes: list[str] = []
        self.sink = PostgresSink(
            url, "bank", asked=self.asked, on_note=self.notes.append, message_rows=0
        )
        self.settled: list[list[str]] = []  # tables, of each segment that was read
        self.applier = Applier(
            self.feed.read_cuts, self.read, self.sink, PassOptions(max_rows=1_000_000)
        )
        self.feed.start()

    def read(self, segment: Segment) -> Rows:
        found = self.feed.read_rows(segment)
        changes = {of: packed(rows) for of, rows in found.changes.items()}
        self.settled.append([])
        for of, rows in changes.items():
            if (
                is_packed(rows)
                and not found.ddl
                and (asked := self.asked.get((of, rows.columns, bool(segment.loads))))
                and rows.settle(*asked)
            ):
                self.settled[-1].append(of.name)
        sent: Rows = pickle.loads(pickle.dumps(Rows(changes, found.ddl)))
        return sent

    def load(self, schema: TableSchema, *chunks: list[list[str | None]]) -> None:
        self.feed.load(schema, LoadPhase.BEGIN)
        self.applier.drain()
        for rows in chunks:
            self.feed.load(schema, LoadPhase.CHUNK, *rows)
            self.applier.drain()
        self.feed.load(schema, LoadPhase.END)
        self.applier.drain()


@pytest.fixture
def target(new_database: Callable[[], str]) -> Iterator[Settling]:
    one = Settling(new_database())
    yield one
    one.sink.close()


def settled(*names: str) -> list[str]:
    return [*names] if IS_BUILT else []


@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_as_with_rows_as_the_driver_reads_them(
    target: Settling, new_database: Callable[[], str], seed: int
) -> None:
    other, source = new_database(), Histories(seed)
    for one in (A, PAIR, SEEN, LOG):
        target.load(one)
    with closing(PostgresSink(other, "bank")) as sink:
        driver = Applier(
            target.feed.read_cuts, target.feed.read_rows, sink,
            PassOptions(max_rows=1_000_000, attempts=1),
        )  # fmt: skip
        for _ in range(24):
            target.apply(*[source.transaction() for _ in range(source.random.randrange(1, 4))])
            driver.drain()

            for name in ("a", "pair", "seen", "log"):
                found = texts(target.url, name)
                assert found == texts(other, name)
                if name in source.rows:
                    assert found == sorted(source.rows[name].values(), key=repr)
        assert sink.ledger().inexact == target.sink.ledger().inexact
    assert any(target.settled) is IS_BUILT


def texts(url: str, name: str) -> list[list[str | None]]:
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        columns = {"pair": "k l v n", "log": "id v", "seen": "id mail v"}.get(name, "id v w")
        cursor.execute(f"SELECT {', '.join(c + '::text' for c in columns.split())} FROM {name}")
        rows = cursor.fetchall()
    connection.close()
    return sorted(map(list, rows), key=repr)


def test_what_the_sink_asked_of_rows_is_answered_where_they_are_read_next(
    target: Settling,
) -> None:
    target.load(A, [["1", "x", None]], [["2", "x", None]])
    assert target.settled[-2] == settled("a")  # the second chunk of a load
    target.apply([insert(A, "3", "x", "w"), delete(A, "1")])
    assert target.settled[-1] == []  # changes are another question
    target.apply([update(A, "3", "new", "w"), delete(A, "2"), insert(A, "4", "x", None)])
    assert target.settled[-1] == settled("a")

    assert target.rows("a") == [(3, "new", "w"), (4, "x", None)]
    assert target.applier.drain().inexact == {}


def test_new_rows_win_over_rows_of_another_client(target: Settling) -> None:
    target.load(A)
    target.apply([insert(A, "1", "x", None)])
    target.run("INSERT INTO a VALUES (2, 'mine', NULL)")

    target.apply([insert(A, "3", "x", None), insert(A, "2", "y", "z")])

    assert target.rows("a") == [(1, "x", None), (2, "y", "z"), (3, "x", None)]
    # It was not known that a key may be there: the rows are read again.
    if IS_BUILT:
        assert target.settled[-2:] == [["a"], []]


@pytest.mark.parametrize("key", ["v", "id, v"])
def test_rows_that_were_settled_by_a_key_that_is_gone_are_read_again(
    target: Settling, key: str
) -> None:
    """Someone gives the target's table another key, and the connection is lost."""
    target.load(A)
    target.apply([insert(A, "1", "x", None), insert(A, "2", "y", None)])
    target.run(f"ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY ({key})")
    target.run(f"SELECT pg_terminate_backend({target.sink._pid})")

    target.apply([insert(A, "3", "z", None), Row(A, "u", ["2", "y", None], ["2", "yy", "w"])])

    assert target.rows("a") == [(1, "x", None), (2, "yy", "w"), (3, "z", None)]
    if IS_BUILT:
        assert target.settled[-2:] == [["a"], []]


def test_a_table_that_is_marked_meanwhile_has_its_rows_read_again(target: Settling) -> None:
    target.load(A)
    target.apply([insert(A, "1", "x", None)])
    target.apply([insert(A, "2", "x", None)])
    assert target.settled[-1] == settled("a")

    target.apply([insert(A, "3", "x", None), update(A, "9", "x", ...)])
    target.apply([insert(A, "4", "x", None), update(A, "1", "y", None)])

    assert [row[:2] for row in target.rows("a")] == [(1, "y"), (2, "x"), (3, "x"), (4, "x")]
    assert target.applier.drain().inexact == {"public.a": LACKS_ROW}


def test_new_rows_go_into_a_table_with_a_key_of_its_own(target: Settling) -> None:
    target.load(A)
    target.sink.close()
    target.run("ALTER TABLE a DROP CONSTRAINT a_pkey, ADD own serial PRIMARY KEY")

    target.apply([insert(A, "7", "x", None), insert(A, "8", "y", "z")])
    target.apply([insert(A, "9", "x", None)])

    assert target.rows("a") == [(7, "x", None, 1), (8, "y", "z", 2), (9, "x", None, 3)]


def test_a_value_is_the_newest_that_any_key_of_its_row_sent(target: Settling) -> None:
    target.load(A)
    target.apply([insert(A, "1", "v1", "w1"), insert(A, "2", "v2", "w2")])

    target.apply(
        [update(A, "1", "V1", ...), update(A, "7", ..., ..., old="1")],
        [update(A, "1", ..., "W2", old="2"), update(A, "2", ..., ..., old="1")],
        [update(A, "1", ..., ..., old="7"), delete(A, "2"), insert(A, "2", "new", "new")],
    )

    assert target.rows("a") == [(1, "V1", "w1"), (2, "new", "new")]
    assert target.notes == []


def test_what_a_truncation_removed_has_no_values(target: Settling) -> None:
    target.load(A)
    target.apply([insert(A, "1", "v", "w")])

    target.apply([update(A, "1", "V", "W"), truncate(A), update(A, "1", "x", ...)])

    assert target.rows("a") == []
    assert target.applier.drain().inexact == {"public.a": LACKS_ROW}


def test_a_value_that_the_target_s_type_does_not_take_names_the_table(target: Settling) -> None:
    target.feed.load(A, LoadPhase.BEGIN)
    target.feed.load(A, LoadPhase.CHUNK, ["1", "x", "y"])
    target.applier.drain()
    target.feed.load(A, LoadPhase.CHUNK, ["no number", "x", "y"])

    with pytest.raises(TargetRefused) as caught:
        target.applier.drain()

    assert target.settled[-1] == settled("a")
    assert str(caught.value.where["table"]) == "public.a"
    assert "no number" not in str(caught.value)
