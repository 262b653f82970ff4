"""A registry that refuses a new schema: before its first row, and by the policy."""

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from gauss_cdc.inspect.ddl_plan import lines, plan
from producer.errors import SchemaRefused
from producer.kafka.registry import Registry
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.rehearsal import at_postgres
from tests.e2e.path import Path, ask, content, until
from tests.e2e.test_ddl import install

START = """
CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1);
CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1);
"""
CHANGE = "ALTER TABLE t ALTER v TYPE text"  # an int is no string to any reader


@pytest.fixture
def refusing(addresses, topic_prefix, new_database):
    """Call it with a policy: a path whose registry takes only what its readers can read."""
    opened = []

    def make(policy: str) -> tuple[Path, SchemaRegistryClient, str]:
        source, target = new_database(), new_database()
        ask(source, START)
        path = Path(addresses, topic_prefix, source, target, incompatible=policy)
        opened.append(path)
        path.start()
        path.catch_up()
        install(source, topic_prefix)
        registry = SchemaRegistryClient({"url": addresses.registry_url})
        subject = f"{topic_prefix}.public.t-value"
        registry.set_compatibility(subject, "FULL")
        return path, registry, subject

    yield make
    for path in opened:
        path.failure = None
        path.__exit__()


def test_stop_is_the_default_and_comes_at_the_change_before_any_row(refusing) -> None:
    path, registry, subject = refusing("stop")
    versions = registry.get_versions(subject)
    ask(path.source, CHANGE)

    until(lambda: path.failure is not None, "the refusal", path._stop.wait)
    assert isinstance(path.failure, SchemaRefused)
    assert registry.get_versions(subject) == versions
    path.applier.drain()
    assert content(path.target, "t") == ["(1,1)"]


def test_a_new_version_is_registered_and_the_subjects_level_stays(refusing) -> None:
    path, registry, subject = refusing("new-version")
    versions = registry.get_versions(subject)
    ask(path.source, f"{CHANGE}; INSERT INTO t VALUES (2, 'two')")
    ledger = path.catch_up()

    assert content(path.target, "t") == ["(1,1)", "(2,two)"]
    assert ledger.state == "EXACT"
    assert len(registry.get_versions(subject)) == len(versions) + 1
    assert registry.get_compatibility(subject) == "FULL"


def test_a_table_in_quarantine_is_marked_while_others_flow(refusing) -> None:
    path, registry, subject = refusing("quarantine")
    versions = registry.get_versions(subject)
    ask(path.source, f"{CHANGE}; INSERT INTO t VALUES (2, 'two'); INSERT INTO other VALUES (2)")
    ask(path.source, "INSERT INTO t VALUES (3, 'three'); INSERT INTO other VALUES (3)")
    ledger = path.catch_up()

    assert content(path.target, "other") == ["(1)", "(2)", "(3)"]
    assert list(ledger.inexact) == ["public.t"]
    assert "left out" in ledger.inexact["public.t"]
    assert registry.get_versions(subject) == versions

    path.stop()
    registry.delete_config(subject)  # somebody gives way: the table flows again, still marked
    path.start()
    ask(path.source, "INSERT INTO t VALUES (4, 'four')")
    ledger = path.catch_up()
    assert "(4,four)" in content(path.target, "t")
    assert list(ledger.inexact) == ["public.t"]


def test_plan_says_it_beforehand(refusing, addresses) -> None:
    path, registry, subject = refusing("stop")
    connection = catalog.connect(parse_dsn(path.source))
    try:
        refusable = at_postgres(path.options, connection, CHANGE)
        fine = at_postgres(
            path.options,
            connection,
            "ALTER TABLE t ADD COLUMN note text; COMMENT ON TABLE t IS 'x'",
        )
        asked = Registry(addresses.registry_url)
        planned = plan(path.options, asked, refusable, target="postgres")
        harmless = plan(path.options, asked, fine, target="postgres")
    finally:
        connection.close()

    assert [one.registry for one in planned] == ["refused"]
    assert planned[0].statements == ('ALTER TABLE "public"."t" ALTER COLUMN "v" TYPE text',)
    assert any("refused, and [ddl] incompatible = stop" in line for line in lines(planned, "stop"))
    assert [one.is_refused for one in harmless] == [False, False]
    ledger = path.catch_up()  # nothing of it was told: both were rolled back
    assert ledger.seq == 0
    with pytest.raises(SchemaRegistryError):
        registry.get_version(subject, 2)
