"""A `run` or an `apply` that is stopped as SIGSTOP does it, beside another one that waits."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path as Folder

import psycopg2
import pytest

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from tests.e2e.commands import configured
from tests.e2e.gauss_facade import PASSWORD, USER, facade
from tests.e2e.path import Path, ask, content, pause, until

TABLE = "CREATE TABLE account (id int PRIMARY KEY, name text)"
LEDGER = "SELECT fence, state FROM gauss_cdc.ledger"
MANY = 3_000_000
WRITTEN = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
    " WHERE relkind = 'r' AND (relname = 'account' OR relname LIKE 'stage%')"
)


class Pair:
    """Two processes of one command and one configuration, each in a folder of its own."""

    def __init__(self, command: str, config: Folder) -> None:
        self.first, self.second = (
            Program(command, config, folder=self._folder(config.parent / name))
            for name in ("first", "second")
        )

    def close(self) -> None:
        for program in (self.first, self.second):
            self.thaw(program)
            program.close()

    @staticmethod
    def freeze(program: Program) -> None:
        Pair._send(program, signal.SIGSTOP)

    @staticmethod
    def thaw(program: Program) -> None:
        Pair._send(program, signal.SIGCONT)

    @staticmethod
    def says(program: Program, what: str) -> None:
        until(
            lambda: program.log.exists() and what in program.log.read_text(),
            f"{what!r} of {program.name}", pause,
        )  # fmt: skip

    @staticmethod
    def _send(program: Program, number: signal.Signals) -> None:
        if program._process is not None:
            program._process.send(number)

    @staticmethod
    def _folder(folder: Folder) -> Folder:
        (folder / "logs").mkdir(parents=True)
        return folder


@pytest.fixture
def applies(place: tuple[Path, Folder]) -> Iterator[Pair]:
    with closing(Pair("apply", place[1])) as pair:
        yield pair


@pytest.fixture
def path(place: tuple[Path, Folder], applies: Pair) -> Path:
    """An `apply` has loaded an empty table, and another one waits."""
    path = place[0]
    ask(path.source, TABLE)
    path.start()
    path.arrive()
    applies.first.start()
    there = "SELECT 1 FROM pg_tables WHERE schemaname = 'gauss_cdc' AND tablename = 'ledger'"
    until(lambda: bool(ask(path.target, there)), "a ledger", pause)
    until(lambda: ask(path.target, LEDGER) == [(1, "EXACT")], "the first load", pause)
    applies.second.start()
    Pair.says(applies.second, "holds the target")
    return path


def test_a_commit_of_millions_of_rows_is_no_silence(path: Path, applies: Pair) -> None:
    ask(path.source, f"INSERT INTO account SELECT g, 'x' FROM generate_series(1, {MANY}) g")
    path.arrive()
    known = [(0,)]

    def goes_on() -> bool:
        before, known[:] = known[:], ask(path.target, WRITTEN)
        return known != before

    while ask(path.target, "SELECT EXISTS (SELECT 1 FROM account)") == [(False,)]:
        until(goes_on, "more of its rows", pause)

    assert ask(path.target, "SELECT count(*) FROM account") == [(MANY,)]
    assert ask(path.target, LEDGER) == [(1, "EXACT")]
    assert "takes over" not in applies.second.log.read_text()


def test_an_apply_that_is_frozen_in_a_step_is_replaced_and_goes_away_when_it_wakes(
    path: Path, applies: Pair
) -> None:
    first, second = applies.first, applies.second
    with closing(psycopg2.connect(path.target)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")
        ask(path.source, "INSERT INTO account VALUES (1, 'a')")
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
        until(lambda: bool(ask(path.target, waiting)), "a step that waits", pause)
        Pair.freeze(first)  # it holds the ledger's lock, for as long as its session lives
        until(lambda: ask(path.target, LEDGER)[0][0] == 2, "the one that waited", pause)
    ask(path.source, "INSERT INTO account VALUES (2, 'b')")
    until(lambda: len(content(path.target, "account")) == 2, "both rows", pause)

    Pair.thaw(first)
    until(first.died, "the end of the one that woke", pause)
    words = first.last_words()
    assert "another applier took over this target: this one was silent for" in words
    assert "it was stopped, suspended or cut off" in words
    ask(path.source, "INSERT INTO account VALUES (3, 'c')")
    until(lambda: len(content(path.target, "account")) == 3, "the next row", pause)
    assert not second.died(), second.last_words()
    assert second.stop()


@pytest.fixture(params=["postgres", "opengauss"])
def runs(
    request: pytest.FixtureRequest,
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    source = new_database()
    ask(source, TABLE)
    ask(source, f"CREATE TABLE many AS SELECT g AS id FROM generate_series(1, {MANY // 2}) g")
    ask(source, "ALTER TABLE many ADD PRIMARY KEY (id)")
    if request.param == "postgres":
        config = configured(tmp_path, addresses, topic_prefix, source, new_database())
        with closing(Pair("run", config)) as pair:
            yield pair
        return
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    with facade(source, sender_timeout_ms=6_000) as front:
        dsn = (
            f"postgresql://{USER}@127.0.0.1:{front.emulator.port}/{front.database}?sslmode=disable"
        )
        kind = {"kind": "opengauss", "plugin": "mppdb_decoding"}
        config = configured(tmp_path, addresses, topic_prefix, dsn, new_database(), **kind)
        with closing(Pair("run", config)) as pair:
            yield pair


def test_a_run_that_is_frozen_is_replaced_and_waits_when_it_wakes(runs: Pair) -> None:
    first, second = runs.first, runs.second
    first.start()
    runs.says(first, "streaming from")
    second.start()
    runs.says(second, "another run holds the lock")
    runs.freeze(first)
    runs.says(second, "streaming from")

    runs.thaw(first)
    runs.says(first, "another run holds the lock")
    assert second.stop()
    until(lambda: first.log.read_text().count("streaming from") == 2, "its turn", pause)
    assert first.stop()


def test_a_run_that_is_frozen_in_its_first_load_is_replaced(runs: Pair) -> None:
    first, second = runs.first, runs.second
    first.start()
    until(lambda: first.step() == "load: CHUNK", "rows of a load", pause)
    runs.freeze(first)
    assert "streaming from" not in first.log.read_text()
    second.start()  # the server may let go of the first before the second one asks
    runs.says(second, "streaming from")

    runs.thaw(first)
    until(first.died, "the end of the one that woke", pause)
    assert "exit_code=31" in first.log.read_text()
    runs.says(second, f"loaded table=public.many rows={MANY // 2}")
    assert second.stop()
