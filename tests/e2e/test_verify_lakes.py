"""Source and lake are compared at one commit, while `run` and `apply` go on."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

import pytest

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from schemas.control import MEND, TableLoad
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.kinds import SINKS
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, pause, until
from tests.e2e.test_verify import has_type, repeated
from tests.schemas.types.values import SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE = """\
kind = "{kind}"
mode = "{mode}"
interval = "1s"
[spark]
master = "local[1]"
checkpoint = "{folder}/checkpoint"
"""
TABLES = """
CREATE SCHEMA {schema};
CREATE TABLE {schema}.account (id bigint PRIMARY KEY, balance numeric(12,2), note text);
CREATE TABLE {schema}.metric (id int, day date, v numeric, r real, PRIMARY KEY (id, day));
INSERT INTO {schema}.account SELECT g, g, repeat('x', g % 50) FROM generate_series(1, 900) g;
INSERT INTO {schema}.metric SELECT g, date '2019-06-01' + g, g, g / 7.0
  FROM generate_series(1, 300) g;
"""
KINDS = ("iceberg", "delta")
LONG = 240  # seconds: Spark starts, and a step takes a second for each table


class Lake:
    """A source, its lake in the warehouse of the session, and `apply` between them."""

    def __init__(self, path: Path, file: File, kind: str, spark: "SparkSession") -> None:
        self.path, self.file, self.schema, self.spark = path, file, path.prefix, spark
        self.dsn = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
        self._setup, self._kind = Setup(path.prefix, dsn=self.dsn), kind
        (file.parent / "logs").mkdir()
        self.program = Program("apply", file, folder=file.parent)
        self.program.start()

    def holds(self, seq: int) -> bool:
        assert not self.program.died(), self.program.last_words()
        ledger = SINKS[self._kind].inspector(self._setup).ledger()
        return ledger is not None and ledger.state == "EXACT" and ledger.seq >= seq

    def catch_up(self) -> None:
        """Wait until nothing is left to do, or to put back."""
        self.path.arrive()
        seq = self.path.progress.seq
        until(lambda: self.holds(seq), f"commit {seq}", pause, LONG)

    def change(self, statement: str, table: str) -> None:
        """What a stranger does there."""
        name = f"lake.{self.schema}.{table}"
        if self._kind == "delta":
            name = f"delta.`{self.dsn}/{self.schema}/{table}`"
        self.spark.sql(statement.format(name))

    def compared(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = command(self.file, "verify", "--json", "--show-keys", *words)
        if isinstance(done.exception, Exception):
            raise done.exception
        found = {one["table"].partition(".")[2]: one for one in json.loads(done.stdout)}
        return done.exit_code, found


@pytest.fixture
def lake(
    addresses: Addresses, topic_prefix: str, new_database, spark, tmp_path: File, request: Any
) -> Iterator[Lake]:
    kind, mode = request.param
    source = new_database()
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse")
    file = configured(tmp_path, addresses, topic_prefix, source, warehouse)
    with file.open("a") as more:  # it ends in [target]
        more.write(MORE.format(kind=kind, mode=mode, folder=tmp_path))
    with Path(addresses, topic_prefix, source, new_database()) as path:
        lake = Lake(path, file, kind, spark)
        with closing(lake.program):
            yield lake


@pytest.mark.parametrize("lake", [(kind, "scd1") for kind in KINDS], indirect=True, ids=KINDS)
def test_what_a_stranger_did_to_a_lake_is_found_and_mended(lake: Lake) -> None:
    path, schema = lake.path, lake.schema
    ask(path.source, TABLES.format(schema=schema))
    path.start()

    def touch(n: int) -> None:
        pause(0.5)
        ask(path.source, f"UPDATE {schema}.account SET balance = {n} WHERE id % 40 = {n % 40}")
        ask(path.source, f"UPDATE {schema}.metric SET day = day + 1000 WHERE id = {n % 99}")
        ask(path.source, f"DELETE FROM {schema}.account WHERE id = {n + 500}")

    lake.catch_up()
    with repeated(touch):
        live = [lake.compared() for _ in range(2)]
    lake.catch_up()
    lake.change("UPDATE {} SET note = 'mallory' WHERE id = 7", "account")
    lake.change("DELETE FROM {} WHERE id = 8", "account")
    lake.change("INSERT INTO {} VALUES (9999, DATE'2001-02-03', '0', 0, NULL)", "metric")
    code, found = lake.compared()
    sampled = lake.compared("--table", f"{schema}.account", "--sample", "10%")[1]["account"]
    asked, _ = lake.compared("--repair")
    with connect(parse_dsn(path.source)) as source:
        asks = QueryingConnection(source)
        until(lambda: not requests.requests(asks, path.options.slot), "the re-read", pause)
    mended, after = lake.compared()
    cuts = [cut for _, cut in path.cuts(Ledger(path.prefix)) if isinstance(cut, TableLoad)]

    assert {cut.table.name: cut.rows for cut in cuts if cut.mode == MEND} == {
        "account": 2, "metric": 1
    }  # fmt: skip
    for number, tables in live:
        assert (number, {one["outcome"] for one in tables.values()}) == (0, {"equal"}), tables
    assert (code, asked, mended) == (7, 7, 0), after
    assert found["account"]["keys"] == [
        {"kind": "changed", "key": {"id": "7"}, "columns": ["note"]},
        {"kind": "missing", "key": {"id": "8"}, "columns": []},
    ]
    assert [row["kind"] for row in found["metric"]["keys"]] == ["extra"]
    assert found["metric"]["keys"][0]["key"] == {"id": "9999", "day": "2001-02-03"}
    assert 30 < sampled["rows"]["source"] < 200


@pytest.mark.since(15, "scales outside of a precision, intervals of 2^63 microseconds")
@pytest.mark.parametrize(
    "lake", [("iceberg", "scd1"), ("delta", "scd2")], indirect=True, ids="-".join
)
def test_values_of_every_type_are_equal_to_themselves_in_a_lake(lake: Lake) -> None:
    path, name = lake.path, f"{lake.schema}.typed"
    samples = [one for one in SAMPLES if has_type(path.source, one.type_name)]
    columns = ", ".join(f"c{at} {one.type_name}" for at, one in enumerate(samples))
    ask(path.source, f"CREATE SCHEMA {lake.schema}")
    ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY, {columns})")
    for row in range(max(len(one.texts) for one in samples)):
        values = [one.texts[row % len(one.texts)] for one in samples]
        marks = ", ".join(["%s"] * len(values))
        for shift in (0, 1000):  # loaded, and streamed below
            ask(path.source, f"INSERT INTO {name} VALUES (%s, {marks})", row + shift, *values)
    path.start()

    lake.catch_up()
    ask(path.source, f"UPDATE {name} SET id = id + 1000 WHERE id >= 1000")
    code, found = lake.compared()

    assert (code, found["typed"]["rows"]["source"] > 0) == (0, True), found
    assert any("which the target keeps beside" in note for note in found["typed"]["notes"])
