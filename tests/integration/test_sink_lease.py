"""Who applies: leases that are renewed, given back, left behind, or not renewed any more."""

import contextlib
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psycopg2
import pytest

from spark_consumers.errors import ApplyError, Fenced
from spark_consumers.model import Ledger
from spark_consumers.sinks.lease import SILENCE
from spark_consumers.sinks.postgres.lease import _TAKE
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import until
from tests.integration.postgres_target import ACCOUNT, Target, load, only_postgresql, rows
from tests.spark_consumers.feed import insert, update

pause = threading.Event().wait


def freeze(sink: PostgresSink) -> None:
    """It does nothing any more, and says no good-bye; its sessions stay."""
    sink._keeper._closing.set()
    assert sink._keeper._thread is not None
    sink._keeper._thread.join(30)


def fall_silent(target: Target) -> None:
    """So much time passes for the server that its lease expires."""
    target.run("UPDATE gauss_cdc.lease SET expires = clock_timestamp()")


def lose(*sinks: PostgresSink) -> None:
    """They are killed."""
    for sink in sinks:
        freeze(sink)
        sink._lease._conn.close()
        if sink._conn is not None:
            sink._conn.close()


def started(sink: PostgresSink) -> Ledger:
    """Start it, once whoever was there is gone."""
    found: list[Ledger] = []

    def is_there() -> bool:
        found.extend(filter(None, [sink.start()]))
        return bool(found)

    until(is_there, "a lease", pause)
    return found[0]


@contextmanager
def locked(target: Target, statement: str) -> Iterator[None]:
    """What another session does in a transaction that it leaves open."""
    with contextlib.closing(psycopg2.connect(target.url)) as other, other.cursor() as cursor:
        cursor.execute(statement)
        yield
        other.rollback()


@contextmanager
def waiting_step(
    target: Target, step: Callable[[], object] | None = None
) -> Iterator[threading.Thread]:
    """A step that holds the ledger's lock, and waits for somebody's."""
    usual = partial(target.apply, update(ACCOUNT, "1", "A", ...))
    thread = threading.Thread(target=step or usual)
    with locked(target, "LOCK TABLE account IN ACCESS EXCLUSIVE MODE"):
        thread.start()
        until(
            lambda: bool(target.query("SELECT 1 FROM pg_locks WHERE NOT granted")),
            "a step that waits", pause,
        )  # fmt: skip
        yield thread
    thread.join(60)


def test_a_second_applier_waits_names_the_holder_and_takes_over(target: Target) -> None:
    load(target, ACCOUNT)
    waits: list[str] = []
    second = target.new_sink(on_wait=waits.append)

    assert [second.start() for _ in range(3)] == [None] * 3
    assert re.fullmatch(
        r"another applier of bank holds the target, pid \d+ \(user postgres, application \S+, "
        r"from 127\.0\.0\.1, \w+, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)"
        r"(, pid \d+ \(user .*\))? is process \d+ on \S+ \(\w{8}\); "
        r"waiting for it to end, or to be silent for 8 s",
        waits[0],
    )
    target.sink.close()

    assert started(second).fence == 2
    assert len(waits) == 1
    second.close()


def test_two_first_starts_at_once_leave_one_holder(
    new_database: Callable[[], str], kind: str
) -> None:
    target = Target(new_database(), kind)
    sinks = [target.sink, *(target.new_sink() for _ in range(3))]
    found: list[Ledger | None] = []
    threads = [threading.Thread(target=lambda s=s: found.append(s.start())) for s in sinks]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(found) == 4
    assert len([ledger for ledger in found if ledger is not None]) <= 1
    while not any(found):  # each may have met another one's tables
        found = [sink.start() for sink in sinks]
    assert len([ledger for ledger in found if ledger is not None]) == 1
    for sink in sinks:
        sink.close()


def test_one_that_was_killed_is_replaced_before_its_lease_expires(target: Target) -> None:
    load(target, ACCOUNT)
    second = target.new_sink()
    assert second.start() is None

    lose(target.sink)
    target.run("UPDATE gauss_cdc.lease SET expires = 'infinity'")

    assert started(second).fence == 2
    second.close()


