"""PostgreSQL as a kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

from producer.options import Options
from producer.sources.base import REPLICATION, SQL, CatalogSession, Rehearsed, SourceKind
from producer.sources.postgres import catalog, rehearsal
from producer.sources.postgres.catalog_look import not_captured
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.inspector import PostgresSourceInspector
from producer.sources.postgres.options import why_not_full
from producer.sources.postgres.primary import at_primary
from producer.sources.postgres.section import PostgresSection
from producer.sources.postgres.source import PostgresSource


def _logins(options: Options) -> Mapping[str, Callable[[], CatalogSession]]:
    login = partial(ReplicationConnection.open, options.source)
    return {SQL: partial(login, replication=False), REPLICATION: login}


def _at_primary(options: Options) -> Any:
    return catalog.connect(at_primary(options.source))


def _rehearsed(options: Options, statement: str, role: str) -> Rehearsed:
    with closing(_at_primary(options)) as connection:
        return rehearsal.at_postgres(options, connection, statement, role)


KIND: Final = SourceKind(
    section=PostgresSection,
    open=PostgresSource.open,
    inspector=PostgresSourceInspector,
    logins=_logins,
    rereads=lambda _: True,
    why_not_full=why_not_full,
    advice=not_captured,
    opens_stream=True,
    rehearse=_rehearsed,
    triggers=_at_primary,
)
