"""Who takes what waits: the driver of `apply`, or executors."""

from __future__ import annotations

import os

from gauss_cdc.config import Config
from gauss_cdc.session import starts_here
from spark_consumers import jvm
from spark_consumers.lanes import brings_cores
from spark_consumers.stream import Starting


class Driven:
    """Says whether the driver does, as `[spark] backlog` has it, or by the cores that there are."""

    def __init__(self, config: Config, spark: Starting) -> None:
        self._backlog, self._spark = config.spark.backlog, spark
        # What is known until Spark runs: its JVM is to be this machine's, or it is a cluster's.
        self._is_driven = starts_here(config) and not brings_cores(os.cpu_count() or 1, local=True)
        self._is_known = False

    def __call__(self) -> bool:
        if self._backlog != "auto":
            return self._backlog == "driver"
        if not self._is_known and self._spark.is_ready:
            session = self._spark.session()
            self._is_driven = not brings_cores(jvm.cores(session), local=jvm.is_local(session))
            self._is_known = True
        return self._is_driven
