"""Where a lake is: a folder or URL, or a catalog that Spark's settings define.

A folder needs no metastore: Iceberg's tables are in a Hadoop catalog there, Delta's are paths.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from schemas.tables import TableId
from spark_consumers.spark import folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG: Final = "lake"  # the name of the catalog that we define
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_EXTENSIONS: Final = "spark.sql.extensions"


def is_catalog(dsn: str) -> bool:
    """Say whether a plain name is written, and not a folder.

    >>> is_catalog("lake"), is_catalog("./lake"), is_catalog("s3a://bucket/lake")
    (True, False, False)
    """
    return _NAME.fullmatch(dsn) is not None


def root(dsn: str) -> str:
    """Return the folder as an absolute path, or its URL."""
    path = folders.local(dsn)
    return dsn.rstrip("/") if path is None else str(path.absolute())


def delta_place(dsn: str, table: TableId) -> TableId:
    """Return a Delta table as statements name it."""
    if is_catalog(dsn):
        return table
    return TableId("delta", folders.below(folders.below(root(dsn), table.schema), table.name))


def catalog(dsn: str) -> str:
    """Return the name of Iceberg's catalog."""
    return dsn if is_catalog(dsn) else CATALOG


def defined(spark: SparkSession, dsn: str, called: str = CATALOG) -> str:
    """Have a session know a folder's catalog, which it takes at any time; return its name."""
    for name, value in _catalog_settings(dsn, called).items():
        spark.conf.set(name, value)
    return dsn if is_catalog(dsn) else called


def delta_settings(dsn: str) -> dict[str, str]:
    """Return the settings of Spark that Delta needs."""
    del dsn
    return {
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Of a table's log; the default of 50 makes each statement 50 tasks longer.
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists files by so many tasks, several times; the default of 10,000 takes a minute.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    }


def iceberg_settings(dsn: str) -> dict[str, str]:
    """Return the settings of Spark that Iceberg needs."""
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    return {_EXTENSIONS: extensions, **_catalog_settings(dsn, CATALOG)}


def _catalog_settings(dsn: str, called: str) -> dict[str, str]:
    if is_catalog(dsn):
        return {}
    name = f"spark.sql.catalog.{called}"
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": root(dsn),
        f"{name}.cache-enabled": "false",
    }
