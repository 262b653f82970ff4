"""A source that comes back from an older copy of its files, and ordinary restarts of one."""

import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path as File

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.ports import Tuning
from producer.errors import HistoryDiffers, SlotMismatch, SourceSwitched
from tests.e2e.commands import command, configured
from tests.e2e.ddl_play import Play
from tests.e2e.path import Path, ask, content, until
from tests.e2e.test_ddl import install
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server

pause = threading.Event().wait


@dataclass
class Source:
    """A server whose files are copied, put back, and left in the middle of everything."""

    server: PrivateServer

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.server.port}/{DATABASE}?sslmode=disable"

    @property
    def end(self) -> int:
        ((end,),) = ask(self.url, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return int(end)

    def copy(self) -> None:
        """Copy all files, cold."""
        self.server.stop()
        self._copied(self.server.data, self._kept)
        self.server.start()

    def restore(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.data)
        self._copied(self._kept, self.server.data)
        self.server.start()

    def kill(self) -> None:
        assert self.server.process is not None
        self.server.process.send(signal.SIGKILL)
        assert self.server.process.wait(120)

    def slot(self, name: str) -> bytes:
        """What is on disk of a slot, of a server that is not up."""
        return (self.server.data / "pg_replslot" / name / "state").read_bytes()

    def set_back(self, name: str, state: bytes) -> None:
        (self.server.data / "pg_replslot" / name / "state").write_bytes(state)

    @property
    def _kept(self) -> File:
        return self.server.data.with_name("copy")

    def _copied(self, one: File, other: File) -> None:
        shutil.copytree(one, other, symlinks=True)
        owner = one.stat()
        for path in (other, *other.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        other.chmod(0o700)


@pytest.fixture
def source() -> Iterator[Source]:
    with private_server() as server:
        yield Source(server)


def write_past(source: Source, position: int) -> None:
    """Other commits than there were, up to a position."""
    with psycopg2.connect(source.url) as connection:
        number = 1_000_000
        while source.end <= position:
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO account SELECT i, repeat(md5(i::text), 200)"
                    " FROM generate_series(%s, %s) i",
                    [number, number + 99],
                )
            connection.commit()
            number += 100


def junk_past(source: Source, position: int) -> None:
    """Write up to a position, into a table that is not captured."""
    while source.end <= position:
        ask(source.url, "INSERT INTO junk SELECT repeat('x', 900) FROM generate_series(1, 999)")


def deliver_and_copy(path: Path, source: Source) -> None:
    """Deliver what is there, copy the source as it stands, and go on."""
    path.start()
    path.catch_up()
    path.stop()
    source.copy()
    path.start()
    path.catch_up()


@pytest.mark.parametrize("delivers", [True, False], ids=["behind commits", "behind nothing"])
def test_a_source_from_an_older_copy_that_writes_past_its_old_position_stops(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    tmp_path: File,
    source: Source,
    delivers: bool,
) -> None:
    ask(source.url, "CREATE TABLE account (id int PRIMARY KEY, v text)")
    ask(source.url, "INSERT INTO account SELECT i, 'old' FROM generate_series(1, 50) i")
    target = new_database()
    file = configured(tmp_path, addresses, topic_prefix, source.url, target)
    with Path(addresses, topic_prefix, source.url, target) as path:
        deliver_and_copy(path, source)
        if delivers:
            for number in range(100):
                ask(source.url, f"INSERT INTO account VALUES ({100 + number}, repeat('x', 9000))")
        ask(source.url, "SELECT pg_switch_wal()")
        path.catch_up()
        path.stop()
        assert command(file, "wait", "--timeout", "60s").exception is None
        delivered, had = path.progress.resume, content(target, "account")
        source.restore()

        assert source.end < delivered
        is_lost = command(file, "wait", "--timeout", "60s").exception
        assert isinstance(is_lost, SourceSwitched)
        assert "ends before what the target holds" in is_lost.what
        stops(path, SourceSwitched, "ends before what was delivered")

        write_past(source, delivered)
        stops(path, HistoryDiffers, r"--accept-gap")
        stops(path, HistoryDiffers, r"--accept-gap")
        assert content(target, "account") == had

        path.options = replace(path.options, accept_gap=True)
        path.start()
        until(lambda: path.applier.drain().epoch == 2, "another epoch", pause)
        path.catch_up()
        assert content(target, "account") == content(source.url, "account")


def test_a_lost_truncate_of_a_partition_stops(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str], source: Source
) -> None:
    """It has no row, and older rows in another file mean nothing to a look at the catalog."""
    source.server.execute(
        "CREATE TABLE rows (id int PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE one PARTITION OF rows FOR VALUES IN (1)",
        "INSERT INTO rows VALUES (1)",
        "CREATE TABLE others (v text)",
    )
    with Path(addresses, topic_prefix, source.url, new_database()) as path:
        path.options = replace(path.options, include=("public.rows",))
        path.start()
        path.catch_up()
        install(source.url, topic_prefix, include=("public.rows",))
        path.catch_up()
        path.stop()
        source.copy()
        path.start()
        ask(source.url, "TRUNCATE one")
        path.catch_up()
        assert content(path.target, "rows") == []
        path.stop()
        source.restore()
        while source.end <= path.progress.resume:
            ask(source.url, "INSERT INTO others SELECT repeat('x', 900) FROM generate_series(1, 9)")

        stops(path, HistoryDiffers, "does not send a transaction again")


