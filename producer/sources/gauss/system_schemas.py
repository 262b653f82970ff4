"""Schemas of openGauss and GaussDB that hold the server's own tables.

The server decodes all but pg_catalog's and pg_toast's built-in tables (manual:
"a consumer must filter the other system tables itself"): creating a function
sends rows of dbe_pldeveloper.gs_source, taking a WDR snapshot rows of
`snapshot`.  Such rows are never captured; the stream's filter counts them, the
catalog reading does not list them.

Names: manuals of openGauss and GaussDB, "Schema".  Only schemas that hold
tables are here: functions and views (`dbe_raw`, `pkg_util`, `sys` …) send no
rows, and a user's schema of such a name is the user's.
"""

from __future__ import annotations

from typing import Final

from schemas.system_schemas import is_system

SYSTEM_SCHEMAS: Final = frozenset({
    "blockchain",  # histories of ledger tables
    "coverage",  # of stored procedures
    "cstore",  # delta and description tables of column stores
    "db4ai",  # versions of training data
    "dbe_perf",  # what WDR reports are made of
    "dbe_pldebugger",
    "dbe_pldeveloper",  # gs_source: the text of each procedure that is made
    "dbe_sql_util",  # SQL patches
    "pkg_service",
    "snapshot",  # WDR
    "sqladvisor",
    "sqladvsior",  # so spelled by the distributed product's manual
})  # fmt: skip


def is_system_schema(schema: str) -> bool:
    """Does this schema hold only objects of the server, or our own?

    >>> [is_system_schema(name) for name in ("public", "pg_toast_temp_7", "dbe_pldeveloper")]
    [False, True, True]
    """
    return is_system(schema) or schema in SYSTEM_SCHEMAS
