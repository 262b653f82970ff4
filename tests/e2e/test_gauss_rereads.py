"""Tables of openGauss and GaussDB that are read again beside the stream."""

from dataclasses import replace

import pytest

from producer.sources import requests
from producer.sources.gauss.source import open_session
from schemas.tables import TableId
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_gauss_gaps import START, WHILE_READ
from tests.e2e.test_gauss_modes import PARALLEL, caught_up, gauss, is_streaming, source_of
from tests.e2e.test_rereads import ROWS, SMALL, TABLES, Writer, is_read_again, load_in_part, make

__all__ = ["gauss"]

BATCHES = {**PARALLEL, "sending-batch": "1"}
# The server, and how it is read: the last one's slot exports no snapshot.
MODES = {
    "parallel": ("og7", {"kind": "opengauss", "plugin_options": BATCHES}),
    "serial": ("og7", {"kind": "opengauss"}),
    "by csn": ("gaussdb", {"kind": "gaussdb", "plugin_options": {**BATCHES, "output-order": "1"}}),
}


@pytest.mark.parametrize(
    ("gauss", "mode"), [(server, mode) for mode, (server, _) in MODES.items()], indirect=["gauss"]
)
def test_loads_are_finished_and_tables_added_and_read_again_under_load(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    make(source, TABLES)
    with Path(
        addresses, topic_prefix, source, target,
        plugin="mppdb_decoding", tuning=SMALL, **MODES[mode][1],
        include=("public.a", "public.b", "public.nokey"),
    ) as path:  # fmt: skip
        path.options = replace(path.options, source=source_of(gauss, source))
        load_in_part(path)
        path.applier.drain()
        half = content(target, "b")
        for table in TABLES:  # while nobody runs
            ask(source, f"DELETE FROM {table} WHERE id % 3 = 0")
        make(source, ("more",))
        path.options = replace(path.options, include=("public.*",))
        everything = (*TABLES, "more")
        with Writer(source, everything, 10_000) as writer:
            path.start()
            until(lambda: writer.commits > 100 and is_read_again(path), "the load's end", pause)
        for table in everything:
            caught_up(path, table)
        assert 0 < len(half) < ROWS

        ask(target, "DELETE FROM a WHERE id % 2 = 0; INSERT INTO a VALUES (-1, 'a stranger')")
        with open_session(path.options) as session:
            tables = [TableId("public", "a"), TableId("public", "nokey")]
            requests.ask(session, path.options.slot, tables)
        with Writer(source, everything, 90_000) as writer:
            until(lambda: writer.commits > 50 and is_read_again(path), "what was asked", pause)
        for table in everything:
            caught_up(path, table)
        ledger = path.applier.drain()
        assert (ledger.epoch, ledger.state, ledger.inexact) == (1, "EXACT", {})
        left = "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '%_point'"
        assert ask(source, left) == []


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_every_gap_is_read_again_and_the_target_is_exact(
    addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(source, START)
    with Path(
        addresses, topic_prefix, source, target,
        kind="gaussdb", plugin="mppdb_decoding", plugin_options={"enable-ddl-decoding": "true"},
        without_identity="skip-and-record", include=("public.*",), repair="auto",
    ) as path:  # fmt: skip
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        for _, transactions in WHILE_READ.values():
            for transaction in transactions:
                ask(source, transaction)
        tables = sorted({table for table, _ in WHILE_READ.values()})
        for table in tables:
            caught_up(path, table)
        until(lambda: not path.applier.drain().inexact, "EXACT again", path._stop.wait)
        assert path.applier.drain().state == "EXACT"
