"""`run` and `apply` say of themselves where they stand: probes and metrics of real processes."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path as Folder
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gauss_cdc.serve.table import APPLY, METRICS, PREFIX, RUN
from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import LocalServices
from tests.e2e.commands import command, configured
from tests.e2e.path import ask, pause, until

TOKEN = "the-token-of-this-test-only"
PLANTED = "a cell that nobody else may see"
URL = re.compile(r"(?:page|metrics) (?:is )?on (http\S+)")
# Tables: one row in Kafka each, and one metric of its own.
TABLES = """
CREATE TABLE one (id int PRIMARY KEY, v text);
CREATE TABLE two (id int PRIMARY KEY, v text);
CREATE TABLE three (id int PRIMARY KEY, v text);
"""


class Served:
    """A program with [serve], and what it answers."""

    def __init__(self, command: str, config: Folder, *options: str, folder: Folder) -> None:
        (folder / "logs").mkdir(parents=True)
        self.program = Program(command, config, *options, folder=folder)
        self.close = self.program.close

    def start(self) -> str:
        """Start it; return its URL."""
        before = len(self.urls())
        self.program.start()
        until(lambda: len(self.urls()) > before, f"the address of {self.program.name}", pause)
        return self.urls()[-1]

    def urls(self) -> list[str]:
        log = self.program.log
        return URL.findall(log.read_text()) if log.exists() else []

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urlopen(Request(self.urls()[-1] + path, headers=headers), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def says(self, path: str, status: int, word: str) -> None:
        """Wait for an answer."""
        until(lambda: self.get(path) == (status, f"{word}\n"), f"{path}: {word}", pause)

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Metric -> the values of its own labels -> its value; of a histogram the count."""
        status, text = self.get("/metrics", TOKEN)
        assert status == 200
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            is_counter = family.type == "counter"
            assert family.name.startswith(PREFIX)
            name = family.name.removeprefix(PREFIX) + ("_total" if is_counter else "")
            assert (family.type, family.documentation) == (
                METRICS[name].kind,
                METRICS[name].meaning,
            )
            for sample in family.samples:
                if sample.name.endswith(("_bucket", "_sum", "_created")):
                    continue
                own = tuple(sample.labels[label] for label in METRICS[name].labels)
                assert set(sample.labels) == {"source", *METRICS[name].labels}
                found.setdefault(name, {})[own] = sample.value
        return found


def read_by(config: Folder, apply: Served) -> dict[tuple[str, ...], float]:
    """`status --json` where [serve] has the address of `apply`: who read each table's records."""
    file = config.with_name("asks.toml")
    at = apply.urls()[-1].removeprefix("http://").partition("/")[0]
    file.write_text(config.read_text().replace("127.0.0.1:0", at))
    said = json.loads(command(file, "status", "--json").stdout)["ways"]
    return {(table, way): n for table, read in said.items() for way, n in read.items()}


@pytest.fixture
def place(
    services: LocalServices,
    topic_prefix: str,
    new_killable_database: Callable[[], str],
    tmp_path: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[str, str, Callable[..., Served]]]:
    """Source, target, and what makes a program."""
    monkeypatch.setenv("GAUSS_CDC_SERVE_TOKEN", TOKEN)
    source, target = new_killable_database(), new_killable_database()
    ask(source, TABLES)
    config = configured(tmp_path, services.addresses, topic_prefix, source, target)
    with config.open("a") as file:
        file.write('[serve]\nlisten = "127.0.0.1:0"\ntables = 2\n')
    made: list[Served] = []

    def make(command: str, *options: str) -> Served:
        folder = tmp_path / f"{command}{len(made)}"
        made.append(Served(command, config, *options, folder=folder))
        return made[-1]

    try:
        yield source, target, make
    finally:
        for one in made:
            with closing(one):
                one.program.stop()


