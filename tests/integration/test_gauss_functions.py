"""A slot read by SQL functions, on a real PostgreSQL with test_decoding."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from gauss_cdc_lab.services import Addresses
from producer.errors import HistoryDiffers, SlotAhead, SlotMissing, SlotTaken, SourceError
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.functions import FunctionStream
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from producer.wire.replication import WalMessage
from schemas.positions import Lsn, parse_lsn
from tests.services_fixtures import drop_database


def run(url: str, *statements: str | sql.Composable) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


def rows_of(url: str, query: str) -> str:
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return str(cursor.fetchall()[0][0])


def session(url: str) -> GaussConnection:
    return GaussConnection.open(parse_dsn(url), replication=False, settings=SESSION_SETTINGS)


def make_slot(url: str, name: str) -> None:
    with ReplicationConnection.open(parse_dsn(url)) as connection:
        connection.create_slot(name, "test_decoding")


@pytest.fixture
def slot(postgres_url: str, topic_prefix: str) -> str:
    run(postgres_url, "CREATE TABLE public.t (id int PRIMARY KEY, v text)")
    make_slot(postgres_url, topic_prefix)
    return topic_prefix


Open = Callable[..., FunctionStream]


@pytest.fixture
def open_stream(postgres_url: str, slot: str) -> Iterator[Open]:
    """Call it for a stream from the slot; it asks again at once when not confirmed."""
    made: list[FunctionStream] = []

    def make(**settings: Any) -> FunctionStream:
        settings = {"poll_seconds": 0, "patience_seconds": 0, **settings}
        stream = FunctionStream(
            session(postgres_url), settings.pop("slot", slot), settings.pop("options", ()),
            **settings,
        )  # fmt: skip
        made.append(stream)
        return stream

    yield make
    for stream in made:
        stream.close()


def until(stream: FunctionStream, text: bytes) -> list[WalMessage]:
    """Messages up to the COMMIT behind the row that holds `text`."""
    messages: list[WalMessage] = []
    while not any(text in m[2] for m in messages) or not messages[-1][2].startswith(b"COMMIT"):
        messages += stream.receive(60).messages
    return messages


def rows_in(messages: list[WalMessage]) -> list[bytes]:
    return [payload for _, _, payload in messages if payload.startswith(b"table ")]


def commit_end(messages: list[WalMessage]) -> Lsn:
    return Lsn(messages[-1][0])


def insert(url: str, *ids: int) -> None:
    run(url, *(f"INSERT INTO public.t VALUES ({n}, 'row {n};')" for n in ids))


def row(n: int) -> bytes:
    return f"table public.t: INSERT: id[integer]:{n} v[text]:'row {n};'".encode()


def test_rows_and_places_are_those_of_a_stream(
    postgres_url: str, slot: str, open_stream: Open
) -> None:
    with ReplicationConnection.open(parse_dsn(postgres_url)) as other:
        other.create_slot(f"{slot}_stream", "test_decoding", temporary=True)
        run(
            postgres_url,
            "INSERT INTO public.t SELECT g, repeat('中\\'';\n', g) FROM generate_series(1, 50) g",
            "UPDATE public.t SET id = 99 WHERE id = 1",
            "TRUNCATE public.t",
        )
        insert(postgres_url, 100)
        other.start(f"{slot}_stream", {})
        streamed: list[WalMessage] = []
        while not any(row(100) in m[2] for m in streamed) or b"COMMIT" not in streamed[-1][2]:
            streamed += other.receive(60).messages

    for binary in (False, True):
        messages = until(open_stream(binary=binary), row(100))

        assert [m[2] for m in messages] == [m[2] for m in streamed]
        assert [m[0] for m in messages] == [m[0] for m in streamed]


def test_a_peek_that_is_not_confirmed_gives_the_same_to_the_next_reader(
    postgres_url: str, open_stream: Open
) -> None:
    insert(postgres_url, 1, 2)

    first = until(open_stream(), row(2))
    again = until(open_stream(), row(2))

    assert first == again
    assert rows_in(first) == [row(1), row(2)]


def test_what_is_confirmed_does_not_come_back(postgres_url: str, open_stream: Open) -> None:
    insert(postgres_url, 1, 2)
    stream = open_stream()
    stream.send_status(commit_end(until(stream, row(2))))
    insert(postgres_url, 3)

    assert rows_in(until(stream, row(3))) == [row(3)]
    assert rows_in(until(open_stream(), row(3))) == [row(3)]


def test_a_call_that_began_behind_a_flush_tells_that_everything_before_it_was_given(
    postgres_url: str, open_stream: Open
) -> None:
    insert(postgres_url, *range(1, 30))
    stream = open_stream(rows_a_call=10_000)
    first = stream.receive(60)
    insert(postgres_url, 30)
    end = parse_lsn(rows_of(postgres_url, "SELECT pg_current_wal_flush_lsn()::text"))

    stream.flushed(end)

    told = [first.keepalive_end]
    given = [*first.messages]
    while told[-1] == Lsn(0):
        received = stream.receive(60)
        given += received.messages
        told.append(received.keepalive_end)
    assert told[-1] == end
    assert rows_in(given) == [row(n) for n in range(1, 31)]


def test_what_was_given_is_not_given_twice_while_it_waits_to_be_confirmed(
    postgres_url: str, open_stream: Open
) -> None:
    stream = open_stream()
    insert(postgres_url, 1)
    given = until(stream, row(1))
    insert(postgres_url, 2)
    given += until(stream, row(2))
    stream.send_status(commit_end(given[:-3]))  # of the first only
    insert(postgres_url, 3)
    given += until(stream, row(3))

    assert rows_in(given) == [row(1), row(2), row(3)]


def test_a_restart_in_the_middle_loses_nothing(postgres_url: str, open_stream: Open) -> None:
    insert(postgres_url, *range(1, 11))
    stream = open_stream()
    given = until(stream, row(10))
    places = [at for at, m in enumerate(given) if m[2].startswith(b"COMMIT")]
    middle = given[: places[4] + 1]  # made durable, the rest was not
    stream.send_status(commit_end(middle))
    stream.close()

    later = until(open_stream(), row(10))

    assert rows_in(middle) + rows_in(later) == [row(n) for n in range(1, 11)]


def test_a_stop_with_a_call_half_read_loses_nothing(postgres_url: str, open_stream: Open) -> None:
    run(postgres_url, "INSERT INTO public.t SELECT g, 'x' FROM generate_series(1, 5000) g")
    stream = open_stream()
    half = stream.receive(60).messages
    stream.send_status(Lsn(0))
    stream.close()

    insert(postgres_url, 9999)
    messages = until(open_stream(), row(9999))

    assert 0 < len(rows_in(half)) < 5000
    assert len(rows_in(messages)) == 5001


def test_more_rows_than_one_call_gives(postgres_url: str, open_stream: Open) -> None:
    """One transaction larger than a call, then many that make several calls."""
    run(
        postgres_url,
        "INSERT INTO public.t SELECT g, 'x' FROM generate_series(1, 40000) g",
        "DO $$ BEGIN FOR n IN 1..3000 LOOP INSERT INTO public.t VALUES (50000 + n, 'y');"
        " COMMIT; END LOOP; END $$",
    )
    insert(postgres_url, 100000)
    stream = open_stream(rows_a_call=1000)
    given: list[WalMessage] = []
    largest, is_there = 0, False

    while not (is_there and given[-1][2].startswith(b"COMMIT")):
        some = stream.receive(60).messages
        is_there = is_there or row(100000) in rows_in(some)  # ANALYZE may come behind it
        largest = max(largest, len(some))
        given += some
        if given and given[-1][2].startswith(b"COMMIT"):
            stream.send_status(commit_end(given))

    rows = rows_in(given)
    assert len(rows) == len(set(rows)) == 43001
    assert largest <= 256


def test_large_rows_are_fetched_in_small_numbers(postgres_url: str, open_stream: Open) -> None:
    run(
        postgres_url,
        "INSERT INTO public.t SELECT g, repeat(md5(g::text), 32000) FROM generate_series(1, 40) g",
    )
    insert(postgres_url, 100)
    stream = open_stream()
    sizes = []
    rows = 0

    while rows < 41:
        messages = stream.receive(60).messages
        sizes.append(len(messages))
        rows += len(rows_in(messages))

    assert sizes[0] <= 16
    assert max(sizes[1:]) <= 4  # 1 MB each


def test_nothing_to_read_waits_and_can_be_woken(open_stream: Open) -> None:
    stream = open_stream(poll_seconds=3600)
    reading, writing = os.pipe()
    try:
        assert stream.receive(0).messages == []
        os.write(writing, b"!")
        assert stream.receive(3600, (reading,)).messages == []
    finally:
        os.close(reading)
        os.close(writing)


def test_options_reach_the_plugin(postgres_url: str, open_stream: Open) -> None:
    insert(postgres_url, 1)

    messages = until(
        open_stream(options=(("include-xids", "0"), ("skip-empty-xacts", "1"))), row(1)
    )

    assert [m[2] for m in messages] == [b"BEGIN", row(1), b"COMMIT"]
    with pytest.raises(SourceError):
        open_stream(options=(("it's no option", "\\"),)).receive(60)


def test_a_slot_that_another_client_moved(postgres_url: str, slot: str, open_stream: Open) -> None:
    insert(postgres_url, 1)
    stream, other = open_stream(), open_stream()
    other.send_status(commit_end(until(other, row(1))))

    with pytest.raises(SlotAhead):
        stream.receive(60)
    run(postgres_url, f"SELECT pg_drop_replication_slot('{slot}')")
    with pytest.raises(SlotMissing):
        other.receive(60)
    with pytest.raises(SlotMissing):
        open_stream()


def test_a_slot_in_use(postgres_url: str, slot: str, open_stream: Open) -> None:
    stream = open_stream()
    with ReplicationConnection.open(parse_dsn(postgres_url)) as other:
        other.start(slot, {})

        with pytest.raises(SlotTaken):
            stream.receive(60)


def test_a_slot_that_was_made_again_is_another_history(
    postgres_url: str, slot: str, open_stream: Open
) -> None:
    """Under the same name, so that no place is ahead of ours."""
    insert(postgres_url, 1)
    stream = open_stream()
    until(stream, row(1))
    run(postgres_url, f"SELECT pg_drop_replication_slot('{slot}')")
    make_slot(postgres_url, slot)
    insert(postgres_url, 2)

    with pytest.raises((HistoryDiffers, SlotAhead)):
        until(stream, row(2))


def test_payloads_are_in_the_databases_encoding(addresses: Addresses) -> None:
    name = f"t_{uuid.uuid4().hex[:12]}"
    run(
        addresses.postgres_url(),
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
    )
    url = addresses.postgres_url(name)
    try:
        make_slot(url, name)
        run(url, "CREATE TABLE public.t (v text)", "INSERT INTO public.t VALUES ('naïve')")
        with closing(FunctionStream(session(url), name)) as stream:
            messages = until(stream, b"INSERT")
    finally:
        drop_database(addresses.postgres_url(), name)

    assert rows_in(messages) == [b"table public.t: INSERT: v[text]:'na\xefve'"]
