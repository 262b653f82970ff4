"""Kinds of sources: one file and one line of `SOURCES` each.

A source is a session that streams, a way to query the catalog, and a way to read
existing rows under a snapshot.  What is common to all of them (takeover, load,
the loop) is in `producer/core`.
"""

from __future__ import annotations

from producer.sources.base import Opened
from producer.sources.gauss.source import GaussSource
from producer.sources.postgres.source import PostgresSource

# [source] kind -> what opens it: (options, on_tables) -> Source
SOURCES: dict[str, Opened] = {
    "postgres": PostgresSource.open,
    "opengauss": GaussSource.open,
    "gaussdb": GaussSource.open,
}
