"""A backlog that takes long to read: the source hears from us meanwhile, and what is done stays."""

import psycopg2

from tests.e2e.path import Path, ask, content

TABLES, CHANGES = 16, 12  # each a new schema, which is registered: seconds of work in one read


def test_a_backlog_behind_schema_changes_is_worked_off_whatever_the_server_waits(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    for t in range(TABLES):
        ask(source, f"CREATE TABLE t{t} (id int PRIMARY KEY)")
    database = source.rpartition("/")[2]
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        path.stop()
        # The server hangs up on whoever is silent for so long, and would send all of it again.
        ask(source, f"ALTER DATABASE {database} SET wal_sender_timeout = '1s'")
        connection = psycopg2.connect(source)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for n in range(CHANGES):
                for t in range(TABLES):
                    cursor.execute(
                        f"ALTER TABLE t{t} ADD COLUMN c{n} int; INSERT INTO t{t} VALUES ({n})"
                    )
        connection.close()
        path.start()

        ledger = path.catch_up()

        for t in range(TABLES):
            assert content(target, f"t{t}") == content(source, f"t{t}")
        assert ledger.inexact == {}