@only_postgresql
def test_a_copy_of_the_database_ends_no_session_of_the_original(
    target: Target, new_database: Callable[[], str], kind: str
) -> None:
    """Its lease is a copy, too: it names sessions of the same server."""
    load(target, ACCOUNT)
    other = Target(new_database(), kind)
    load(other, ACCOUNT)
    other.sink.close()
    lease = "SELECT row_to_json(l)::text FROM gauss_cdc.lease l"
    until(lambda: '"keeper":null' not in target.query(lease)[0][0], "its sessions", pause)
    other.run(
        "INSERT INTO gauss_cdc.lease"
        " SELECT (json_populate_record(NULL::gauss_cdc.lease, %s::json)).*",
        target.query(lease)[0][0],
    )
    its = "SELECT count(*) FROM pg_stat_activity a, gauss_cdc.lease l WHERE pid IN (keeper, worker)"

    assert other.sink.start() is not None
    assert target.query(its) == [(2,)]
    other.sink.close()


@only_postgresql
def test_a_session_that_was_lost_is_not_the_end_of_its_applier(target: Target) -> None:
    load(target, ACCOUNT)
    second = target.new_sink()
    target.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity, gauss_cdc.lease"
        " WHERE pid = worker"
    )

    assert second.start() is None
    assert target.apply(insert(ACCOUNT, "1", "a", "x")).fence == 1
    second.close()


