"""One archive of Spark's classes for every Java of the tests: a driver starts with 40 % less CPU.

Java maps what another Java has parsed and verified ("class data sharing").  The archive lies in the
environment, beside the jars that it was made of; Java itself refuses it when these have changed.
`make test` makes it in the background while the tests are collected: until it is there, and for
programs of other jars, Java starts as ever.  Making it takes 36 CPU-seconds and a start 3.4 less,
so the first run of an environment, which in CI is the only one, goes without: it has five starts.
"""

import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

import pyspark
import pytest

# Every Java of a test runs shortly: what is no test of ours, as the check of bytecode, is left out.
_SHORT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
FLAGS: Final = f"{_SHORT} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_VARIABLE: Final = "JDK_JAVA_OPTIONS"
_MAKING: Final = pytest.StashKey["subprocess.Popen[bytes]"]()
_LAST_WORDS_SECONDS: Final = 60


def folder() -> Path:
    return Path(sys.prefix) / "java"


def archive() -> Path:
    """Named after place and age of the jars: a new pyspark, or a copy, gets another one."""
    jars = Path(pyspark.__file__).parent / "jars"
    place = zlib.crc32(str(jars).encode())
    return folder() / f"spark-{place:08x}-{jars.stat().st_mtime_ns}.jsa"


def tell() -> None:
    """Write the options of every Java, with the archive if it is there."""
    # Java would say on stdout that an archive is one of other jars.
    shared = f' -Xlog:disable "-XX:SharedArchiveFile={archive()}"' if archive().exists() else ""
    with tempfile.NamedTemporaryFile("w", dir=folder(), delete=False) as new:
        new.write(f"{FLAGS}{shared}\n")
    Path(new.name).chmod(0o644)
    Path(new.name).rename(folder() / "options")


def make() -> None:
    """Start Spark, do a little of everything, and keep what it loaded."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from gauss_cdc.runtime import jars, java

    folder().mkdir(exist_ok=True)
    os.environ["JAVA_HOME"] = str(java.find(shims=jars.cache()).home)
    with tempfile.TemporaryDirectory(dir=folder()) as scratch:
        new = Path(scratch) / "new.jsa"
        confs = {
            "spark.driver.extraJavaOptions": f"{_SHORT} -XX:ArchiveClassesAtExit={new}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        }
        spark = SparkSession.builder.master("local[2]").config(map=confs).getOrCreate()
        rows = spark.createDataFrame([(n, str(n)) for n in range(9)], "id int, v string")
        rows.write.parquet(f"{scratch}/rows")
        spark.read.parquet(f"{scratch}/rows").groupBy("v").count().orderBy("v").collect()
        stream = spark.readStream.schema("id int, v string").parquet(f"{scratch}/rows").writeStream
        stream = stream.option("checkpointLocation", f"{scratch}/state").trigger(availableNow=True)
        stream.foreachBatch(lambda frame, _: frame.collect()).start().awaitTermination()
        spark.stop()
        gateway = SparkContext._gateway
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()  # which ends this Java in order: it writes the archive
        process.wait()
        new.rename(archive())
    tell()


def pytest_configure(config: pytest.Config) -> None:
    if _VARIABLE in os.environ:  # a worker of the run, or a machine with options of its own
        return
    folder().mkdir(exist_ok=True)
    tell()
    os.environ[_VARIABLE] = f'"@{folder() / "options"}"'
    if getattr(config.option, "numprocesses", None) and not archive().exists():
        if not (earlier := folder() / "earlier-run").exists():
            earlier.touch()
            return
        for old in folder().glob("*.jsa"):
            old.unlink()
        with (folder() / "log").open("wb") as log:
            config.stash[_MAKING] = subprocess.Popen(
                [sys.executable, "-m", "tests.shared_classes"],
                cwd=config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    if (making := config.stash.get(_MAKING, None)) is not None:
        try:
            making.wait(_LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            making.kill()  # its Java ends with it
            making.wait()


if __name__ == "__main__":
    make()
