"""How fast changes get from PostgreSQL into Kafka: `python benchmarks/produce.py [--rows N]`.

The readers drain the same WAL through copies of one slot, one after the other, on services of
their own:

    pg_recvlogical   PostgreSQL's own client, into /dev/null: no decoding, no Kafka
    Debezium         on Kafka Connect, tuned (`rig.DEBEZIUM`), Apicurio's Avro converter; with
                     --debezium, which fetches its jars. Its warm half is a line of its own: the
                     JVM compiles while it begins
    run              gauss-cdc run, exactly-once on
    run, plain       gauss-cdc run, exactly-once off

W4: inserts into one table of 6 columns, 100 to 1,000 rows a transaction.
W5: 70/20/10 insert/update/delete over 5 tables, about 5 rows a transaction.

Rates are from the first record in Kafka to the last. At the end the topics of `run` are counted
against what was done at the source.
"""

# ruff: noqa: INP001, S608  a command, not a package; statements of its own

from __future__ import annotations

import argparse
import shutil
from functools import partial
from pathlib import Path

import psycopg2
from rich.console import Console
from rich.table import Table
from rig import GAUSS_CDC, Figure, Rig, debezium, program, rig

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from schemas.positions import Lsn

_COLUMNS = "id bigint PRIMARY KEY, a int, b numeric(12,2), c text, d timestamptz, e boolean"
_VALUES = "g, mod(g, 1000)::int, g * 1.25, 'some text ' || g, now(), mod(g, 2) = 0"


def w4(connection: psycopg2.extensions.connection, rows: int) -> int:
    """Inserts in transactions of 100 to 1,000."""
    done = turn = 0
    with connection.cursor() as cursor:
        while done < rows:
            size = 100 + (turn * 379) % 901
            cursor.execute(
                f"INSERT INTO t0 SELECT {_VALUES} FROM generate_series(%s, %s) g",
                (done + 1, done + size),
            )
            done, turn = done + size, turn + 1
    return done


def w5(connection: psycopg2.extensions.connection, rows: int) -> int:
    """Short transactions over five tables; the server loops, so that no client limits it."""
    values = _VALUES.replace("'", "''")
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            CREATE OR REPLACE PROCEDURE w5(transactions int) LANGUAGE plpgsql AS $$
            BEGIN
              FOR n IN 1..transactions LOOP
                EXECUTE format('INSERT INTO t%s SELECT {values}
                  FROM generate_series(%s, %s) g', n %% 5, n * 4, n * 4 + 2);
                EXECUTE format('UPDATE t%s SET a = a + 1 WHERE id = %s', n %% 5, n * 4 + 1);
                IF n %% 2 = 0 THEN
                  EXECUTE format('DELETE FROM t%s WHERE id = %s', n %% 5, n * 4 + 2);
                END IF;
                COMMIT;
              END LOOP;
            END $$
            """.replace("%%", "%")
        )
        cursor.execute("CALL w5(%s)", (rows * 2 // 9,))
    return rows * 2 // 9 * 9 // 2


def drain(at: Rig, workload: str, rows: int, *, with_debezium: bool) -> tuple[int, list[Figure]]:
    """Make slots and the WAL, and let each reader drain it."""
    connection = psycopg2.connect(at.url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for n in range(5):
            cursor.execute(f"DROP TABLE IF EXISTS t{n}; CREATE TABLE t{n} ({_COLUMNS})")
        cursor.execute("DROP PUBLICATION IF EXISTS bench")
        cursor.execute("CREATE PUBLICATION bench FOR TABLE t0, t1, t2, t3, t4")
    modes = {f"{workload}_eos": "run", f"{workload}_plain": "run, plain"}
    files = {n: at.configuration(n, exactly_once=label == "run") for n, label in modes.items()}
    for path in files.values():
        with program([*GAUSS_CDC, "slot", "create", "--config", str(path)], _log(path)) as child:
            assert child.wait(120) == 0, _log(path).read_text()
    raw, connect = f"{workload}_raw", f"{workload}_dbz"
    for copy in (raw, connect):
        at.ask(f"SELECT pg_copy_logical_replication_slot('{workload}_eos', '{copy}')")
    done = {"w4": w4, "w5": w5}[workload](connection, rows)
    end = Lsn.parse(str(at.ask("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
    figures = [_recvlogical(at, raw, end, done)] if shutil.which("pg_recvlogical") else []
    if with_debezium:
        with debezium(at, connect, {}) as pid:
            figures.append(
                at.watch(
                    "Debezium", pid, slot=connect, rows=lambda: at.records(connect),
                    is_over=lambda found: found >= done,
                )
            )  # fmt: skip
    at.drop_slot(connect)
    for name, path in files.items():
        command = [*GAUSS_CDC, "run", "--config", str(path)]
        with Endpoints(load(path)) as places, program(command, _log(path)) as child:

            def arrived(_: int, places: Endpoints = places) -> bool:
                cuts = places.cuts()
                return cuts is not None and cuts.resume >= end

            figures.append(
                at.watch(
                    modes[name], child.pid, slot=name, rows=partial(at.records, name),
                    is_over=arrived,
                )
            )  # fmt: skip
        found = at.records(name)
        assert found >= done, f"{name}: {found} records of {done} changes"
    return done, figures


def _log(path: Path) -> Path:
    return path.with_suffix(".log")


def _recvlogical(at: Rig, slot: str, end: Lsn, done: int) -> Figure:
    command = ["pg_recvlogical", "-d", at.url, "-S", slot, "--start", "-f", "/dev/null",
               "-o", "proto_version=1", "-o", "publication_names=bench",
               f"--endpos={end}"]  # fmt: skip
    with program(command, at.folder / "recvlogical.log") as child:
        return at.watch(
            "pg_recvlogical", child.pid, slot=slot,
            # It ends by itself, and says nothing meanwhile: its rate is over the whole run.
            rows=lambda: 0 if child.poll() is None else done,
            is_over=lambda found: found > 0,
        )  # fmt: skip


def _lines(figure: Figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    lines = [(figure.name, figure.between())]
    if figure.name == "Debezium":
        lines.append(("… its warm half", figure.between(0.5)))
    return lines


def main() -> None:
    """Measure both workloads and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workload", choices=["w4", "w5"], action="append")
    parser.add_argument("--debezium", action="store_true", help="measure Debezium, too")
    asked = parser.parse_args()
    console = Console()
    with rig() as at:
        for workload in asked.workload or ["w4", "w5"]:
            rows, figures = drain(at, workload, asked.rows, with_debezium=asked.debezium)
            lines = [(f, *line) for f in figures for line in _lines(f)]
            base = {name: rates[0] for _, name, rates in lines}
            table = Table(
                "reader", "krow/s", "to the\nfirst", "to warm\nDebezium",
                "CPU-s/Mrow:\nown", "\nwalsender", "\nbroker", "MB",
                title=f"{workload}: {rows:,} changes",
            )  # fmt: skip
            for figure, name, (rate, own, walsender, broker) in lines:
                table.add_row(
                    name,
                    f"{rate / 1000:.0f}",
                    *(
                        f"{rate / base[other]:.2f}x" if other in base else "-"
                        for other in ("pg_recvlogical", "… its warm half")
                    ),
                    *(f"{value:.2f}" for value in (own, walsender, broker)),
                    f"{figure.megabytes:.0f}",
                )
            console.print(table)


if __name__ == "__main__":
    main()
