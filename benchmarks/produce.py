"""How fast changes get from PostgreSQL into Kafka: `python benchmarks/produce.py [--rows N]`.

Three readers drain the same WAL through copies of one slot, one after the other, on services
of their own:

    pg_recvlogical   PostgreSQL's own client, into /dev/null: no decoding, no Kafka
    run              gauss-cdc run, exactly-once on
    run, plain       gauss-cdc run, exactly-once off

W4: inserts into one table of 6 columns, 100 to 1,000 rows a transaction.
W5: 70/20/10 insert/update/delete over 5 tables, about 5 rows a transaction.

CPU-seconds per million rows is what carries over to other machines; rows/s and the ratios are
what this machine gave in this run.
"""

# ruff: noqa: INP001, S603, S608  a command, not a package; its own programs and statements

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg2
from rich.console import Console
from rich.table import Table

from gauss_cdc.config import load
from gauss_cdc.places import Places
from gauss_cdc.services import LocalServices
from gauss_cdc.services.postgres import create_database
from schemas.positions import Lsn

_COLUMNS = "id bigint PRIMARY KEY, a int, b numeric(12,2), c text, d timestamptz, e boolean"
_VALUES = "g, mod(g, 1000)::int, g * 1.25, 'some text ' || g, now(), mod(g, 2) = 0"
_TICK = os.sysconf("SC_CLK_TCK")
_CONFIG = """\
[source]
dsn = "{url}"
slot = "{name}"
publication = "bench"
[kafka]
prefix = "{name}"
exactly-once = {exactly_once}
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
"""


@dataclass
class Figure:
    """One reader's run."""

    name: str
    seconds: float
    own_cpu: float
    walsender_cpu: float
    broker_cpu: float
    megabytes: float


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


def cpu(pid: int) -> float:
    """CPU seconds of a process; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


class Bench:
    """One workload on fresh services."""

    def __init__(self, services: LocalServices, folder: Path) -> None:
        self._services, self._folder = services, folder
        self._url = services.addresses.postgres_url("bench")

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement."""
        connection = psycopg2.connect(self._url)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def configuration(self, name: str, *, exactly_once: bool) -> Path:
        """Write a configuration of its own."""
        addresses = self._services.addresses
        path = self._folder / f"{name}.toml"
        path.write_text(
            _CONFIG.format(
                url=self._url,
                name=name,
                exactly_once=str(exactly_once).lower(),
                kafka=addresses.kafka_bootstrap,
                registry=addresses.registry_url,
            )
        )
        return path

    def drain(self, name: str, command: list[str], slot: str, arrived: object) -> Figure:
        """Run a reader until it is at the end; measure it and those it works with."""
        broker = self._services.process("kafka")
        assert broker is not None
        before, began = cpu(broker.pid), time.monotonic()
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        walsender, walsender_cpu, peak = 0, 0.0, 0.0
        while child.poll() is None and not arrived():  # type: ignore[operator]
            if not walsender:
                found = self.ask(
                    f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}'"
                )
                walsender = int(found[0][0] or 0) if found else 0  # type: ignore[call-overload]
            walsender_cpu = max(walsender_cpu, cpu(walsender) if walsender else 0.0)
            try:
                status = Path(f"/proc/{child.pid}/status").read_text("ascii")
                peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) / 1024)
            except (FileNotFoundError, IndexError):
                pass
            time.sleep(0.05)
        seconds = time.monotonic() - began
        own = cpu(child.pid)
        child.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(child.pid, 0) if child.returncode is None else (0, 0, None)
        own = own or (usage.ru_utime + usage.ru_stime if usage else 0.0)
        return Figure(name, seconds, own, walsender_cpu, cpu(broker.pid) - before, peak)

    def run(self, workload: str, rows: int) -> tuple[int, list[Figure]]:
        """Make slots, load, drain three times."""
        connection = psycopg2.connect(self._url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for n in range(5):
                cursor.execute(f"DROP TABLE IF EXISTS t{n}; CREATE TABLE t{n} ({_COLUMNS})")
            cursor.execute("DROP PUBLICATION IF EXISTS bench")
            cursor.execute("CREATE PUBLICATION bench FOR TABLE t0, t1, t2, t3, t4")
        gauss_cdc = [sys.executable, "-m", "gauss_cdc"]
        modes = {f"{workload}_eos": True, f"{workload}_plain": False}
        files = {n: self.configuration(n, exactly_once=e) for n, e in modes.items()}
        for path in files.values():
            subprocess.run([*gauss_cdc, "slot", "create", "--config", str(path)], check=True)
        self.ask(f"SELECT pg_copy_logical_replication_slot('{workload}_eos', '{workload}_raw')")
        done = {"w4": w4, "w5": w5}[workload](connection, rows)
        end = Lsn.parse(str(self.ask("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
        figures = []
        if (recvlogical := shutil.which("pg_recvlogical")) is not None:
            raw = [recvlogical, "-d", self._url, "-S", f"{workload}_raw", "--start", "-f",
                   "/dev/null", "-o", "proto_version=1", "-o", "publication_names=bench",
                   f"--endpos={end}"]  # fmt: skip
            slot = f"{workload}_raw"
            figures.append(self.drain("pg_recvlogical", raw, slot, lambda: False))
        for name, path in files.items():
            with Places(load(path)) as places:

                def arrived(places: Places = places) -> bool:
                    cuts = places.cuts()
                    return cuts is not None and cuts.resume >= end

                label = "run" if modes[name] else "run, plain"
                command = [*gauss_cdc, "run", "--config", str(path)]
                figures.append(self.drain(label, command, name, arrived))
        return done, figures


def main() -> None:
    """Measure both workloads and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workload", choices=["w4", "w5"], action="append")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    folder.chmod(0o711)
    console = Console()
    try:
        with LocalServices(folder / "services") as services:
            create_database(services.addresses.postgres_url(), "bench")
            for workload in asked.workload or ["w4", "w5"]:
                rows, figures = Bench(services, folder).run(workload, asked.rows)
                table = Table(
                    "reader", "krow/s", "to first", "own CPU-s/Mrow", "walsender", "broker", "MB",
                    title=f"{workload}: {rows:,} changes",
                )  # fmt: skip
                for f in figures:
                    million = rows / 1e6
                    table.add_row(
                        f.name,
                        f"{rows / f.seconds / 1000:.0f}",
                        f"{figures[0].seconds / f.seconds:.2f}x",
                        *(
                            f"{value / million:.2f}"
                            for value in (f.own_cpu, f.walsender_cpu, f.broker_cpu)
                        ),
                        f"{f.megabytes:.0f}",
                    )
                console.print(table)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
