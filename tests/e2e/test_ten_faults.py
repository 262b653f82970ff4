"""A night: one fault after the other, by real services; each is named, explained, and mended.

`run` and `apply` are processes with [serve].  What they and `status --serve` answer is played to
the rules by promtool, as if it stayed so for hours; `doctor` and the page must name the fault at
once.  TPC-B is written all the time.  Each test ends with all well, and target and source equal.

The file that GAUSS_CDC_NIGHT names gets a line for each fault: seconds until `doctor`, the page and
the rules had named it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as Folder
from random import Random
from urllib.error import URLError

import psycopg2
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gauss_cdc.config import load
from gauss_cdc.page.lookout import Lookout
from gauss_cdc.serve.dashboard import rules
from gauss_cdc.serve.standing import StandingMetrics
from gauss_cdc_lab.demo.tpcb import Tpcb
from gauss_cdc_lab.services import LocalServices
from tests import debian
from tests.e2e.commands import command, configured
from tests.e2e.path import UntilTold, ask, content, pause, until
from tests.e2e.test_serve import Served
from tests.services_fixtures import databases, execute, open_directory
from tests.test_documents import ROOT, anchors

SERVE = '[serve]\nlisten = "127.0.0.1:0"\n'
RETENTION = 'retention = "20h"'
TABLES = """
CREATE SCHEMA own; CREATE TABLE own.t (id serial PRIMARY KEY, v text);
INSERT INTO own.t (v) VALUES ('a')
"""
QUIET = ("CdcDoubtful", "CdcRetrying")  # what warns for as long as the test's server is as it is
Series = dict[str, float]


class Writer(UntilTold):
    """A client of TPC-B; it connects again where the server went away."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._turn = url, threading.Lock()
        self._session = Tpcb().session(0, Random(7))

    @contextmanager
    def still(self) -> Iterator[None]:
        """No transaction is open, and none begins."""
        assert self.is_alive()
        with self._turn:
            yield

    def run(self) -> None:
        while not self.ended.wait(0.2):
            with suppress(psycopg2.Error), closing(psycopg2.connect(self._url)) as line:
                while not self.ended.wait(0.05):
                    with self._turn, line, line.cursor() as cursor:
                        self._session.act()(cursor)


