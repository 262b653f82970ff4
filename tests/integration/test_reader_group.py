"""Processes that share tables in a group of Kafka's, on a real broker."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from gauss_cdc_reader import Bookmark, Change, Reader, SettingRefused
from gauss_cdc_reader import tables as tables_module
from schemas.tables import Column, TableId, TableSchema
from tests.e2e.path import UntilTold, until
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import insert


def typed(name: str) -> TableSchema:
    columns = Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text")
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


TABLES = [typed(name) for name in "abcd"]
NAMES = [f"public.{name}" for name in "abcd"]
# Members hear of each other at once; one that the machine keeps waiting is no silent one.
QUICK = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 500}


@pytest.fixture
def source(kafka: str, topic_prefix: str) -> KafkaFeed:
    return KafkaFeed(kafka, topic_prefix, *TABLES)


class Written:
    """Commits of a row for each table, numbered on."""

    def __init__(self, source: KafkaFeed) -> None:
        self.source, self.last = source, 0

    def write(self, commits: int) -> None:
        for _ in range(commits):
            self.last += 1
            self.source.feed.commits([insert(table, str(self.last), "x") for table in TABLES])
        self.source.publish()

    def ids(self) -> list[int]:
        return list(range(1, self.last + 1))


class Service(UntilTold):
    """Reads tables in a group until it is told to end; `seen` are the numbers by table."""

    def __init__(self, source: KafkaFeed, group: str, names: list[str] = NAMES) -> None:
        super().__init__()
        self.reader = reader_of(source)
        self.group, self.names = group, names
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for _, change in self.reader.changes(*self.names, group=self.group):
                assert change.after is not None
                self.seen[change.table.name].append(change.after["id"])
                if self.ended.is_set():
                    self.reader.close()
            # The change in hand is done: the next one was asked for.
        except Exception as error:  # noqa: BLE001  the test's own thread raises it
            self.failure = error

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.reader.close()
        self.join(60)
        if self.failure is not None:
            raise self.failure


def reader_of(source: KafkaFeed, **settings: int) -> Reader:
    client = source.client | QUICK | settings
    return Reader(client, registry=source.registry, prefix=source.feed.source)


def ids(found: Iterator[tuple[Bookmark, Change]]) -> dict[str, list[int]]:
    seen: dict[str, list[int]] = defaultdict(list)
    for _, change in found:
        assert change.after is not None
        seen[change.table.name].append(change.after["id"])
    return seen


def each(numbers: list[int]) -> dict[str, list[int]]:
    return dict(zip("abcd", [numbers] * 4, strict=True))


def have(services: list[Service], numbers: list[int]) -> Callable[[], bool]:
    """Say whether services together have each number of each table."""

    def arrived() -> bool:
        for service in services:
            if service.failure is not None:
                raise service.failure
        seen = [{n for service in services for n in service.seen[table]} for table in "abcd"]
        return seen == [{*numbers}] * 4

    return arrived


def test_a_group_goes_on_where_it_stood(source: KafkaFeed) -> None:
    written, reader = Written(source), reader_of(source)
    written.write(3)
    assert ids(reader.changes(*NAMES, group="g", wait=False)) == each([1, 2, 3])
    assert ids(reader.changes(*NAMES, group="g", wait=False)) == {}
    written.write(2)
    assert ids(reader.changes(*NAMES, group="g", wait=False)) == each([4, 5])
    assert ids(reader.changes(*NAMES, group="another", wait=False)) == each([1, 2, 3, 4, 5])


def test_the_change_in_hand_is_given_again(source: KafkaFeed) -> None:
    written, reader = Written(source), reader_of(source)
    written.write(3)
    found = reader.changes("public.a", group="g", wait=False)
    _, change = next(found)
    _, change = next(found)
    assert change.after == {"id": 2, "v": "x"}
    found.close()  # type: ignore[attr-defined]  an iterator of ours is a generator

    assert ids(reader.changes("public.a", group="g", wait=False)) == {"a": [2, 3]}


def test_a_table_that_the_group_did_not_read_begins_where_it_is_told(source: KafkaFeed) -> None:
    written, reader = Written(source), reader_of(source)
    written.write(3)
    assert ids(reader.changes("public.a", group="g", after="1/2", wait=False)) == {"a": [3]}
    written.write(1)
    both = reader.changes("public.a", "public.b", group="g", after="1/1", wait=False)
    assert ids(both) == {"a": [4], "b": [2, 3, 4]}


def test_members_share_tables_and_one_takes_over_what_another_leaves(source: KafkaFeed) -> None:
    written = Written(source)
    with Service(source, "g") as first:
        written.write(5)
        until(have([first], written.ids()), "all of one member", time.sleep)
        with Service(source, "g") as second:
            until(lambda: len(second.seen) == 2 or not written.write(1), "its share", pause)
            until(have([first, second], written.ids()), "all of two members", time.sleep)
            # Each table has one reader, which goes on where the other one stood.
            for table in "abcd":
                assert first.seen[table] + second.seen[table] == written.ids()
        written.write(3)
        until(have([first, second], written.ids()), "all of those that are left", time.sleep)
    for table in "abcd":
        assert sorted(first.seen[table] + second.seen[table]) == written.ids()


def pause(seconds: float) -> None:
    threading.Event().wait(10 * seconds)


def test_a_frozen_member_is_replaced_and_gives_up_its_tables(
    source: KafkaFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "_TOGETHER", 7)
    written, frozen = (
        Written(source),
        reader_of(source, **{"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}),
    )
    written.write(9)
    left = frozen.changes(*NAMES, group="g")
    taken = [next(left) for _ in range(17)]  # and asks for no more for longer than it may
    done = ids(iter(taken[:-1]))
    with Service(source, "g") as other:
        until(
            lambda: all({*done[t], *other.seen[t]} == {*written.ids()} for t in "abcd"),
            "all of a frozen member",
            time.sleep,
        )
        for table in "abcd":
            assert done[table] == written.ids()[: len(done[table])]
            assert other.seen[table] == written.ids()[-len(other.seen[table]) :]
        frozen.close()
        assert list(left) == []


def test_a_member_that_leaves_while_its_tables_are_asked_for_stores_its_places_first(
    source: KafkaFeed,
) -> None:
    written, leaving, admin = Written(source), reader_of(source), AdminClient(source.client)
    written.write(9)
    left = leaving.changes(*NAMES, group="g")
    done = ids(next(left) for _ in range(17))  # and the last one is in hand

    def is_asked_for() -> bool:
        group = admin.describe_consumer_groups(["g"])["g"].result()
        return bool(group.state == ConsumerGroupState.PREPARING_REBALANCING)

    with Service(source, "g") as other:
        until(is_asked_for, "the group asks for its tables", time.sleep)
        pause(0.2)  # a few heartbeats: the member's client knows
        left.close()  # type: ignore[attr-defined]  an iterator of ours is a generator
        until(lambda: len(other.seen) == 4, "what is left", time.sleep)
        until(lambda: all(other.seen[t][-1:] == [9] for t in "abcd"), "all of it", time.sleep)
    in_hand = [table for table in done if other.seen[table][0] == done[table][-1]]
    assert len(in_hand) == 1
    done[in_hand[0]].pop()
    for table in "abcd":
        assert done[table] + other.seen[table] == written.ids()


@pytest.mark.parametrize("seed", range(3))
def test_members_that_come_and_go_lose_nothing_and_repeat_nothing(
    source: KafkaFeed, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "_TOGETHER", 5)
    chance, written, all_of_them = random.Random(seed), Written(source), list[Service]()
    for _ in range(4):
        services = [Service(source, "g") for _ in range(chance.randint(1, 3))]
        all_of_them += services
        for service in services:
            service.start()
        written.write(chance.randint(1, 9))
        if chance.random() < 0.5:
            until(have(all_of_them, written.ids()), "all of them", time.sleep)
        for service in services:
            service.__exit__()
    with Service(source, "g") as last:
        until(have([*all_of_them, last], written.ids()), "all of them", time.sleep)
    for table in "abcd":
        numbers = [n for service in [*all_of_them, last] for n in service.seen[table]]
        assert sorted(numbers) == written.ids()


def test_a_table_without_a_topic_is_named(source: KafkaFeed) -> None:
    with pytest.raises(SettingRefused, match=r"no topic.*public\.nowhere"):
        next(reader_of(source).changes("public.a", "public.nowhere", group="g"))
