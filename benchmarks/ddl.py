"""What the event triggers cost: rows and statements with and without them, side by side.

    .venv/bin/python benchmarks/ddl.py [--rounds 12] [--url postgresql://…]

Two sessions do the same to a table each, statement by statement in turns that change places:
one in which event triggers fire and one in which they do not (session_replication_role =
replica).  Printed is the median of the rounds' ratios.  Rows must cost the same (event triggers
are not asked about rows); a schema change should cost less than 15 % more.
"""
# ruff: noqa: INP001, S608, T201  a command, not a package; its names are its own

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2

from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.triggers import install as ddl_triggers

_ROWS = 20_000
_STATEMENTS = 40


def rows(table: str) -> Iterator[str]:
    """Insert, update and delete."""
    for _ in range(5):
        yield f"INSERT INTO {table} SELECT g, 'v' || g, g FROM generate_series(-{_ROWS}, -1) g"
        for n in range(100):
            yield f"UPDATE {table} SET n = n + 1 WHERE id = {n}"
        yield f"DELETE FROM {table} WHERE id < 0"


def statements(table: str) -> Iterator[str]:
    """What migrations do to a table with rows, and tables that come and go."""
    for n in range(_STATEMENTS):
        yield f"ALTER TABLE {table} ADD COLUMN c{n} int DEFAULT 1"
        yield f"ALTER TABLE {table} RENAME c{n} TO d{n}"
        yield f"CREATE INDEX {table}_i{n} ON {table} (d{n})"
        yield f"ALTER TABLE {table} ALTER d{n} TYPE bigint"
        yield f"ALTER TABLE {table} DROP COLUMN d{n}"
        yield f"CREATE TABLE {table}_{n} (id int PRIMARY KEY, v text UNIQUE)"
        yield f"DROP TABLE {table}_{n}"


def small_ones(table: str) -> Iterator[str]:
    """Statements that touch no row and no file: the worst case."""
    for n in range(_STATEMENTS):
        yield f"ALTER TABLE {table} ADD COLUMN c{n} int DEFAULT 1"
        yield f"ALTER TABLE {table} RENAME c{n} TO d{n}"
        yield f"ALTER TABLE {table} DROP COLUMN d{n}"


def in_turns(sessions: dict[str, Any], work: Callable[[str], Iterator[str]]) -> dict[str, float]:
    """Seconds by table: of a session each, on tables made anew."""
    for table, cursor in sessions.items():
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text, n int)")
        cursor.execute(
            f"INSERT INTO {table} SELECT g, 'v' || g, g FROM generate_series(0, {_ROWS - 1}) g"
        )
        cursor.execute(f"ANALYZE {table}")
        cursor.execute("CHECKPOINT")
    took = dict.fromkeys(sessions, 0.0)
    for turn, pair in enumerate(zip(*map(work, sessions), strict=True)):
        both = list(zip(sessions, pair, strict=True))
        for table, statement in reversed(both) if turn % 2 else both:
            start = time.perf_counter()
            sessions[table].execute(statement)
            took[table] += time.perf_counter() - start
    return took


def measure(url: str, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield (work, median ratio, seconds without triggers)."""
    connection = catalog.connect(parse_dsn(url))
    with closing(psycopg2.connect(url)) as told, closing(psycopg2.connect(url)) as untold:
        told.autocommit = untold.autocommit = True
        with told.cursor() as on, untold.cursor() as off:
            on.execute("CREATE PUBLICATION bench")
            ddl_triggers.install(connection, "bench", ["public.*"], [])
            for name in ddl_triggers.TRIGGERS:
                on.execute(f"ALTER EVENT TRIGGER {name} ENABLE")
            off.execute("SET session_replication_role = replica")
            for work in (rows, statements, small_ones):
                ratios, without = [], []
                in_turns({"told": on, "untold": off}, work)  # the first one warms up
                for _ in range(rounds):
                    took = in_turns({"told": on, "untold": off}, work)
                    ratios.append(took["told"] / took["untold"])
                    without.append(took["untold"])
                yield work.__name__, statistics.median(ratios), statistics.median(without)
    ddl_triggers.uninstall(connection)
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
    binaries = postgres.binaries()
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
