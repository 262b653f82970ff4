"""Settings of a session with a source, for readers of snapshots and of streams alike.

They give one text form per type, whatever the server, the database or the role prefer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_COMMON: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",  # shortest exact form; before 12 at least an exact one
    "search_path": "pg_catalog",  # names in reg* values come qualified
    "statement_timeout": "0",
}

POSTGRES: Final[Mapping[str, str]] = {**_COMMON, "lock_timeout": "0"}

# They know no lock_timeout, and end a session that asks nothing for ten minutes unless it says
# otherwise.
GAUSS: Final[Mapping[str, str]] = {**_COMMON, "session_timeout": "0"}
