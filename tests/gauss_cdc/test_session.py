"""How `apply` starts Spark: what it says of the JVM's lines."""

import importlib.util
import logging
import os
import stat
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from gauss_cdc.config import Config, load, revealed
from gauss_cdc.runtime.errors import Unavailable
from gauss_cdc.secrets import hidden
from gauss_cdc.session import _at_start, classified, public, spark_session
from spark_consumers.spark import daemon
from spark_consumers.spark.stream import Starting

CONFIG = Config.model_validate(
    {
        "source": {"dsn": "postgresql://cdc@db/bank"},
        "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "kafka:9092"}},
        "registry": {"url": "http://registry"},
    }
)


def test_a_session_that_does_not_start_is_left_in_peace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGTERM while `apply` starts: what failed meanwhile is not a traceback."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(CONFIG.spark.options, "spark.jars", "none.jar")
    for running in ("_active_spark_context", "_gateway"):  # of other tests in this process
        monkeypatch.setattr(SparkContext, running, None)
    starting = Starting(lambda: spark_session(CONFIG))
    with pytest.raises(Unavailable, match="JAVA_HOME"):
        starting.session()

    starting.stop()


def test_a_file_of_defaults_names_the_master_unless_the_configuration_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master yarn\nspark.executor.memory 7g\nspark.redaction.regex Customer\n"
    )
    written = CONFIG.spark.model_copy(update={"master": "spark://m:7077"})

    by_file = dict(_at_start(CONFIG).getAll())
    by_us = dict(_at_start(CONFIG.model_copy(update={"spark": written})).getAll())

    assert not {"spark.master", "spark.executor.memory"} & by_file.keys()  # Spark reads the file
    assert by_file["spark.redaction.regex"].endswith("|(?-i:Customer)")
    assert by_file["spark.app.name"] == "gauss-cdc bank"
    assert by_us == {**by_file, "spark.master": "spark://m:7077"}


def test_blocks_of_a_local_spark_are_nobody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes its folders open to all, and shuffles of lakes have rows in them."""
    monkeypatch.setitem(CONFIG.spark.options, "spark.jars", "none.jar")
    made = dict(_at_start(CONFIG).getAll())["spark.local.dir"]
    assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700

    monkeypatch.setitem(CONFIG.spark.options, "spark.local.dir", "/data/spark")
    assert dict(_at_start(CONFIG).getAll())["spark.local.dir"] == "/data/spark"
    monkeypatch.delitem(CONFIG.spark.options, "spark.local.dir")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/data/spark")
    assert "spark.local.dir" not in dict(_at_start(CONFIG).getAll())


# ---------------------------------------------------------------- the JVM's lines
@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("26/11/22 03:37:45 ERROR Executor: Exception in task 0.0", logging.ERROR, "Executor: "),
        ("26/11/22 03:37:45 WARN TaskSetManager: Lost task 0.0", logging.WARNING, "TaskSetManager"),
        ("26/11/22 03:37:45 WARN NativeCodeLoader: Unable to load", logging.DEBUG, "NativeCode"),
        ("26/11/22 03:37:45 ERROR MicroBatchExecution: Query bank", logging.DEBUG, "MicroBatch"),
        ("WARNING: Using incubator modules: jdk.incubator.vector", logging.DEBUG, "WARNING: "),
        ("\tat java.base/java.lang.Thread.run(Thread.java:840)", logging.DEBUG, "at java.base"),
        ("org.apache.spark.SparkException: Exception thrown", logging.DEBUG, "org.apache"),
        ("Invalid maximum heap size: -Xmxzz", logging.WARNING, "Invalid maximum heap size"),
    ],
)
def test_lines_of_the_jvm_have_a_level(line: str, level: int, text: str) -> None:
    assert classified(line)[0] == level
    assert classified(line)[1].startswith(text)


# ---------------------------------------------------------------- secrets
SECRETS = """
[source]
dsn = "postgresql://cdc@db/bank"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "k:9092"
[registry]
url = "http://r:8081"
[spark.options]
"spark.hadoop.fs.s3a.secret.key" = { env = "S3_SECRET" }
"spark.executor.memory" = "1g"
"""


def test_secrets_stand_neither_in_the_jvm_s_command_line_nor_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S3_SECRET", "pencil-9")
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", "pencil-8")
    (tmp_path / "bank.toml").write_text(SECRETS)
    config = load(tmp_path / "bank.toml")
    settings = revealed(config.spark.options)

    with hidden():
        inherited = dict(os.environ)

    assert public(settings, config).getAll() == [("spark.executor.memory", "1g")]
    assert not [value for value in inherited.values() if "pencil" in value]
    assert os.environ["S3_SECRET"] == "pencil-9"


def test_workers_of_this_python_are_forked_from_a_parent_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another Python may not have this package; a setting of the user's wins."""
    name = "spark.python.daemon.module"
    monkeypatch.setitem(CONFIG.spark.options, "spark.jars", "none.jar")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert dict(_at_start(CONFIG).getAll())[name] == daemon.MODULE
    assert importlib.util.find_spec(daemon.MODULE) is not None

    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python3")
    assert name not in dict(_at_start(CONFIG).getAll())
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setitem(CONFIG.spark.options, name, "mine")
    assert dict(_at_start(CONFIG).getAll())[name] == "mine"
