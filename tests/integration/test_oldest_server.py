"""What PostgreSQL 12 does not have is refused by name, with what to do instead."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from gauss_cdc_lab.services import Addresses
from gauss_cdc_lab.services.postgres import create_database
from producer.errors import OptionRefused, Unsupported
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.source import PostgresSource
from producer.sources.postgres.triggers import install
from schemas.findings import Level
from schemas.tables import TableId
from tests.services_fixtures import execute


@pytest.fixture
def url(oldest_server: Addresses) -> str:
    """A database that goes with its server."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    create_database(oldest_server.postgres_url(), name)
    return oldest_server.postgres_url(name)


@pytest.fixture
def admin(url: str) -> Iterator[Any]:
    with closing(catalog.connect(parse_dsn(url))) as connection:
        yield connection


def asked(url: str, **changes: Any) -> Options:
    options = Options(parse_dsn(url), "slot", "p", "prefix", {}, "", include=("public.*",))
    return replace(options, **changes)


def said(options: Options, admin: Any, subject: str) -> list[tuple[Level, str, str]]:
    found = check_source(options, admin, fix=False)
    return [(one.level, one.what, one.hint) for one in found if one.subject == subject]


def test_triggers_are_refused_and_check_does_not_advise_them(url: str, admin: Any) -> None:
    execute(url, "CREATE TABLE a (id int PRIMARY KEY)")
    publications.create_publication(admin, "p", [TableId("public", "a")])

    with pytest.raises(Unsupported, match="from PostgreSQL 13 on") as refused:
        install.install(admin, "p", ["public.*"], [])

    assert refused.value.hint == "schema changes are inferred from the stream there"
    options = asked(url)
    assert said(options, admin, "server") == [
        (Level.WARNING, "before 13 schema changes can only be inferred", "")
    ]
    assert [hint for _, _, hint in said(options, admin, "schema changes")] == [""]


def test_logical_messages_are_refused(url: str, admin: Any) -> None:
    execute(url, "CREATE TABLE a (id int PRIMARY KEY)")
    options = asked(url, messages=True)

    with pytest.raises(OptionRefused, match="does not send logical messages") as refused:
        PostgresSource.open(options, lambda _: None)

    assert (refused.value.where["since"], refused.value.hint) == (14, "leave it out")
    assert [level for level, *_ in said(options, admin, "options")] == [Level.ERROR]
    assert said(replace(options, messages=False), admin, "options") == []


def test_failover_slots_are_refused(url: str) -> None:
    with pytest.raises(OptionRefused, match="from PostgreSQL 17 on") as refused:
        PostgresSource.open(asked(url, failover_slot="on"), lambda _: None)

    assert refused.value.hint == 'source.failover-slot = "auto" or "off"'


def test_a_root_is_captured_by_its_partitions(url: str, admin: Any) -> None:
    """Such a server publishes no root."""
    execute(
        url,
        "CREATE TABLE part (id int PRIMARY KEY) PARTITION BY LIST (id);"
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1)",
    )
    options = asked(url)
    tables = catalog.expand(admin, options.include, options.exclude)

    assert tables == [TableId("public", "part_1")]
    publications.create_publication(admin, "p", tables)
    assert said(options, admin, "publication") == [(Level.OK, "p has all 1 tables", "")]
