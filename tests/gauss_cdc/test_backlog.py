"""Who takes what waits, before Spark runs and behind."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from gauss_cdc.backlog import Driven
from gauss_cdc.config import Config
from spark_consumers.stream import Starting


def config(backlog: str, master: str) -> Config:
    return Config.model_validate(
        {
            "source": {"dsn": "postgresql://cdc@db/bank"},
            "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "kafka:9092"}},
            "registry": {"url": "http://registry"},
            "spark": {"backlog": backlog, "master": master},
        }
    )


def session(master: str, tasks: int) -> Any:
    """What Spark says of itself."""
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=tasks))


@pytest.mark.parametrize(
    ("backlog", "master", "cores", "before", "behind"),
    [
        ("auto", "local[*]", 2, True, True),
        ("auto", "local[*]", 16, False, False),
        ("auto", "local[2]", 16, False, True),  # Spark knows what it may use
        ("auto", "spark://m:7077", 2, False, False),
        ("auto", "local-cluster[2,1,1024]", 2, False, False),
        ("driver", "spark://m:7077", 2, True, True),
        ("executors", "local[*]", 2, False, False),
    ],
)
def test_executors_take_what_waits_where_they_bring_cores(
    monkeypatch: pytest.MonkeyPatch,
    backlog: str,
    master: str,
    cores: int,
    *,
    before: bool,
    behind: bool,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(SparkContext, "_gateway", None)  # of other tests in this process
    tasks = 2 if master == "local[2]" else cores
    spark = Starting(lambda: session(master, tasks))
    is_driven = Driven(config(backlog, master), spark)

    assert is_driven() is before
    spark.session()
    assert is_driven() is behind


def test_a_program_of_spark_submit_asks_the_spark_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The master of its command line is not in the configuration."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    spark = Starting(lambda: session("yarn", 40))
    is_driven = Driven(config("auto", "local[*]"), spark)

    assert not is_driven()
    spark.session()
    assert not is_driven()
