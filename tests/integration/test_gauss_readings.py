"""Readings of a real PostgreSQL: every question is one that this family's SQL understands.

What PostgreSQL lacks (reloptions of ustore, pg_partition, nspblockchain) is left
to literal answers in tests/producer.
"""

from collections.abc import Iterator

import pytest

from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss.server import QUESTION, Product, parse_server
from producer.sources.postgres.connection import ReplicationConnection
from schemas.positions import Lsn
from schemas.tables import ReplicaIdentity, TableId
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as server:
        server.execute(
            "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
            "CREATE TABLE keyless (v text)",
            "ALTER TABLE keyless REPLICA IDENTITY FULL",
            "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY)",
            "CREATE TABLE left_out (id int PRIMARY KEY)",
            "SELECT pg_create_logical_replication_slot('ours', 'test_decoding')",
            "SELECT pg_create_physical_replication_slot('gs_roach_full')",
            "SELECT pg_create_physical_replication_slot('dn_6002')",
        )
        yield server


@pytest.fixture
def session(server: PrivateServer) -> Iterator[ReplicationConnection]:
    with ReplicationConnection.open(server.arguments(), replication=False) as connection:
        yield connection


def test_everything_is_read(session: ReplicationConnection) -> None:
    found = gauss_readings.read(session, ["public.*"], ["*.left_out"])

    assert (found.server.product, found.server.database) == (Product.POSTGRES, DATABASE)
    assert (found.server.is_primary, found.server.has_csn_slots) == (True, False)
    assert found.settings["wal_level"] == "logical"
    (shown,) = session.query("SHOW max_replication_slots")
    assert found.number("max_replication_slots") == int(shown[0] or 0)
    assert found.number("wal_level") is None
    assert found.is_on("ssl") is True
    assert found.is_on("enable_xlog_prune") is None
    assert (found.standbys, found.senders, found.node, found.shards) == (0, 0, "", None)
    assert [(slot.name, slot.is_logical, slot.is_backup) for slot in found.slots] == [
        ("dn_6002", False, False),
        ("gs_roach_full", False, True),
        ("ours", True, False),
    ]
    assert found.open_transactions == ()
    assert found.wal_end > Lsn(0)


def test_tables_are_read_as_they_are_stored(session: ReplicationConnection) -> None:
    found = gauss_readings.read(session, ["public.*"], ["*.left_out"])

    keyed, keyless, unlogged = found.tables
    assert [table.id for table in found.tables] == [
        TableId("public", name) for name in ("keyed", "keyless", "unlogged")
    ]
    assert keyed.shape is not None
    assert (keyed.shape.key, keyed.shape.replica_identity) == (("id",), ReplicaIdentity.DEFAULT)
    assert keyless.shape is not None
    assert keyless.shape.replica_identity is ReplicaIdentity.FULL
    assert (unlogged.persistence, unlogged.shape) == ("u", None)
    assert not any(
        table.is_ustore or table.is_columnar or table.is_interval or table.is_ledger
        for table in found.tables
    )


def test_who_we_are_is_read(server: PrivateServer, session: ReplicationConnection) -> None:
    role = gauss_readings.read(session, ["public.keyed"], []).role
    assert (role.name, role.is_initial, role.has_replication) == ("postgres", True, True)
    assert (role.is_system_admin, role.is_member) == (False, False)

    with ReplicationConnection.open(server.arguments("plain"), replication=False) as other:
        role = gauss_readings.read(other, ["public.keyed"], []).role
    assert (role.name, role.is_initial, role.has_replication) == ("plain", False, False)


def test_facts_are_read_before_a_start(session: ReplicationConnection) -> None:
    server = parse_server(session.query(QUESTION))
    node = gauss_readings.node_of(session, server)
    facts = gauss_readings.read_server(session, "ours", server, node)

    assert (facts.has_slot, facts.confirmed_csn, facts.is_standby) == (True, None, False)
    assert facts.max_process_memory_kb is None
    assert gauss_readings.read_server(session, "nobodys", server, node).has_slot is False


def test_the_end_of_the_log_moves(server: PrivateServer, session: ReplicationConnection) -> None:
    before = gauss_readings.wal_end(session)
    server.execute("INSERT INTO keyless VALUES ('x')")

    assert gauss_readings.wal_end(session) > before
