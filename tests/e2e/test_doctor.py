"""`doctor` on real services: what it names, what it leaves out, and what it writes for a report."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import pytest
from click.testing import Result

from gauss_cdc.config import Config, load
from gauss_cdc.serve.server import serve
from gauss_cdc.serve.standing import StandingMetrics
from tests.certificates import authority, written
from tests.e2e.commands import command
from tests.e2e.path import Path, ask, pause, until

PLANTED = "a cell that nobody else may see"
TOKEN = "the-token-of-this-test-only"
# What the test's own server is not set up for, and says so.
OF_THE_SERVER = {"CdcDoubtful"}


def found(result: Result) -> list[dict[str, str]]:
    """Findings, without what `check` warns of."""
    told: list[dict[str, str]] = json.loads(result.stdout)
    return [one for one in told if one["name"] not in OF_THE_SERVER]


def names(result: Result) -> list[str]:
    return [one["name"] for one in found(result)]


def test_where_all_is_well_it_finds_nothing(place: tuple[Path, File]) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()

    said = command(file, "doctor", "--json")

    assert (names(said), said.exit_code) == ([], 0)


def test_the_most_urgent_comes_first_with_its_way_out_and_its_paragraph(
    place: tuple[Path, File],
) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    path.stop()
    ask(path.source, "SELECT pg_drop_replication_slot(%s)", path.prefix)

    said = command(file, "doctor", "--json", "--program", "127.0.0.1:1")

    assert said.exit_code == 1
    assert names(said) == ["CdcSlotLost", "CdcProgramGone"]
    lost, gone = found(said)
    assert lost["error"] == "SlotMissing"
    assert lost["hint"]
    assert lost["paragraph"] == "docs/operations.md#the-source-gave-our-slot-up"
    assert "127.0.0.1:1" in gone["what"]
    for_people = command(file, "doctor")
    assert for_people.exit_code == 1
    assert "CdcSlotLost" in for_people.stderr


def test_each_place_that_is_away_is_named_once_with_where_it_was_sought(
    place: tuple[Path, File],
) -> None:
    """`status` reads the registry for Kafka's records: without Kafka it does not ask it."""
    file = place[1]
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", file.read_text())
    file.write_text(text)

    said = found(command(file, "doctor", "--json"))

    assert {one["name"] for one in said} == {"CdcPlaceDown"}
    assert sorted(one["what"].partition(":")[0].lower() for one in said) == [
        *("kafka", "registry", "source", "target")
    ]
    assert "127.0.0.1" in next(one["what"] for one in said if one["what"].startswith("source"))


@pytest.fixture
def of_tls(place: tuple[Path, File], tmp_path: File, monkeypatch) -> Iterator[Config]:
    """A configuration with a token and a certificate for another name than the address."""
    file = place[1]
    monkeypatch.setenv("GAUSS_CDC_SERVE_TOKEN", TOKEN)
    made = authority().issue("cdc1.example.com", "cdc1.example.com")
    certificate = written(tmp_path / "server.crt", made.pem)
    key = written(tmp_path / "server.key", made.key_pem())
    with file.open("a") as more:
        more.write(f'[serve]\nlisten = "127.0.0.1:0"\ncertificate = "{certificate}"\n')
        more.write(f'key = "{key}"\n')
    return load(file)


def test_a_program_is_asked_by_tls_and_token_and_judged_by_its_metrics(
    place: tuple[Path, File], of_tls: Config, tmp_path: File
) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    path.start()
    ask(path.source, f"INSERT INTO t VALUES (1, '{PLANTED}'), (2, '{PLANTED}')")
    path.catch_up()
    ask(path.target, "DELETE FROM t WHERE id = 1")
    ask(path.source, f"UPDATE t SET v = v || '{PLANTED}' WHERE id = 1")
    path.catch_up()
    url = serve(of_tls.serve, StandingMetrics(of_tls), {"/readyz": lambda: "behind"}, {})
    at, bundle = url.removeprefix("https://"), tmp_path / "report.zip"

    said = command(file, "doctor", "--json", "--program", at, "--bundle", str(bundle))

    assert [(one["name"], one["level"]) for one in found(said)] == [
        ("CdcNotReady", "warning"),
        ("CdcRowsOfOthers", "warning"),
    ]
    with zipfile.ZipFile(bundle) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "gauss_cdc_missing_rows" in texts["program-1.txt"]
    assert json.loads(texts["doctor.json"]) == json.loads(said.stdout)
    assert {*texts} >= {"check.json", "config.json", "status.json", "versions.json"}
    whole = "".join(texts.values())
    assert PLANTED not in whole
    assert TOKEN not in whole


def test_size_knows_the_tables_with_their_partitions(place: tuple[Path, File]) -> None:
    path, file = place
    ask(
        path.source,
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000);"
        "INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 500) n",
    )
    said: dict[str, Any] = {}

    def are_counted() -> bool:  # the server may add what it inserted behind the first ANALYZE
        ask(path.source, "ANALYZE t1")
        said.update(json.loads(command(file, "size", "--over", "100ms", "--json").stdout))
        return bool(said["rows"] == 500)

    until(are_counted, "500 rows", pause)
    assert said["bytes"] > 50_000
    assert said["partitions"] == 1
    assert said["lag"] == "99 % within 0.18 s"
    assert command(file, "size", "--over", "0s").exit_code == 0
