"""`apply` into a bucket, killed (SIGKILL) at the writes on which a commit of a lake stands."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path as Folder
from typing import TYPE_CHECKING

import pytest

from gauss_cdc.runtime import jars
from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from spark_consumers.lakes import read_at
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from tests.bucket import Bucket
from tests.e2e.commands import configured
from tests.e2e.path import Path, ask, pause, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE = """\
kind = "iceberg"
interval = "1s"
[spark]
master = "local[1]"
[spark.options]
{options}
"""
TABLES = ("one", "two")
ROWS = [f"SELECT id, v FROM {table} ORDER BY id" for table in TABLES]
# What is written when it is killed: the key in the bucket, whether before the write or behind it.
MOMENTS = {
    "rows": (r"/one/data/", True),
    "the second table's head": (r"/two/metadata/v\d", False),
    "the watermark": (r"/watermark_\w+/metadata/v\d", False),
}


class Killer:
    """Kills a program at the next write of a kind, and takes no other one's."""

    def __init__(self, bucket: Bucket, program: Program) -> None:
        self._program, self._sign = program, ("", False)
        self.struck = threading.Event()
        bucket.before = lambda key: self._look(key, is_behind=False)
        bucket.after = lambda key: self._look(key, is_behind=True)

    def wait_for(self, part: str, *, is_behind: bool) -> None:
        self.struck.clear()
        self._sign = part, is_behind

    def _look(self, key: str, *, is_behind: bool) -> None:
        part, behind = self._sign
        if part and re.search(part, key) and behind is is_behind:
            self._sign = "", False
            self._program.kill()
            self.struck.set()


class Lake:
    """A source, its lake in a bucket, and the `apply` between them."""

    def __init__(self, path: Path, url: str, program: Program) -> None:
        self.path, self.url, self.program = path, url, program

    def ledger(self) -> Ledger | None:
        return SINKS["iceberg"].inspector(Setup(self.path.prefix, dsn=self.url)).ledger()

    def holds(self, seq: int) -> bool:
        assert not self.program.died(), self.program.last_words()
        ledger = self.ledger()
        return ledger is not None and ledger.seq >= seq and ledger.state == "EXACT"

    def rows(self, spark: "SparkSession") -> list[list[tuple[int, str]]]:
        """The rows of the newest watermark, by table."""
        session = spark.newSession()  # another one may know the catalog of another lake
        tables = read_at(session, self.path.prefix, kind="iceberg", dsn=self.url)
        return [
            [
                tuple(row)
                for row in tables[f"public.{name}"].select("id", "v").orderBy("id").collect()
            ]
            for name in TABLES
        ]


@pytest.fixture
def lake(addresses: Addresses, path: Path, bucket: Bucket, tmp_path: Folder) -> Iterator[Lake]:
    url = f"{bucket.url}/lake"
    found = [file for files in jars.fetch(["spark", "iceberg", "s3"]).values() for file in files]
    options = {
        "spark.jars": ",".join(map(str, found)),
        "spark.ui.enabled": "false",
        **{f"spark.hadoop.{name}": value for name, value in bucket.hadoop.items()},
    }
    file = configured(tmp_path, addresses, path.prefix, path.source, url)
    with file.open("a") as more:  # it ends in [target]
        more.write(
            MORE.format(options="\n".join(f'"{name}" = "{v}"' for name, v in options.items()))
        )
    (tmp_path / "logs").mkdir()
    with closing(Program("apply", file, folder=tmp_path)) as program:
        yield Lake(path, url, program)


@pytest.fixture
def path(addresses: Addresses, topic_prefix: str, new_database, bucket: Bucket) -> Iterator[Path]:
    source = new_database()
    for table in TABLES:
        ask(source, f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        ask(source, f"INSERT INTO {table} SELECT g, 'loaded' FROM generate_series(1, 20) g")
    with Path(addresses, topic_prefix, source, new_database()) as path:
        path.start()
        path.arrive()
        yield path


def test_a_killed_apply_leaves_a_whole_commit_in_a_bucket_and_the_next_one_goes_on(
    lake: Lake, bucket: Bucket, spark: "SparkSession"
) -> None:
    path, killer = lake.path, Killer(bucket, lake.program)
    lake.program.start()
    until(lambda: lake.holds(0), "the first load", pause)
    held = [ask(path.source, question) for question in ROWS]
    assert lake.rows(spark) == held

    for number, (moment, (part, is_behind)) in enumerate(MOMENTS.items()):
        killer.wait_for(part, is_behind=is_behind)
        ask(
            path.source,
            f"UPDATE one SET v = '{number}' WHERE id % 3 = 0; DELETE FROM two WHERE id = {number};"
            f"INSERT INTO one VALUES ({100 + number}, 'new'); UPDATE two SET v = v || {number}",
        )
        now = [ask(path.source, question) for question in ROWS]
        path.arrive()
        until(killer.struck.is_set, f"a kill at {moment}", pause)
        assert lake.rows(spark) == held, moment

        lake.program.start()
        until(
            partial(lake.holds, path.progress.seq), f"the commit, after a kill at {moment}", pause
        )
        assert lake.rows(spark) == now, moment
        held = now

    assert lake.program.stop()
