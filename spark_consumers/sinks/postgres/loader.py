"""The executors' path of a PostgreSQL sink, as the driver sees it; its tasks: copying.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_consumers.errors import ApplyError
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.bulk import has_stage
from spark_consumers.sinks.postgres.copying import CopyRefused, CopyTask
from spark_consumers.sinks.postgres.driver import SET_PATH, Refused
from spark_consumers.sinks.postgres.encoding import no_text
from spark_consumers.sinks.postgres.products import POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.refusals import ours

_SECRETS: Final = ("password", "sslpassword")  # of psycopg2.connect


class CopyLoader:
    """Makes tasks that log in at a target, and explains what it did not take."""

    def __init__(self, login: Mapping[str, Any], product: TargetProduct = POSTGRES) -> None:
        """`login` are the arguments of psycopg2.connect."""
        self.secrets = {name: str(login[name]) for name in _SECRETS if login.get(name)}
        public = {n: value for n, value in login.items() if n not in _SECRETS}
        self._task = CopyTask(public, f"{SET_PATH}; {product.settings}")

    def takes(self, shape: StagedShape) -> bool:
        """Say whether a staging table can hold both rows of a change."""
        return has_stage(shape)

    def for_tasks(self) -> CopyTask:
        return self._task

    def explained(self, refused: str, shapes: Sequence[StagedShape]) -> ApplyError:
        """Name the column whose bytes are not text, or give the server's message."""
        found = CopyRefused(*json.loads(refused))
        if found.stage is not None and found.line:
            shape = shapes[found.stage]
            return no_text(shape.table, 2 * shape.columns, found.line)
        hint = "" if found.sqlstate else "do executors reach it, and with which password?"
        error = Refused(found.sqlstate, message=found.message, hint=hint)
        about = {} if found.stage is None else {"table": shapes[found.stage].table}
        return ours(error, where="an executor", **about)