def test_a_slot_that_somebody_else_makes_in_a_copy_stops(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str], source: Source
) -> None:
    """The copy writes before it is made, and it sends nothing of that."""
    ask(source.url, "CREATE TABLE account (id int PRIMARY KEY, v text)")
    with Path(addresses, topic_prefix, source.url, new_database()) as path:
        deliver_and_copy(path, source)
        ask(source.url, "INSERT INTO account VALUES (1, repeat('x', 9000))")
        path.catch_up()
        path.stop()
        slot = path.options.slot
        source.restore()
        ask(source.url, "SELECT pg_drop_replication_slot(%s)", slot)
        ask(source.url, "INSERT INTO account VALUES (2, 'of the copy')")
        ask(source.url, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
        assert source.end < path.progress.resume
        write_past(source, path.progress.resume)

        stops(path, HistoryDiffers, "the slot stands where no `run` left it.*--accept-gap")


@pytest.mark.parametrize("renames", [True, False], ids=["renamed", "had a gap"])
def test_lost_rows_of_a_table_that_was_renamed_or_read_again_stop(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    source: Source,
    renames: bool,
) -> None:
    """It was exact when they were delivered, and the copy writes to no table that is captured."""
    source.server.execute(
        "CREATE TABLE account (id int PRIMARY KEY, v int)",
        "INSERT INTO account SELECT i, i FROM generate_series(1, 50) i",
        "CREATE TABLE junk (v text)",
    )
    chosen = {"include": ("public.*",), "exclude": ("public.junk",)}
    more = {"repair": "auto", "look_seconds": 0.3, "tuning": Tuning(rest_seconds=0.1)}
    with Path(addresses, topic_prefix, source.url, new_database(), **chosen, **more) as path:
        deliver_and_copy(path, source)
        junk_past(source, source.end + 500_000)
        if not renames:
            ask(source.url, "ALTER TABLE account ALTER v TYPE int USING v + 1000")
            path.waited()  # it may end before the re-read, or behind it
            until(lambda: path.waited() == {}, "the re-read", pause)
            assert any("public.account is not exact any more" in note for note in path.notes)
        ask(source.url, "INSERT INTO account VALUES (500, 0)")
        if renames:
            ask(source.url, "ALTER TABLE account RENAME TO renamed")
        assert path.waited() == {}
        path.stop()
        source.restore()
        assert source.end < path.progress.resume
        junk_past(source, path.progress.resume)

        stops(path, HistoryDiffers, "does not send a transaction again that was delivered")


@pytest.mark.parametrize(
    ("lost", "statements"),
    [
        ("", ["ALTER TABLE other RENAME TO renamed", "INSERT INTO renamed VALUES (500, 'new')"]),
        (
            "",
            [
                "ALTER TABLE other SET SCHEMA hidden",
                "INSERT INTO hidden.other VALUES (500, 'new')",
                "ALTER TABLE hidden.other SET SCHEMA public",
            ],
        ),
        ("ALTER TABLE other RENAME TO renamed", ["INSERT INTO other VALUES (500, 'new')"]),
    ],
    ids=["renamed", "under another name for a while", "its renaming was lost"],
)
def test_a_row_of_a_table_that_only_one_history_renames_stops(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    source: Source,
    lost: str,
    statements: list[str],
) -> None:
    """Nothing that is captured was lost; the row comes below the place that was delivered."""
    source.server.execute(
        "CREATE SCHEMA hidden",
        "CREATE TABLE other (id int PRIMARY KEY, v text)",
        "INSERT INTO other SELECT i, 'old' FROM generate_series(1, 50) i",
        "CREATE TABLE junk (v text)",
    )

    chosen = {"include": ("public.*",), "exclude": ("public.junk",)}
    with Path(addresses, topic_prefix, source.url, new_database(), **chosen) as path:
        deliver_and_copy(path, source)
        junk_past(source, source.end + 2_000_000)
        path.catch_up()
        if lost:
            ask(source.url, lost)
            assert path.waited() == {}
        path.stop()
        source.restore()
        for statement in statements:
            ask(source.url, statement)
        assert source.end < path.progress.resume
        junk_past(source, path.progress.resume)

        stops(path, HistoryDiffers, r"was not delivered, .*table=public\.other")


def test_a_copy_of_the_database_that_took_its_name_and_its_slot_stops(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str], source: Source
) -> None:
    """All of it has the same oids; it lacks what came since, and sends all that comes now."""
    ask(source.url, "CREATE TABLE account (id int PRIMARY KEY, v text)")
    server, admin = source.server, "postgres"
    with Path(addresses, topic_prefix, source.url, new_database()) as path:
        path.start()
        path.catch_up()
        path.stop()
        run_at(server, admin, f"CREATE DATABASE copy TEMPLATE {DATABASE}")
        path.start()
        ask(source.url, "INSERT INTO account VALUES (1, 'not in the copy')")
        path.catch_up()
        path.stop()
        slot = path.options.slot
        run_at(server, admin, f"ALTER DATABASE {DATABASE} RENAME TO former")
        run_at(server, admin, f"ALTER DATABASE copy RENAME TO {DATABASE}")
        for was, now in ((slot, f"{slot}_2"), (f"{slot}_2", slot)):
            run_at(server, DATABASE, f"SELECT pg_copy_logical_replication_slot('{was}', '{now}')")
            run_at(server, admin, f"SELECT pg_drop_replication_slot('{was}')")

        stops(path, SlotMismatch, r"another database.*was=bank \(\d+\)/.*--accept-gap")


