"""openGauss' sink behind openGauss' login: the facade hands its SQL on to PostgreSQL."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg2
import pytest

from gauss_cdc import check
from gauss_cdc.config import Config, load
from gauss_cdc.gauss_dbapi import connect
from gauss_cdc.places import Places
from producer.drivers.postgres_dial import ConnectionArguments
from producer.preflight import Finding, Level
from schemas.control import Phase
from schemas.tables import TableId
from spark_consumers.errors import TargetRefused, Verdict
from spark_consumers.job import Applier
from spark_consumers.sinks.postgres import PostgresSink
from spark_consumers.sinks.products import OPENGAUSS
from tests.e2e.gauss_facade import PASSWORD, USER, Front, facade
from tests.spark_consumers.feed import Feed, alter, delete, insert, table, update

# The facade is a PostgreSQL: it has no column adgencol.
AS_OPENGAUSS = replace(OPENGAUSS, columns=OPENGAUSS.columns.replace("d.adgencol", "a.attgenerated"))
ACCOUNT = table("account", "id integer, name text, note text", unique="name")


def check_target(config: Config) -> list[Finding]:
    return list(check._target(config, [ACCOUNT.id]))


def sink(front: Front, *, password: str = PASSWORD) -> PostgresSink:
    arguments = ConnectionArguments(
        host="127.0.0.1",
        port=front.emulator.port,
        dbname=front.database,
        user=USER,
        password=password,
        sslmode="disable",
    )
    return PostgresSink(partial(connect, arguments), "bank", product=AS_OPENGAUSS)


def test_loads_changes_and_ddl_reach_a_target_behind_the_login(postgres_url: str) -> None:
    feed, moved = Feed(), replace(ACCOUNT, id=TableId("moved", "konto"))
    with facade(postgres_url) as front:
        target = sink(front)
        applier = Applier(feed.read_cuts, feed.read_rows, target)
        feed.start()
        feed.load(ACCOUNT, Phase.BEGIN)
        feed.load(ACCOUNT, Phase.CHUNK, ["1", "a\t\\", "x"], ["2", "b", None], ["3", "", "ü你"])
        feed.load(ACCOUNT, Phase.END)
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


def test_a_wrong_password_stops_and_says_what_to_check(postgres_url: str) -> None:
    with (
        facade(postgres_url) as front,
        pytest.raises(TargetRefused, match=r"sqlstate=28P01.*check user and password") as refused,
    ):
        sink(front, password="wrong").ledger()

    assert refused.value.verdict is Verdict.STOP


def config(front: Front, tmp_path: Path, kind: str) -> Config:
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(
        '[source]\ndsn = "postgresql://u@127.0.0.1:1/none"\nslot = "s"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
        f'[target]\nkind = "{kind}"\npassword-file = "{tmp_path / "password"}"\ndsn = "postgresql:'
        f'//{USER}@127.0.0.1:{front.emulator.port}/{front.database}?sslmode=disable"\n'
    )
    (tmp_path / "password").write_text(PASSWORD)
    return load(file)


def test_check_and_status_look_at_such_a_target(postgres_url: str, tmp_path: Path) -> None:
    feed = Feed()
    with facade(postgres_url) as front:
        before = [str(finding) for finding in check_target(config(front, tmp_path, "opengauss"))]
        target = sink(front)
        feed.start()
        feed.commits([alter(None, ACCOUNT), insert(ACCOUNT, "1", "a", "x")])
        Applier(feed.read_cuts, feed.read_rows, target).drain()
        target.close()
        with Places(config(front, tmp_path, "opengauss")) as places:
            ledger = places.target()
        after = list(check_target(config(front, tmp_path, "opengauss")))

    assert len(before) == 1
    assert "openGauss 7" in before[0]
    assert ledger is not None
    assert ledger.seq == 1
    assert [(finding.level, finding.subject) for finding in after] == [
        (Level.OK, "target"),
        (Level.OK, "ledger"),
    ]
