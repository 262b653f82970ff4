"""The zip works under spark-submit, on the driver and on executors."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from gauss_cdc.pack import pack
from gauss_cdc_lab.services import use_java
from spark_consumers import native

_PROBE = """
import sys
from pathlib import Path
from gauss_cdc.config import load
from gauss_cdc.session import spark_session

def where(_):
    import schemas.load, spark_consumers.spark.lanes, spark_consumers.native
    files = [schemas.load.__file__, spark_consumers.spark.lanes.__file__]
    if spark_consumers.native.IS_BUILT:
        files.append("NATIVE")
    return [*files, schemas.load.canonical("cut")[:20]]

spark = spark_session(load(Path("bank.toml")))
print("ON EXECUTORS", spark.sparkContext.parallelize([0], 1).map(where).collect()[0])
for name in sys.argv[1:]:
    print(name, "=", spark.conf.get(name))
spark.conf.set("spark.sql.shuffle.partitions", "9")  # a session that runs keeps what it has
again = spark_session(load(Path("bank.toml")))
print("KEPT", again.conf.get("spark.sql.shuffle.partitions"), again.sparkContext.appName)
"""

_CONFIG = """
[source]
dsn = "postgresql://cdc@db/bank"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "kafka:9092"
[registry]
url = "http://registry"
[spark.options]
"spark.sql.session.timeZone" = "Asia/Tokyo"
"spark.sql.ansi.enabled" = "false"
"spark.sql.shuffle.partitions" = "3"
"spark.fs.secret" = { env = "PROBE_SECRET" }
"""


def submit(folder: Path, program: Path, *arguments: str) -> str:
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local[1]"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.sql.session.timeZone=Europe/Paris"),
            *("--py-files", str(folder / "gauss-cdc.zip")),
            str(program),
            *arguments,
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(folder),
            "PROBE_SECRET": "pencil-9",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_executors_run_our_code_out_of_the_zip_with_the_user_s_settings(
    addresses, tmp_path
) -> None:
    use_java(addresses)
    pack(tmp_path / "gauss-cdc.zip")
    (tmp_path / "probe.py").write_text(_PROBE)
    (tmp_path / "bank.toml").write_text(_CONFIG)
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 5\n")
    shown = ("session.timeZone", "ansi.enabled", "shuffle.partitions")
    more = "spark.sql.streaming.noDataMicroBatches.enabled"

    said = submit(
        tmp_path,
        tmp_path / "probe.py",
        *(f"spark.sql.{name}" for name in shown),
        *(more, "spark.fs.secret"),
    )

    assert said.count("gauss-cdc.zip/") == 2
    assert ("NATIVE" in said) is native.IS_BUILT
    assert '{"type":"record","na' in said
    assert "spark.sql.session.timeZone = Europe/Paris" in said  # --conf
    assert "spark.sql.shuffle.partitions = 5" in said  # spark-defaults.conf
    assert "spark.sql.ansi.enabled = false" in said  # [spark.options]
    assert f"{more} = false" in said  # ours
    assert "spark.fs.secret = pencil-9" in said
    assert "KEPT 9 gauss-cdc bank" in said


def test_the_program_next_to_the_zip_is_the_command_line(addresses, tmp_path) -> None:
    use_java(addresses)
    program = pack(tmp_path / "gauss-cdc.zip")

    assert "in commit order" in submit(tmp_path, program, "apply", "--help")
