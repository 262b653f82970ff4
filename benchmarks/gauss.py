"""GaussDB's SQL functions beside a stream, through the emulator.

    python benchmarks/gauss.py [--rows N] [--width BYTES]

Sizes and unit are those of GaussDB's manual (logical decoding overview, "Performance"): calls of
4 K, 32 K and 256 K rows, megabytes of log a second.  The source is PostgreSQL, which is disguised
as openGauss by `gauss-cdc emulator`:

    PostgreSQL's function   pgoutput, read inside the server: what decoding alone costs here
    through the emulator    mppdb_decoding, read as `run` reads it (`producer.sources.gauss`)
    run                     into Kafka, exactly-once on, with interface = "sql" and by its walsender

`get` moves the slot as it reads, `peek` is followed by pg_replication_slot_advance; the emulator's
`get` is both of PostgreSQL's, so that only the line of PostgreSQL shows what advance costs.  Each
size has a log of its own.  Rows of `run` are compared with the source at the end.

The emulator is written in Python and answers a call from memory: what it adds is no figure of
openGauss or GaussDB.  On two free cores this takes less than three minutes, and 4 GB for the
largest call.
"""

# ruff: noqa: INP001, S608  not a package; statements of its own

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psycopg2
from psycopg2.extensions import cursor as Cursor  # noqa: N812  it is a class
from report import Bars, Report, finish, number, parser, ratio
from rig import (
    GAUSS_CDC,
    Rig,
    Run,
    Settings,
    ask,
    drop_slot,
    newest_cut,
    program,
    rig,
    unique,
    wal_end,
)
from workloads import Table, compare_topics, truth

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.demo.disguise import USER, Disguise
from gauss_cdc_lab.services.process import LOOPBACK
from producer.sources.dsn import parse_dsn
from producer.sources.gauss import slots
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.functions import FunctionStream
from schemas.positions import NOWHERE

WIDE: Final = Table("wide", (("id", "bigint"), ("a", "int"), ("b", "numeric(12,2)"), ("c", "text")))
_PUBLICATION: Final = "wide"
_TRANSACTION: Final = 512  # rows
_K: Final = 1024
# Rows of a call -> calls, and what the manual says of its own hardware in MB of log a second.
_SIZES: Final = {4 * _K: (4, "0.3–0.5"), 32 * _K: (1, "3–5"), 256 * _K: (1, "3–5")}
_PEEK_MANUAL: Final = "30–50 % less"
_OPTIONS: Final = (("include-xids", "true"), ("include-timestamp", "true"))


@dataclass
class Read:
    """What one way of reading took."""

    seconds: float
    rows: int
    megabytes: float  # of log

    @property
    def rate(self) -> float:
        return self.megabytes / self.seconds

    @property
    def rows_a_second(self) -> float:
        return self.rows / self.seconds


