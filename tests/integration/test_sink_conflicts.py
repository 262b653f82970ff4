"""Rows that others changed at the target are counted where a change of the stream meets them."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg2
import pytest

from schemas.control import Hole
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import TargetRefused
from spark_consumers.sinks.base import Met, Setup
from spark_consumers.sinks.postgres.checks import PostgresInspector
from spark_consumers.sinks.postgres.conflicts import Conflicts
from spark_consumers.sinks.postgres.products import POSTGRES
from tests.integration.postgres_target import Target, load
from tests.integration.test_sink_parts import Fed
from tests.spark_consumers.feed import Row, Tx, alter, delete, insert, table, truncate, update

A = table("a", "id integer, v text")
UNIQUE = table("a", "id integer, v text", unique="v")
MESSAGE, USUAL, PARTS = 50, -1, 0


class Play:
    """One table, written by one of the ways that a step has."""

    def __init__(self, url: str, way: int, schema: Any = A, **options: Any) -> None:
        self.notes: list[str] = []
        options |= {"on_note": self.notes.append}
        self.one: Target | Fed = (
            Fed(url, message_rows=-1, **options)
            if way == PARTS
            else Target(url, "postgres", message_rows=way, **options)
        )
        if isinstance(self.one, Fed):
            self.one.most = 100  # a move that two parts share would be counted
        self.target = Target(url, "postgres")  # what others do
        self.target.sink.close()
        self.load(schema, [[str(i), f"v{i}"] for i in range(1, 9)])
        self.url = url

    def load(self, schema: Any, rows: Any) -> None:
        if isinstance(self.one, Fed):
            self.one.load(schema, *rows)
        else:
            load(self.one, schema, *rows)

    def apply(self, *rows: Any) -> None:
        """A commit."""
        if isinstance(self.one, Fed):
            self.one.apply([*rows])
        else:
            self.one.apply(*rows)

    def others(self, statement: str) -> None:
        self.target.run(statement)

    def rows(self) -> list[Any]:
        return self.target.query("SELECT * FROM a ORDER BY 1, 2")

    def met(self) -> dict[str, Met]:
        """As `status` reads it."""
        setup = Setup("bank", connect=partial(psycopg2.connect, self.url))
        with closing(PostgresInspector(setup, POSTGRES)) as inspector:
            return {**inspector.conflicts()}


@pytest.fixture(params=[MESSAGE, USUAL, PARTS], ids=["message", "usual", "parts"])
def way(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def make(new_database: Callable[[], str], way: int) -> Iterator[Callable[..., Play]]:
    made: list[Play] = []

    def begin(schema: Any = A, **options: Any) -> Play:
        made.append(Play(new_database(), way, schema, **options))
        return made[-1]

    yield begin
    for play in made:
        play.one.sink.close()


@pytest.mark.parametrize("schema", [A, UNIQUE], ids=["key", "unique"])
@pytest.mark.parametrize("replica", [True, False])
def test_each_row_of_others_that_a_change_meets_is_counted(
    make: Callable[..., Play], schema: Any, *, replica: bool
) -> None:
    play = make(schema, replica_role=replica)
    play.apply(insert(A, "9", "v9"))  # from here on the table is known
    play.others("DELETE FROM a WHERE id IN (1, 2, 3); INSERT INTO a VALUES (10, 'o'), (11, 'p')")

    play.apply(update(A, "1", "V1"), delete(A, "2"), update(A, "4", "V4"), delete(A, "5"))
    assert play.met() == {"public.a": Met(0, 2)}
    play.apply(insert(A, "10", "v10"), insert(A, "12", "v12"), update(A, "6", "V6"))

    assert play.met() == {"public.a": Met(1, 2)}
    assert play.rows() == [
        (1, "V1"), (4, "V4"), (6, "V6"), (7, "v7"), (8, "v8"), (9, "v9"), (10, "v10"), (11, "p"),
        (12, "v12"),
    ]  # fmt: skip
    (first,) = play.notes  # the second one came within a minute
    assert first == (
        "WARNING: others changed public.a at the target: 2 rows that change or end were missing; "
        "`gauss-cdc verify --table public.a` compares it, `gauss-cdc snapshot --table public.a` "
        "reads it again"
    )


def test_of_several_targets_the_warning_names_the_one_that_it_is_of() -> None:
    notes: list[str] = []

    Conflicts("bank", notes.append, label="copy").add({A.id: Met(1, 0)})

    assert notes[0].endswith(
        "`gauss-cdc verify --table public.a --target copy` compares it, "
        "`gauss-cdc snapshot --table public.a --for copy` reads it again"
    )


def test_a_row_whose_values_are_missing_too_is_counted_once(make: Callable[..., Play]) -> None:
    """The table is not exact from there on, and its other changes go on."""
    play = make()
    play.others("DELETE FROM a WHERE id = 1")

    play.apply(update(A, "1", ...), insert(A, "9", "v9"))
    play.apply(update(A, "2", "V2"))

    assert play.met() == {"public.a": Met(0, 1)}
    assert play.one.applier.ledger.inexact == {"public.a": LACKS_ROW}
    assert play.rows()[-1] == (9, "v9")
    assert ["1 rows that change or end were missing" in note for note in play.notes] == [True]


def test_a_key_that_moves_to_a_row_of_others_overwrites_it(make: Callable[..., Play]) -> None:
    play = make()
    play.others("INSERT INTO a VALUES (20, 'o')")

    play.apply(update(A, "20", "v", old="1"))

    assert play.met() == {"public.a": Met(1, 0)}


def test_what_the_stream_does_by_itself_is_never_counted(make: Callable[..., Play]) -> None:
    """Random commits over few keys: rows that begin and end, again and again, and move."""
    play, rng = make(), random.Random(17)
    there = set(range(1, 9))
    for _ in range(60):
        rows: list[Row] = []
        for _ in range(rng.randint(1, 12)):
            free, some = sorted(set(range(1, 14)) - there), sorted(there)
            match rng.choice("iiuudmmk" if some and free else "i" if free else "d"):
                case "i":
                    key = rng.choice(free)
                    rows.append(insert(A, str(key), "x"))
                    there.add(key)
                case "u":
                    rows.append(update(A, str(rng.choice(some)), "y"))
                case "d":
                    key = rng.choice(some)
                    rows.append(delete(A, str(key)))
                    there.remove(key)
                case what:  # where Kafka's partitions go by the key, a move is two records
                    was, now = rng.choice(some), rng.choice(free)
                    rows.append(update(A, str(now), "z", old=str(was)))
                    rows += [delete(A, str(was))] if what == "k" else []
                    there ^= {was, now}
        if rng.random() < 0.1:
            rows.append(truncate(A))
            there.clear()
        play.apply(*rows)

        assert [key for key, _ in play.rows()] == sorted(there)
        assert play.met() == {}


def test_a_table_that_is_not_exact_is_not_counted(make: Callable[..., Play]) -> None:
    play = make()
    play.others("DELETE FROM a WHERE id = 1; INSERT INTO a VALUES (10, 'o')")
    gap = Hole("public.a", "seen", "a gap")
    feed = play.one.feed
    feed.commits(Tx([insert(A, "20", "x")], holes=(gap,)))
    play.one.applier.drain()

    play.apply(update(A, "1", "V1"), insert(A, "10", "v10"))

    assert play.met() == {}


def test_a_load_of_the_table_begins_at_nothing(make: Callable[..., Play]) -> None:
    play = make()
    play.others("DELETE FROM a WHERE id = 1")
    play.apply(delete(A, "1"))
    assert play.met() == {"public.a": Met(0, 1)}

    play.load(A, [["2", "v2"]])

    assert play.met() == {}


PARTITIONED = """
ALTER TABLE a RENAME TO b; CREATE TABLE a (LIKE b INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE a_1 PARTITION OF a DEFAULT; INSERT INTO a TABLE b"""


def test_a_table_whose_rows_are_counted_elsewhere_is_left_out(make: Callable[..., Play]) -> None:
    play = make()
    play.others(PARTITIONED)
    play.one.sink.close()  # another session looks at the tables anew

    play.apply(insert(A, "20", "x"), insert(A, "21", "x"), delete(A, "1"))

    assert play.met() == {}
    assert len(play.rows()) == 9


def test_a_server_that_counts_nothing_is_not_believed(make: Callable[..., Play]) -> None:
    play = make()
    name = play.url.rpartition("/")[2].partition("?")[0]
    play.others(f"ALTER DATABASE {name} SET track_counts = off")
    play.one.sink.close()  # another session looks at the tables anew

    play.apply(insert(A, "20", "x"), insert(A, "21", "x"), delete(A, "1"))

    assert play.met() == {}


def test_rows_that_a_unique_index_of_the_source_refuses_end_the_index(
    make: Callable[..., Play],
) -> None:
    """The source dropped it, and nothing said so."""
    play = make(UNIQUE)

    play.apply(insert(UNIQUE, "9", "v1"), insert(UNIQUE, "10", "v2"))

    assert [row for row in play.rows() if row[1] == "v1"] == [(1, "v1"), (9, "v1")]
    assert any("rows of the source do not meet its unique index" in note for note in play.notes)
    play.others("CREATE UNIQUE INDEX own ON a (v) WHERE id > 10")
    play.apply(insert(UNIQUE, "11", "v2"))
    with pytest.raises(TargetRefused, match="own"):
        play.apply(insert(UNIQUE, "12", "v2"))


def test_a_unique_index_of_the_source_is_no_key(make: Callable[..., Play]) -> None:
    """A key that went leaves its columns NOT NULL at the target, and two rows may be alike."""
    keyed = table("a", "id integer, v text", unique="id")
    play = make(keyed)
    bare = replace(keyed, key=())
    play.apply(alter(keyed, bare))

    play.apply(insert(bare, "1", "again"), insert(bare, "1", "v1"))

    assert [row for row in play.rows() if row[0] == 1] == [(1, "again"), (1, "v1"), (1, "v1")]


def test_an_index_that_came_after_its_rows_met_it_is_not_made(make: Callable[..., Play]) -> None:
    play = make()
    play.apply(insert(A, "9", "v1"))

    play.apply(alter(A, UNIQUE), insert(UNIQUE, "10", "v1"))

    assert [row[0] for row in play.rows() if row[1] == "v1"] == [1, 9, 10]
