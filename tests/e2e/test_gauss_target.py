"""openGauss' sink behind openGauss' login: the facade hands its SQL on to PostgreSQL."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as Folder

import psycopg2
import pytest

from gauss_cdc.config import Config, load
from gauss_cdc.gauss_dbapi import connect
from gauss_cdc.inspect.check_target import check_target
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.services import Addresses
from producer.sources.dial import ConnectionArguments
from schemas.control import LoadPhase
from schemas.errors import Verdict
from schemas.findings import Finding, Level
from schemas.tables import TableId
from spark_consumers.errors import TargetRefused
from spark_consumers.loop.job import Applier
from spark_consumers.sinks.postgres.products import OPENGAUSS
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.gauss_facade import PASSWORD, USER, Front, facade
from tests.e2e.path import Path, ask, content
from tests.spark_consumers.feed import Feed, alter, delete, insert, table, update

ACCOUNT = table("account", "id integer, name text, note text", unique="name")


def found(config: Config) -> list[Finding]:
    return list(check_target(config, [ACCOUNT.id], [ACCOUNT], reads_cuts=False))


def sink(front: Front, *, source: str = "bank", password: str = PASSWORD) -> PostgresSink:
    arguments = ConnectionArguments(
        host="127.0.0.1",
        port=front.emulator.port,
        dbname=front.database,
        user=USER,
        password=password,
        sslmode="disable",
    )
    return PostgresSink(partial(connect, arguments), source, product=OPENGAUSS)


def test_loads_changes_and_ddl_reach_a_target_behind_the_login(postgres_url: str) -> None:
    feed, moved = Feed(), replace(ACCOUNT, id=TableId("moved", "konto"))
    with facade(postgres_url) as front:
        target = sink(front)
        applier = Applier(feed.read_cuts, feed.read_rows, target)
        feed.start()
        feed.load(ACCOUNT, LoadPhase.BEGIN)
        feed.load(ACCOUNT, LoadPhase.CHUNK, ["1", "a\t\\", "x"], ["2", "b", None], ["3", "", "ü你"])
        feed.load(ACCOUNT, LoadPhase.END)
        feed.commits(
            [
                update(ACCOUNT, "1", "b", ...),
                update(ACCOUNT, "2", "a\t\\", ...),
                delete(ACCOUNT, "3"),
                insert(ACCOUNT, "4", "%s", "it's"),
            ]
        )
        feed.commits([alter(ACCOUNT, moved), insert(moved, "5", "e", "y")])
        ledger = applier.drain()
        target.close()

    connection = psycopg2.connect(postgres_url)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, name, note FROM moved.konto ORDER BY id")
        found = cursor.fetchall()
    connection.close()
    assert found == [(1, "b", "x"), (2, "a\t\\", None), (4, "%s", "it's"), (5, "e", "y")]
    assert (ledger.seq, ledger.state) == (2, "EXACT")


def test_the_whole_path_ends_with_a_target_equal_to_its_source(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE TABLE person (id int PRIMARY KEY, name text UNIQUE, balance numeric(12,2));"
        "CREATE TABLE big (n int PRIMARY KEY, body text);"
        "INSERT INTO person SELECT g, 'old ' || g, g FROM generate_series(1, 2000) g;"
        "INSERT INTO big SELECT g, repeat('ü\\', g * 1000) FROM generate_series(1, 9) g",
    )
    with facade(target) as front, Path(addresses, topic_prefix, source, target) as path:
        path.sink = sink(front, source=topic_prefix)
        path.applier = Applier(path.cuts, path.rows, path.sink)
        path.start()
        path.catch_up()
        for statement in (
            "INSERT INTO person SELECT g, 'name ' || g, g * 1.5 FROM generate_series(3000, 4000) g",
            "UPDATE person SET id = id + 10000 WHERE id % 7 = 0",
            "DELETE FROM person WHERE id % 5 = 0",
            "UPDATE big SET n = n + 100 WHERE n > 5",
            "ALTER TABLE person ADD COLUMN note text",
            "UPDATE person SET note = '', name = 'was ' || name WHERE id % 2 = 0",
            "TRUNCATE big; INSERT INTO big VALUES (1, 'again')",
        ):
            ask(source, statement)
        ledger = path.catch_up()

        assert ledger.state == "EXACT"
        for name in ("person", "big"):
            assert content(target, name) == content(source, name)


def test_a_wrong_password_stops_and_says_what_to_check(postgres_url: str) -> None:
    with (
        facade(postgres_url) as front,
        pytest.raises(TargetRefused, match=r"sqlstate=28P01.*check user and password") as refused,
    ):
        sink(front, password="wrong").ledger()

    assert refused.value.verdict is Verdict.STOP


def config(front: Front, tmp_path: Folder, kind: str) -> Config:
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(
        '[source]\ndsn = "postgresql://u@127.0.0.1:1/none"\nslot = "s"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
        f'[target]\nkind = "{kind}"\npassword-file = "{tmp_path / "password"}"\ndsn = "postgresql:'
        f'//{USER}@127.0.0.1:{front.emulator.port}/{front.database}?sslmode=disable"\n'
    )
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    return load(file)


def test_check_and_status_look_at_such_a_target(postgres_url: str, tmp_path: Folder) -> None:
    feed = Feed()
    with facade(postgres_url) as front:
        before = [str(finding) for finding in found(config(front, tmp_path, "opengauss"))]
        target = sink(front)
        feed.start()
        feed.commits([alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x")])
        Applier(feed.read_cuts, feed.read_rows, target).drain()
        target.close()
        with Endpoints(config(front, tmp_path, "opengauss")) as places:
            ledger = places.target()
        after = list(found(config(front, tmp_path, "opengauss")))

    assert len(before) == 1
    assert "openGauss 7" in before[0]
    assert ledger is not None
    assert ledger.seq == 1
    assert [(finding.level, finding.subject) for finding in after] == [
        (Level.OK, "target"),
        (Level.OK, "ledger"),
    ]