def run_at(server: PrivateServer, dbname: str, statement: str) -> None:
    with closing(server.admin(dbname)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


def stops(path: Path, error: type[Exception], says: str) -> None:
    path.start()
    until(lambda: path.failure is not None, "the stop", pause)
    with pytest.raises(error, match=says):
        path.stop()
    path.failure = None


# ---------------------------------------------------------------- ordinary restarts
ROUNDS = 15
INCLUDED = [("*.*",), ("public.*",), ("public.*", "one.*"), ("*.a", "*.b", "*.marker")]


# Some are gaps, some nobody describes.
STATEMENTS = {
    "INSERT INTO {t} SELECT i, 'n' FROM generate_series({n}, {n} + 9) i ON CONFLICT DO NOTHING": 20,
    "UPDATE {t} SET v = 'u{n}' WHERE id % 7 = {n} % 7": 20,
    "DELETE FROM {t} WHERE id % 11 = {n} % 11": 10,
    "INSERT INTO {t} VALUES (-1, 'aborted'); ROLLBACK": 3,
    "TRUNCATE {t}; INSERT INTO {t} VALUES (1, 'first')": 2,
    "INSERT INTO {t} SELECT i, 'large' FROM generate_series(-5000, -2) i": 1,
    "DELETE FROM {t} WHERE id < 0": 2,
    "ALTER TABLE {t} ADD COLUMN c{n} float DEFAULT random(); UPDATE {t} SET v = 'w'": 1,
    "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, v text); INSERT INTO {t} VALUES (1)": 1,
}


@dataclass
class Rows:
    """Rows, and a statement now and then, of a source that describes no statement."""

    url: str
    random: random.Random

    def some(self, actions: int) -> None:
        for _ in range(actions):
            (text,) = self.random.choices([*STATEMENTS], [*STATEMENTS.values()])
            table = self.random.choice(["public.a", "public.b", "one.c", "two.d"])
            with suppress(psycopg2.IntegrityError):
                ask(self.url, text.format(t=table, n=self.random.randrange(1000)))


@pytest.mark.parametrize("how", ["a list of tables", "all tables", "triggers"])
def test_an_ordinary_restart_is_no_other_history(
    addresses: Addresses,
    topic_prefix: str,
    new_database: Callable[[], str],
    source: Source,
    how: str,
) -> None:
    """The source is killed, its slot is behind, and [tables] change; another slot keeps the log."""
    seed = 28
    rng = random.Random(seed)
    for statement in (
        "ALTER SYSTEM SET autovacuum = off",
        "SELECT pg_reload_conf()",
        "CREATE SCHEMA one",
        "CREATE SCHEMA two",
        *(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)"
            for name in ("public.a", "public.b", "one.c", "two.d", "public.marker")
        ),
        f"SELECT pg_create_logical_replication_slot('{topic_prefix}_keeper', 'pgoutput')",
    ):
        source.server.execute(statement)
    if how == "all tables":
        source.server.execute(f"CREATE PUBLICATION {topic_prefix} FOR ALL TABLES")
    compared, more = 0, {"repair": "auto", "look_seconds": 0.5}
    with Path(addresses, topic_prefix, source.url, new_database(), **more) as path:
        path.options = replace(path.options, include=INCLUDED[0])
        path.start()
        path.arrive()
        if how == "triggers":
            install(source.url, topic_prefix)
        states: list[bytes] = []
        for number in range(ROUNDS):
            play = Play(source.url, number) if how == "triggers" else Rows(source.url, rng)
            play.some(30)
            if rng.random() < 0.8:
                path.arrive()
            if rng.random() < 0.5:
                path.stop()
                path.options = replace(path.options, include=rng.choice(INCLUDED))
            if isinstance(play, Play):
                play.close()
            source.kill()
            states.append(source.slot(topic_prefix))
            if rng.random() < 0.7:
                source.set_back(topic_prefix, rng.choice(states[-4:]))
            source.server.start()
            if path._thread is None:
                path.start()
            path.arrive()
            compared += sum("they are the ones that were delivered" in note for note in path.notes)
            path.notes.clear()
        path.stop()

    assert compared > ROUNDS // 2