@dataclass
class Source:
    """A PostgreSQL, and the emulator before it."""

    at: Rig
    width: int
    url: str = ""
    done: int = 0  # rows in its table
    _disguise: Disguise | None = field(default=None)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the table, and start the emulator."""
        self.url = self.at.database()
        ask(self.url, WIDE.create)
        ask(self.url, f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE {WIDE.name}")
        self._disguise = Disguise("opengauss", self.at.folder, self.url)
        self._disguise.start()
        try:
            yield
        finally:
            self._disguise.stop()

    def session(self) -> GaussConnection:
        """An ordinary session through the emulator."""
        assert self._disguise is not None
        return GaussConnection.open(parse_dsn(self.dsn, self._disguise.password), replication=False)

    @property
    def dsn(self) -> str:
        assert self._disguise is not None
        name = self.url.rpartition("/")[2]
        return f"postgresql://{USER}@{LOOPBACK}:{self._disguise.port}/{name}?sslmode=disable"

    def settings(self, **own: object) -> Settings:
        """[source] of a configuration."""
        assert self._disguise is not None
        secret = self.at.folder / "source-password"
        secret.touch(mode=0o600)
        secret.write_text(self._disguise.password, "utf-8")
        port = self._disguise.port + 1
        return {
            "kind": "opengauss", "dsn": self.dsn, "ha-port": port, "password-file": str(secret),
            "plugin": "mppdb_decoding", **own,
        }  # fmt: skip

    def insert(self, rows: int) -> float:
        """Insert rows, in transactions; megabytes of log."""
        begin = wal_end(self.url)
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for first in range(self.done + 1, self.done + rows + 1, _TRANSACTION):
                last = min(first + _TRANSACTION - 1, self.done + rows)
                cursor.execute(
                    f"INSERT INTO {WIDE.name} SELECT g, mod(g, 1000)::int, g * 1.25,"
                    " substr(repeat(md5(g::text), %s), 1, %s) FROM generate_series(%s, %s) g",
                    (self.width // 32 + 1, self.width, first, last),
                )
        self.done += rows
        return (wal_end(self.url) - begin) / 1e6


# ---------------------------------------------------------------- functions
def of_postgres(source: Source, slot: str, size: int, rows: int, *, is_get: bool) -> float:
    """Read `rows` rows by PostgreSQL's own function, in calls of `size`; seconds."""
    kind = "get" if is_get else "peek"
    found, began = 0, time.monotonic()
    with closing(psycopg2.connect(source.url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while found < rows:
            cursor.execute(
                "SELECT count(*) FILTER (WHERE get_byte(data, 0) = 73), max(lsn)::text"
                f" FROM pg_logical_slot_{kind}_binary_changes(%s, NULL, %s, 'proto_version', '1',"
                f" 'publication_names', '{_PUBLICATION}')",
                (slot, size),
            )
            found += _moved(cursor, slot, is_get=is_get)
    return time.monotonic() - began


def _moved(cursor: Cursor, slot: str, *, is_get: bool) -> int:
    """Move the slot behind what was read, where reading did not; the number of rows."""
    row = cursor.fetchone()
    assert row is not None
    if not is_get:
        cursor.execute("SELECT pg_replication_slot_advance(%s, %s)", (slot, row[1]))
    return int(row[0])


def through_emulator(source: Source, slot: str, size: int, rows: int, *, is_get: bool) -> float:
    """Read `rows` rows as `run` does, in calls of `size`; seconds."""
    assert not is_get  # it loses rows: `run` does not
    found, began = 0, time.monotonic()
    with closing(FunctionStream(source.session(), slot, _OPTIONS, rows_a_call=size)) as stream:
        moved = NOWHERE
        while found < rows or moved != stream.received_end:
            if messages := stream.receive(0.0).messages:
                found += sum(payload[:1] == b"{" for _, _, payload in messages)
            else:  # of a peek: the call is over
                stream.send_status(moved := stream.received_end)
    return time.monotonic() - began


def functions(source: Source, sizes: Sequence[int]) -> Iterator[tuple[str, int, bool, Read]]:
    """Read logs of each size in each way; yield way, size, is it `get`, and what it took."""
    ways: dict[str, Callable[..., float]] = {
        "PostgreSQL's function": of_postgres, "through the emulator": through_emulator
    }  # fmt: skip
    for size in sizes:
        calls, _ = _SIZES[size]
        names = {
            (way, is_get): unique("sql")
            for way, read in ways.items()
            for is_get in (True, False)
            if read is of_postgres or not is_get
        }
        with source.session() as session:
            for (way, _), name in names.items():
                if ways[way] is of_postgres:
                    ask(
                        source.url,
                        f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')",
                    )
                else:
                    slots.create_by_sql(session, name, "mppdb_decoding", ordered_by="lsn")
        megabytes = source.insert(rows := size * calls)
        for (way, is_get), name in names.items():
            seconds = ways[way](source, name, size, rows, is_get=is_get)
            yield way, size, is_get, Read(seconds, rows, megabytes)
            drop_slot(source.url, name)


# ---------------------------------------------------------------- run
def runs(source: Source, rows: int) -> Iterator[tuple[str, Read, Run]]:
    """Let `run` bring one log into Kafka in both ways; yield the way and what it took."""
    at = source.at
    ask(source.url, f"TRUNCATE {WIDE.name}")
    ways: dict[str, Settings] = {
        'interface = "sql"': source.settings(interface="sql"),
        "walsender, serial": source.settings(),
        "walsender, `b` in batches": source.settings(
            options={"parallel-decode-num": 4, "decode-style": "b", "sending-batch": 1}
        ),
    }
    files = {
        way: at.configuration(unique("gauss"), source.dsn, {"source": settings})
        for way, settings in ways.items()
    }
    for path in files.values():
        at.call("slot", "create", config=path)
    megabytes = source.insert(rows)
    done = truth(source.url, Counter(c=rows), [WIDE])
    for way, path in files.items():
        run = _drained(at, source.url, path, rows)
        compare_topics(at, path.stem, done)
        yield way, Read(rows / run.cost().rate, rows, megabytes), run
        drop_slot(source.url, path.stem)


def _drained(at: Rig, url: str, config: Path, rows: int) -> Run:
    """Run until every row stands in a cut: an idle slot of these tells no position."""
    log, name = config.with_suffix(".log"), config.stem
    command = (*GAUSS_CDC, "run", "--config", str(config))
    with Endpoints(load(config)) as places, program(command, log) as child:
        return at.watch(
            child, child.pid, url=url, slot=name, log=log,
            rows=partial(at.records, name),
            is_over=lambda found: found >= rows
            and (cuts := newest_cut(places)) is not None
            and cuts.seq * _TRANSACTION >= rows,
        )  # fmt: skip


# ---------------------------------------------------------------- the table
def lines(found: dict[tuple[str, int, bool], Read]) -> Iterator[list[str]]:
    """A line for each way and size."""
    for (way, size, is_get), read in found.items():
        other = found[way, size, True]
        manual = _SIZES[size][1]
        yield [
            f"{way}, {'get' if is_get else 'peek + advance'}",
            f"{size // _K} K",
            number(read.rate),
            number(read.rows_a_second / 1000),
            "–" if is_get else ratio(read.rate, other.rate),
            manual if is_get else _PEEK_MANUAL,
        ]


def main() -> None:
    """Measure, compare, print."""
    options = parser(__doc__)
    options.add_argument("--width", type=int, default=1_100, help="bytes of a row's text")
    options.add_argument("--rows", type=int, default=32 * _K, help="of `run`")
    given = options.parse_args()
    if given.quick:
        given.rows = min(given.rows, 4 * _K)
    report = Report("gauss")
    with rig(given.set) as at:
        source = Source(at, given.width)
        with source.running():
            sizes = list(_SIZES)[:1] if given.quick else list(_SIZES)
            read = {
                (way, size, is_get): took for way, size, is_get, took in functions(source, sizes)
            }
            report.table(
                f"SQL functions, rows of {given.width} bytes",
                ["function", "rows a call", "MB/s of log", "krow/s", "to get", "manual"],
                list(lines(read)),
                is_written=False,  # mostly of PostgreSQL's functions, and of the emulator
            )
            drained = list(runs(source, given.rows))
    first = drained[0][1]
    report.table(
        f"`run` into Kafka, {given.rows:,} rows",
        ["source", "MB/s of log", "krow/s", "to SQL functions", "own CPU-s/Mrow", "MB"],
        [
            [
                way, number(took.rate), number(took.rows_a_second / 1000),
                ratio(took.rate, first.rate), number(run.cost().own), number(run.megabytes),
            ]
            for way, took, run in drained
        ],
    )  # fmt: skip
    report.plots.append(Bars("`run`: MB of log a second", {way: t.rate for way, t, _ in drained}))
    report.note(
        "Figures of an emulator: PostgreSQL decodes, and a program in Python prints what openGauss "
        "would. A function is answered from memory. `manual` is GaussDB's own, in MB of log a "
        "second; streams with DDL are said to make about 100."
    )
    report.note("Topics of `run` were compared with the source, row by row.", is_written=False)
    finish(report, given)


if __name__ == "__main__":
    main()