@dataclass
class Night:
    source: str
    target: str
    role: str
    services: LocalServices
    file: Folder
    promtool: Folder
    run: Served
    apply: Served
    writer: Writer
    was: Series = field(default_factory=dict)

    def write(self, count: int = 1, size: int = 1) -> None:
        """Insert rows with values of so many times 32 random letters."""
        text = "string_agg(md5(random()::text), '') FROM generate_series(1, %s) "
        for _ in range(count):
            ask(self.source, f"INSERT INTO own.t (v) SELECT {text}", size)

    def addresses(self) -> list[str]:
        return [one.urls()[-1].partition("//")[2] for one in (self.run, self.apply)]

    def findings(self, *more: str) -> dict[str, dict[str, str]]:
        """What `doctor` says, by name."""
        words = [word for at in self.addresses() for word in ("--program", at)]
        said = command(self.file, "doctor", "--json", *words, *more)
        return {one["name"]: one for one in json.loads(said.stdout) if one["name"] not in QUIET}

    def scraped(self) -> Series:
        """What Prometheus would have now; a program that is gone answers nothing."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StandingMetrics(load(self.file)))
        texts = {"status": generate_latest(registry).decode()}
        for one in (self.run, self.apply):
            with suppress(URLError):
                texts[one.program.name] = one.get("/metrics")[1]
        return {
            f"{s.name}{json.dumps({'job': job, **s.labels})}": s.value
            for job, text in texts.items()
            for found in text_string_to_metric_families(text)
            for s in found.samples
        }

    def alerts(self) -> set[str]:
        """Alerts that fire after half an hour as it was, and two hours as it is now."""
        now = self.scraped()
        series = [
            {
                "series": re.sub(r'"(\w+)": ("[^"]*")', r"\1=\2", name),
                "values": f"{self.was.get(name, '_')}x30 {now.get(name, '_')}x120",
            }
            for name in {*self.was, *now}
        ]
        firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
        nothing = {"expr": firing, "eval_time": "150m", "exp_samples": []}
        tried = {"interval": "1m", "input_series": series, "promql_expr_test": [nothing]}
        plan = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [tried]}
        (self.file.parent / "rules.yml").write_text(rules("x"))
        (self.file.parent / "plan.yml").write_text(json.dumps(plan))
        ran = subprocess.run(
            [self.promtool, "test", "rules", "plan.yml"],
            check=False, cwd=self.file.parent, capture_output=True, text=True,
        )  # fmt: skip
        said = ran.stdout + ran.stderr
        assert "got:" in said or "SUCCESS" in said, said
        return set(re.findall(r'alertname="(\w+)"', said.partition("got:")[2]))

    def is_named(self, finding: str, alert: str = "") -> dict[str, str]:
        """Wait until `doctor`, the page and the rules name it; its paragraph is there."""
        seen: dict[str, dict[str, str]] = {}
        begin = time.monotonic()
        passed: list[str] = []

        def is_found() -> bool:
            seen.update(self.findings())
            return finding in seen

        def named(by: str, is_there: Callable[[], bool]) -> None:
            until(is_there, f"{finding}: {by}", pause)
            passed.append(f"{by} {time.monotonic() - begin:.1f}")

        named("doctor", is_found)
        page = Lookout(load(self.file), self.addresses())

        def is_shown() -> bool:
            return finding in {one["name"] for one in json.loads(page.facts())["findings"]}

        named("page", is_shown)
        named("rules", lambda: (alert or finding) in self.alerts())
        if file := os.environ.get("GAUSS_CDC_NIGHT"):
            with Folder(file).open("a") as told:
                told.write(f"{finding}: {', '.join(passed)}\n")
        assert seen[finding]["paragraph"].partition("#")[2] in anchors(
            ROOT / "docs" / "operations.md"
        )
        return seen[finding]

    def is_well(self) -> None:
        """Wait until nothing is wrong, and the target is the source."""
        for one in (self.run, self.apply):
            one.says("/readyz", 200, "ready")
        self.write()
        with self.writer.still():
            for table in ("own.t", *Tpcb.sums):
                until(partial(self._is_equal, table), f"equal rows of {table}", pause)
        until(lambda: self.findings() == {}, "a doctor who finds nothing", pause)

    def _is_equal(self, table: str) -> bool:
        return content(self.target, table) == content(self.source, table)

    def start_again(self, one: Served) -> None:
        one.program.stop()
        one.start()


@pytest.fixture(scope="module")
def stage(
    services: LocalServices, promtool: Folder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Night]:
    prefix, folder = f"t{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("night")
    with databases(services.addresses) as make:
        source, target = make(), make()
        name = source.rpartition("/")[2]
        ask(source, f"CREATE ROLE {prefix} LOGIN REPLICATION")
        ask(source, f'ALTER DATABASE "{name}" OWNER TO {prefix}')
        reader = services.addresses.public_url(name, prefix)
        ask(reader, TABLES)
        with closing(psycopg2.connect(reader)) as line, line, line.cursor() as cursor:
            Tpcb().create(cursor)
        file = configured(folder, services.addresses, prefix, reader, target)
        file.write_text(
            file.read_text().replace("[kafka.client]", f"{RETENTION}\n[kafka.client]") + SERVE
        )
        both = [Served(word, file, folder=folder / word) for word in ("run", "apply")]
        with closing(both[0]), closing(both[1]), Writer(reader) as writer:
            for one in both:
                one.start()
            try:
                until(lambda: both[1].metrics().get("target_exact") == {(): 1}, "the load", pause)
                yield Night(reader, target, prefix, services, file, promtool, *both, writer)
            finally:
                for one in both:
                    one.program.stop()
        ask(source, f'ALTER DATABASE "{name}" OWNER TO postgres; DROP OWNED BY {prefix}')
    ask(services.addresses.postgres_url(), f"DROP ROLE {prefix}")


@pytest.fixture
def night(stage: Night) -> Iterator[Night]:
    """All is well before and after each fault."""
    stage.is_well()
    stage.was = stage.scraped()
    assert stage.alerts() == set()
    yield stage
    stage.is_well()


@pytest.mark.parametrize("place", ["kafka", "registry"])
def test_a_place_is_away(night: Night, place) -> None:
    night.services.stop(place)
    try:
        night.write()
        assert place in night.is_named("CdcPlaceDown")["what"]
    finally:
        night.services.start(place)


def test_the_targets_disk_is_full(night: Night) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk of two megabytes")
    with small_disk(night) as enlarge:
        night.write(count=30, size=4_000)
        night.is_named("CdcNotReady")
        assert "disk is full" in night.apply.program.log.read_text()
        enlarge()
        night.is_well()


@contextmanager
def small_disk(night: Night) -> Iterator[Callable[[], None]]:
    """Have the target's table on a disk of its own; call for more of it."""
    disk, name = open_directory(), f"small_{night.role}"
    run("mount", "-t", "tmpfs", "-o", "size=2m,mode=0777", "tmpfs", disk)
    shutil.chown(disk, (night.services.directory / "postgres").resolve().stat().st_uid)
    try:
        execute(night.target, f"CREATE TABLESPACE {name} LOCATION '{disk}'")
        ask(night.target, f"ALTER TABLE own.t SET TABLESPACE {name}")
        yield lambda: run("mount", "-o", "remount,size=64m", disk)
        ask(night.target, "ALTER TABLE own.t SET TABLESPACE pg_default")
        execute(night.target, f"DROP TABLESPACE {name}")
    finally:
        run("umount", "-l", disk)
        disk.rmdir()


