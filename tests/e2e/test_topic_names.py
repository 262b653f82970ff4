"""Tables whose names hold dots, or whose topics Kafka takes for those of others."""

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path as File

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from gauss_cdc.rereads import SnapshotRequests
from producer.core.ports import Tuning
from producer.errors import TopicUnfit
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from schemas.tables import TableId
from schemas.topics import Topics, unified
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, content, pause, until

HOW = {"look_seconds": 0.2, "repair": "auto", "tuning": Tuning(chunk_rows=50, rest_seconds=0.1)}


@pytest.fixture
def place(addresses, topic_prefix, new_database, tmp_path: File) -> Iterator[tuple[Path, File]]:
    source, target = new_database(), new_database()
    file = configured(tmp_path, addresses, topic_prefix, source, target)
    with Path(addresses, topic_prefix, source, target, **HOW) as path:
        yield path, file


def topics(path: Path) -> set[str]:
    """Those of its prefix; other workers' tests use the broker, too."""
    admin = AdminClient({**path.options.client, "log_level": 0})
    return {name for name in admin.list_topics(timeout=30).topics if name.startswith(path.prefix)}


def by_a_stranger(path: Path, name: str) -> None:
    admin = AdminClient({**path.options.client, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 1)]).values():
        future.result()


def table(path: Path, name: str) -> None:
    schema = name.partition(".")[0]
    ask(path.source, f"CREATE SCHEMA IF NOT EXISTS {schema}")
    ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
    ask(path.source, f"INSERT INTO {name} SELECT n, '{name}' FROM generate_series(1, 99) n")


def write(path: Path, *names: str) -> None:
    for name in names:
        ask(path.source, f"UPDATE {name} SET v = v || ' again' WHERE id < 9")
        ask(path.source, f"DELETE FROM {name} WHERE id = 99")


def assert_equal(path: Path, *names: str) -> None:
    until(lambda: not path.applier.drain().inexact and _are_there(path, *names), "them", pause)
    ledger = path.catch_up()
    for name in names:
        assert content(path.target, name) == content(path.source, name), name
    assert (ledger.inexact, ledger.epoch) == ({}, 1)


def _are_there(path: Path, *names: str) -> bool:
    if path.failure is not None:
        raise path.failure
    return all(ask(path.target, "SELECT to_regclass(%s)", name) != [(None,)] for name in names)


def test_tables_that_kafka_would_take_for_one_are_all_captured(place: tuple[Path, File]) -> None:
    """At the first start, later, by a rename, after restarts; and with a topic of a stranger's."""
    path, file = place
    names = Topics(path.prefix)
    by_a_stranger(path, f"{path.prefix}_public_account")
    all_of = ["app.a_b", "app_a.b", "public.account"]
    for name in all_of:
        table(path, name)
    said = command(file, "check").output
    path.start()
    path.catch_up()
    write(path, *all_of)

    assert_equal(path, *all_of)
    apart = names.apart(TableId("app_a", "b"))
    assert {apart, names.table(TableId("app", "a_b"))} <= topics(path)
    assert names.apart(TableId("public", "account")) in topics(path)
    assert f"its topic is {apart}" in said.replace("\n", "").replace("  ", " ")
    assert any(apart in note for note in path.notes)

    for name in ("app.x_y", "app_x.y", "app.other"):
        table(path, name)
        all_of.append(name)
    assert_equal(path, *all_of)
    write(path, *all_of)
    ask(path.source, "CREATE SCHEMA app_o; ALTER TABLE app.other RENAME TO o_p")
    all_of[-1] = "app.o_p"
    write(path, *all_of)
    assert_equal(path, *all_of)
    table(path, "app_o.p")
    all_of.append("app_o.p")
    assert_equal(path, *all_of)

    before = topics(path)
    path.stop()
    write(path, *all_of)
    path.start()
    assert_equal(path, *all_of)
    assert topics(path) == before
    ours = [name for name in before if name.startswith(f"{path.prefix}.")]
    assert len({unified(name) for name in ours}) == len(ours)
    lines = command(file, "tail", "app_a.b", "--last", "3").output.splitlines()
    assert len(lines) == 3
    assert all("app_a.b" in line for line in lines)
    assert command(file, "wait", "--timeout", "60s").exit_code == 0


def test_a_prefix_whose_own_topics_kafka_refuses_stops_by_name(place: tuple[Path, File]) -> None:
    path, file = place
    by_a_stranger(path, f"{path.prefix}_cuts")

    said = command(file, "check")
    path.start()
    with pytest.raises(TopicUnfit, match=r"another kafka\.prefix") as caught:
        path.catch_up()

    path.failure = None
    assert caught.value.where["topic"] == f"{path.prefix}.cuts"
    assert f"{path.prefix}_cuts" in str(caught.value)
    assert "takes the topic's name" in said.output.replace("\n", " ")


def test_a_gap_is_mended_by_reading_the_table_that_has_it(place: tuple[Path, File]) -> None:
    """The names of two tables differ by the place of a dot alone."""
    path, _ = place
    odd, other = 'a."b.c"', '"a.b".c'
    ask(path.source, 'CREATE SCHEMA a; CREATE SCHEMA "a.b"')
    for name in (odd, other):
        ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        ask(path.source, f"INSERT INTO {name} SELECT n, 'v' FROM generate_series(1, 5) n")
    path.start()
    path.catch_up()

    # Older rows get values that are not sent: a gap of this table alone.
    ask(path.source, f"ALTER TABLE {odd} ADD r float8 DEFAULT random()")
    ask(path.source, f"INSERT INTO {odd} VALUES (6, 'v')")
    path.catch_up()
    until(lambda: not path.catch_up().inexact, "exact, as it says", pause)

    for name in (odd, other):
        assert content(path.target, name) == content(path.source, name), name
    names = Topics(path.prefix)
    assert {names.table(TableId("a", "b.c")), names.table(TableId("a.b", "c"))} <= topics(path)


def test_a_table_of_a_schema_with_a_dot_is_read_again_as_its_warning_says(
    place: tuple[Path, File],
) -> None:
    path, file = place
    path.options = replace(path.options, repair="ask")
    ask(path.source, 'CREATE SCHEMA "app.v2"; CREATE TABLE "app.v2".t (id int PRIMARY KEY)')
    ask(path.source, 'INSERT INTO "app.v2".t VALUES (1)')
    path.start()
    path.catch_up()
    ask(path.source, 'ALTER TABLE "app.v2".t ADD r float8 DEFAULT random()')
    ask(path.source, 'INSERT INTO "app.v2".t VALUES (2)')
    assert [*path.catch_up().inexact] == ['"app.v2".t']

    said = next(note for note in path.notes if "gauss-cdc snapshot --table" in note)
    (typed,) = shlex.split(said.partition("--table ")[2].partition("`")[0])
    with closing(catalog.connect(parse_dsn(path.source))) as connection:
        source = catalog.QueryingConnection(connection)
        SnapshotRequests(path.options, source).ask([TableId.parse(typed)])

    until(lambda: not path.catch_up().inexact, "a re-read", pause, 60)
    assert content(path.target, '"app.v2".t') == content(path.source, '"app.v2".t')
    lines = command(file, "tail", '"app.v2".t', "--last", "1").output.splitlines()
    assert ['"app.v2".t' in line for line in lines] == [True]
    assert command(file, "wait", "--timeout", "60s").exit_code == 0
