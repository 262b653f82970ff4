"""What a service reads of topics on a real broker: whole commits, and from where it stopped."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition

from gauss_cdc_reader import (
    AsyncReader,
    Change,
    Commit,
    RangeExpired,
    Reader,
    SettingRefused,
    StreamError,
)
from schemas.control import Hole, LoadPhase
from schemas.tables import Column, TableId, TableSchema
from tests.e2e.path import PATIENCE
from tests.integration.kafka_feed import KafkaFeed
from tests.spark_consumers.feed import Tx, alter, delete, insert, truncate, update


def typed(name: str, *more: Column) -> TableSchema:
    columns = (
        Column("id", 23, -1, "integer", nullable=False),
        Column("v", 25, -1, "text"),
        *more,
    )
    return TableSchema(TableId("public", name), columns, ("id",), identity_columns=("id",))


A, B = typed("a"), typed("b")


@pytest.fixture
def source(kafka: str, topic_prefix: str) -> KafkaFeed:
    return KafkaFeed(kafka, topic_prefix, A, B)


@pytest.fixture(params=[True, False], ids=["native", "python"])
def reader(source: KafkaFeed, request: pytest.FixtureRequest) -> Reader:
    client = source.client["bootstrap.servers"]
    return Reader(client, registry=source.registry, prefix=source.feed.source, native=request.param)


class Copies:
    """Tables as a service has them that puts every change over what it has."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Any, dict[str, Any]]] = {}
        self.gaps: set[str] = set()

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            rows = self.rows.setdefault(change.table.name, {})
            match change.op:
                case "gap":
                    self.gaps.add(change.table.name)
                case "t":
                    rows.clear()
                case _:
                    if change.op in "du" and change.key is not None:
                        kept = rows.pop(change.key["id"], {})
                    if change.op != "d":
                        assert change.after is not None
                        rows[change.after["id"]] = {
                            **(kept if change.op == "u" else {}),
                            **change.after,
                        }


def read(reader: Reader, after: str = "snapshot") -> list[Commit]:
    return list(reader.commits(after, wait=False))


def shown(commits: list[Commit]) -> list[tuple[int, list[tuple[str, str, Any]]]]:
    return [
        (c.position.seq, [(one.table.name, one.op, one.after) for one in c.changes])
        for c in commits
        if c.load is None
    ]


def test_commits_are_whole_and_in_order_over_tables(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits(
        [insert(A, "1", "x"), insert(B, "1", None), insert(A, "2", "y")],
        [update(A, "1", ...), truncate(B)],
    )
    source.feed.commits([delete(A, "1")])
    source.publish()

    commits = read(reader)

    assert shown(commits) == [
        (1, [
            ("a", "c", {"id": 1, "v": "x"}), ("b", "c", {"id": 1, "v": None}),
            ("a", "c", {"id": 2, "v": "y"}),
        ]),
        (2, [("a", "u", {"id": 1}), ("b", "t", None)]),
        (3, [("a", "d", None)]),
    ]  # fmt: skip
    assert [c.xid for c in commits] == [701, 702, 703]
    (deleted,) = commits[2].changes
    assert deleted.before == {"id": 1}
    (kept, _) = commits[1].changes
    assert kept.unsent == ("v",)


@pytest.mark.parametrize("stop", range(1, 5))
def test_a_reader_goes_on_behind_any_commit(source: KafkaFeed, reader: Reader, stop: int) -> None:
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
    source.feed.load(A, LoadPhase.END)
    source.feed.commits(*([insert(A, str(i), "x")] for i in range(3, 6)))
    source.feed.commits([delete(A, "3")])
    source.publish()
    every = read(reader)

    again = read(reader, str(every[stop].position))

    assert [c.position for c in every[: stop + 1] + again] == [c.position for c in every]
    assert [list(c.changes) for c in again] == [list(c.changes) for c in every[stop + 1 :]]


@pytest.mark.parametrize("stop", range(7))
def test_a_reader_of_tables_goes_on_behind_any_change(
    source: KafkaFeed, reader: Reader, stop: int
) -> None:
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
    source.feed.load(A, LoadPhase.END)
    source.feed.commits([insert(B, "1", "x"), insert(A, "3", "x")], [insert(B, "2", "x")])
    source.feed.commits(Tx([truncate(A)], (Hole("public.a", "seen", "a reason"),)))
    source.feed.commits([insert(A, "4", "x")])
    source.publish()
    every = list(reader.changes("public.a", wait=False))
    place = str(every[stop - 1][0]) if stop else "snapshot"
    source.feed.commits([insert(A, "5", "later")])
    source.publish()

    again = list(reader.changes("public.a", after=place, wait=False))

    ids = [change.after["id"] if change.after else change.op for _, change in every]
    assert ids == [1, 2, 3, "gap", "t", 4]
    assert [c for _, c in every[:stop] + again[:-1]] == [c for _, c in every]
    assert again[-1][1].after == {"id": 5, "v": "later"}


def test_both_tables_of_a_commit_come_in_their_order(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(B, "1", "x"), insert(A, "1", "x"), insert(B, "2", "x")])
    source.publish()

    changes = [change for _, change in reader.changes("public.a", "public.b", wait=False)]

    assert [str(change.position) for change in changes] == ["1/1/0", "1/1/1", "1/1/2"]
    assert [change.table.name for change in changes] == ["b", "a", "b"]