def test_run_and_apply_are_scraped(
    place: tuple[str, str, Callable[..., Served]], tmp_path: Folder
) -> None:
    source, target, make = place
    run, apply = make("run"), make("apply")
    run.start()
    apply.start()
    run.says("/readyz", 200, "ready")
    apply.says("/readyz", 200, "ready")
    until(lambda: apply.metrics()["target_exact"] == {(): 1}, "the load", pause)
    for table in ("one", "two", "three"):
        ask(source, f"INSERT INTO {table} VALUES (1, %s)", PLANTED)
    until(lambda: bool(ask(target, "SELECT 1 FROM three")), "the last row", pause)
    until(lambda: run.metrics()["kafka_seq"] == {(): 3}, "three commits", pause)

    # No load goes on, no table has a gap, and nothing limits the source's log.
    absent = {"load_rows", "load_left_seconds", "table_gap", "lag_csns"}
    absent |= {"safe_wal_bytes", "wal_left_seconds"}
    of_run = {name for name, one in METRICS.items() if RUN in one.by}
    seen = run.metrics()
    assert set(seen) == of_run - absent
    assert seen["read_rows_total"] == seen["read_commits_total"] == {(): 3}
    assert seen["commit_to_kafka_seconds"][()] >= 1
    assert sum(seen["table_records_total"].values()) == 3
    assert seen["table_records_total"]["other",] == seen["other_tables"][()] == 1
    assert sum(seen["table_bytes_total"].values()) > 3 * len(PLANTED)
    assert seen["tables"] == {("END",): 3}
    assert seen["place_up"] == {("source",): 1}
    assert (seen["slot_active"], seen["ready"]) == ({(): 1}, {(): 1})
    assert seen["state"] == {("ready",): 1}

    until(lambda: apply.metrics()["target_seq"] == {(): 3}, "three commits applied", pause)
    of_apply = {name for name, one in METRICS.items() if APPLY in one.by}
    seen = apply.metrics()
    assert set(seen) == of_apply - {
        *("table_errors_total", "table_inexact", "retention_left_seconds")
    }
    assert seen["applied_rows_total"][()] >= 3
    assert 1 <= seen["commit_to_visible_seconds"][()] <= 3
    assert {way for _, way in seen["table_applied_total"]} >= {"driver"}
    assert read_by(tmp_path / "gauss-cdc.toml", apply) == seen["table_applied_total"]
    assert (seen["target_exact"], seen["inexact_tables"]) == ({(): 1}, {(): 0})

    for one in (run, apply):
        assert one.get("/metrics")[0] == one.get("/metrics", TOKEN + "x")[0] == 401
        assert one.get(f"/metrics?token={TOKEN}")[0] == 401
        said = one.get("/metrics", TOKEN)[1] + one.program.log.read_text()
        assert PLANTED not in said
        assert TOKEN not in said


def test_without_kafka_they_are_alive_and_not_ready_and_then_ready_again(
    place: tuple[str, str, Callable[..., Served]], services: LocalServices
) -> None:
    source, target, make = place
    both = run, _ = make("run"), make("apply")
    for one in both:
        one.start()
        one.says("/readyz", 200, "ready")
    until(lambda: both[1].metrics()["target_exact"] == {(): 1}, "the load", pause)

    services.stop("kafka")
    try:
        ask(source, "INSERT INTO one VALUES (1, 'a')")
        for one in both:
            until(lambda one=one: one.get("/readyz")[0] == 503, "the missing Kafka", pause)
            assert one.get("/healthz") == (200, "alive\n")
    finally:
        services.start("kafka")
    for one in both:
        one.says("/readyz", 200, "ready")
    until(lambda: bool(ask(target, "SELECT 1 FROM one")), "the row", pause)
    assert run.metrics()["retries_total"][()] >= 1


@pytest.mark.parametrize("command", ["run", "apply"])
def test_one_that_waits_its_turn_is_ready(
    place: tuple[str, str, Callable[..., Served]], command: str
) -> None:
    make = place[2]
    writer = make("run")
    writer.start()
    writer.says("/readyz", 200, "ready")
    if command == "apply":
        holder = make(command)
        holder.start()
        holder.says("/readyz", 200, "ready")
    waiting = make(command)
    waiting.start()

    waiting.says("/readyz", 200, "standby")
    seen = waiting.metrics()
    assert (seen["ready"], seen["state"]) == ({(): 1}, {("standby",): 1})
    assert waiting.get("/healthz") == (200, "alive\n")
