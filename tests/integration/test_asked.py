"""Requests for re-reads where a standby is read: a snapshot stands for its replay, which lags."""

from contextlib import closing

import pytest

from producer.errors import SourceBusy
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
        requests.ask(client, "slot", [T])
        with standby.cursor() as replayed:
            replayed.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            ((_, first),) = asked.newest(print).items()
            requests.ask(client, "slot", [T])
            assert asked.newest(print) == {T: first}  # the second one is not replayed yet

            asked.answer(T, first)
            assert [one.number for one in requests.requests(client, "slot")] == [first + 1]
            assert asked.newest(print) == {}  # the first one is still to be seen
            replayed.execute("COMMIT")
        assert asked.newest(print) == {T: first + 1}
        primary.close()


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
