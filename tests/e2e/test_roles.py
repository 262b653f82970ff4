"""The rights that the documentation gives: its statements as printed, then the whole path."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path as File
from typing import Any

import psycopg2
import pytest
from click.testing import CliRunner
from psycopg2 import sql

from gauss_cdc.cli import cli
from producer.core.ports import Wish
from producer.errors import NotPermitted
from producer.sources import requests
from producer.sources.postgres import catalog
from producer.sources.postgres.captured import reading_problems
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.triggers import install as ddl_triggers
from schemas.findings import Level
from schemas.tables import TableId
from spark_consumers.sinks.postgres.rights import database_problems, load_problems
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import Path, pause, until
from tests.integration.private_postgres import PrivateServer, private_server
from tests.tree import ROOT

SECURITY = ROOT / "docs" / "security.md"
_RUN = re.compile(r"<!-- run: ([\w-]+) -->\n *```\w+\n(.*?)```", re.DOTALL)
_PASSWORD = re.compile(r"CREATE ROLE (\w+) LOGIN[^']*PASSWORD '([^']*)'")
PARAMETERS = 150_000  # from here on a role may be granted a setting

TOML = """\
[source]
dsn = "postgresql://cdc_source@127.0.0.1:{port}/bank?sslmode=require"
slot = "{prefix}"
[tables]
include = ["public.*"]
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[target]
dsn = "postgresql://cdc_target@127.0.0.1:{port}/copy?sslmode=require"
"""


def printed(file: File) -> dict[str, list[str]]:
    """Blocks that are to be run, by their names; one name may have several."""
    out: dict[str, list[str]] = {}
    for name, block in _RUN.findall(file.read_text("utf-8")):
        out.setdefault(name, []).append(block)
    return out


def run(server: PrivateServer, dbname: str, block: str) -> None:
    """Run a block in one go, as a superuser pastes it."""
    with closing(server.admin(dbname)) as admin, admin.cursor() as cursor:
        if admin.server_version < PARAMETERS:
            block = "\n".join(line for line in block.splitlines() if "ON PARAMETER" not in line)
        cursor.execute(block)


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    """A server where nobody has a right by default: the documentation's database and tables."""
    with private_server() as running:
        running.execute(
            "CREATE DATABASE copy",
            "REVOKE ALL ON DATABASE bank FROM PUBLIC",
            "REVOKE ALL ON DATABASE copy FROM PUBLIC",
            "REVOKE ALL ON SCHEMA public FROM PUBLIC",
            "CREATE ROLE bank_owner",
            "CREATE TABLE account (id int PRIMARY KEY, owner text UNIQUE)",
            "CREATE TABLE transfer (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
            "CREATE TABLE transfer_1 PARTITION OF transfer FOR VALUES FROM (0) TO (10)",
            "ALTER TABLE account OWNER TO bank_owner",
            "ALTER TABLE transfer OWNER TO bank_owner",
            "ALTER TABLE transfer_1 OWNER TO bank_owner",
            "INSERT INTO account VALUES (1, 'one'), (2, 'two')",
            "INSERT INTO transfer VALUES (1, 1)",
        )
        with closing(running.admin("copy")) as copy:
            copy.cursor().execute(
                "REVOKE ALL ON SCHEMA public FROM PUBLIC;"
                "CREATE TABLE account (id int PRIMARY KEY, owner text)"
            )
        yield running


