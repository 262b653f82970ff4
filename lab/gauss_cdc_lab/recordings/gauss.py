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
from producer.sources.gauss.options import effective
from producer.sources.gauss.point import open_replication
from producer.sources.gauss.source import open_session
from producer.wire.replication import WalMessage
from schemas.positions import Lsn, lsn_text, parse_lsn
from schemas.quoting import constant

_MOST: Final = 32_768  # rows of a call end with the transaction behind this number
_CURSOR: Final = "gauss_cdc_area"
_FETCH_ROWS: Final = 256
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
    changes = area_changes(asking, *wished.between, plugin=options.plugin, options=sent)
    return _of_server(asking, options.plugin, sent, changes=changes)


def area_changes(
    session: GaussConnection,
    start: Lsn,
    upto: Lsn,
    *,
    plugin: str,
    options: Mapping[str, str],
    most: int = _MOST,
) -> Iterator[WalMessage]:
    """Decode a range of the log again, without a slot: (location, location, payload).

    openGauss' and GaussDB's only; at most ten WAL segments, for administrators
    (by its description in the manual; not recorded on a server).  Transactions that are
    undone are in, too (`ABORT`).  An open iteration holds a transaction.
    """
    words = [constant(word) for pair in options.items() for word in pair]
    bounds = constant(lsn_text(start)), constant(lsn_text(upto)), f"{most:d}"
    arguments = ", ".join([*bounds, constant(plugin), "NULL", *words])
    call = (
        # There is no function that returns bytea; in the database's own encoding nothing changes.
        "SELECT location, convert_to(data, getdatabaseencoding()::text)"  # noqa: S608  quoted
        f" FROM pg_catalog.pg_logical_get_area_changes({arguments})"
    )
    session.query("BEGIN")
    session.query(f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR {call}")
    while rows := session.query_bytes(f"FETCH FORWARD {_FETCH_ROWS} FROM {_CURSOR}"):
        for location, payload in rows:
            place = parse_lsn((location or b"").decode())
            yield place, place, bytes.fromhex((payload or b"").decode().removeprefix("\\x"))
    session.query("COMMIT")


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
