"""What a refusal of the target means for us: decided by SQLSTATE, never by text."""

from __future__ import annotations

from typing import Final

import psycopg2

from spark_consumers.errors import TargetDown, TargetRefused
from spark_consumers.sinks.driver import Refused, fields, sqlstate
from spark_consumers.sinks.pg_waits import LOCK_LIMIT

# Classes of SQLSTATE after which the same step may be tried again.
_AGAIN: Final = ("08", "40", "53", "55", "57")
_LOCKED: Final = "55P03"
_HINTS: Final = {
    "23": "the target has constraints of its own that the source's rows do not meet, or rows "
    "written by someone else: drop or defer them, or let the user SET session_replication_role",
    "42": "a right, a type or a column is missing at the target",
}


def ours(error: psycopg2.Error | Refused) -> TargetDown | TargetRefused:
    """Make the error of ours that a driver's error means; its text may hold values."""
    code = sqlstate(error)
    if code == _LOCKED:
        return TargetDown(
            "a lock at the target was not given in time",
            hint=f"who holds it is told while the step waits ({LOCK_LIMIT}); it is tried again",
            sqlstate=code,
        )
    if code is None or code[:2] in _AGAIN:
        return TargetDown("the target cannot be reached, or broke off", sqlstate=code)
    hint = _HINTS.get(code[:2], "see the target's log for the statement")
    if isinstance(error, Refused) and error.hint:
        hint = error.hint
    return TargetRefused(
        "the target refused a statement",
        hint=hint,
        sqlstate=code,
        **fields(error),
    )
