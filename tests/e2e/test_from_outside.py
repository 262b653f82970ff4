"""A source and a target that only a test knows: their kinds and a line each are all it takes."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gauss_cdc_lab.services import Addresses
from tests.e2e.path import until

FILE = """\
[source]
kind = "lines"
dsn = "{folder}/bank.lines"
pause = 0.01
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[target]
kind = "steps"
dsn = "{folder}/bank.steps"
[spark]
checkpoint = "{folder}/state"
"""


@pytest.fixture
def file(tmp_path: Path, addresses: Addresses, topic_prefix: str) -> Path:
    made = tmp_path / "gauss-cdc.toml"
    made.write_text(
        FILE.format(
            folder=tmp_path,
            prefix=topic_prefix,
            kafka=addresses.kafka_bootstrap,
            registry=addresses.registry_url,
        )
    )
    return made


def program(file: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.e2e.outside", *words, "--config", str(file)]


def said(file: Path, *words: str) -> str:
    done = subprocess.run(program(file, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout or done.stderr


def compared(file: Path, code: int) -> list[dict[str, Any]]:
    words = program(file, "verify", "--json", "--show-keys")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextmanager
def started(file: Path, *words: str) -> Iterator[None]:
    """Run a service; its log is shown if the test fails."""
    process = subprocess.Popen(program(file, *words))
    try:
        yield
    finally:
        process.terminate()
        assert process.wait() == 0


def applied(file: Path) -> list[list[object]]:
    steps = file.with_name("bank.steps")
    lines = steps.read_text().splitlines() if steps.exists() else []
    return [row for line in lines for row in json.loads(line)["rows"]]


def test_what_stands_in_a_new_source_reaches_a_new_target(file: Path) -> None:
    log = file.with_name("bank.lines")
    log.write_text('[[1, "one"], [2, "two"]]\n')

    found = said(file, "check")
    with started(file, "run"), started(file, "apply"):
        until(lambda: len(applied(file)) == 2, "the load", time.sleep)
        with log.open("a") as more:
            more.write('[[3, "three"]]\n[[4, "four"], [5, "five"]]\n')
        until(lambda: len(applied(file)) == 5, "what was added", time.sleep)
        status = json.loads(said(file, "status", "--json"))
        (equal,), rows = compared(file, 0), applied(file)
        steps = file.with_name("bank.steps")
        wrong = steps.read_text().replace('["c", ["3", "three"]]', '["c", ["3", "drei"]]')
        steps.write_text(wrong.replace('["r", ["2", "two"]]', '["r", ["6", "six"]]'))
        (different,) = compared(file, 7)

    assert "1 transactions" in found
    assert rows == [
        *(["r", ["1", "one"]], ["r", ["2", "two"]]),
        *(["c", ["3", "three"]], ["c", ["4", "four"]], ["c", ["5", "five"]]),
    ]
    assert (status["target"]["state"], status["lag"]["commits"]) == ("EXACT", 0)
    assert status["source"]["wal_end"] == "0/38"
    assert "continues after the newest cut" in said(file, "check")
    assert (equal["outcome"], equal["rows"]) == ("equal", {"source": 5, "target": 5})
    assert different["keys"] == [
        {"kind": "missing", "key": {"id": "2"}, "columns": []},
        {"kind": "changed", "key": {"id": "3"}, "columns": ["v"]},
        {"kind": "extra", "key": {"id": "6"}, "columns": []},
    ]
