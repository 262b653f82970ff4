"""Settings of a session with a source, for readers of snapshots and of streams alike.

They give one text form per type, whatever the server, the database or the role prefer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.system_schemas import SEARCH_PATH

_COMMON: Final[Mapping[str, str]] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "lc_monetary": "C",  # another locale would write money with its own signs
    "extra_float_digits": "3",  # shortest exact form; before 12 at least an exact one
    "search_path": SEARCH_PATH,
    "statement_timeout": "0",
}

# A policy would hide rows, and run its owner's functions with our rights: an error is better.
# Values of regclass and its like are names, and so are types as the catalog prints them.
POSTGRES: Final[Mapping[str, str]] = {
    **_COMMON,
    "client_min_messages": "notice",  # a warning may say that changes are left out
    "lock_timeout": "0",
    "row_security": "off",
    # The stream waits for a publication, or an answer to a request: not for a standby, too.
    "synchronous_commit": "local",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",  # in our own constants a backslash means itself
}

# The owner of a schema may put a view in a table's place while it is read. From the releases of
# August 2024 on the server can be told not to run it (CVE-2024-7348 was this, of pg_dump).
RESTRICT: Final = (
    "SELECT pg_catalog.set_config(name, 'view', false) FROM pg_catalog.pg_settings"
    " WHERE name = 'restrict_nonsystem_relation_kind'"
)

# A load takes as long as it takes, and so does decoding of a large transaction.
NO_LIMIT: Final = (
    "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings"
    " WHERE name = 'transaction_timeout'"
)
WHERE_KNOWN: Final = f"{RESTRICT} UNION ALL {NO_LIMIT}"

# They know no lock_timeout, and end a session that asks nothing for ten minutes unless it says
# otherwise.
GAUSS: Final[Mapping[str, str]] = {**_COMMON, "session_timeout": "0"}