def test_asyncio_gives_the_same_and_ends_where_its_task_is_cancelled(
    source: KafkaFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.feed.commits([insert(A, "1", "x")], [delete(A, "1")])
    source.publish()
    kafka, prefix = source.client["bootstrap.servers"], source.feed.source
    wanted = read(Reader(kafka, registry=source.registry, prefix=prefix))

    async def follow(into: list[Commit], whole: asyncio.Event) -> None:
        reader = AsyncReader(kafka, registry=source.registry, prefix=prefix)
        async for commit in reader.commits():
            into.append(commit)
            if len(into) == len(wanted):
                whole.set()

    async def play() -> list[Commit]:
        found: list[Commit] = []
        whole = asyncio.Event()
        task = asyncio.create_task(follow(found, whole))
        await asyncio.wait_for(whole.wait(), PATIENCE)
        await asyncio.sleep(0.2)  # it waits for more
        task.cancel()
        since = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
        assert time.monotonic() < since + 2  # the loop has other work than to wait for a thread
        return found

    monkeypatch.setattr("gauss_cdc_reader.reader._WAIT", 4.0)
    assert asyncio.run(play()) == wanted
    until = time.monotonic() + PATIENCE
    while any(one.name.startswith("gauss-cdc-reader") for one in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_group_is_refused_for_whole_commits_by_name(source: KafkaFeed, reader: Reader) -> None:
    with pytest.raises(SettingRefused, match="one order, and one reader"):
        reader.commits(group="several")


def test_a_place_that_retention_took_says_what_to_do(source: KafkaFeed, reader: Reader) -> None:
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    source.publish()
    first = read(reader)[0]
    source.feed.state()
    source.feed.commits([insert(A, "3", "x")])
    source.publish()
    gone = TopicPartition(source.names.cuts, 0, source.state_at)
    source.admin.delete_records([gone])[gone].result()

    with pytest.raises(RangeExpired, match="`snapshot`, `latest` or a later commit"):
        read(reader, str(first.position))


def test_a_login_in_plain_text_is_refused_without_the_password(source: KafkaFeed) -> None:
    login = {
        "bootstrap.servers": "kafka.example.com:9092", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hidden",
    }  # fmt: skip

    with pytest.raises(SettingRefused) as refused:
        Reader(login, registry=source.registry, prefix="bank")

    assert "hidden" not in str(refused.value)


def test_a_copy_ends_right_after_loads_gaps_and_schema_changes(
    source: KafkaFeed, reader: Reader
) -> None:
    wide = typed("a", Column("w", 25, -1, "text"))
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "x"], ["2", "y"])
    source.feed.load(A, LoadPhase.END)
    source.feed.commits([update(A, "1", "new"), insert(A, "3", "z")])
    source.feed.commits(Tx([insert(A, "4", "lost")], (Hole("public.a", "seen", "a reason"),)))
    source.publish()
    copies = Copies()
    for commit in (first := read(reader)):
        copies.apply(commit.changes)

    assert copies.gaps == {"a"}
    source.feed.load(A, LoadPhase.BEGIN, mode="AGAIN")
    source.feed.load(A, LoadPhase.CHUNK, ["1", "new"], ["9", "mended"], mode="AGAIN")
    source.feed.load(A, LoadPhase.END, mode="AGAIN")
    source.feed.load(A, LoadPhase.BEGIN, mode="BESIDE", target="another")
    source.feed.load(A, LoadPhase.CHUNK, ["7", "not ours"], mode="BESIDE", target="another")
    source.feed.load(A, LoadPhase.END, mode="BESIDE", target="another")
    source.know(wide)
    source.feed.commits([insert(A, "3", "z"), alter(A, wide), insert(wide, "4", "z", "w")])
    source.publish()
    for commit in read(reader, str(first[-1].position)):
        copies.apply(commit.changes)

    assert copies.rows == {
        "a": {
            1: {"id": 1, "v": "new"},
            9: {"id": 9, "v": "mended"},
            3: {"id": 3, "v": "z"},
            4: {"id": 4, "v": "z", "w": "w"},
        }
    }


