"""Schema changes -> SQL of a target.  A new dialect is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from schemas.tables import Column, TableSchema
from spark_consumers.dialects import opengauss, postgres, spark
from spark_consumers.dialects.base import Dialect, Extras

# What goes beyond rows (NOT NULL, defaults, other objects), for targets of the source's family.
EXTRAS: Final[Mapping[str, Extras]] = {
    "postgres": postgres.extras,
    "opengauss": opengauss.extras,
}

# How a column's type is written, where tables of the target may have been made by others.
COLUMN_TYPES: Final[Mapping[str, Callable[[TableSchema, Column], str]]] = {
    "postgres": postgres.column_type,
    "opengauss": opengauss.column_type,
}

# The same for tables of our own in the ledger's schema, where no table of the stream may be.
INSIDE: Final[Mapping[str, Dialect]] = {
    "postgres": partial(postgres.statements, inside=True),
    "opengauss": partial(opengauss.statements, inside=True),
}

DIALECTS: Final[Mapping[str, Dialect]] = {
    "postgres": postgres.statements,
    "opengauss": opengauss.statements,
    "spark": spark.statements,
}
