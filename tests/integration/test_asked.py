"""Requests for re-reads where a standby is read: a snapshot stands for its replay, which lags."""

from contextlib import closing

import pytest

from producer.core.ports import Wish
from producer.errors import NotPermitted, SourceBusy
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres import primary as primary_module
from producer.sources.postgres.asked import AskedTables
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.primary import Primary
from schemas.positions import Lsn
from schemas.tables import TableId

T = TableId("public", "t")
ALL = Wish(T)


def test_requests_are_read_where_they_are_replayed_and_answered_once(postgres_url: str) -> None:
    arguments = parse_dsn(postgres_url)
    with (
        closing(catalog.connect(arguments)) as standby,
        closing(catalog.connect(arguments)) as other,
    ):
        primary = Primary(arguments, standby)
        primary.is_read = False  # it is asked by a session of its own
        asked = AskedTables("slot", standby, primary)
        client = QueryingConnection(other)
        requests.ask(client, "slot", [ALL])
        with standby.cursor() as replayed:
            replayed.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            ((_, first),) = asked.newest(print).items()
            requests.ask(client, "slot", [ALL])
            assert asked.newest(print) == {ALL: first}  # the second one is not replayed yet

            asked.answer(ALL, first)
            assert [one.number for one in requests.requests(client, "slot")] == [first + 1]
            assert asked.newest(print) == {}  # the first one is still to be seen
            replayed.execute("COMMIT")
        assert asked.newest(print) == {ALL: first + 1}
        primary.close()


def test_numbers_begin_anew_where_the_table_of_requests_was_made_again(postgres_url: str) -> None:
    """Our own way out of one that is not ours is to drop it."""
    arguments = parse_dsn(postgres_url)
    with closing(catalog.connect(arguments)) as reading:
        primary = Primary(arguments, reading)
        asked, client = AskedTables("slot", reading, primary), QueryingConnection(reading)
        for _ in range(2):
            requests.ask(client, "slot", [ALL])
        asked.answer(ALL, asked.newest(print)[ALL])
        client.query("DROP TABLE gauss_cdc.snapshot_requests")

        requests.ask(client, "slot", [ALL])

        assert asked.newest(print) == {ALL: 1}
        primary.close()


@pytest.mark.parametrize("when", ["infinity", "-infinity", "12026-01-01"])
def test_a_request_of_no_time_is_one(postgres_url: str, when: str) -> None:
    with closing(catalog.connect(parse_dsn(postgres_url))) as connection:
        session = QueryingConnection(connection)
        requests.ask(session, "slot", [ALL])
        session.query(f"UPDATE gauss_cdc.snapshot_requests SET asked_at = '{when}'")

        assert [one.wish for one in requests.requests(session, "slot")] == [ALL]


def test_what_the_primary_wrote_is_waited_for_until_it_is_replayed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = parse_dsn(postgres_url)
    with closing(catalog.connect(arguments)) as standby:
        primary = Primary(arguments, standby)
        primary.is_read = False
        written, read = catalog.log_end(primary.connection), catalog.log_end
        replayed = iter([Lsn(written - 100), Lsn(written - 1), Lsn(1 << 60), Lsn(0)])
        monkeypatch.setattr(
            catalog, "log_end", lambda db: next(replayed) if db is standby else read(db)
        )

        primary.await_replay()

        monkeypatch.setattr(primary_module, "_REPLAY_SECONDS", -1.0)
        with pytest.raises(SourceBusy, match="has not replayed yet"):
            primary.await_replay()
        assert next(replayed, None) is None
        primary.close()


OLD = (
    "CREATE TABLE gauss_cdc.snapshot_requests (number bigserial PRIMARY KEY, slot text NOT NULL,"
    " table_schema text NOT NULL, table_name text NOT NULL,"
    " asked_at timestamptz NOT NULL DEFAULT clock_timestamp(), asked_by text DEFAULT session_user)"
)
LAKE = Wish(T, "lake")


def found(session: QueryingConnection) -> list[Wish]:
    return [one.wish for one in requests.requests(session, "slot")]


def test_a_request_for_one_target_is_its_own_and_one_for_all_answers_it(postgres_url: str) -> None:
    with closing(catalog.connect(parse_dsn(postgres_url))) as connection:
        session = QueryingConnection(connection)
        requests.ask(session, "slot", [LAKE, ALL, Wish(T, "other")])
        assert found(session) == [LAKE, ALL, Wish(T, "other")]

        assert requests.forget(session, "slot", LAKE) == 1
        assert requests.forget(session, "slot", LAKE) == 0
        assert found(session) == [ALL, Wish(T, "other")]
        assert requests.forget(session, "slot", ALL) == 2


def test_a_table_of_requests_of_an_older_release_gets_the_column(postgres_url: str) -> None:
    with closing(catalog.connect(parse_dsn(postgres_url))) as connection:
        session = QueryingConnection(connection)
        requests.ask(session, "slot", [ALL])
        session.query("DROP TABLE gauss_cdc.snapshot_requests")
        session.query(OLD)
        requests.ask(session, "slot", [ALL])
        assert found(session) == [ALL]
        assert requests.forget(session, "slot", LAKE) == 0

        requests.ask(session, "slot", [LAKE])
        assert found(session) == [ALL, LAKE]


def test_who_may_not_add_it_is_told_who_does(postgres_url: str) -> None:
    new_role = "asks_" + postgres_url.rpartition("/")[2]
    with closing(catalog.connect(parse_dsn(postgres_url))) as connection:
        session = QueryingConnection(connection)
        requests.ask(session, "slot", [ALL])
        session.query("DROP TABLE gauss_cdc.snapshot_requests")
        session.query(OLD)
        session.query(f"CREATE ROLE {new_role}")
        session.query(f"GRANT USAGE ON SCHEMA gauss_cdc TO {new_role}")
        session.query(f"GRANT SELECT, INSERT, DELETE ON gauss_cdc.snapshot_requests TO {new_role}")
        session.query(f"SET ROLE {new_role}")

        with pytest.raises(NotPermitted) as refused:
            requests.ask(session, "slot", [LAKE])

        session.query(f"RESET ROLE; DROP OWNED BY {new_role}; DROP ROLE {new_role}")
    assert (
        "ALTER TABLE gauss_cdc.snapshot_requests ADD COLUMN for_target text" in refused.value.hint
    )
