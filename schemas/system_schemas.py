"""Schemas that no user's table stands in, at a source and at a target of PostgreSQL's family.

What is in them is never captured, and a record that names one is never applied.
"""

from __future__ import annotations

from typing import Final

OWN_SCHEMA: Final = "gauss_cdc"  # the ledger, the event triggers: capturing ourselves never ends

SEARCH_PATH: Final = "pg_catalog, pg_temp"
"""Of every session of ours: a name means the server's own.

Names in reg* values, types and expressions come qualified.  pg_temp is said since it would be
searched first.
"""

_NAMES: Final = (OWN_SCHEMA, "information_schema")
_PREFIX: Final = "pg_"  # users cannot create a schema named pg_…

SYSTEM: Final = f"^({_PREFIX}|{'|'.join(f'{name}$' for name in _NAMES)})"
"""The same as a regular expression of SQL, for `~`."""


def is_system(schema: str) -> bool:
    """Does this schema hold only what any server, or we ourselves, keep there?

    >>> [is_system(name) for name in ("pg_catalog", "pg_temp_3", "gauss_cdc", "public")]
    [True, True, True, False]
    """
    return schema in _NAMES or schema.startswith(_PREFIX)
