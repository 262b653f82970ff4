"""What `gauss-cdc record` hears of an openGauss or a GaussDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from gauss_cdc_lab.recordings.heard import (
    RECORDED_SETTINGS,
    Overheard,
    Wished,
    check_may_create,
)
from producer.options import Options
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.functions import area_changes
from producer.sources.gauss.options import effective
from producer.sources.gauss.point import open_replication
from producer.sources.gauss.source import open_session

_RELEASE: Final = 60.0  # seconds for a walsender to let go of a slot that we made


@contextmanager
def overheard(options: Options, wished: Wished) -> Iterator[Overheard]:
    """Begin the stream of the slot, or decode a part of the log, by which no slot moves."""
    with ExitStack() as stack:
        asking = stack.enter_context(open_session(options))
        if wished.between is not None:
            yield _part(options, wished, asking)
            return
        found = gauss_slots.find(asking, options.slot)
        if found is None:
            check_may_create(options, wished)
            with open_replication(options) as maker:
                maker.create_slot(options.slot, options.plugin)
            stack.callback(_drop, asking, options.slot)
            found = gauss_slots.find(asking, options.slot)
        plugin = options.plugin if found is None else found.plugin or options.plugin
        # What [source.options] says is judged as in `run`; what was asked for here is not, since
        # a recording may be of a mode that we do not read.
        decided = effective(options.plugin_options, replace(options.terms, plugin=plugin))
        sent = {**dict(decided.options), **wished.more}
        confirmed = None if found is None else found.confirmed
        wire = stack.enter_context(open_replication(options))
        wire.start(options.slot, sent)
        yield _of_server(asking, plugin, sent, confirmed=confirmed, wire=wire)


def _part(options: Options, wished: Wished, asking: GaussConnection) -> Overheard:
    """Decode by pg_logical_get_area_changes, which also returns what was rolled back."""
    assert wished.between is not None
    decided = effective(options.plugin_options, replace(options.terms, interface="sql"))
    sent = {**dict(decided.options), **wished.more}
    changes = area_changes(
        asking, *wished.between, plugin=options.plugin, options=tuple(sent.items())
    )
    return _of_server(asking, options.plugin, sent, changes=changes)


def _of_server(
    asking: GaussConnection, plugin: str, sent: Mapping[str, str], **more: Any
) -> Overheard:
    server = asking.server()
    settings = gauss_catalog.settings(asking, RECORDED_SETTINGS)
    return Overheard(
        server=f"{'GaussDB' if server.product == 'gaussdb' else 'openGauss'} {server.version}",
        plugin=plugin,
        sent=sent,
        database=server.database,
        encoding=server.encoding,
        settings={**settings, "server_encoding": server.encoding},
        **more,
    )


def _drop(asking: GaussConnection, slot: str) -> None:
    asking.wait_released(slot, _RELEASE)
    gauss_slots.drop(asking, slot)
