"""A target ends equal to a source that speaks GaussDB's wire, in every format.

The source is the emulator's facade over a real PostgreSQL; it shares no code
with what reads it here.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.login import Account
from producer.sources.dial import parse_dsn
from tests.e2e.gauss_facade import PASSWORD, USER, facade
from tests.e2e.path import PATIENCE, Path, ask, content, until

PARALLEL = {"parallel-decode-num": "3"}
# Recordings go the whole way in every mode; here are live changes, and restarts.
MODES = {
    "mppdb serial": ("mppdb_decoding", {}),
    "sql serial": ("sql_decoding", {}),
    "parallel b": ("mppdb_decoding", {**PARALLEL, "sending-batch": "1"}),
    "parallel t": ("mppdb_decoding", {**PARALLEL, "decode-style": "t"}),
}
WORK = (
    (
        "INSERT INTO person SELECT g, 'näme ''' || g, g * 1.5, now(), g % 2 = 0"
        " FROM generate_series(100, 400) g"
    ),
    "UPDATE person SET balance = balance + 1 WHERE id % 3 = 0",
    "UPDATE person SET id = id + 10000 WHERE id BETWEEN 150 AND 170",
    "DELETE FROM person WHERE id % 7 = 0",
    "INSERT INTO person VALUES (150, 'again', 0, NULL, NULL)",
    "UPDATE big SET n = n + 1",
    "UPDATE big SET id = id + 1000",
    "INSERT INTO person VALUES (7, NULL, NULL, 'infinity', NULL)",
)


@pytest.fixture(params=["og7"])
def gauss(request, addresses) -> Iterator[str]:
    """A DSN without database of a server whose data a real PostgreSQL keeps.

    "gaussdb of 3" is a coordinator of three data nodes.
    """
    accounts = [Account(USER, PASSWORD, is_admin=True)]
    url = addresses.postgres_url()
    server, _, shards = request.param.partition(" of ")
    with facade(url, profile=server, shards=int(shards or 0), accounts=accounts) as front:
        yield f"postgresql://{USER}@127.0.0.1:{front.emulator.port}"


GAUSSDB = {
    "by csn": {"output-order": "1"},
    "by csn, parallel": {"output-order": "1", **PARALLEL, "sending-batch": "1"},
    "users and heartbeats": {
        **PARALLEL,
        "sending-batch": "1",
        "include-user": "true",
        "enable-heartbeat": "true",
    },
}


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
@pytest.mark.parametrize("mode", GAUSSDB)
def test_what_only_gaussdb_has_ends_in_an_equal_target(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    with Path(
        addresses,
        topic_prefix,
        source,
        target,
        kind="gaussdb",
        plugin="mppdb_decoding",
        plugin_options=GAUSSDB[mode],
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        ask(source, "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 300) g")
        caught_up(path, "t")
        path.stop()
        ask(source, "UPDATE t SET v = v || '!' WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0")
        path.start()
        caught_up(path, "t")

        assert any("unproven" in note for note in path.notes)


def test_sql_functions_lose_nothing_either(addresses, topic_prefix, new_database, gauss) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (-1, 'older')")
    with Path(
        addresses,
        topic_prefix,
        source,
        target,
        kind="opengauss",
        plugin="mppdb_decoding",
        interface="sql",
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        ask(source, "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 3000) g")
        caught_up(path, "t")
        path.stop()
        ask(source, "UPDATE t SET v = v || '!' WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0")
        path.start()
        caught_up(path, "t")

        ledger = path.applier.drain()
        assert (ledger.epoch, ledger.state, ledger.inexact) == (1, "EXACT", {})


def is_streaming(path: Path) -> bool:
    if path.failure is not None:
        raise path.failure
    return any(note.startswith("streaming") for note in path.notes)


def source_of(gauss: str, url: str):
    return parse_dsn(f"{gauss}/{url.rsplit('/', 1)[1]}?sslmode=disable", PASSWORD)


def caught_up(path: Path, table: str) -> None:
    """Apply until a table is equal: an idle parallel stream tells no position."""

    def is_equal() -> bool:
        if not is_streaming(path):
            return False  # there may be no topics yet
        path.applier.drain()
        if ask(path.target, "SELECT to_regclass(%s) IS NULL", table) == [(True,)]:
            return False
        return content(path.target, table) == content(path.source, table)

    until(is_equal, f"{table} equal within {PATIENCE} s", path._stop.wait)


@pytest.mark.parametrize("mode", MODES)
def test_a_target_ends_equal_to_a_source_of_gaussdbs_wire(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE TABLE person (id int PRIMARY KEY, name text, balance numeric(12,2),"
        " since timestamptz, is_good boolean);"
        "CREATE TABLE big (id int PRIMARY KEY, n int, body text);"
        "ALTER TABLE person REPLICA IDENTITY FULL; ALTER TABLE big REPLICA IDENTITY FULL;"
        "INSERT INTO person SELECT g, 'old ' || g, g, now(), true FROM generate_series(1, 50) g;"
        "INSERT INTO big SELECT g, 0, repeat(g::text, 3000) FROM generate_series(1, 5) g",
    )
    plugin, options = MODES[mode]
    with Path(
        addresses,
        topic_prefix,
        source,
        target,
        kind="opengauss",
        plugin=plugin,
        plugin_options=options,
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        caught_up(path, "person")
        for statement in WORK:
            ask(source, statement)
        for table in ("person", "big"):
            caught_up(path, table)
        path.stop()
        ask(source, "DELETE FROM person WHERE id < 20")
        path.start()
        caught_up(path, "person")

        ledger = path.sink.ledger()
        assert (ledger.epoch, ledger.state) == (1, "EXACT")
