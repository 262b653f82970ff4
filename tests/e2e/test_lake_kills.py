"""`apply` into a bucket, killed (SIGKILL) at the writes on which a commit of a lake stands."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path as Folder
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import pytest

from gauss_cdc.runtime import jars
from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from spark_consumers.lakes import read_at
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from tests.bucket import Bucket, LostWrite
from tests.e2e.commands import configured
from tests.e2e.path import Path, ask, pause, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind: TypeAlias = Literal["iceberg", "delta"]
MORE = """\
kind = "{kind}"
interval = "1s"
[spark]
master = "local[1]"
[spark.options]
{options}
"""
TABLES = ("one", "two")
ROWS = [f"SELECT id, v FROM {table} ORDER BY id" for table in TABLES]
# A write to Iceberg has three versions: a branch, the branch with rows, and `main` moved there.
BRANCH, MAIN = 1, 3


class Moment(NamedTuple):
    """When it is killed: before or behind the nth write of a key, and whether it is visible."""

    part: str
    nth: int = 1
    is_behind: bool = False
    shows: bool = False


MARK = r"/watermark_\w+/metadata/v\d"
DELTA_MARK = r"/watermark_\w+/_delta_log/\d+\.json"
MOMENTS = {
    "iceberg": {
        "rows": Moment(r"/one/data/", is_behind=True),
        "the second table's head": Moment(r"/two/metadata/v\d"),
        "the watermark on its branch": Moment(MARK, BRANCH, is_behind=True),
        "before the watermark": Moment(MARK, MAIN),
        "the watermark": Moment(MARK, MAIN, is_behind=True, shows=True),
    },
    "delta": {
        "rows": Moment(r"/one/.*\.parquet", is_behind=True),
        "the second table's head": Moment(r"/two/_delta_log/\d+\.json"),
        "before the watermark": Moment(DELTA_MARK),
        "the watermark": Moment(DELTA_MARK, is_behind=True, shows=True),
    },
}


class Killer:
    """Kills a program at the next write of a kind, and takes no other one's."""

    def __init__(self, bucket: Bucket, program: Program) -> None:
        self._program, self._moment, self._left = program, Moment(""), 0
        self.struck = threading.Event()
        bucket.before = lambda key: self._look(key, is_behind=False)
        bucket.after = lambda key: self._look(key, is_behind=True)

    def wait_for(self, moment: Moment) -> None:
        self.struck.clear()
        self._moment, self._left = moment, moment.nth

    def _look(self, key: str, *, is_behind: bool) -> None:
        moment = self._moment
        if self._left and is_behind is moment.is_behind and re.search(moment.part, key):
            self._left -= 1
            if not self._left:
                self._program.kill()
                self.struck.set()
                if not is_behind:
                    raise LostWrite  # the server has it, and would do it all the same


class Lake:
    """A source, its lake in a bucket, and the `apply` between them."""

    def __init__(self, path: Path, kind: Kind, url: str, program: Program) -> None:
        self.path, self.kind, self.url, self.program = path, kind, url, program

    def ledger(self) -> Ledger | None:
        return SINKS[self.kind].inspector(Setup(self.path.prefix, dsn=self.url)).ledger()

    def holds(self, seq: int) -> bool:
        assert not self.program.died(), self.program.last_words()
        ledger = self.ledger()
        return ledger is not None and ledger.seq >= seq and ledger.state == "EXACT"

    def rows(self, spark: "SparkSession") -> list[list[tuple[int, str]]]:
        """The rows of the newest watermark, by table."""
        session = spark.newSession()  # another one may know the catalog of another lake
        tables = read_at(session, self.path.prefix, kind=self.kind, dsn=self.url)
        return [
            [
                tuple(row)
                for row in tables[f"public.{name}"].select("id", "v").orderBy("id").collect()
            ]
            for name in TABLES
        ]


@pytest.fixture
def lake(
    addresses: Addresses, path: Path, bucket: Bucket, tmp_path: Folder, kind: Kind
) -> Iterator[Lake]:
    url = f"{bucket.url}/lake"
    found = [file for files in jars.fetch(["spark", kind, "s3"]).values() for file in files]
    options = {
        "spark.jars": ",".join(map(str, found)),
        "spark.ui.enabled": "false",
        **{f"spark.hadoop.{name}": value for name, value in bucket.hadoop.items()},
    }
    file = configured(tmp_path, addresses, path.prefix, path.source, url)
    with file.open("a") as more:  # it ends in [target]
        said = "\n".join(f'"{name}" = "{value}"' for name, value in options.items())
        more.write(MORE.format(kind=kind, options=said))
    (tmp_path / "logs").mkdir()
    with closing(Program("apply", file, folder=tmp_path)) as program:
        yield Lake(path, kind, url, program)


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


@pytest.mark.parametrize("kind", MOMENTS)
def test_a_killed_apply_leaves_a_whole_commit_in_a_bucket_and_the_next_one_goes_on(
    lake: Lake, bucket: Bucket, spark: "SparkSession"
) -> None:
    path, killer = lake.path, Killer(bucket, lake.program)
    lake.program.start()
    until(lambda: lake.holds(0), "the first load", pause)
    held = [ask(path.source, question) for question in ROWS]
    assert lake.rows(spark) == held

    for number, (name, moment) in enumerate(MOMENTS[lake.kind].items()):
        killer.wait_for(moment)
        ask(
            path.source,
            f"UPDATE one SET v = '{number}' WHERE id % 3 = 0; DELETE FROM two WHERE id = {number};"
            f"INSERT INTO one VALUES ({100 + number}, 'new'); UPDATE two SET v = v || {number}",
        )
        now = [ask(path.source, question) for question in ROWS]
        path.arrive()
        until(killer.struck.is_set, f"a kill at {name}", pause)
        assert lake.rows(spark) == (now if moment.shows else held), name

        lake.program.start()
        until(partial(lake.holds, path.progress.seq), f"the commit, after a kill at {name}", pause)
        assert lake.rows(spark) == now, name
        held = now

    assert lake.program.stop()
