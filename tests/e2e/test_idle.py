"""An idle source costs its server nothing: positions move, WAL is not kept."""

from tests.e2e.path import Path, ask, content, until
from tests.integration.private_postgres import private_server

GIB = 1 << 30
BOUND = 256 << 20  # of WAL kept for us, while 1 GiB is written elsewhere


def retained(source: str, slot: str) -> int:
    return ask(
        source,
        "SELECT (pg_current_wal_insert_lsn() - restart_lsn)::bigint"
        " FROM pg_replication_slots WHERE slot_name = %s",
        slot,
    )[0][0]


def test_a_gibibyte_written_elsewhere_does_not_pile_up(
    addresses, topic_prefix, new_database
) -> None:
    source, elsewhere = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE busy (body text)")
    ask(elsewhere, "CREATE TABLE busy (body text)")
    position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
    with Path(addresses, topic_prefix, source, new_database(), include=("public.t",)) as path:
        path.start()
        path.catch_up()
        begin, worst, turn = ask(source, position)[0][0], 0, 0
        while ask(source, position)[0][0] - begin < GIB:
            place = (source, elsewhere)[turn % 2]  # another table, another database
            ask(
                place,
                "INSERT INTO busy SELECT repeat(md5(g::text), 60) FROM generate_series(1, 12000) g",
            )
            ask(place, "TRUNCATE busy")
            turn += 1
            goal = ask(source, position)[0][0]
            until(lambda goal=goal: path.progress.resume >= goal, "resume", path._stop.wait)
            # Standby snapshots, every 15 s or by a checkpoint, are what lets restart_lsn move.
            ask(source, "CHECKPOINT")
            worst = max(worst, retained(source, topic_prefix))

        assert turn > 10
        assert worst < BOUND
        until(lambda: retained(source, topic_prefix) < BOUND // 4, "restart_lsn", path._stop.wait)


def test_a_source_can_be_stopped_while_kafka_is_down(
    services, topic_prefix, new_killable_database
) -> None:
    with private_server() as server:
        source = f"postgresql://postgres@127.0.0.1:{server.port}/bank"
        ask(source, "CREATE TABLE t (id int PRIMARY KEY)")
        silence = {"kafka_silence_seconds": 3.0}
        target = new_killable_database()
        with Path(services.addresses, topic_prefix, source, target, **silence) as path:
            path.start()
            path.catch_up()
            services.kill("kafka")
            try:
                ask(source, "INSERT INTO t SELECT generate_series(1, 1000)")
                server.stop()  # by SIGINT, which waits for walsenders; fails after its own limit
            finally:
                services.start("kafka")
            server.start()
            path.catch_up()

            assert len(content(path.target, "t")) == 1000
