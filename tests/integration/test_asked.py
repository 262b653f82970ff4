"""Requests for re-reads where a standby is read: a snapshot stands for its replay, which lags."""

from contextlib import closing

from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.asked import AskedTables
from producer.sources.postgres.catalog import QueryingConnection
from producer.sources.postgres.primary import Primary
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
