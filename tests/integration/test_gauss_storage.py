"""Which tables may have lost rows, by the storage files that a catalog names."""

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from producer.sources.gauss.storage import StorageWatch
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from schemas.tables import Column, TableId, TableSchema

T, PARTED, OTHER = (TableId("public", name) for name in ("it's full", "parted", "other"))
NAME = '"it\'s full"'
START = f"""
CREATE TABLE {NAME} (id int PRIMARY KEY, v text);
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE parted_0_0 PARTITION OF parted_0 FOR VALUES FROM (0) TO (5);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20);
INSERT INTO {NAME} SELECT g, 'v' FROM generate_series(1, 3) g;
INSERT INTO parted VALUES (1), (11); INSERT INTO other VALUES (15)
"""
INSERT = f"INSERT INTO {NAME} VALUES (7, 'new')"
DETACH = "ALTER TABLE parted DETACH PARTITION parted_1"


def shape(table: TableId, *columns: str) -> TableSchema:
    return TableSchema(table, tuple(Column(name, 23) for name in columns), ("id",))


KNOWN = {
    T: shape(T, "id", "v"),
    PARTED: shape(PARTED, "id"),
    OTHER: shape(OTHER, "id"),
}


@pytest.fixture
def session(postgres_url: str) -> Iterator[ReplicationConnection]:
    do(postgres_url, START)
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as connection:
        yield connection


def do(url: str, *statements: str) -> None:
    """Run each in a transaction of its own."""
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@pytest.mark.parametrize(
    ("statements", "suspected", "cleared"),
    [
        ([INSERT, f"DELETE FROM {NAME} WHERE id < 3", f"ANALYZE {NAME}"], set(), set()),
        ([f"TRUNCATE {NAME}"], {T}, set()),
        ([f"TRUNCATE {NAME}", INSERT], {T}, set()),
        ([f"BEGIN; TRUNCATE {NAME}; {INSERT}; COMMIT"], {T}, set()),
        # What is written anew with the rows that it had lost none of them.
        ([f"VACUUM FULL {NAME}"], set(), {T}),
        ([INSERT, f'CLUSTER {NAME} USING {NAME[:-1]}_pkey"'], set(), {T}),
        # A row of now proves nothing, and no row proves nothing.
        ([f"TRUNCATE {NAME}", INSERT, f"VACUUM FULL {NAME}"], {T}, set()),
        ([f"DELETE FROM {NAME}", f"VACUUM FULL {NAME}"], {T}, set()),
        ([f"UPDATE {NAME} SET v = 'w'", f"VACUUM FULL {NAME}"], {T}, set()),
        # Partitions: one that came has rows of the stream, one that went has taken its rows along.
        (["CREATE TABLE p_2 PARTITION OF parted FOR VALUES FROM (20) TO (30)"], set(), set()),
        (["TRUNCATE parted_0"], {PARTED}, set()),
        (["TRUNCATE parted"], {PARTED}, set()),
        (["DROP TABLE parted_1"], {PARTED}, set()),
        ([f"{DETACH}; ALTER TABLE parted ATTACH PARTITION other FOR VALUES FROM (10) TO (20)"],
         {PARTED}, set()),
        # Rows of any age may have come from a partition.
        (["TRUNCATE parted_1", f"VACUUM FULL {NAME}"], {T, PARTED}, set()),
        ([f"ALTER TABLE {NAME} RENAME TO t"], set(), set()),
        ([f"DROP TABLE {NAME}"], set(), set()),
    ],
)  # fmt: skip
def test_a_table_is_suspected_unless_a_row_from_before_is_there(
    statements: list[str],
    suspected: set[TableId],
    cleared: set[TableId],
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    notes: list[str] = []
    watch = StorageWatch(of_partitions_only=False)
    assert watch.emptied(session, KNOWN, notes.append) == ()

    do(postgres_url, *statements)

    assert set(watch.emptied(session, KNOWN, notes.append)) == suspected
    assert {note.partition(" has ")[0] for note in notes} == {str(table) for table in cleared}
    assert watch.emptied(session, KNOWN, notes.append) == (), "it is suspected once"


def test_what_the_stream_told_is_not_suspected(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watch = StorageWatch(of_partitions_only=False)
    partitions = StorageWatch(of_partitions_only=True)
    for each in (watch, partitions):
        assert each.emptied(session, KNOWN, print) == ()

    do(postgres_url, f"ALTER TABLE {NAME} ALTER id TYPE bigint", "TRUNCATE other, parted")

    altered = {**KNOWN, T: TableSchema(T, (Column("id", 20), Column("v", 23)), ("id",))}
    assert set(watch.emptied(session, altered, print)) == {OTHER, PARTED}
    assert set(partitions.emptied(session, KNOWN, print)) == {PARTED}, "TRUNCATE is sent"


def test_a_table_that_was_read_again_is_not_suspected_for_what_was_before(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watch = StorageWatch(of_partitions_only=False)
    watch.read(session, T)  # before the first look there is nothing to compare
    assert watch.emptied(session, KNOWN, print) == ()

    do(postgres_url, f"TRUNCATE {NAME}", "TRUNCATE other")
    watch.read(session, T)

    assert watch.emptied(session, KNOWN, print) == (OTHER,)
