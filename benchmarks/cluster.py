"""`apply` on a standalone Spark cluster while executors and a driver are killed.

    python benchmarks/cluster.py [--rows N] [--submit]

A master and two workers of one core and 1 GB each.  The source moves money between accounts all the
time, about 9 transactions a second.  A sampler reads the target in one snapshot again and again:
sums and counts over three tables must fit together, or a transaction was seen in part.

    first load               by a driver of `gauss-cdc apply`
    large commit             `--rows` rows; the driver is killed (SIGKILL) during its job
    take over                another driver continues
    large update             nearly all rows in one commit; an executor is killed during its job

With `--submit` the second driver is one of `spark-submit --py-files`.  At the end source and target
are compared, row by row.  The share is that of the second driver: rows that tasks of its jobs
reported to have read, by its log, out of all changes that were applied since it began.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import random
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg2
from report import Report, finish, number, parser
from rig import GAUSS_CDC, Rig, Settings, ask, program, rig, unique

from gauss_cdc.pack import pack
from gauss_cdc_lab.services.cluster import EventLog, SparkCluster
from gauss_cdc_lab.services.process import Process, ProcessCommand, end_session

_PATIENCE: Final = 600.0
_LOOK: Final = 0.2  # seconds: looking costs, too
_ACCOUNTS: Final = 500  # as the schema has them
_PAUSE: Final = 0.1  # seconds between two transfers
_TABLES: Final = ("account", "transfer", "big")

# Nobody asks for them here; what is written must not hold them.
SECRETS: Final = {
    "target": "pencil-of-the-target",
    "kafka": "pencil-of-kafka",
    "tasks": "pencil-of-the-tasks",  # of Kafka's client in them
}

_SCHEMA: Final = """
CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, moves int NOT NULL);
CREATE TABLE transfer (id bigint PRIMARY KEY, size int NOT NULL);
CREATE TABLE big (id bigint PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL);
CREATE PUBLICATION bench FOR ALL TABLES;
INSERT INTO account SELECT id, 1000, 0 FROM generate_series(1, 500) id;
"""
_MOVE: Final = """
UPDATE account SET balance = balance + %(amount)s, moves = moves + 1 WHERE id = %(account)s
"""
_TRANSFER: Final = "INSERT INTO transfer VALUES (%s, %s)"
_LARGE: Final = """
INSERT INTO big SELECT id, CASE id %% 2 WHEN 0 THEN id - 1 ELSE -id END, md5(id::text)
FROM generate_series(1, %s) id
"""
_TURN: Final = "UPDATE big SET amount = -amount WHERE id <= %s"
_TOUCH: Final = "UPDATE big SET amount = amount WHERE id <= %s"
_FIGURES: Final = """
SELECT (SELECT coalesce(sum(balance), 0) FROM account),
    (SELECT coalesce(sum(moves), 0) FROM account),
    (SELECT count(*) FROM transfer),
    (SELECT coalesce(sum(size), 0) FROM transfer),
    (SELECT count(*) FROM big),
    (SELECT coalesce(sum(amount), 0) FROM big)
"""
_READ: Final = re.compile(r"tasks read ([\d,]+) records")
_TROUBLE: Final = "the driver reads for"
_CONTENT: Final = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {} t"


@dataclass(frozen=True)
class Figures:
    """Sums and counts of one snapshot."""

    balance: int
    moves: int
    transfers: int
    said: int  # rows of `big`, as `transfer` has them
    big: int
    amount: int

    @classmethod
    def of(cls, url: str) -> Figures:
        """Read them in one statement, which is one snapshot."""
        return cls(*map(int, ask(url, _FIGURES)[0]))

    @property
    def fit(self) -> bool:
        """Whether they are those of whole transactions."""
        return (
            self.balance == 1000 * _ACCOUNTS
            and self.moves == 2 * self.transfers
            and self.said == self.big
            and self.amount == 0
        )


@dataclass
class Outcome:
    """What a play showed."""

    samples: int = 0
    torn: list[Figures] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    changes: int = 0  # applied since the second driver began
    large: int = 0  # of them, in large commits
    by_executors: int = 0
    jobs: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)  # jobs that the driver had to do without
    is_equal: bool = False

    @property
    def through_the_driver(self) -> float:
        """The share of the changes that the second driver's own process read."""
        return 1 - min(self.by_executors, self.changes) / self.changes


def play(at: Rig, cluster: SparkCluster, rows: int, *, submit: bool) -> Outcome:
    """Load, commit, kill, compare; return what was seen."""
    scene = _Scene(at, cluster, rows)
    log = at.folder / "run.log"
    with ExitStack() as stack:
        stack.callback(scene.end_driver)
        command: list[str | Path] = [*GAUSS_CDC, "run", "--config", scene.first]
        scene.run = stack.enter_context(program(command, log))
        scene.load()
        with scene.busy():
            scene.commit_and_kill_the_driver()
            scene.take_over(submit=submit)
            scene.update_and_kill_an_executor()
        scene.compare()
    return scene.outcome


