"""Tables of openGauss and GaussDB that are read again beside the stream."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, TopicPartition

from producer.core.ports import Tuning, Wish
from producer.sources import requests
from producer.sources.gauss.gaps import BY_NAME, DecodingMode
from producer.sources.gauss.options import Vendor
from producer.sources.gauss.source import open_session
from schemas.tables import TableId
from spark_consumers.decode import split
from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_ddl_gaps import Watched
from tests.e2e.test_gauss_gaps import EXCHANGE, MANUAL, MORE, START, WHILE_READ, differing, holes
from tests.e2e.test_gauss_modes import PARALLEL, caught_up, gauss, is_streaming, source_of
from tests.e2e.test_rereads import ROWS, SMALL, TABLES, Writer, is_read_again, load_in_part, make

__all__ = ["gauss"]

BATCHES = {**PARALLEL, "sending-batch": "1"}
# The server, and how it is read: the last one's slot exports no snapshot.
MODES = {
    "parallel": ("og7", {"kind": "opengauss", "plugin_options": BATCHES}),
    "serial": ("og7", {"kind": "opengauss"}),
    "by csn, serial": ("gaussdb", {"kind": "gaussdb", "plugin_options": {"output-order": "1"}}),
    "coordinator": (
        "gaussdb of 3",
        {
            "kind": "gaussdb",
            "plugin_options": {**BATCHES, "output-order": "1", "logical-receiver-num": "2"},
        },
    ),
}


@pytest.mark.parametrize(
    ("gauss", "mode"), [(server, mode) for mode, (server, _) in MODES.items()], indirect=["gauss"]
)
def test_loads_are_finished_and_tables_added_and_read_again_under_load(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    make(source, (*TABLES, "gone"))
    with Path(
        addresses, topic_prefix, source, target,
        plugin="mppdb_decoding", tuning=SMALL, **MODES[mode][1],
        include=("public.a", "public.b", "public.gone", "public.nokey"),
        repair="auto", look_seconds=0.2,
    ) as path:  # fmt: skip
        path.options = replace(path.options, source=source_of(gauss, source))
        load_in_part(path)
        path.applier.drain()
        half = content(target, "b")
        for table in TABLES:  # while nobody runs
            ask(source, f"DELETE FROM {table} WHERE id % 3 = 0")
        ask(source, "UPDATE gone SET v = 'before it goes' WHERE id = 1")
        ask(source, "DROP TABLE gone")
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
            requests.ask(session, path.options.slot, [*map(Wish, tables)])
        with Writer(source, everything, 90_000) as writer:
            until(lambda: writer.commits > 50 and is_read_again(path), "what was asked", pause)
        for table in everything:
            caught_up(path, table)
        ledger = path.applier.drain()
        assert (ledger.epoch, ledger.state, ledger.inexact) == (1, "EXACT", {})
        assert ask(target, "SELECT to_regclass('gone')") == [(None,)]
        if mode == "coordinator":  # whose catalog clears nothing of suspicion
            until(lambda: is_read_after_all(path, "a"), "a false suspicion's end", pause)
        elif mode != "serial":  # openGauss sends TRUNCATE; a look must have come before
            until(lambda: is_cleared(path, "a"), "a false suspicion's end", pause)
        ask(source, "TRUNCATE more")
        caught_up(path, "more")
        until(lambda: not path.applier.drain().inexact, "EXACT again", pause)
        for table in ("b", "nokey"):  # where no statement comes, this may be a drop and an add
            ask(source, f"ALTER TABLE {table} RENAME v TO w")
            ask(source, f"UPDATE {table} SET w = 'renamed' WHERE id % 5 = 1")
            caught_up(path, table)
        until(lambda: not path.applier.drain().inexact, "EXACT again", pause)

        left = "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE '%_point'"
        assert ask(source, left) == []


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_every_gap_is_read_again_and_the_target_is_exact(
    addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(source, START + MORE)
    with Watched(
        addresses, topic_prefix, source, target,
        kind="gaussdb", plugin="mppdb_decoding", plugin_options={"enable-ddl-decoding": "true"},
        without_identity="skip-and-record", include=("public.*",), repair="auto", look_seconds=0.2,
        tuning=Tuning(rest_seconds=0.1),
    ) as path:  # fmt: skip
        path.watch()
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        until(lambda: is_cleared(path, "kept"), "a false suspicion's end", path._stop.wait)
        mode = DecodingMode(Vendor.GAUSSDB, decodes_ddl=True)
        told = {(f"public.{t}", BY_NAME[case].kind(mode)) for case, (t, _) in WHILE_READ.items()}
        told |= {(f"public.{t}", "seen") for t in ("parted", "swapped")}
        ask(source, "TRUNCATE emptied; INSERT INTO emptied VALUES (2)")
        emptied = ("public.emptied", BY_NAME["truncate"].kind(mode))
        until(lambda: emptied in holes(path), "TRUNCATE suspected", path._stop.wait)
        told |= {emptied}
        told |= {(f"public.{t}", "suspected") for _, tables in MANUAL.values() for t in tables}
        for transaction in (
            EXCHANGE,
            *("; ".join(statements) for statements, _ in MANUAL.values()),
            *(each for _, transactions in WHILE_READ.values() for each in transactions),
        ):  # fmt: skip
            ask(source, transaction)

        def is_exact() -> bool:
            ledger = path.applier.drain()
            return path.holes == told and (ledger.state, ledger.inexact) == ("EXACT", {})

        until(is_exact, "EXACT again", path._stop.wait)
        until(lambda: unlike(path) == [], "equal", path._stop.wait)
        assert is_exact()


@pytest.mark.parametrize(
    ("gauss", "how"),
    [
        ("og7", {"kind": "opengauss", "plugin_options": BATCHES}),
        ("gaussdb", {"kind": "gaussdb", "plugin_options": {"output-order": "1"}}),
        ("gaussdb", {"kind": "gaussdb", "interface": "sql"}),
    ],
    ids=["parallel", "by csn", "sql"],
    indirect=["gauss"],
)
def test_rows_behind_a_statement_that_is_not_sent_are_read_again(
    how, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    make(source, ("a", "b", "c", "away"))
    with Path(
        addresses, topic_prefix, source, target,
        plugin="mppdb_decoding", repair="auto", look_seconds=0.2, include=("public.*",),
        tuning=Tuning(rest_seconds=0.1), **how,
    ) as path:  # fmt: skip
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        for table in ("a", "b", "c", "away"):
            caught_up(path, table)
        with Writer(source, ("c",), 10_000):
            ask(source, "UPDATE a SET v = 'sent'; GRANT SELECT ON b TO public; DELETE FROM a")
            ask(source, "CREATE TYPE pair AS (n int); UPDATE b SET v = 'lost'")
            for table in ("a", "b"):
                caught_up(path, table)
        caught_up(path, "c")
        until(lambda: not path.applier.drain().inexact, "EXACT again", pause)

        path.stop()
        ask(source, "COMMENT ON TABLE a IS 'x'; INSERT INTO away VALUES (-1, 'lost')")
        ask(source, "INSERT INTO c VALUES (-1, 'last')")
        path.start()
        for table in ("c", "away"):
            caught_up(path, table)
        assert path.applier.drain().epoch == 1


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
@pytest.mark.parametrize("order", ["lsn", "csn"])
@pytest.mark.parametrize("native", ["auto", "off"])
def test_what_is_read_beside_the_stream_has_no_csn_that_others_would_fall_behind(
    order, native, addresses, topic_prefix, new_database, gauss
) -> None:
    """First loads, re-reads and gaps of ours: their CSN is their place's, or there is none."""
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'loaded')")
    with Path(
        addresses, topic_prefix, source, target,
        kind="gaussdb", plugin="mppdb_decoding", repair="auto", look_seconds=0.2, native=native,
        plugin_options={**PARALLEL, "output-order": "1" if order == "csn" else "0"},
        tuning=Tuning(rest_seconds=0.1),
    ) as path:  # fmt: skip
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        caught_up(path, "t")
        ask(source, "INSERT INTO t VALUES (2, 'first')")
        caught_up(path, "t")
        until(lambda: is_cleared(path, "t"), "a look", pause)
        ask(source, "TRUNCATE t; INSERT INTO t VALUES (3, 'read again')")
        caught_up(path, "t")
        until(lambda: not path.applier.drain().inexact, "EXACT again", pause)
        ask(source, "INSERT INTO t VALUES (4, 'last')")
        caught_up(path, "t")
        path.stop()
        ask(source, "INSERT INTO t VALUES (5, 'behind the restart')")
        path.start()  # the gap's CSN is not one that the source went back behind
        caught_up(path, "t")

        rows = records(path, "public.t")
        sent = [value for value, _ in rows if value["op"] == "c"]
        csns = {value["after"]["id"]: value["source"]["csn"] for value in sent}
        loads = [value["source"]["csn"] for value, _ in rows if value["op"] in "rt"]
        for value, headers in rows:
            csn = value["source"]["csn"]
            assert headers.get("csn") == (None if csn is None else str(csn).encode())
        assert csns[2] < csns[4] < csns[5]
        if order == "csn":
            assert loads[0] < csns[2] < loads[-1] < csns[4]
        else:
            assert set(loads) == {None}
        shapes = [change["csn"] for change, _ in records(path, "ddl")]
        assert shapes == ([0] * len(shapes) if order == "lsn" else sorted(set(loads)))


def records(path: Path, topic: str) -> list[tuple[dict[str, Any], dict[str, bytes]]]:
    """Values and headers of a topic of one partition."""
    settings = {"group.id": path.prefix, "isolation.level": "read_committed"}
    consumer = Consumer({**path.options.client, **settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(f"{path.prefix}.{topic}", 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        schema_id, payload = split(message.value() or b"")
        value = fastavro.schemaless_reader(BytesIO(payload), path.schema_of(schema_id), None)
        found.append((value, dict(message.headers() or ())))
    consumer.close()
    return found


def is_cleared(path: Path, table: str) -> bool:
    """Write a table anew, as VACUUM FULL does, until the catalog has cleared it of suspicion."""
    ask(path.source, f"CLUSTER {table} USING {table}_pkey")
    return any(note.startswith(f"public.{table} has another storage file") for note in path.notes)


def is_read_after_all(path: Path, table: str) -> bool:
    ask(path.source, f"CLUSTER {table} USING {table}_pkey")
    return any(note.startswith(f"public.{table} is not exact any more") for note in path.notes)


def unlike(path: Path) -> list[str]:
    path.applier.drain()
    return differing(path.source, path.target)
