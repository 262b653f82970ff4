"""The zip works under spark-submit, on the driver and on executors."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from gauss_cdc.pack import pack
from gauss_cdc.sandbox.services import use_java

_PROBE = """
from pyspark.sql import SparkSession

def where(_):
    import schemas.load, spark_consumers.lanes
    files = [schemas.load.__file__, spark_consumers.lanes.__file__]
    return [*files, schemas.load.canonical("cut")[:20]]

spark = SparkSession.builder.getOrCreate()
print("ON EXECUTORS", spark.sparkContext.parallelize([0], 1).map(where).collect()[0])
"""


def submit(folder: Path, program: Path, *arguments: str) -> str:
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local[1]"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--py-files", str(folder / "gauss-cdc.zip")),
            str(program),
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_executors_run_our_code_out_of_the_zip(addresses, tmp_path) -> None:
    use_java(addresses)
    pack(tmp_path / "gauss-cdc.zip")
    (tmp_path / "probe.py").write_text(_PROBE)

    said = submit(tmp_path, tmp_path / "probe.py")

    assert said.count("gauss-cdc.zip/") == 2
    assert '{"type":"record","na' in said


def test_the_program_next_to_the_zip_is_the_command_line(addresses, tmp_path) -> None:
    use_java(addresses)
    program = pack(tmp_path / "gauss-cdc.zip")

    assert "in commit order" in submit(tmp_path, program, "apply", "--help")
