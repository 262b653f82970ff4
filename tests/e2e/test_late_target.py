"""A second target that comes when Kafka has deleted the beginning of the cuts."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path as Folder
from typing import TYPE_CHECKING

import pytest

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from schemas.tables import TableId
from spark_consumers.cuts.ledger import LATE
from spark_consumers.errors import TargetNotEmpty
from spark_consumers.lakes import read_at
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.second import Late, restart_without_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b", "gone", "nokey")
MORE = """\
kind = "delta"
interval = "1s"
[spark]
master = "local[1]"
"""


@pytest.fixture
def path(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str
) -> Iterator[Path]:
    """A pair that runs; of what it wrote before its second start, nothing stands in Kafka."""
    with Path(addresses, topic_prefix, new_database(), new_database(), look_seconds=0.2) as one:
        for table in TABLES:
            key = "" if table == "nokey" else " PRIMARY KEY"
            ask(one.source, f"CREATE TABLE {table} (id int{key}, v text)")
            ask(one.source, f"INSERT INTO {table} SELECT n, 'old' FROM generate_series(1, 9) n")
        ask(one.source, "ALTER TABLE nokey REPLICA IDENTITY FULL")
        one.start()
        one.catch_up()
        restart_without_history(one, TABLES)
        yield one


@pytest.fixture
def late(path: Path, new_database: Callable[..., str]) -> Iterator[Late]:
    one = Late(path, new_database())
    yield one
    one.close()


def there(late: Late) -> list[str]:
    late.catch_up()
    named = ask(late.target, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return [name for (name,) in named]


def test_it_begins_with_nothing_and_is_loaded_when_it_is_asked_for(
    path: Path, late: Late, addresses: Addresses, tmp_path: Folder
) -> None:
    began = late.catch_up()
    assert dict(began.inexact) == {f"public.{table}": LATE for table in TABLES}
    assert began.state == "LOADING"

    ask(path.source, "UPDATE a SET v = 'new' WHERE id < 4; DELETE FROM b WHERE id = 1")
    ask(path.source, "ALTER TABLE b ADD COLUMN w int; UPDATE b SET w = id")
    ask(path.source, "INSERT INTO nokey VALUES (1, 'more'); DELETE FROM nokey WHERE id = 2")
    ask(path.source, "TRUNCATE gone")
    ask(path.source, "ALTER TABLE a RENAME TO other; INSERT INTO other VALUES (20, 'behind')")
    ask(path.source, "CREATE TABLE made (id int PRIMARY KEY); INSERT INTO made VALUES (1)")
    until(lambda: "made" in there(late), "what came later", pause)
    ask(path.source, "INSERT INTO made VALUES (2)")
    lacking = late.catch_up()
    assert "public.other" in lacking.inexact, "a name goes on, with nothing of its table"
    assert there(late) == ["made"]
    assert content(late.target, "made") == ["(1)", "(2)"]

    file = configured(tmp_path, addresses, path.prefix, path.source, late.target)
    refused = command(file, "snapshot", "--for", "pond")
    assert "pond is no target of this file, which has postgres" in str(refused.exception)
    asked = command(file, "snapshot", "--for", "postgres")
    assert not asked.exception, asked.output
    wishes = [json.loads(line) for line in asked.stdout.splitlines()]
    assert {wish["for"] for wish in wishes} == {"postgres"}
    until(lambda: not late.catch_up().inexact, "all loads", pause)

    first = path.catch_up()
    assert late.catch_up() == first
    for table in ("other", "b", "gone", "nokey", "made"):
        assert content(late.target, table) == content(path.source, table), table


def test_rows_that_somebody_else_put_there_are_not_overwritten(
    path: Path, late: Late, addresses: Addresses, tmp_path: Folder
) -> None:
    ask(late.target, "CREATE TABLE b (id int PRIMARY KEY, v text); INSERT INTO b VALUES (7, 'x')")
    late.catch_up()
    file = configured(tmp_path, addresses, path.prefix, path.source, late.target)
    asked = command(file, "snapshot", "--for", "postgres")
    assert not asked.exception, asked.output

    def refuses() -> bool:
        try:
            late.catch_up()
        except TargetNotEmpty as error:
            return error.where["table"] == TableId("public", "b")
        return False

    until(refuses, "a refusal", pause)
    assert content(late.target, "b") == ["(7,x)"]


def test_a_lake_that_comes_late_asks_for_its_tables_by_itself(
    path: Path, addresses: Addresses, tmp_path: Folder, spark: "SparkSession"
) -> None:
    ask(path.source, "ALTER TABLE gone RENAME TO kept; DROP TABLE nokey")  # a lake needs keys
    path.catch_up()
    place = str(tmp_path / "lake")
    file = configured(tmp_path, addresses, path.prefix, path.source, place)
    with file.open("a") as more:
        more.write(MORE)
    (tmp_path / "logs").mkdir()
    inspector = SINKS["delta"].inspector(Setup(path.prefix, dsn=place))

    def stands(is_there: Callable[[Ledger], bool]) -> Callable[[], bool]:
        def look() -> bool:
            assert not program.died(), program.last_words()
            ledger = inspector.ledger()
            return ledger is not None and bool(ledger.instance) and is_there(ledger)

        return look

    with closing(Program("apply", file, folder=tmp_path)) as program:
        program.start()
        until(stands(lambda at: bool(at.inexact)), "its beginning", pause)
        ask(path.source, "UPDATE a SET v = 'new' WHERE id < 4; INSERT INTO kept VALUES (30, 'x')")
        first = path.catch_up()
        until(stands(lambda at: at.seq >= first.seq and not at.inexact), "all loads", pause)
    tables = read_at(spark.newSession(), path.prefix, kind="delta", dsn=place)
    for name in ("a", "b", "kept"):
        rows = tables[f"public.{name}"].select("id", "v").collect()
        assert sorted(f"({row.id},{row.v})" for row in rows) == content(path.source, name), name