def check(file: File) -> list[dict[str, str]]:
    result = CliRunner().invoke(
        cli, ["check", "--json", "--config", str(file)], standalone_mode=False
    )
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def test_the_roles_of_the_documentation_are_enough_for_the_whole_path(
    server: PrivateServer, addresses, topic_prefix, tmp_path: File, monkeypatch
) -> None:
    blocks = printed(SECURITY)
    passwords = dict(_PASSWORD.findall(SECURITY.read_text("utf-8")))
    hba = server.data / "pg_hba.conf"
    lines = blocks["source-hba"][0].replace("192.0.2.0/24", "127.0.0.1/32")
    copy = "hostssl copy cdc_target 127.0.0.1/32 scram-sha-256\n"
    hba.write_text(lines + copy + "host all postgres 127.0.0.1/32 trust\n")
    server.execute("SELECT pg_reload_conf()")
    *source_blocks, requested = blocks["source"]
    for block in source_blocks:
        run(server, "bank", block)
    for block in (*blocks["target"], *blocks["target-table"]):
        run(server, "copy", block)
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", passwords["cdc_source"])
    monkeypatch.setenv("GAUSS_CDC_TARGET_PASSWORD", passwords["cdc_target"])
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(
        TOML.format(
            port=server.port,
            prefix=topic_prefix,
            kafka=addresses.kafka_bootstrap,
            registry=addresses.registry_url,
        )
    )

    before = check(file)

    bad = [f for f in before if f["level"] in ("error", "warning")]
    assert [f for f in bad if f["level"] == "error"] == []
    assert not [f for f in bad if f["subject"] in ("rights", "publication", "target rights")]
    source = f"host=127.0.0.1 port={server.port} dbname=bank user=postgres sslmode=disable"
    target = source.replace("dbname=bank", "dbname=copy")
    by_role = server.arguments("cdc_source", password=passwords["cdc_source"], sslmode="require")
    with Path(addresses, topic_prefix, source, target) as path:
        path.options = replace(
            path.options, source=by_role, publication="gauss_cdc", include=("public.*",)
        )
        login = server.arguments(
            "cdc_target", dbname="copy", password=passwords["cdc_target"], sslmode="require"
        ).libpq()
        path.sink = PostgresSink(lambda: psycopg2.connect(**login), topic_prefix)
        path.applier = type(path.applier)(path.cuts, path.rows, path.sink)
        path.start()
        path.catch_up()
        server.execute(
            "INSERT INTO transfer VALUES (2, 2)",
            "ALTER TABLE account ADD COLUMN note text",
            "UPDATE account SET note = 'x' WHERE id = 2",
        )
        ledger = path.catch_up()

        assert (ledger.state, ledger.inexact) == ("EXACT", {})
        # Somebody else has the schema, and no table is in it: `run` goes on beside it.
        server.execute("ALTER SCHEMA gauss_cdc OWNER TO postgres")
        with closing(catalog.connect(by_role)) as connection:
            session = catalog.QueryingConnection(connection)
            assert requests.requests(session, topic_prefix) == []
            with pytest.raises(NotPermitted, match="for an administrator"):
                requests.ask(session, topic_prefix, [Wish(TableId("public", "account"))])
            run(server, "bank", requested)
            run(server, "bank", *blocks["source-marks"])
            path.stop()
            path.start()
            requests.ask(session, topic_prefix, [Wish(TableId("public", "account"))])
            until(lambda: not requests.requests(session, topic_prefix), "the re-read", pause)
        assert path.catch_up().inexact == {}
        found = check(file)
    assert [f for f in found if f["level"] == "error"] == []
    with closing(server.admin("copy")) as admin, admin.cursor() as cursor:
        cursor.execute("SELECT id, owner, note FROM account ORDER BY id")
        assert cursor.fetchall() == [(1, "one", None), (2, "two", "x")]
        cursor.execute("SELECT id, at FROM transfer ORDER BY id")
        assert cursor.fetchall() == [(1, 1), (2, 2)]
    with pytest.raises(psycopg2.OperationalError):  # the line of pg_hba.conf lets it do no more
        psycopg2.connect(**{**by_role.libpq(), "dbname": "postgres"})


ACCOUNT = TableId("public", "account")
# What `check` says of this server, whatever was typed.
_ALWAYS = ("max_slot_wal_keep_size",)


def typed(server: PrivateServer, database: str, unit: str) -> None:
    """Type one of our own statements, as a superuser, in a database."""
    if unit.startswith("ddl install"):
        with closing(catalog.connect(server.arguments(dbname=database))) as admin:
            ddl_triggers.install(admin, "gauss_cdc", ["public.*"], [], role="cdc_source")
        return
    blocks = printed(SECURITY)
    text = {
        "schema": "CREATE SCHEMA IF NOT EXISTS gauss_cdc AUTHORIZATION cdc_source",
        "requests": blocks["source"][-1],
        "marks": blocks["source-marks"][0],
    }[unit]
    assert text in SECURITY.read_text("utf-8")
    run(server, database, text)