class _Scene:
    def __init__(self, at: Rig, cluster: SparkCluster, rows: int) -> None:
        self._at, self._cluster, self._rows = at, cluster, rows
        self._source, self._target = at.database(), at.database()
        ask(self._source, _SCHEMA)
        for secret, text in SECRETS.items():
            file = at.folder / f"{secret}.secret"
            file.write_text(text)
            file.chmod(0o600)
        name = unique("cluster")
        self._logs = cluster.log(f"{name}-1"), cluster.log(f"{name}-2")
        self.first, self._second = (self._configuration(name, log) for log in self._logs)
        self.run: subprocess.Popen[bytes] | None = None
        self._driver: Process | None = None
        self._drivers = self._commits = 0
        self._began = Figures(0, 0, 0, 0, 0, 0)
        self.outcome = Outcome()

    def _configuration(self, name: str, log: EventLog) -> Path:
        options: Settings = {
            **self._cluster.settings(log),
            "kafka.ssl.keystore.key": {"file": str(self._at.folder / "kafka.secret")},
        }
        password = str(self._at.folder / "target.secret")
        settings: Settings = {
            "kafka": {
                "client": {"ssl.key.password": {"file": str(self._at.folder / "tasks.secret")}}
            },
            "target": {"kind": "postgres", "dsn": self._target, "password-file": password},
            "spark": {
                "master": options.pop("spark.master"),
                "checkpoint": str(self._at.folder / "state"),
                "options": options,
            },
        }
        made = self._at.configuration(name, self._source, settings)
        return made.rename(made.with_name(f"{log.folder.name}.toml"))

    # ------------------------------------------------------------ what happens
    def load(self) -> None:
        """The first load, and Spark."""
        with self._timed("first load"):
            self._start(self._apply(self.first))
            self._until("the tables", self._are_tables_there)
            self._until("the first load", self._is_equal)
        self._until("Spark of the first driver", lambda: self._logs[0].has_started)

    def commit_and_kill_the_driver(self) -> None:
        """A large commit, and the end of the driver while its tasks work on it."""
        log = self._logs[0]
        self._until("all executors", lambda: log.executors >= self._cluster.workers)
        self._commit_for_tasks(log, _LARGE, self._rows, size=self._rows)
        self.end_driver()
        self.outcome.kills.append("a driver during its job")

    def take_over(self, *, submit: bool) -> None:
        """Another driver continues, and reads by itself until its Spark has started."""
        self._began = Figures.of(self._target)
        log = self._logs[1]
        with self._timed("large commit, a driver's start included"):
            packed = self._at.folder / "gauss-cdc.zip"
            self._start(
                self._cluster.submit(
                    pack(packed), "apply", "--config", self._second, py_files=packed, log=log
                )
                if submit
                else self._apply(self._second)
            )
            self._until("the large commit", lambda: Figures.of(self._target).big == self._rows)
        self._until("Spark of the second driver", lambda: log.has_started)

    def update_and_kill_an_executor(self) -> None:
        """A large update, whose rows Spark's tasks read, and the end of one of their executors."""
        log = self._logs[1]
        self._until("all executors", lambda: log.executors >= self._cluster.workers)
        with self._timed("large update, a killed executor included"):
            self._commit_for_tasks(log, _TURN, self._turned, size=0)
            self._cluster.kill_executor()
            self.outcome.kills.append("an executor during a job")
            self._until("the large update", self._is_turned)

    def compare(self) -> None:
        """Wait for what is left, and compare every row."""
        self._until("the last transfers", self._is_equal)
        out, now, log = self.outcome, Figures.of(self._target), self._logs[1]
        small = (now.transfers - self._began.transfers) * 3  # each is three changes
        out.large = self._turned
        out.changes = small + now.big + self._turned
        said = self._log.read_text("utf-8", "replace")
        out.by_executors = sum(int(one.replace(",", "")) for one in _READ.findall(said))
        out.jobs = log.jobs()
        out.troubles = [line for line in said.splitlines() if _TROUBLE in line]
        self.end_driver()
        out.is_equal = all(
            ask(self._source, _CONTENT.format(table)) == ask(self._target, _CONTENT.format(table))
            for table in _TABLES
        )

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Small transactions at the source, and samples of the target, in the meantime."""
        stop, failures = threading.Event(), []

        def guarded(work: Callable[[threading.Event], None]) -> None:
            try:
                work(stop)
            except BaseException as error:  # noqa: BLE001  raised below
                failures.append(error)

        workers = [
            threading.Thread(target=guarded, args=(work,)) for work in (self._write, self._sample)
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        if failures:
            raise failures[0]

    def _write(self, stop: threading.Event) -> None:
        with closing(psycopg2.connect(self._source)) as connection:
            number_ = 0
            chance = random.Random(1)  # noqa: S311  a seed
            while not stop.wait(_PAUSE):
                number_ += 1
                _move(connection, number_, 0, chance)

    def _sample(self, stop: threading.Event) -> None:
        pause = 0.0
        while not stop.wait(pause):
            began = time.monotonic()
            figures = Figures.of(self._target)
            pause = max(_LOOK, 4 * (time.monotonic() - began))
            self.outcome.samples += 1
            if not figures.fit:
                self.outcome.torn.append(figures)

    # ------------------------------------------------------------ the parts
    @property
    def _turned(self) -> int:
        return self._rows // 2 * 2 - 2  # an even number: the sum stays 0

    def _commit_for_tasks(self, log: EventLog, statement: str, value: int, *, size: int) -> None:
        """Commit, and wait for the job that reads it.

        While no micro-batch is open, the driver reads by itself, and on a slow machine it does: the
        rows are written again, as they are, until a job reads them.
        """
        jobs = len(log.jobs())
        self._commit(statement, value, size=size)
        self._until("a job, or the commit", lambda: len(log.jobs()) > jobs or self._is_applied())
        while len(log.jobs()) == jobs:
            self._commit(_TOUCH, value, size=0)
            self._until("a job, or the rows", lambda: len(log.jobs()) > jobs or self._is_applied())

    def _is_applied(self) -> bool:
        """Whether the newest large commit is at the target."""
        transfer = "SELECT 1 FROM transfer WHERE id = %s"
        return bool(ask(self._target, transfer, -self._commits))

    def _commit(self, statement: str, value: int, *, size: int) -> None:
        """One transaction over all three tables."""
        self._commits += 1
        with closing(psycopg2.connect(self._source)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement, (value,))
            _move(connection, -self._commits, size, random.Random(value))  # noqa: S311

    def _apply(self, config: Path) -> ProcessCommand:
        environment = self._cluster.environment()
        command = (*GAUSS_CDC, "apply", "--config", config)
        return ProcessCommand(command, self._at.folder, environment=environment)

    def _start(self, command: ProcessCommand) -> None:
        self._drivers += 1
        self._driver = command.spawn(self._log)

    @property
    def _log(self) -> Path:
        """What the newest driver says."""
        return self._at.folder / f"apply-{self._drivers}.log"

    def end_driver(self) -> None:
        """SIGKILL a driver, Python and Java."""
        if self._driver is not None:
            end_session(self._driver.pid)
            self._driver = None

    def _are_tables_there(self) -> bool:
        names = ask(
            self._target, "SELECT relname FROM pg_class WHERE relname = ANY(%s)", [*_TABLES]
        )
        return len(names) == len(_TABLES)

    def _is_equal(self) -> bool:
        return Figures.of(self._source) == Figures.of(self._target)

    def _is_turned(self) -> bool:
        return bool(ask(self._target, "SELECT 1 FROM big WHERE id = 1 AND amount = 1"))

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not is_so():
            has_ended = {
                "run": self.run is not None and self.run.poll() is not None,
                "apply": self._driver is not None and not self._driver.alive,
            }
            for name in (name for name, ended in has_ended.items() if ended):
                log = self._log if name == "apply" else self._at.folder / "run.log"
                said = log.read_text("utf-8", "replace")[-3000:]
                raise SystemExit(f"{said}\n{name} ended while we waited for {what}")
            if time.monotonic() > end:
                raise SystemExit(f"never came: {what}")
            time.sleep(_LOOK)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.outcome.seconds[what] = time.monotonic() - began


def _move(
    connection: psycopg2.extensions.connection, number_: int, size: int, chance: random.Random
) -> None:
    """Move money between two accounts, and commit."""
    one, other = sorted(chance.sample(range(1, _ACCOUNTS + 1), 2))
    with connection.cursor() as cursor:
        for account, amount in ((one, 7), (other, -7)):
            cursor.execute(_MOVE, {"account": account, "amount": amount})
        cursor.execute(_TRANSFER, (number_, size))
    connection.commit()


def main() -> None:
    """Play, print, refuse what is wrong."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=3_000_000)
    options.add_argument("--submit", action="store_true")
    given = options.parse_args()
    if given.quick:
        given.rows = min(given.rows, 60_000)
    with rig(given.set) as at:
        folder = Path(tempfile.mkdtemp(prefix="spark-", dir=at.folder))
        with SparkCluster(folder, at.addresses) as cluster:
            out = play(at, cluster, given.rows, submit=given.submit)
    if out.torn or not out.is_equal:
        raise SystemExit(f"not equal, or torn: {out.torn[:3]}")
    report = Report("cluster")
    rows = [[what, number(seconds)] for what, seconds in out.seconds.items()]
    report.table(f"Standalone cluster, a commit of {given.rows:,} rows", ["step", "seconds"], rows)
    report.note(
        f"Killed: {', '.join(out.kills)}. {out.samples} samples of the target, each of whole "
        f"transactions; equal at the end. Of {out.changes:,} changes since the second driver began "
        f"{out.through_the_driver:.1%} went through it, the others through tasks of "
        f"{len(out.jobs)} jobs."
    )
    finish(report, given)


if __name__ == "__main__":
    main()
