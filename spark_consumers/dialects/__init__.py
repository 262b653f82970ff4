"""Schema changes -> SQL of a target.  A new dialect is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_consumers.dialects import opengauss, postgres
from spark_consumers.dialects.base import Dialect

DIALECTS: Final[Mapping[str, Dialect]] = {
    "postgres": postgres.statements,
    "opengauss": opengauss.statements,
}
