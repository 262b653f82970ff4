"""What the facade does beside plain rows: slots, functions, snapshots, losses, timeouts."""

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg2
import pytest

from gauss_cdc_lab.services.process import poll
from producer.errors import CdcError, ConnectionLost, SlotTaken
from producer.sources.decoders import Format
from producer.sources.gauss.connection import GaussConnection
from schemas.positions import Lsn, lsn_text
from tests.e2e.gauss_facade import Front, Streamed, facade

BINARY = Format("mppdb_decoding", "b", batch=True)
PARALLEL = {"parallel-decode-num": "2", "decode-style": "b", "sending-batch": "1"}
JSON = Format("mppdb_decoding")


@pytest.fixture
def front(postgres_url: str) -> Iterator[Front]:
    with facade(postgres_url) as found:
        do(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        yield found


def do(url: str, *transactions: str) -> None:
    with closing(psycopg2.connect(url)) as connection:
        for text in transactions:
            with connection, connection.cursor() as cursor:
                cursor.execute(text)


def inserted(*numbers: int) -> list[tuple]:
    return [("c", "t", None, {"id": str(n), "v": "x"}) for n in numbers]


INSERT = "INSERT INTO t VALUES ({}, 'x')"


# ---------------------------------------------------------------- slots and SQL functions
def test_a_slot_is_seen_with_its_own_plugin(front: Front) -> None:
    point = front.make_slot("s1", "sql_decoding")

    with front.open() as session:
        rows = session.query(
            "SELECT slot_name, plugin, slot_type, database, active, confirmed_flush"
            " FROM pg_replication_slots"
        )
        same = session.query("SELECT plugin FROM pg_get_replication_slots()")

    assert rows == [["s1", "sql_decoding", "logical", front.database, "f", lsn_text(point)]]
    assert same == [["sql_decoding"]]


def test_the_exported_snapshot_shows_what_was_there_before(front: Front, postgres_url: str) -> None:
    do(postgres_url, INSERT.format(1))
    with front.open(replication=True) as maker:
        made = maker.create_slot("s1", "mppdb_decoding")
        do(postgres_url, INSERT.format(2))
        with front.open() as session:
            session.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
            session.query(f"SET TRANSACTION SNAPSHOT '{made.snapshot}'")
            seen = session.query("SELECT id FROM public.t")

    with front.open(replication=True) as session:
        found = Streamed(session, "s1", JSON, {}).read(1)

    assert seen == [["1"]]
    assert found[0].rows() == inserted(2)


def test_peek_looks_and_get_takes(front: Front, postgres_url: str) -> None:
    front.make_slot("s1")
    do(postgres_url, INSERT.format(1), INSERT.format(2))
    call = (
        "SELECT location, data FROM pg_logical_slot_{}_changes('s1', NULL, {}, 'include-xids', '0')"
    )

    with front.open() as session:
        peeked = session.query(call.format("peek", "NULL"))
        one = session.query(call.format("get", "1"))
        rest = session.query(call.format("get", "NULL"))
        none = session.query(call.format("get", "NULL"))

    texts = [text for _, text in peeked]
    assert [text.split(" ")[0] for text in texts if text[0] != "{"] == ["BEGIN", "COMMIT"] * 2
    assert one == peeked[:3]  # the limit is looked at behind a COMMIT only
    assert rest == peeked[3:]
    assert none == []


def test_a_limit_is_reached_although_postgresql_counts_otherwise(
    front: Front, postgres_url: str
) -> None:
    front.make_slot("s1")
    empty = "SELECT pg_logical_emit_message(true, 'nobody', 'listens')"
    do(postgres_url, *[empty] * 9, INSERT.format(1), INSERT.format(2))

    with front.open() as session:
        found = session.query(
            "SELECT data FROM pg_logical_slot_peek_changes('s1', NULL, 1, 'skip-empty-xacts', '1')"
        )

    assert [str(text)[:5] for (text,) in found] == ["BEGIN", '{"tab', "COMMI"]


def test_binary_functions_give_the_same_bytes(front: Front, postgres_url: str) -> None:
    front.make_slot("s1")
    do(postgres_url, INSERT.format(1))

    with front.open() as session:
        text = session.query("SELECT data FROM pg_logical_slot_peek_changes('s1', NULL, NULL)")
        raw = session.query("SELECT data FROM pg_logical_slot_peek_binary_changes('s1', NULL, 1)")

    assert [bytes.fromhex(data[2:]).decode() for (data,) in raw] == [data for (data,) in text]


def test_functions_know_fewer_options_than_streams(front: Front) -> None:
    front.make_slot("s1")
    call = "SELECT * FROM pg_logical_slot_peek_changes('s1', NULL, NULL, {})"

    with front.open() as session:
        for words, message in (
            ("'standby-connection', 'true'", 'option "standby-connection" = "true" is unknown'),
            ("'include-xids'", "array must have even number of elements"),
            ("'skip-empty-xacts', 'maybe'", 'could not parse value "maybe"'),
        ):
            with pytest.raises(CdcError, match=message):
                session.query(call.format(words))
        assert session.query(call.format("'parallel-decode-num', '40'")) == []


def test_a_slot_made_by_sql_is_advanced_and_dropped(front: Front, postgres_url: str) -> None:
    with front.open() as session:
        ((name, _),) = session.query(
            "SELECT * FROM pg_create_logical_replication_slot('s2', 'mppdb_decoding')"
        )
        do(postgres_url, INSERT.format(1))
        ((_, end),) = session.query("SELECT * FROM pg_replication_slot_advance('s2', NULL)")
        left = session.query("SELECT * FROM pg_logical_slot_peek_changes('s2', NULL, NULL)")
        with pytest.raises(CdcError, match="cannot move slot to 0/1, minimum is"):
            session.query("SELECT * FROM pg_replication_slot_advance('s2', '0/1')")
        session.query("SELECT pg_drop_replication_slot('s2')")
        slots = session.query("SELECT slot_name FROM pg_replication_slots")

    assert name == "s2"
    assert end == end.lower()
    assert left == []
    assert slots == []


# ---------------------------------------------------------------- losses that the manual tells of
@pytest.mark.parametrize(
    ("style", "options", "kept"), [(JSON, {}, [1, 2]), (BINARY, PARALLEL, [1])]
)
@pytest.mark.parametrize("ddl", ["ALTER TABLE other ADD COLUMN w int", "CREATE INDEX ON t (v)"])
def test_parallel_decoding_loses_rows_behind_ddl(
    ddl: str, style: Format, options: dict, kept: list[int], front: Front, postgres_url: str
) -> None:
    do(postgres_url, "CREATE TABLE other (id int PRIMARY KEY)")
    front.make_slot("s1")
    do(postgres_url, f"{INSERT.format(1)}; {ddl}; {INSERT.format(2)}", INSERT.format(3))

    with front.open(replication=True) as session:
        found = Streamed(session, "s1", style, options).read(2)

    assert [reported.rows() for reported in found] == [inserted(*kept), inserted(3)]


@pytest.mark.parametrize(
    ("style", "options", "rows"),
    [
        (JSON, {}, [*inserted(1), ("truncate", "t"), *inserted(2)]),
        (BINARY, PARALLEL, inserted(1)),
    ],
)
def test_truncate_is_sent_by_serial_decoding_only(
    style: Format, options: dict, rows: list, front: Front, postgres_url: str
) -> None:
    front.make_slot("s1")
    do(postgres_url, f"{INSERT.format(1)}; TRUNCATE t; {INSERT.format(2)}")

    with front.open(replication=True) as session:
        found = Streamed(session, "s1", style, options).read(1)

    assert found[0].rows() == rows


@pytest.mark.parametrize(("style", "options"), [(JSON, {}), (BINARY, PARALLEL)])
def test_a_row_that_moves_between_partitions_is_deleted_and_inserted(
    style: Format, options: dict, front: Front, postgres_url: str
) -> None:
    do(
        postgres_url,
        "CREATE TABLE p (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    front.make_slot("s1")
    do(postgres_url, "INSERT INTO p VALUES (1, 'x')", "UPDATE p SET id = 11")

    with front.open(replication=True) as session:
        found = Streamed(session, "s1", style, options).read(2)

    assert found[1].rows() == [
        ("d", "p", {"id": "1"}, None),
        ("c", "p", None, {"id": "11", "v": "x"}),
    ]


def test_a_white_list_and_skipped_empty_transactions(front: Front, postgres_url: str) -> None:
    do(postgres_url, "CREATE TABLE other (id int PRIMARY KEY)")
    front.make_slot("s1")
    do(postgres_url, "INSERT INTO other VALUES (1)", INSERT.format(2))
    options = {**PARALLEL, "white-table-list": "public.t", "skip-empty-xacts": "true"}

    with front.open(replication=True) as session:
        found = Streamed(session, "s1", BINARY, options).read(1)

    assert [reported.rows() for reported in found] == [inserted(2)]


# ---------------------------------------------------------------- GaussDB, as its manual says
def test_gaussdb_sends_user_heartbeats_and_ddl(postgres_url: str) -> None:
    with facade(postgres_url, profile="gaussdb") as front:
        do(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        front.make_slot("s1")
        do(postgres_url, INSERT.format(1))
        options = {**PARALLEL, "include-user": "true", "enable-heartbeat": "true"}
        with front.open(replication=True) as session:
            stream = Streamed(session, "s1", BINARY, options)
            stream.read(1)
            stream.until(lambda found: len(found.heartbeats) > 1)
        first, second = stream.heartbeats[:2]
        front.make_slot("s2")
        do(postgres_url, "ALTER TABLE t ADD COLUMN w int")
        with front.open(replication=True) as session:
            ddl = Streamed(session, "s2", JSON, {"enable-ddl-decoding": "true"}).read(1)
        with front.open() as session:
            ((version, deployment),) = session.query("SELECT version(), gs_deployment()")

    assert stream.finished[0].begun.user == "postgres"
    assert 0 < first.read <= second.read
    assert first.at < second.at
    sql = "ALTER TABLE   public.t ADD COLUMN  w pg_catalog.int4 "
    assert ddl[0].rows() == [("ddl", sql)]
    assert version is not None
    assert "GaussDB Kernel" in version
    assert deployment == "BusinessCentralized"


def test_a_slot_in_csn_order_resumes_behind_its_csn(postgres_url: str) -> None:
    with facade(postgres_url, profile="gaussdb") as front:
        do(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        with front.open() as session:
            session.query(
                "SELECT * FROM pg_create_logical_replication_slot('s1', 'mppdb_decoding', 1)"
            )
        do(postgres_url, *map(INSERT.format, (1, 2, 3)))
        options = {**PARALLEL, "output-order": "1"}
        with front.open(replication=True) as session:
            stream = Streamed(session, "s1", BINARY, options)
            first = list(stream.read(3))
            csn = first[1].begun.csn
            assert csn is not None
            session.send_status(Lsn(csn))
        asks = "SELECT confirmed_csn FROM pg_replication_slots"
        with front.open() as session:  # the server may read it behind our end
            assert poll(lambda: session.query(asks) == [[str(csn)]], 60)
        with front.open(replication=True) as session:
            second = list(Streamed(session, "s1", BINARY, options).read(1))

    assert [found.rows() for found in second] == [inserted(3)]


# ---------------------------------------------------------------- time, and clients that vanish
def test_a_silent_client_is_asked_at_half_time_and_dropped(postgres_url: str) -> None:
    with facade(postgres_url) as front:
        front.make_slot("s1")
        with front.open(replication=True) as session:
            session.start("s1", {"sender-timeout": "1s"})
            while not session.receive(5).reply_requested:
                pass
            with pytest.raises(ConnectionLost):
                be_silent(session)


def be_silent(session: GaussConnection) -> None:
    while True:
        session.receive(5)


def test_a_walsender_without_work_is_closed(postgres_url: str) -> None:
    with (
        facade(postgres_url, idle_command_ms=200) as front,
        front.open(replication=True) as session,
        socket.socket(fileno=socket.dup(session.fileno())) as same,
    ):
        readable, _, _ = select.select([same], [], [], 30)

        assert readable
        assert same.recv(1) == b""


def test_an_option_decides_the_zone_of_times(postgres_url: str) -> None:
    with facade(postgres_url, profile="gaussdb", time_zone="<+08>-08") as front:
        do(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v timestamptz)")
        front.make_slot("s1")
        do(postgres_url, "INSERT INTO t VALUES (1, '2026-01-02 03:04:05+00')")
        found = []
        for options in ({"timezone-is-utc": "true"}, {}):
            with front.open(replication=True, settings={}) as session:
                found += Streamed(session, "s1", JSON, options).read(1)

    assert [reported.rows()[0][3]["v"] for reported in found] == [
        "2026-01-02 03:04:05+00",
        "2026-01-02 11:04:05+08",
    ]
    assert [reported.ended.committed_at[-3:] for reported in found] == ["+00", "+08"]


def test_two_clients_do_not_share_a_slot(front: Front) -> None:
    front.make_slot("s1")
    with front.open(replication=True) as holder:
        holder.start("s1", {})
        with front.open(replication=True) as other, pytest.raises(SlotTaken):
            other.start("s1", {})


@pytest.mark.parametrize("seconds", [0.1, 3600.0])
def test_a_slot_stays_busy_when_its_client_vanished(postgres_url: str, seconds: float) -> None:
    with facade(postgres_url, busy_seconds=seconds) as front:
        front.make_slot("s1")
        holder = front.open(replication=True)
        holder.start("s1", {})
        raw = socket.socket(fileno=socket.dup(holder.fileno()))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        holder._link.close()
        raw.close()  # reset: no CopyDone, as when a machine loses power

        if seconds > 60:
            with front.open(replication=True) as other, pytest.raises(SlotTaken):
                other.start("s1", {})
        while seconds < 60:
            with front.open(replication=True) as other, suppress(SlotTaken):
                other.start("s1", {})
                break


def test_a_position_ahead_of_the_log_is_taken_as_it_is(front: Front, postgres_url: str) -> None:
    front.make_slot("s1")
    ahead = Lsn((1 << 32) + 0x1000)
    with front.open(replication=True) as session:
        session.start("s1", {})
        session.send_status(ahead, reply=True)
        while not session.receive(5).keepalive_end:  # perhaps one from before
            pass
        do(postgres_url, INSERT.format(1))
        with front.open() as asks:
            slots = "SELECT confirmed_flush FROM pg_replication_slots"
            assert poll(lambda: asks.query(slots) == [[lsn_text(ahead)]], 60)
    with front.open() as asks:
        assert asks.query(slots) == [[lsn_text(ahead)]]