def test_a_commit_that_is_too_large_to_be_held_is_read_in_parts(
    source: KafkaFeed, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [insert((A, B)[at % 2], str(at), "x") for at in range(40)]
    source.feed.commits([insert(A, "1", "before")])
    source.feed.commits(Tx([*rows, truncate(B)], (Hole("public.b", "seen", "a reason"),)))
    source.publish()
    whole = read(reader)
    monkeypatch.setattr("spark_consumers.kafka.read.WHOLE_BYTES", 0)

    parted = read(reader)

    assert not isinstance(parted[-1].changes, list)
    assert [list(c.changes) for c in parted] == [list(c.changes) for c in whole]
    assert list(parted[-1].changes) == list(whole[-1].changes)  # and again
    assert [c.position for c in parted] == [c.position for c in whole]


def test_another_history_empties_the_copy(source: KafkaFeed, reader: Reader) -> None:
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["1", "of the first"])
    source.feed.load(A, LoadPhase.END)
    source.publish()
    first, copies = read(reader), Copies()
    for commit in first:
        copies.apply(commit.changes)
    source.feed.load_again(A)
    source.feed.load(A, LoadPhase.BEGIN)
    source.feed.load(A, LoadPhase.CHUNK, ["2", "of the second"])
    source.feed.load(A, LoadPhase.END)
    source.publish()

    for commit in (again := read(reader, str(first[-1].position))):
        copies.apply(commit.changes)

    assert copies.rows["a"] == {2: {"id": 2, "v": "of the second"}}
    assert again[-1].position.epoch == 2


def test_whole_commits_name_each_table_in_a_gap_that_may_be_of_any(
    source: KafkaFeed, reader: Reader
) -> None:
    source.feed.commits([insert(A, "1", "x"), insert(B, "1", "x")])
    source.feed.commits(Tx([insert(A, "2", "x")], (Hole("*", "seen", "lost"),)))
    source.publish()

    (*_, last) = reader.commits(wait=False)

    told = {str(one.table) for one in last.changes if one.op == "gap"}
    assert told == {"public.a", "public.b"}


@pytest.mark.parametrize("way", ["changes", "commits"])
def test_a_place_that_is_yet_to_come_is_refused(
    source: KafkaFeed, reader: Reader, way: str
) -> None:
    """It is of topics that were made anew since, or of another environment."""
    source.feed.commits([insert(A, "1", "x")], [insert(A, "2", "x")])
    source.publish()
    tables = ("public.a",) if way == "changes" else ()

    with pytest.raises(StreamError, match="yet to come"):
        list(getattr(reader, way)(*tables, after="1/5001", wait=False))


class First(logging.Handler):
    """Calls what it is given at the first warning."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self.then: Callable[[], None] | None = then
        self.said = ""

    def emit(self, record: logging.LogRecord) -> None:
        then, self.then = self.then, None
        if then is not None:
            self.said = record.getMessage()
            then()


def test_topics_that_have_no_commit_yet_are_waited_for(source: KafkaFeed, reader: Reader) -> None:
    """As those are that are not there yet: `run` makes the topics a moment before its first cut."""
    cuts = source.names.cuts
    future = source.admin.delete_records([TopicPartition(cuts, 0, OFFSET_END)])
    assert all(one.result() for one in future.values())

    def begin() -> None:
        source.feed.start(epoch=2)
        source.feed.commits([insert(A, "1", "x")])
        source.publish()

    first = First(begin)
    log = logging.getLogger("gauss_cdc_reader")
    log.addHandler(first)
    try:
        commit = next(iter(reader.commits(after="snapshot")))
    finally:
        log.removeHandler(first)

    assert "has no record of this source" in first.said
    assert (commit.position.epoch, [change.op for change in commit.changes]) == (2, ["c"])


KEYED_BY_V = replace(A, key=("v",), identity_columns=("v",))
IDENT = replace(
    A,
    columns=(replace(A.columns[0], name="ident"), A.columns[1]),
    key=("ident",),
    identity_columns=("ident",),
)


def test_a_change_has_the_key_of_its_own_time(source: KafkaFeed, reader: Reader) -> None:
    """Also where the key changed within what is read at once, or a column of it got a name."""
    source.know(IDENT)
    source.feed.commits([insert(A, "1", "x"), alter(A, KEYED_BY_V), insert(KEYED_BY_V, "1", "x")])
    source.feed.commits([alter(KEYED_BY_V, A)], [insert(A, "2", "x")], [delete(A, "2")])
    source.feed.commits([replace(alter(A, IDENT), renamed={"id": "ident"})])
    source.feed.commits([insert(IDENT, "3", "x")])
    source.publish()
    keys = [{"id": 1}, {"v": "x"}, {"id": 2}, {"id": 2}, {"ident": 3}]

    single = list(reader.changes("public.a", wait=False))
    whole = read(reader)

    assert [one.key for _, one in single if one.op in "cd"] == keys
    assert [one.key for commit in whole for one in commit.changes if one.op in "cd"] == keys


def test_a_key_that_changes_while_a_table_is_read_is_the_new_one(
    source: KafkaFeed, reader: Reader
) -> None:
    source.feed.commits([insert(A, "1", "x")])
    source.publish()
    coming = reader.changes("public.a")
    (_, first) = next(coming)

    source.feed.commits([alter(A, KEYED_BY_V)], [insert(KEYED_BY_V, "1", "x")])
    source.publish()

    assert next(coming)[1].key == {"v": "x"}
    assert first.key == {"id": 1}
