"""Spark's declarative pipelines over the data source, as `spark-pipelines` runs them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path as Folder

import pyarrow.parquet as pq
import pyspark

from gauss_cdc_lab.services import Addresses
from tests.e2e.path import Path, ask
from tests.tree import ROOT

SPEC = """
name: bank
storage: {storage}
libraries:
  - glob:
      include: flows/**
"""
FLOWS = '''
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def account_changes() -> DataFrame:
    """Every change of the accounts."""
    return spark.readStream.format("gauss_cdc").options(**{options!r}).load()


@dp.materialized_view
def rich() -> DataFrame:
    return spark.table("account_changes").where("balance > 100").select("id", "balance")
'''


def rows_of(folder: Folder) -> list[tuple[object, ...]]:
    table = pq.read_table(folder, columns=["id", "balance"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_pipeline_continues_where_it_stood(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str, tmp_path: Folder
) -> None:
    source = new_database()
    ask(source, "CREATE TABLE account (id int PRIMARY KEY, balance int)")
    ask(source, "INSERT INTO account VALUES (1, 50), (2, 200)")
    (tmp_path / "flows").mkdir()
    (tmp_path / "storage").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(
        SPEC.format(storage=(tmp_path / "storage").as_uri())
    )
    options = {
        "kafka.bootstrap.servers": addresses.kafka_bootstrap,
        "registry": addresses.registry_url,
        "prefix": topic_prefix,
        "table": "public.account",
    }
    (tmp_path / "flows" / "bank.py").write_text(FLOWS.format(options=options))

    def run() -> None:
        done = subprocess.run(
            [
                *(Folder(pyspark.__file__).parent / "bin" / "spark-pipelines", "run"),
                *("--conf", "spark.sql.catalogImplementation=hive"),  # tables outlive a run
            ],
            cwd=tmp_path,
            env=os.environ
            | {
                "JAVA_HOME": str(addresses.java_home),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    with Path(addresses, topic_prefix, source, new_database()) as path:
        path.start()
        path.arrive()
        run()
        warehouse = tmp_path / "spark-warehouse"
        assert rows_of(warehouse / "account_changes") == [(1, 50), (2, 200)]
        ask(source, "INSERT INTO account VALUES (3, 300)")
        path.arrive()
        run()

    assert rows_of(warehouse / "account_changes") == [(1, 50), (2, 200), (3, 300)]
    assert rows_of(warehouse / "rich") == [(2, 200), (3, 300)]