def test_a_lease_is_renewed_while_a_step_waits_for_longer_than_it_lasts(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    second = target.new_sink()
    ((begin,),) = target.query("SELECT clock_timestamp()")
    long = f"SELECT clock_timestamp() > '{begin}'::timestamptz + interval '{SILENCE + 3} seconds'"
    with waiting_step(target):
        while target.query(long) == [(False,)]:
            assert second.start() is None
            pause(0.2)

    assert rows(target, "account") == [(1, "A", "x")]
    assert target.query("SELECT fence, seq FROM gauss_cdc.ledger") == [(1, 1)]
    second.close()


def test_one_that_is_frozen_in_a_step_is_replaced_and_leaves_when_it_wakes(
    target: Target, recwarn: pytest.WarningsRecorder
) -> None:
    """The step holds the ledger's lock, for as long as its session lives."""
    load(target, ACCOUNT, ["1", "a", "x"])
    first, said = target.sink, list[str]()
    second = target.new_sink(on_wait=said.append)
    target.feed.commits([insert(ACCOUNT, "2", "b", "y")])
    failed: list[ApplyError] = []

    def end_up() -> None:
        try:
            target.drain()
        except ApplyError as error:
            failed.append(error)

    with waiting_step(target, end_up):
        freeze(first)
        assert second.start() is None
        fall_silent(target)

        assert started(second).fence == 2

    assert re.search(
        r"another applier took over this target: this one was silent for \d+ s",
        str(failed[0]),
    )
    assert isinstance(failed[0], Fenced)
    assert f"by={second._lease.name}" in str(failed[0])
    assert "it was stopped, suspended or cut off" in failed[0].hint
    with pytest.raises(Fenced):
        first.check()
    target.sink, target.applier = (
        second,
        type(target.applier)(target.feed.read_cuts, target.read_rows, second),
    )
    assert target.drain().seq == 1
    assert rows(target, "account") == [(1, "a", "x"), (2, "b", "y")]
    assert any("is silent or gone; this applier takes over" in text for text in said)
    first.close()
    assert second.start() is not None  # nobody took its lease away


def test_one_that_is_frozen_as_it_takes_the_fence_is_replaced(target: Target) -> None:
    """Its transaction holds no lock on the lease: who waits would wait for its session's end."""
    load(target, ACCOUNT)
    target.sink.close()
    first, second, failed = target.new_sink(), target.new_sink(), list[ApplyError]()
    left_over = f"gauss_cdc.stage_{zlib.crc32(b'bank'):08x}_1"
    target.run(f"CREATE TABLE {left_over} ()")

    def begin() -> None:
        try:
            first.start()
        except ApplyError as error:
            failed.append(error)

    thread = threading.Thread(target=begin, daemon=True)
    with locked(target, f"LOCK TABLE {left_over}"):
        thread.start()
        until(
            lambda: bool(target.query("SELECT 1 FROM pg_locks WHERE NOT granted")),
            "a start that waits", pause,
        )  # fmt: skip
        freeze(first)
        fall_silent(target)
        until(second._take_lease, "a lease", pause)
    thread.join(60)

    assert isinstance(failed[0], ApplyError)
    assert started(second).fence == 2
    assert target.query("SELECT holder FROM gauss_cdc.lease") == [(second._lease.name,)]
    first.close()
    second.close()


def test_the_sessions_of_a_frozen_one_are_ended_though_who_took_over_was_killed(
    target: Target,
) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    first, second = target.sink, target.new_sink()
    target.feed.commits([insert(ACCOUNT, "2", "b", "y")])

    def end_up() -> None:
        with pytest.raises(Fenced):
            target.drain()

    with waiting_step(target, end_up):
        freeze(first)
        fall_silent(target)
        ((holder, expires),) = target.query("SELECT holder, expires::text FROM gauss_cdc.lease")
        with contextlib.closing(psycopg2.connect(target.url)) as killed, killed:
            killed.cursor().execute(_TAKE, ("killed", target.sink._source, holder, expires))

        assert started(second).fence == 2

    first.close()
    second.close()


def test_one_that_is_silent_is_replaced_though_the_clock_of_the_server_went_back(
    target: Target,
) -> None:
    load(target, ACCOUNT)
    first, second = target.sink, target.new_sink()
    looks = 100.0
    second._lease._clock = lambda: looks
    assert second.start() is None
    freeze(first)
    target.run("UPDATE gauss_cdc.lease SET expires = clock_timestamp() + interval '1 hour'")
    looks += SILENCE + 1
    assert second.start() is None, "it is another row than before"
    looks += SILENCE + 1

    ledger = second.start()

    assert ledger is not None
    assert ledger.fence == 2
    first.close()
    second.close()


def test_one_that_was_frozen_before_it_took_the_fence_does_not_take_it_from_the_new_one(
    target: Target,
) -> None:
    load(target, ACCOUNT)
    target.sink.close()
    late = target.new_sink()
    assert late._take_lease()
    freeze(late)
    target.run("UPDATE gauss_cdc.lease SET holder = 'another'")

    assert late.start() is None

    assert target.query("SELECT fence FROM gauss_cdc.ledger") == [(1,)]
    assert target.query("SELECT holder FROM gauss_cdc.lease") == [("another",)]
    late.close()


def test_one_that_is_idle_notices_by_itself_that_it_was_replaced(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("UPDATE gauss_cdc.lease SET holder = 'another'")

    until(lambda: target.sink._keeper._lost is not None, "the news", pause)

    with pytest.raises(Fenced, match="by=another"):
        target.drain()


@only_postgresql
def test_who_may_not_end_a_session_says_so_and_the_fence_guards(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])
    first, said = target.sink, list[str]()
    name = target.url.rpartition("/")[2].partition("?")[0]
    target.run(
        f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE {name} TO {name};"
        f"ALTER SCHEMA gauss_cdc OWNER TO {name}; ALTER TABLE account OWNER TO {name};"
        + "".join(
            f"ALTER TABLE gauss_cdc.{table} OWNER TO {name};"
            for table in ("ledger", "tables", "loads", "shadows", "lease", "conflicts", "shapes")
        )
    )
    second = target.new_sink(target.url.replace("postgres@", f"{name}@"), on_wait=said.append)
    freeze(first)
    fall_silent(target)

    try:
        assert started(second).fence == 2
        assert re.search(r"the role may not end its session \d+, which may hold locks", said[-1])
        with pytest.raises(Fenced, match="another applier took over"):
            target.apply(insert(ACCOUNT, "2", "b", "y"))
    finally:
        second.close()
        first.close()
        target.run(f"REASSIGN OWNED BY {name} TO postgres; DROP OWNED BY {name}; DROP ROLE {name}")