def orders(*units: str) -> list[tuple[str, ...]]:
    """Orders in which nothing is needed before it is there."""
    return [
        order
        for order in permutations(units)
        if order[0] in {"schema", "ddl install"}
        and order.index("ddl install") < order.index("ddl install again")
    ]


def test_our_own_statements_may_be_typed_in_any_order(
    server: PrivateServer, addresses, topic_prefix
) -> None:
    hba = server.data / "pg_hba.conf"
    hba.write_text("host all,replication all 127.0.0.1/32 trust\n")
    server.execute("SELECT pg_reload_conf()")
    role = printed(SECURITY)["source"][0]
    run(server, "bank", role.replace("CREATE SCHEMA", "-- CREATE SCHEMA"))
    units = ("schema", "requests", "ddl install", "ddl install again")
    started = [*orders(*units), *orders(*units, "marks")]
    begun = ("requests", "marks")  # what an administrator was pointed to, before all else
    started += [(*pair, "ddl install", "ddl install again") for pair in (begun, begun[::-1])]
    for at, order in enumerate(started):
        database, prefix = f"bank_{at}", f"{topic_prefix}_{at}"
        server.execute(f"CREATE DATABASE {database} TEMPLATE bank")
        for unit in order:
            typed(server, database, unit)

        by_role = server.arguments("cdc_source", dbname=database)
        source = f"host=127.0.0.1 port={server.port} dbname={database} user=postgres"
        with (
            Path(addresses, prefix, source, "user=x") as path,
            closing(catalog.connect(by_role)) as connection,
        ):
            path.options = replace(
                path.options, source=by_role, publication="gauss_cdc", include=("public.*",)
            )
            found = list(check_source(path.options, connection, fix=False))
            bad = [f for f in found if f.level in {Level.ERROR, Level.WARNING, Level.NOTE}]
            assert [f for f in bad if f.subject not in _ALWAYS] == [], order
            assert "captured by event triggers" in [f.what for f in found], order
            session = catalog.QueryingConnection(connection)
            requests.ask(session, prefix, [Wish(ACCOUNT)])
            if len(order) < len(units) + 1:  # the others differ by a table that `run` leaves alone
                path.start()
                until(lambda: not requests.requests(session, prefix), f"run after {order}", pause)  # noqa: B023


def as_role(server: PrivateServer, dbname: str, role: str) -> Any:
    """A session that acts as a role, with its rights and no others."""
    connection = catalog.connect(server.arguments(dbname=dbname))
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection


def test_the_other_statements_of_the_documentation_are_enough(
    server: PrivateServer, addresses, topic_prefix, tmp_path: File
) -> None:
    owner = printed(SECURITY)["source-owner"][0]
    tutorial = printed(ROOT / "docs" / "tutorials" / "own-database.md")
    with Path(addresses, topic_prefix, "user=x", "user=x") as path:
        options = replace(
            path.options, source=server.arguments(), include=("public.*",), publication="gauss_cdc"
        )
    run(server, "bank", owner)
    with closing(as_role(server, "bank", "cdc_owner")) as session:
        made = [f for f in check_source(options, session, fix=True) if f.level is Level.FIXED]
        assert [f.subject for f in made] == ["publication"]
        tables = catalog.expand(session, ["public.*"])
        assert list(reading_problems(session, tables)) == []
    server.execute("DROP PUBLICATION gauss_cdc")

    run(server, "bank", tutorial["source-role"][0])

    with closing(as_role(server, "bank", "cdc")) as session:
        found = list(check_source(options, session, fix=False))
        assert [f for f in found if f.level is Level.ERROR] == []
    server.execute("DROP PUBLICATION gauss_cdc", "DROP OWNED BY cdc", "DROP ROLE cdc")
    server.execute("DROP TABLE account, transfer", "GRANT TEMP ON DATABASE bank TO PUBLIC")

    run(server, "bank", tutorial["target-role"][0])

    with closing(as_role(server, "bank", "cdc")) as session, session.cursor() as cursor:
        assert list(database_problems(cursor)) == []
        assert list(load_problems(cursor, tables)) == []
