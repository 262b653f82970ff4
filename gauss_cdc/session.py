"""The Spark session of `apply`: its start, and the log of its JVM.

The JVM writes to our pipe, so that its lines are part of the log.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from gauss_cdc import spark_settings, target
from gauss_cdc.config import Config, revealed
from gauss_cdc.logs import SPARK
from gauss_cdc.runtime import jars, java
from gauss_cdc.secrets import hidden
from gauss_cdc.watch import console
from spark_consumers.errors import SparkFailed
from spark_consumers.security import OWN as JAVA_CLIENT
from spark_consumers.security import java_properties
from spark_consumers.spark import daemon, jvm

_log = logging.getLogger(SPARK)

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it starts

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
    r"|Using Spark's default log4j|Setting (?:default|Spark) log level"
    r"|To adjust logging level|NOTE: |:: "
    r"|NativeCodeLoader: |Utils: Your hostname, |Utils: Set SPARK_LOCAL_IP"
    r"|MicroBatchExecution: Query |DeltaParquetFileFormat: Failed to translate filter "
    r"|=== Streaming Query ===|Identifier: |Current \w+ Offsets: |Current State: |Thread State: "
)


def spark_session(config: Config) -> SparkSession:
    """Create the session; a local one finds Java and the connector's jars by itself.

    Under `spark-submit` its arguments give master, jars and packages.  Raises SparkFailed.
    """
    try:
        return _session(config)
    except jvm.GONE_ERRORS as error:
        raise SparkFailed(
            "Spark does not start",
            hint="see the lines of area spark, and [spark] master and options",
            master=config.spark.master,
            cause=jvm.reason(error),
        ) from error


def _is_to_launch() -> bool:
    """Say whether nobody has started a JVM: not we before, nor `spark-submit`."""
    return SUBMITTED not in os.environ and not jvm.is_launched()


def _session(config: Config) -> SparkSession:
    if not jvm.has_context():
        _start(config)
    session = SparkSession.builder.getOrCreate()
    given = session.conf.getAll
    for name, value in _settings(config, given).items():
        # What belongs to a context can be set before it starts only.
        if given.get(name) != value and session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _start(config: Config) -> None:
    """Start Spark; under `spark-submit` its JVM runs already, and has its settings."""
    if _is_to_launch():
        _launch(_at_start(config))

    def complete(conf: SparkConf) -> None:
        if conf.get("spark.app.name", "") in ("", "pyspark-shell", Path(sys.argv[0]).name):
            conf.setAppName(_name(config))  # nobody has named it
        for name, value in _settings(config, dict(conf.getAll())).items():
            conf.set(name, value)

    jvm.start(complete, java_properties(config.spark_client()))


def _settings(config: Config, given: Mapping[str, str]) -> dict[str, str]:
    return spark_settings.merged(
        {
            name: str(value)
            for name, value in revealed(config.spark.options).items()
            if not name.startswith(JAVA_CLIENT)
        },
        given,
        needed=target.spark_settings(config),
        is_local=given.get("spark.master", "").startswith("local"),
        properties=java_properties(config.spark_client()),
    )


def _at_start(config: Config) -> SparkConf:
    """Prepare the start of a JVM of our own; return the settings of its command line."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")  # type: ignore[no-untyped-call]
    in_file = spark_settings.in_file(Path(folder, "spark-defaults.conf"))
    given = dict(in_file)
    if "master" in config.spark.model_fields_set or "spark.master" not in given:
        given["spark.master"] = config.spark.master  # as --master, it wins over the file
    given.setdefault("spark.app.name", _name(config))
    settings = _settings(config, given)
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    if given["spark.master"].startswith("local"):
        if not {"spark.jars", "spark.jars.packages"} & settings.keys():
            own = target.kind_of(config).jars if config.target is not None else ""
            names = ["spark", *filter(None, [own])]
            found = jars.fetch(names, console=console)
            settings["spark.jars"] = ",".join(str(path) for name in names for path in found[name])
        if os.environ["PYSPARK_PYTHON"] == sys.executable:  # else it may not have this package
            settings.setdefault("spark.python.daemon.module", daemon.MODULE)
        os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
        if "SPARK_LOCAL_DIRS" not in os.environ and "spark.local.dir" not in settings:
            settings["spark.local.dir"] = _private_folder()
    return public({k: v for k, v in settings.items() if in_file.get(k) != v}, config)


def _private_folder() -> str:
    """Make a folder for blocks of shuffles: they hold rows, and Spark's own are open to all."""
    folder = tempfile.mkdtemp(prefix="gauss-cdc-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _name(config: Config) -> str:
    return f"gauss-cdc {config.kafka.prefix} {config.label}".rstrip()


def public(settings: Mapping[str, str], config: Config) -> SparkConf:
    """Settings without secrets, for the JVM's command line, which all users of the machine see.

    The context sends the others to the running JVM.
    """
    out = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        if not isinstance(config.spark.options.get(name), SecretStr):
            out.set(name, value)
    return out


def _launch(conf: SparkConf) -> None:
    """Start a JVM whose output we read."""
    read, write = os.pipe()
    lines = os.fdopen(read, encoding="utf-8", errors="replace")
    threading.Thread(target=_hand_on, args=(lines,), name="spark's lines", daemon=True).start()
    try:
        # Its Python workers inherit the environment: what they need is given to their task.
        with hidden():
            jvm.launch(conf, write)
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
