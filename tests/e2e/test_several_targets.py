"""Several targets in one file: one `apply` serves all, and none waits for another."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path as File
from urllib.parse import urlsplit

import pytest

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from spark_consumers.errors import TargetNotEmpty
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, content, pause, until

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (0, 'loaded')"
MORE = """\
name = "copy"
[[target]]
{other}
[spark]
master = "local[1]"
checkpoint = "{folder}/checkpoint"
"""


class Both:
    """A `run`, and the file of two targets with its `apply`."""

    def __init__(self, path: Path, file: File, other: str) -> None:
        self.path, self.file = path, file
        text = file.read_text().replace("[target]", "[[target]]")
        file.write_text(text + MORE.format(folder=file.parent, other=other))
        (file.parent / "logs").mkdir()
        self.program = Program("apply", file, folder=file.parent)

    def start(self) -> None:
        ask(self.path.source, TABLE)
        self.path.start()
        self.path.arrive()
        self.program.start()

    def wait(self, *words: str) -> tuple[int, list[str]]:
        assert not self.program.died(), self.program.last_words()
        done = command(self.file, "wait", *words)
        return done.exit_code, done.stdout.splitlines()

    def says(self, what: str) -> None:
        def said() -> bool:
            assert not self.program.died(), self.program.last_words()
            return what in self.program.log.read_text()

        until(said, what, pause)

    def process(self, name: str) -> int:
        """The newest process of a target."""
        begun = f"apply begins target={name} pid="
        self.says(begun)
        return int(self.program.log.read_text().rpartition(begun)[2].split()[0])

    def status(self) -> dict[str, dict[str, object]]:
        found = command(self.file, "status", "--json")
        return {one["name"]: one for one in json.loads(found.stdout)["targets"]}


@pytest.fixture
def both(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str], tmp_path: File
) -> Iterator[Callable[[str], Both]]:
    source, target = new_database(), new_database()
    file = configured(tmp_path, addresses, topic_prefix, source, target)
    made: list[Both] = []

    def make(other: str) -> Both:
        made.append(Both(path, file, other))
        return made[-1]

    with Path(addresses, topic_prefix, source, target) as path:
        yield make
        for one in made:
            one.program.close()


def test_a_target_that_is_not_there_ends_or_stands_still_holds_nobody(
    both: Callable[[str], Both], new_database: Callable[[], str]
) -> None:
    other = new_database()
    two = both(f'name = "other"\ndsn = "{other}"')
    path, name = two.path, urlsplit(other).path[1:]
    gone = f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS"
    ask(other, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (7, 'of others')")
    ask(path.source, f"{gone} false")
    two.start()

    assert two.wait("--target", "copy", "--timeout", "240s")[0] == 0
    assert content(path.target, "t") == ["(0,loaded)"]
    # A position that it has: not the end of the log, which other databases move on.
    code, lines = two.wait("--lsn", "0/1", "--timeout", "1s")
    assert (code, [line.split()[0] for line in lines]) == (4, ["copy"])
    there = two.status()
    assert there["copy"]["down"] == {}
    assert "target" in there["other"]["down"]
    found = json.loads(command(two.file, "doctor", "--json").stdout)
    assert {one["target"] for one in found if one["error"]} == {"other"}

    ask(path.source, f"{gone} true")
    ask(path.source, "INSERT INTO t VALUES (1, 'both')")
    two.says(f"and it begins again target=other exit_code={TargetNotEmpty.exit_code}")
    assert two.wait("--target", "copy", "--timeout", "240s")[0] == 0
    assert content(other, "t") == ['(7,"of others")']
    ask(other, "DROP TABLE t")
    code, lines = two.wait("--timeout", "240s")
    assert (code, [line.split()[0] for line in lines]) == (0, ["copy", "other"])
    assert content(other, "t") == content(path.target, "t") == content(path.source, "t")

    frozen = two.process("other")
    os.kill(frozen, signal.SIGSTOP)
    ask(path.source, "INSERT INTO t VALUES (2, 'copy')")
    assert two.wait("--target", "copy", "--timeout", "240s")[0] == 0
    assert len(content(other, "t")) == 2
    os.kill(frozen, signal.SIGKILL)
    two.says("apply ended: the other targets go on, and it begins again target=other exit_code=137")
    assert two.wait("--timeout", "240s")[0] == 0
    assert two.process("other") != frozen
    assert content(other, "t") == content(path.source, "t")

    assert two.program.stop()
    log = two.program.log.read_text()
    assert log.count("apply begins target=copy") == 1
    assert log.count(" CRITICAL ") == 0


def test_a_database_and_a_lake_are_equal_each_at_its_commit(
    both: Callable[[str], Both], tmp_path: File
) -> None:
    two = both(f'name = "lake"\nkind = "iceberg"\ndsn = "{tmp_path}/lake"\ninterval = "1s"')
    path = two.path
    two.start()
    ask(path.source, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 500) n")
    ask(path.source, "UPDATE t SET v = 'y' WHERE id % 3 = 0; DELETE FROM t WHERE id % 7 = 1")
    code, lines = two.wait("--timeout", "240s")
    assert (code, [line.split()[0] for line in lines]) == (0, ["copy", "lake"])
    checked = command(two.file, "check", "--json")
    ledgers = {one["target"] for one in json.loads(checked.stdout) if one["subject"] == "ledger"}
    assert ledgers == {"copy", "lake"}

    ask(path.source, "UPDATE t SET v = 'z' WHERE id < 100")
    for name in ("copy", "lake"):
        words = ["verify", "--config", str(two.file), "--target", name, "--json"]
        compared = subprocess.run(  # a lake is read by Spark, which is not that of other tests
            [sys.executable, "-m", "gauss_cdc", *words, "--timeout", "240s"],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert not compared.returncode, compared.stderr
        (report,) = json.loads(compared.stdout)
        assert report["outcome"] == "equal", report
    assert {one.name for one in (tmp_path / "checkpoint").iterdir()} == {"copy", "lake"}
    assert two.program.stop()
