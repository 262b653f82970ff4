"""Every way of delivery ends with a target equal to the source."""

from dataclasses import replace

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from producer.kafka.topics import TopicSettings
from spark_consumers.errors import RangeExpired
from tests.e2e.path import Path, ask, content

MODES = {
    "default": {},
    "without Kafka transactions": {"exactly_once": False},
    "record key = primary key": {"key": "primary-key"},
    "spread over partitions": {
        "partition_by": "primary-key",
        "topic_settings": TopicSettings(partitions=3),
    },
    "upsert topics": {
        "key": "primary-key",
        "partition_by": "primary-key",
        "topic_settings": TopicSettings(partitions=3),
    },
}
WORK = (
    (
        "INSERT INTO person SELECT g, 'name ' || g, g * 1.5, now(), g % 2 = 0"
        " FROM generate_series(100, 400) g"
    ),
    "UPDATE person SET balance = balance + 1 WHERE id % 3 = 0",
    "UPDATE person SET id = id + 10000 WHERE id BETWEEN 150 AND 170",
    "DELETE FROM person WHERE id % 7 = 0",
    "INSERT INTO person VALUES (150, 'again', 0, NULL, NULL)",
    "UPDATE person SET id = 1000000 - id",
    "UPDATE big SET n = n + 1",
    "UPDATE big SET id = id + 1000",
    "ALTER TABLE person ADD COLUMN note text",
    "UPDATE person SET note = 'noted' WHERE id % 2 = 0",
    "ALTER TABLE person DROP COLUMN is_good",
    "INSERT INTO person VALUES (7, 'after', 1, now(), 'dropped')",
    "TRUNCATE leave",
    "INSERT INTO leave VALUES (2)",
    "INSERT INTO keyless VALUES (1, 'same'), (1, 'same'), (2, NULL)",
    "UPDATE keyless SET v = 'other' WHERE n = 2; DELETE FROM keyless WHERE n = 3",
    "UPDATE priced SET price = 1.5 WHERE price = 1.50; UPDATE priced SET v = 'x' WHERE price = 1.5",
    "DELETE FROM priced WHERE price = 2; INSERT INTO priced VALUES (2.0, 'again')",
    "UPDATE termed SET until = 'infinity' WHERE until = '12345-01-01'",
    "INSERT INTO termed VALUES ('0044-03-15 BC', '-infinity', 'past')",
    "DELETE FROM termed WHERE v = 'goes'",
)


@pytest.mark.parametrize("mode", MODES)
def test_a_target_ends_equal_to_its_source(mode, addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE TABLE person (id int PRIMARY KEY, name text, balance numeric(12,2),"
        " since timestamptz, is_good boolean);"
        "CREATE TABLE big (id int PRIMARY KEY, n int, body text);"
        "CREATE TABLE leave (id int PRIMARY KEY);"
        "ALTER TABLE big ALTER body SET STORAGE EXTERNAL;"
        "INSERT INTO person SELECT g, 'old ' || g, g, now(), true FROM generate_series(1, 50) g;"
        "INSERT INTO big SELECT g, 0, repeat(g::text, 3000) FROM generate_series(1, 5) g;"
        "INSERT INTO leave VALUES (1);"
        "CREATE TABLE keyless (n int, v text);"
        "ALTER TABLE keyless REPLICA IDENTITY FULL;"
        "INSERT INTO keyless VALUES (1, 'same'), (3, 'goes');"
        "CREATE TABLE priced (price numeric PRIMARY KEY, v text);"
        "INSERT INTO priced VALUES (1.50, 'a'), (2.000, 'b');"
        "CREATE TABLE termed (since date, until timestamptz, v text, PRIMARY KEY (since, until));"
        "INSERT INTO termed VALUES ('-infinity', 'infinity', 'goes');"
        "INSERT INTO termed VALUES ('2024-01-01', '12345-01-01', 'stays')",
    )
    with Path(addresses, topic_prefix, source, target, **MODES[mode]) as path:
        path.start()
        path.catch_up()
        for statement in WORK:
            ask(source, statement)
        ledger = path.catch_up()

        assert ledger.state == "EXACT"
        for table in ("person", "big", "leave", "keyless", "priced", "termed"):
            assert content(target, table) == content(source, table)


def test_a_restarted_run_goes_on_where_it_was(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
    with Path(addresses, topic_prefix, source, target) as path:
        for turn in range(3):
            path.start()
            ask(source, "INSERT INTO t VALUES (%s, 'x'); UPDATE t SET v = v || 'y'", turn + 2)
            path.catch_up()
            path.stop()
            ask(source, "UPDATE t SET v = v || 'z'")
        path.start()
        ledger = path.catch_up()

        assert content(target, "t") == content(source, "t")
        assert (ledger.epoch, ledger.state) == (1, "EXACT")


def test_accepting_a_gap_loads_everything_again(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, "DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (4)")
        path.arrive()
        path.stop()
        rows = TopicPartition(f"{topic_prefix}.public.t", 0, OFFSET_END)
        admin = AdminClient(path.options.client)
        admin.delete_records([rows])[rows].result()
        with pytest.raises(RangeExpired, match="--accept-gap"):
            path.applier.drain()
        ask(source, "SELECT pg_drop_replication_slot(%s)", topic_prefix)
        ask(source, "DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (3)")
        path.options = replace(path.options, accept_gap=True)
        path.start()
        ledger = path.catch_up()

        # What stopped is left out with the rest of its epoch: it would have stopped for ever.
        assert content(target, "t") == ["(3)", "(4)"]
        assert (ledger.epoch, ledger.state) == (2, "EXACT")


def test_an_unknown_default_marks_the_table(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, "ALTER TABLE t ADD COLUMN same int DEFAULT 7")
        ask(source, "INSERT INTO t VALUES (2)")
        known = path.catch_up()
        assert (known.state, content(target, "t")) == ("EXACT", ["(1,7)", "(2,7)"])
        ask(source, "ALTER TABLE t ADD COLUMN other float DEFAULT random()")
        ask(source, "INSERT INTO t VALUES (3, 3, 3)")
        ledger = path.catch_up()

        assert "default" in ledger.inexact["public.t"]
        assert ledger.state != "EXACT"
