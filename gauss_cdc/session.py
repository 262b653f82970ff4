"""The Spark session of `apply`: its start, and the log of its JVM.

The JVM writes to our pipe, so that its lines are part of the log.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from typing import Any, Final

from pydantic import SecretStr
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from gauss_cdc.config import Config, revealed
from gauss_cdc.logs import SPARK
from gauss_cdc.runtime import jars, java
from gauss_cdc.secrets import hidden
from gauss_cdc.watch import console
from spark_consumers.errors import SparkFailed
from spark_consumers.security import java_properties
from spark_consumers.stream import SPARK_ERRORS, reason, spark_confs

_log = logging.getLogger(SPARK)

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it starts

_LINE: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) (.*)", re.DOTALL
)
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
# Lines of every start that are useless; or that one of our errors replaces, with a hint.
_NOISE: Final = re.compile(
    r"\s|at |(?:[a-z]\w*\.)+\w+(?:Exception|Error)\b|Caused by:|\.\.\. \d+ more"
    r"|WARNING: Using incubator modules|Picked up |SLF4J"
    r"|Using Spark's default log4j|Setting default log level|To adjust logging level|NOTE: |:: "
    r"|NativeCodeLoader: |Utils: Your hostname, |Utils: Set SPARK_LOCAL_IP"
    r"|MicroBatchExecution: Query "
    r"|=== Streaming Query ===|Identifier: |Current \w+ Offsets: |Current State: |Thread State: "
)


def spark_session(config: Config) -> SparkSession:
    """Create the session; a local one finds Java and the connector's jars by itself.

    Under `spark-submit` its arguments give master, jars and packages.  Raises SparkFailed.
    """
    try:
        return _session(config)
    except SPARK_ERRORS as error:
        raise SparkFailed(
            "Spark does not start",
            hint="see the lines of area spark, and [spark] master and options",
            master=config.spark.master,
            cause=reason(error),
        ) from error


def _session(config: Config) -> SparkSession:
    options = revealed(config.spark.options)
    conf = SparkConf().setAppName(f"gauss-cdc {config.kafka.prefix}")
    is_ours = _SUBMITTED not in os.environ
    if is_ours:
        conf.setMaster(config.spark.master)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if config.spark.master.startswith("local"):
            if not {"spark.jars", "spark.jars.packages"} & set(options):
                found = jars.fetch(["spark"], console=console)["spark"]
                options["spark.jars"] = ",".join(map(str, found))
            os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
            options.setdefault("spark.driver.host", "127.0.0.1")
            options.setdefault("spark.driver.bindAddress", "127.0.0.1")
    properties = java_properties(config.kafka.client_settings())
    for side in ("driver", "executor") if properties else ():
        name = f"spark.{side}.extraJavaOptions"
        flags = [str(options.get(name, "")), *(f"-D{k}={v}" for k, v in properties.items())]
        options[name] = " ".join(filter(None, flags))
    for name, value in {**spark_confs(), **options}.items():
        conf.set(name, str(value))
    if is_ours and SparkContext._gateway is None:  # noqa: SLF001  else a second attempt
        SparkContext(conf=conf, gateway=_gateway(public(conf, config)))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def public(conf: SparkConf, config: Config) -> SparkConf:
    """Settings without secrets, for the JVM's command line, which all users of the machine see.

    The context sends the others to the running JVM.
    """
    out = SparkConf(loadDefaults=False)
    for name, value in conf.getAll():
        if not isinstance(config.spark.options.get(name), SecretStr):
            out.set(name, value)
    return out


def _gateway(conf: SparkConf) -> Any:
    """Start a JVM whose output we read."""
    read, write = os.pipe()
    lines = os.fdopen(read, encoding="utf-8", errors="replace")
    threading.Thread(target=_hand_on, args=(lines,), name="spark's lines", daemon=True).start()
    try:
        # Its Python workers inherit the environment: what they need is given to their task.
        with hidden():
            return launch_gateway(conf, {"stdout": write, "stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)


def _hand_on(lines: Any) -> None:
    with lines:
        for line in lines:
            level, text = classified(line.rstrip("\n"))
            if text:
                _log.log(level, "%s", text)


def classified(line: str) -> tuple[int, str]:
    """Return the level and text of a line of the JVM.

    >>> classified("26/11/22 03:37:44 WARN TaskSetManager: Lost task")
    (30, 'TaskSetManager: Lost task')
    """
    found = _LINE.fullmatch(line)
    level, text = (_LEVELS[found[1]], found[2]) if found else (logging.WARNING, line)
    return (logging.DEBUG if _NOISE.match(text) else level), text.strip()