def run(*words: str | Folder) -> None:
    subprocess.run(words, check=True)


def test_what_the_target_lacks_is_near_its_end_in_kafka(night: Night) -> None:
    """Kafka keeps more than those believe who look: nothing is deleted by the test."""
    night.apply.program.stop()
    night.write()
    text = night.file.read_text()
    night.file.write_text(text.replace(RETENTION, 'retention = "20s"'))
    try:
        assert "retention_left_seconds is " in night.is_named("CdcRetentionNear")["what"]
        night.is_named("CdcProgramGone")
    finally:
        night.file.write_text(text)

    night.apply.start()


def test_a_table_is_refused(night: Night) -> None:
    ask(night.target, "ALTER TABLE own.t RENAME COLUMN v TO w")
    night.write()

    until(night.apply.program.died, "the end of apply", pause)
    assert "MissingColumn" in night.is_named("CdcTableRefused", alert="CdcProgramGone")["error"]

    ask(night.target, "ALTER TABLE own.t RENAME COLUMN w TO v")
    night.start_again(night.apply)


def test_the_replication_role_lost_its_right(night: Night) -> None:
    admin = night.services.addresses.postgres_url()
    ask(admin, f"ALTER ROLE {night.role} NOREPLICATION")
    night.run.program.stop()
    night.run.program.start()

    until(night.run.program.died, "the end of run", pause)
    found = night.is_named("CdcRightsMissing", alert="CdcProgramGone")
    assert "REPLICATION" in found["what"] + found["hint"]

    ask(admin, f"ALTER ROLE {night.role} REPLICATION")
    night.start_again(night.run)


def test_the_clock_of_the_servers_jumped(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of source and target, which are one; `run` and `apply` have the right one."""
    library = debian.file("usr/lib/*/faketime/libfaketime.so.1", "libfaketime")
    if library is None:
        pytest.skip("Debian's package libfaketime cannot be had")
    with monkeypatch.context() as jumped:
        for name, value in {"LD_PRELOAD": str(library), "FAKETIME": "+600s"}.items():
            jumped.setenv(name, value)
        night.services.restart("postgres")
    try:
        night.write()
        night.is_named("CdcClocksDiffer")
    finally:
        night.services.restart("postgres")


def test_a_row_was_changed_by_hand_and_then_by_the_source(night: Night) -> None:
    ask(night.target, "DELETE FROM own.t WHERE id = 1")
    ask(night.source, "UPDATE own.t SET v = 'c' WHERE id = 1")

    assert "own.t" in night.is_named("CdcRowsOfOthers")["what"]

    assert command(night.file, "snapshot", "--table", "own.t").exit_code == 0


def test_two_runs_of_one_slot_are_none(night: Night, tmp_path: Folder) -> None:
    second = Served("run", night.file, folder=tmp_path / "second")
    with closing(second):
        second.start()
        second.says("/readyz", 200, "standby")
        night.write()

        assert night.findings("--program", second.urls()[-1].partition("//")[2]) == {}
        assert night.alerts() == set()
        second.program.stop()


def test_the_source_gave_the_slot_up(night: Night) -> None:
    night.run.program.stop()
    admin = night.services.addresses.postgres_url()
    with server_setting(admin, "max_slot_wal_keep_size", "1MB"):
        night.write()
        for _ in range(3):
            execute(admin, "SELECT pg_switch_wal()")
            night.write()
        execute(admin, "CHECKPOINT")
        found = night.is_named("CdcSlotLost")
    assert "slot" in found["what"]

    assert command(night.file, "slot", "drop", "--yes").exit_code == 0
    begin_an_epoch(night)
    night.run.start()


@contextmanager
def server_setting(url: str, name: str, value: str) -> Iterator[None]:
    execute(url, f"ALTER SYSTEM SET {name} = '{value}'")
    ask(url, "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        execute(url, f"ALTER SYSTEM RESET {name}")
        ask(url, "SELECT pg_reload_conf()")


def begin_an_epoch(night: Night) -> None:
    """Start `run --accept-gap` once, until it streams."""
    words = [sys.executable, "-m", "gauss_cdc", "run", "--accept-gap", "--config", str(night.file)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as once:
        assert once.stderr is not None
        assert any("streaming from" in line for line in once.stderr)
        once.send_signal(signal.SIGTERM)
        once.communicate()
