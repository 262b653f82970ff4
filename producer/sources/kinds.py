"""Kinds of sources: one module or folder next to this one, and one line of `SOURCES`.

A source is a session that streams, a way to query the catalog, and a way to read
existing rows under a snapshot.  What is common to all of them (takeover, load,
the loop) is in `producer/core`.
"""

from __future__ import annotations

from typing import Final

from producer.sources.base import SourceKind
from producer.sources.gauss import kind as gauss
from producer.sources.postgres import kind as postgres

# [source] kind -> what makes it
SOURCES: Final[dict[str, SourceKind]] = {
    "postgres": postgres.KIND,
    "opengauss": gauss.KIND,
    "gaussdb": gauss.KIND,
}
