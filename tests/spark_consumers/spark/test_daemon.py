"""Which pyspark the workers' parent takes; that tasks run is shown by all tests with a Spark."""

from pathlib import Path

import pyspark

from spark_consumers.spark.daemon import without_archives

HOME = Path(pyspark.__file__).parent
INSTALLED = str(HOME.parent)
ARCHIVES = [str(HOME / "python/lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_archives_of_the_installed_pyspark_are_left_out() -> None:
    assert without_archives(["", *ARCHIVES, INSTALLED]) == ["", INSTALLED]


def test_archives_of_another_spark_stay() -> None:
    others = ["/opt/spark/python/lib/pyspark.zip", "/jobs/mine.zip"]
    assert without_archives([*others, INSTALLED]) == [*others, INSTALLED]


def test_where_no_pyspark_is_installed_the_archive_is_the_only_one(tmp_path: Path) -> None:
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]
