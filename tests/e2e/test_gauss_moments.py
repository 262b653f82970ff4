"""openGauss and GaussDB: whatever an owner does at the source, what `wait` calls exact is equal.

A sequence is a moment among rows: statements that no row shows, or shows only in part.  `run` is
away during some of them.  What cannot be seen by design (docs/gaussdb.md) is left out.

    make moments OF=gauss_moments SEQUENCES=400 SEED=7        finds are printed with what led there
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from producer.core.ports import Tuning
from tests.e2e.path import ask
from tests.e2e.test_gauss_looks import MODES, Play, gauss, in_modes, play

__all__ = ["gauss", "play"]

SEQUENCES = int(os.environ.get("GAUSS_CDC_MOMENTS", "3"))  # in each mode
SEED = int(os.environ.get("GAUSS_CDC_MOMENTS_SEED", "1"))
TABLE = "CREATE TABLE {0} (id int PRIMARY KEY, v int, w text)"
START = "; ".join(
    [
        *(TABLE.format(name) for name in ("a", "b", "c")),
        *(f"INSERT INTO {n} SELECT g, g, 'w' || g FROM generate_series(1, 20) g" for n in "abc"),
        "CREATE TABLE n (id int, v int, w text)",
        "ALTER TABLE n REPLICA IDENTITY FULL",
        "INSERT INTO n VALUES (1, 1, 'one'), (2, 2, 'two')",
        "CREATE TABLE p (id int PRIMARY KEY, v int, w text) PARTITION BY RANGE (id)",
        "CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (100000)",
        "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (100000) TO (200000)",
        "INSERT INTO p VALUES (1, 1, 'w'), (100001, 1, 'w')",
    ]
)
TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"""


class Owner:
    """Makes statements and rows of a database."""

    def __init__(self, url: str, seed: str) -> None:
        self.url, self.random = url, random.Random(seed)
        self.done: list[str] = []
        self._number = 1000

    def tables(self) -> list[str]:
        return [name for (name,) in ask(self.url, TABLES)]

    def number(self) -> int:
        self._number += 1
        return self._number

    def name(self) -> str:
        return f"x{self.number()}"

    def do(self, *transactions: str) -> None:
        """Each is a transaction; one that the server refuses is left out."""
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for statement in transactions:
                self.done.append(statement)
                try:
                    cursor.execute(statement)
                except psycopg2.Error as error:
                    self.done.append(f"-- {str(error).splitlines()[0]}")

    def rows(self) -> None:
        """Change some tables."""
        for _ in range(self.random.randint(1, 4)):
            table, k = self.random.choice(self.tables()), self.random.randint(0, 4)
            self.do(
                self.random.choice(
                    (
                        self.row(table),
                        f"UPDATE {table} SET v = 7 WHERE id % 5 = {k}",
                        f"DELETE FROM {table} WHERE id % 11 = {k}",
                    )
                )
            )

    def row(self, table: str) -> str:
        return f"INSERT INTO {table} (id, v) VALUES ({self.number()}, 1)"

    def touch(self) -> None:
        """Let a row come into each table: some DDL shows with the next row only."""
        self.do(*map(self.row, self.tables()))

    def moment(self) -> None:
        whole = [name for name in self.tables() if name not in {"n", "p", "exact"}]
        table, new = self.random.choice(whole), self.name()
        self.do(*self.random.choice(list(self._moments(table, new))))

    def _moments(self, t: str, new: str) -> Iterator[tuple[str, ...]]:
        row, update = self.row(t), f"UPDATE {t} SET v = v + 1 WHERE id % 2 = 0"
        alter = f"ALTER TABLE {t}"
        yield f"TRUNCATE {t}", row
        yield (f"TRUNCATE {t}",)
        yield (f"TRUNCATE {t}; {self.row(t)}",)
        yield "TRUNCATE a, b", row
        yield "TRUNCATE n", self.row("n")
        yield f"{alter} ALTER v TYPE int USING v + 1000", row
        yield f"{alter} ALTER v TYPE bigint", row, f"{alter} ALTER v TYPE int"
        yield f"{alter} ALTER v TYPE bigint USING v * 10", row
        yield f"{alter} ALTER v TYPE numeric(20,4)", update, f"{alter} ALTER v TYPE int USING 3"
        yield f"{alter} ALTER w TYPE varchar(3) USING left(w, 3)", row
        yield f"{alter} DROP COLUMN w", row, f"{alter} ADD COLUMN w text"
        yield (f"{alter} DROP COLUMN w, ADD COLUMN w text",)
        yield f"{alter} DROP COLUMN w", f"{alter} ADD COLUMN w text DEFAULT 'd'", row
        yield f"{alter} ADD COLUMN {new} int DEFAULT 5", row, f"{alter} DROP COLUMN {new}"
        yield f"{alter} ADD COLUMN {new} float8 DEFAULT random()", row
        yield f"{alter} RENAME COLUMN w TO {new}", row, f"{alter} RENAME COLUMN {new} TO w"
        yield f"{alter} RENAME TO {new}", self.row(new)
        yield f"{alter} RENAME TO {new}", f"ALTER TABLE {new} RENAME TO {t}", row
        yield f"{alter} RENAME TO {new}", self.row(new), f"ALTER TABLE {new} RENAME TO {t}"
        yield f"{alter} RENAME TO {new}", TABLE.format(t), self.row(t)
        yield f"DROP TABLE {t}", TABLE.format(t), self.row(t)
        yield (f"DROP TABLE {t}; {TABLE.format(t)}",)
        yield (f"DROP TABLE {t}",)
        yield f"{alter} DROP CONSTRAINT {t}_pkey", f"{alter} ADD PRIMARY KEY (id)", row
        yield f"{alter} REPLICA IDENTITY FULL", update, f"{alter} REPLICA IDENTITY DEFAULT", row
        yield f"VACUUM FULL {t}", update
        yield f"CLUSTER {t} USING {t}_pkey", row
        yield f"DELETE FROM {t}", f"VACUUM FULL {t}", row
        yield TABLE.format(new), self.row(new), f"TRUNCATE {new}", self.row(new)
        yield (f"CREATE TABLE {new} AS SELECT * FROM {t}",)
        yield f"CREATE TABLE {new} AS SELECT * FROM {t}", f"DELETE FROM {t}"
        yield (f"{update}; GRANT SELECT ON {t} TO public; {update}",)
        yield (f"GRANT SELECT ON a TO public; {row}",)
        yield (f"{row}; CREATE TABLE {new} (id int PRIMARY KEY); {update}",)
        yield (f"{row}; ALTER TABLE {t} RENAME TO {new}; UPDATE {new} SET v = 9",)
        yield "TRUNCATE p_1", self.row("p")
        yield f"COMMENT ON TABLE {t} IS '{new}'", row
        yield f"CREATE INDEX ON {t} (v)", "ANALYZE", update


