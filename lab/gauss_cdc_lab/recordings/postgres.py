"""What `gauss-cdc record` hears of a PostgreSQL source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gauss_cdc_lab.recordings.heard import (
    RECORDED_SETTINGS,
    Overheard,
    Wished,
    check_may_create,
)
from producer.errors import Unsupported
from producer.options import Options
from producer.sources.postgres import catalog
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire.commands import Snapshot


@contextmanager
def overheard(options: Options, wished: Wished) -> Iterator[Overheard]:
    """Begin the stream of the slot; a slot that is made for it is the session's own."""
    if wished.between is not None:
        raise Unsupported(
            "PostgreSQL cannot decode a part of its log again",
            hint="record from a slot, without --from and --to",
        )
    with (
        closing(catalog.connect(options.source)) as connection,
        ReplicationConnection.open(options.source) as wire,
    ):
        state = catalog.slot_state(connection, options.slot)
        if state is None:
            check_may_create(options, wished)
            # A slot of the session's own: it cannot be forgotten.
            wire.create_slot(options.slot, options.plugin, temporary=True, snapshot=Snapshot.NONE)
            state = catalog.slot_state(connection, options.slot)
        plugin = options.plugin if state is None else state.plugin or options.plugin
        sent = dict(wished.more)
        if plugin == "pgoutput":
            decided = pgoutput_options.effective(
                options.plugin_options,
                publication=options.publication,
                version=connection.server_version,
            )
            sent = {**decided, **sent}
        with catalog.asking(connection) as cursor:
            cursor.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)",
                [list(RECORDED_SETTINGS)],
            )
            settings = dict(cursor.fetchall())
        wire.start(options.slot, sent)
        yield Overheard(
            server=f"PostgreSQL {settings.get('server_version', '')}".strip(),
            plugin=plugin,
            sent=sent,
            database=options.source.dbname,
            encoding=settings.get("server_encoding", "UTF8"),
            settings=settings,
            confirmed=None if state is None else state.confirmed_flush,
            wire=wire,
        )
