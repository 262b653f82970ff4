"""Recordings of a real PostgreSQL: they say what was done, and the slot does not notice."""

import gzip
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner

from gauss_cdc.cli import cli
from gauss_cdc_lab.recordings.decode import as_json, transactions
from gauss_cdc_lab.recordings.record import RecordingPlan, record
from producer.errors import SlotMissing
from producer.options import Options
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server

WORK = (
    "INSERT INTO t VALUES (1, 'a ''quoted'' \\ word', true), (2, NULL, false)",
    "UPDATE t SET v = 'changed' WHERE id = 1",
    "UPDATE t SET id = 20 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
)
DONE = [
    [
        ("INSERT", {"id": "1", "v": "a 'quoted' \\ word", "ok": "t"}, None),
        ("INSERT", {"id": "2", "v": None, "ok": "f"}, None),
    ],
    [("UPDATE", {"id": "1", "v": "changed", "ok": "t"}, None)],
    [("UPDATE", {"id": "20", "v": None, "ok": "f"}, {"id": "2"})],
    [("DELETE", None, {"id": "1"})],
]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as running:
        running.execute("CREATE TABLE t (id int PRIMARY KEY, v text, ok bool)")
        running.execute("CREATE PUBLICATION bank FOR TABLE t")
        yield running


@pytest.fixture
def options(server: PrivateServer) -> Options:
    return Options(
        source=server.arguments(),
        slot="recorded",
        publication="bank",
        prefix="bank",
        client={},
        registry_url="",
    )


@pytest.fixture(params=["pgoutput", "test_decoding"])
def plugin(request: pytest.FixtureRequest, server: PrivateServer) -> Iterator[str]:
    """A slot of each plugin; afterwards it is gone."""
    plugin = request.param
    server.execute(f"SELECT pg_create_logical_replication_slot('recorded', '{plugin}')")
    yield plugin
    server.execute("TRUNCATE t")
    server.execute("SELECT pg_drop_replication_slot('recorded')")


def confirmed(server: PrivateServer) -> object:
    ((position,),) = server.execute("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    return position


def decoded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(as_json(found)) for found in transactions(path, {})]


def changes(path: Path) -> list[list[tuple[str, object, object]]]:
    return [
        [(change["op"], change["after"], change["before"]) for change in txn["changes"]]
        for txn in decoded(path)
    ]


def never() -> bool:
    return False


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_recording_says_what_was_done_and_confirms_nothing(
    server: PrivateServer, options: Options, plugin: str, suffix: str, tmp_path: Path
) -> None:
    server.execute(*WORK)
    before = confirmed(server)

    found = record(options, RecordingPlan(tmp_path / f"a.{suffix}", transactions=4), never)
    again = record(options, RecordingPlan(tmp_path / f"b.{suffix}", transactions=4), never)

    assert found == again
    assert found.transactions == 4
    assert changes(tmp_path / f"a.{suffix}") == DONE
    assert changes(tmp_path / f"b.{suffix}") == DONE
    assert confirmed(server) == before
    assert plugin in json.dumps(header(tmp_path / f"a.{suffix}"))


def header(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        return json.loads(file.readline())


def test_a_redacted_recording_has_the_structure_and_no_value(
    server: PrivateServer, options: Options, plugin: str, tmp_path: Path
) -> None:
    server.execute(*WORK)
    plain, other = tmp_path / "plain.jsonl", tmp_path / "redacted.jsonl"

    record(options, RecordingPlan(plain, transactions=4), never)
    found = record(options, RecordingPlan(other, transactions=4, redact=True), never)

    assert found.blanked == 0
    assert lengths(plain) == lengths(other)
    assert b"quoted".hex() in plain.read_text()
    assert b"quoted".hex() not in other.read_text()
    assert b"changed".hex() not in other.read_text()
    assert header(other)["redacted"] == "values"


def lengths(path: Path) -> list[object]:
    def size(row: dict[str, Any] | None) -> object:
        return row and {k: v if v is None else len(v) for k, v in row.items()}

    return [[(op, size(after), size(before)) for op, after, before in txn] for txn in changes(path)]


def test_a_recording_ends_at_its_bound(
    server: PrivateServer, options: Options, plugin: str, tmp_path: Path
) -> None:
    server.execute(*WORK)
    path = tmp_path / "until.jsonl"

    def is_enough() -> bool:
        return path.exists() and sum(map(is_commit, path.read_text().splitlines())) == 4

    found = record(options, RecordingPlan(path), is_enough)

    assert found.transactions == 4
    assert changes(path) == DONE
    assert json.loads(path.read_text().splitlines()[-1])["type"] == "EOF"


def is_commit(line: str) -> bool:
    return bytes.fromhex(json.loads(line).get("hex", ""))[25:26] == b"C"


def test_a_slot_of_its_own_is_gone_afterwards(
    server: PrivateServer, options: Options, tmp_path: Path
) -> None:
    options = replace(options, plugin="test_decoding")
    with pytest.raises(SlotMissing):
        record(options, RecordingPlan(tmp_path / "none.jsonl", seconds=1), never)

    found = record(options, RecordingPlan(tmp_path / "own.jsonl", seconds=0.1, create=True), never)

    assert found.transactions == 0
    assert server.execute("SELECT slot_name FROM pg_replication_slots") == []
    assert header(tmp_path / "own.jsonl")["database"] == DATABASE


def test_a_recording_is_not_written_over(
    server: PrivateServer, options: Options, plugin: str, tmp_path: Path
) -> None:
    path = tmp_path / "there.jsonl"
    path.write_text("precious")

    with pytest.raises(FileExistsError):
        record(options, RecordingPlan(path, seconds=1), never)

    assert path.read_text() == "precious"


TOML = """\
[source]
dsn = "postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"
publication = "bank"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "127.0.0.1:1"
[registry]
url = "http://127.0.0.1:1"
"""


def test_the_command_needs_the_source_only(server: PrivateServer, tmp_path: Path) -> None:
    config, path = tmp_path / "gauss-cdc.toml", tmp_path / "a.jsonl.gz"
    config.write_text(TOML.format(port=server.port, database=DATABASE))
    words = ["record", "--config", str(config), "--out", str(path), "--seconds", "0.1", "--create"]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    try:
        first = CliRunner().invoke(cli, words, standalone_mode=False)
        again = CliRunner().invoke(cli, words, standalone_mode=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert first.exception is None
    assert "the slot did not move" in first.stderr
    assert header(path)["plugin"] == "pgoutput"
    assert isinstance(again.exception, UsageError)
    assert "exists already" in again.exception.message
