"""Schema changes -> SQL of a target.  A new dialect is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_consumers.dialects import opengauss, postgres, spark
from spark_consumers.dialects.base import Dialect, Extras

# What goes beyond rows (NOT NULL, defaults, other objects), for targets of the source's family.
EXTRAS: Final[Mapping[str, Extras]] = {
    "postgres": postgres.extras,
    "opengauss": opengauss.extras,
}

DIALECTS: Final[Mapping[str, Dialect]] = {
    "postgres": postgres.statements,
    "opengauss": opengauss.statements,
    "spark": spark.statements,
}
