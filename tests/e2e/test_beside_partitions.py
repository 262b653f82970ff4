"""A partitioned table that is read beside the stream, as its root: its partitions come and go."""

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from tests.e2e.path import Path, ask, content, pause, until
from tests.e2e.test_beside import RANGES, ROWS, Owner, Ranges, is_answered, read_again, request
from tests.e2e.test_ddl import install

TABLE = f"""
CREATE TABLE t (id int PRIMARY KEY, v text, long text) PARTITION BY RANGE (id);
CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (MINVALUE) TO (1000);
CREATE TABLE t_mid (long text, v text, id int NOT NULL);
ALTER TABLE t ATTACH PARTITION t_mid FOR VALUES FROM (1000) TO (2000);
CREATE TABLE t_rest PARTITION OF t DEFAULT PARTITION BY HASH (id);
CREATE TABLE t_even PARTITION OF t_rest FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE t_odd PARTITION OF t_rest FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO t SELECT n, 'v' || n, repeat('long ' || n, 300) FROM generate_series(0, {ROWS - 1}) n
"""
NEW = "CREATE TABLE t_new (LIKE t INCLUDING ALL); INSERT INTO t_new SELECT n, 'new' FROM"
STATEMENTS = {
    "truncate": "TRUNCATE t_low",
    "truncate one of a hash": "TRUNCATE t_odd",
    "detach": "ALTER TABLE t DETACH PARTITION t_mid",
    "drop": "DROP TABLE t_mid",
    "attach": f"BEGIN; ALTER TABLE t DETACH PARTITION t_mid; {NEW} generate_series(1200, 1300) n;"
    " ALTER TABLE t ATTACH PARTITION t_new FOR VALUES FROM (1000) TO (2000); COMMIT",
    "there and back": "BEGIN; ALTER TABLE t DETACH PARTITION t_mid;"
    " DELETE FROM t_mid WHERE id % 3 = 0; UPDATE t_mid SET v = 'apart';"
    " ALTER TABLE t ATTACH PARTITION t_mid FOR VALUES FROM (1000) TO (2000); COMMIT",
    "another place": "BEGIN; CREATE TABLE away AS SELECT * FROM t WHERE id < 1000;"
    " DROP TABLE t_low; CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (MINVALUE) TO (1000);"
    " INSERT INTO t SELECT * FROM away WHERE id > 99; COMMIT",
}


@pytest.fixture(params=[False, True], ids=["looks", "triggers"])
def path(addresses, topic_prefix, new_database, request) -> Iterator[Path]:
    """The table is loaded, and wrong at the target."""
    source, target = new_database(), new_database()
    for statement in TABLE.split(";"):
        ask(source, statement)
    ask(
        source,
        f"CREATE PUBLICATION {topic_prefix} FOR TABLE t WITH (publish_via_partition_root = true)",
    )
    if request.param:
        install(source, topic_prefix)
    how = {"tuning": RANGES, "repair": "auto", "look_seconds": 0.5}
    with Path(addresses, topic_prefix, source, target, **how) as path:
        path.on_load = path.ranges = Ranges(path)
        path.start()
        path.catch_up()
        path.ranges.written.clear()
        ask(target, "DELETE FROM t WHERE id % 2 = 0; INSERT INTO t VALUES (-1, 'a stranger', '')")
        yield path


def assert_equal(path: Path) -> None:
    until(lambda: path.waited() == {}, "every repair", pause)
    assert content(path.target, "t") == content(path.source, "t")


def test_it_is_read_while_it_changes(path: Path) -> None:
    with Owner(path.source, 3):  # rows move from partition to partition, too
        read_again(path)
    assert len(path.ranges.written) > ROWS / 100 / 2
    assert not [note for note in path.notes if "begins again" in note]
    assert_equal(path)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_partition_changes_in_its_midst(path: Path, name: str) -> None:
    with Owner(path.source, 6):
        request(path)
        until(lambda: len(path.ranges.written) > 6, "some ranges", pause)
        with closing(psycopg2.connect(path.source)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            for statement in STATEMENTS[name].split(";"):
                cursor.execute(statement)
        until(lambda: is_answered(path), "the table is read", pause)
    assert_equal(path)