def unequal(p: Play, marks: set[str], tables: list[str]) -> list[str]:
    """Name tables of either side that are called exact and differ, by their columns' names."""
    out = []
    there = {name for (name,) in ask(p.target, TABLES)}
    for table in sorted({*tables, *there}):
        if f"public.{table}" in marks:
            continue
        if table not in tables:
            out.append(f"{table}: only at the target")
            continue
        ours = read(p.source, table)
        theirs = read(p.target, table) if table in there else []
        if ours != theirs:
            more, less = Counter(ours), Counter(theirs)
            out.append(f"{table}: only there {[*(more - less)][:3]}, here {[*(less - more)][:3]}")
    return out


def read(url: str, table: str) -> list[str]:
    return sorted(text for (text,) in ask(url, f"SELECT to_jsonb(t)::text FROM public.{table} t"))


@in_modes(*MODES)
@pytest.mark.parametrize("repair", ["auto", "ask", "in ranges"])
def test_what_is_done_at_the_source_is_equal_or_not_called_exact(gauss, mode, repair, play) -> None:
    tuning, in_ranges = Tuning(rest_seconds=0.1), repair == "in ranges"
    how = {
        "repair": "auto" if in_ranges else repair,
        "look_seconds": 0.3,
        "tuning": replace(tuning, beside_bytes=0, range_rows=5) if in_ranges else tuning,
        "loads_beside": in_ranges,
        "without_identity": "skip-and-record",
    }
    with play(mode, f"{START};CREATE TABLE exact (id int PRIMARY KEY, v int)", **how) as p:
        owner = Owner(p.source, f"{SEED} {mode} {repair}")
        p.start()
        p.wait()
        for at in range(SEQUENCES):
            began = len(owner.done)
            is_away = owner.random.random() < 0.25
            owner.rows()
            if is_away:
                p.path.stop()
            owner.moment()
            if owner.random.random() < 0.5:
                owner.rows()
            owner.touch()
            if is_away:
                p.start()
            marks = set(p.wait())
            found = unequal(p, marks, owner.tables())
            done = "\n".join(owner.done[max(0, began - 20) :])
            assert found == [], f"sequence {at}, away {is_away}: {found}\n{done}\n{marks}"
