"""openGauss' sink behind openGauss' login: the facade hands its SQL on to PostgreSQL."""

from dataclasses import replace
from functools import partial

import psycopg2
import pytest

from gauss_cdc.gauss_dbapi import connect
from producer.drivers.postgres_dial import ConnectionArguments
from schemas.control import Phase
from schemas.tables import TableId
from spark_consumers.errors import TargetRefused, Verdict
from spark_consumers.job import Applier
from spark_consumers.sinks.postgres import PostgresSink
from spark_consumers.sinks.products import OPENGAUSS, POSTGRES
from tests.e2e.gauss_facade import PASSWORD, USER, Front, facade
from tests.spark_consumers.feed import Feed, alter, delete, insert, table, update

# The facade is a PostgreSQL: it has no column adgencol and no session_timeout to SET.
AS_OPENGAUSS = replace(
    OPENGAUSS,
    settings=POSTGRES.settings,
    columns=OPENGAUSS.columns.replace("d.adgencol", "a.attgenerated"),
)
ACCOUNT = table("account", "id integer, name text, note text", unique="name")


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
