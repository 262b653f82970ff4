"""Targets.  A new one is one file here and one line in SINKS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from spark_consumers.sinks.postgres.products import OPENGAUSS
from spark_consumers.sinks.postgres.sink import PostgresSink

SINKS: Final[Mapping[str, Callable[..., Any]]] = {
    "postgres": PostgresSink,
    "opengauss": partial(PostgresSink, product=OPENGAUSS),
}
