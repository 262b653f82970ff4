"""Kinds of targets: one module or folder next to this one, and one line of `SINKS`."""

from __future__ import annotations

from typing import Final

from spark_consumers.sinks.base import Kind
from spark_consumers.sinks.lakes import kind as lakes
from spark_consumers.sinks.postgres import kind as postgres

# [target] kind -> what makes it
SINKS: Final[dict[str, Kind]] = {
    "postgres": postgres.POSTGRES_KIND,
    "opengauss": postgres.OPENGAUSS_KIND,
    "delta": lakes.DELTA_KIND,
    "iceberg": lakes.ICEBERG_KIND,
}
