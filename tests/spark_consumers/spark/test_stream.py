"""What the stream is made of; the stream itself runs in tests/integration."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_consumers.errors import KafkaDown, SparkFailed, TargetDown
from spark_consumers.loop.job import Observer
from spark_consumers.model import Ledger
from spark_consumers.spark.stream import (
    Checkpoint,
    SparkStream,
    Starting,
)
from tests.spark_consumers.feed import insert
from tests.spark_consumers.loop.test_job import A, make


def spark_that(make: Callable[[], Any], wait: Callable[[float], object]) -> SparkStream:
    return SparkStream(
        Starting(make), Checkpoint("state"), source="p", client={}, wait=wait
    )  # fmt: skip


def test_commits_are_applied_while_spark_starts_and_what_ends_it_is_raised() -> None:
    feed, sink, applier = make(1)
    may_fail = threading.Event()

    def start() -> Any:
        may_fail.wait()
        raise SparkFailed("no Java")

    def wait(_seconds: float) -> None:
        feed.commits([insert(A, "9", "x")])
        if feed.seq > 3:
            may_fail.set()

    stream = spark_that(start, wait)
    stream.begin()

    with pytest.raises(SparkFailed, match="no Java"):
        stream.run(applier.drain, lambda _=0: False, Observer())

    assert sink.seqs[:4] == [1, 2, 3, 4]
    stream.close()


def test_what_fails_in_a_pass_is_raised_as_it_is_and_a_stop_does_not_wait_for_spark() -> None:
    _feed, sink, applier = make(1)
    never = threading.Event()
    stream = spark_that(never.wait, lambda _: None)
    stream.begin()

    def broken() -> Ledger:
        raise TargetDown("gone")

    with pytest.raises(TargetDown, match="gone"):
        stream.run(broken, lambda _=0: False, Observer())
    stream.run(applier.drain, lambda _=0: bool(sink.seqs), Observer())
    stream.close()

    assert sink.seqs == [1]
    never.set()


class NoTopic:
    """A session in which no query can begin."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    @property
    def readStream(self) -> Any:  # noqa: N802  Spark's name
        self._told.append("query")
        raise OSError("no such topic")

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        raise OSError("gone")


def test_the_query_begins_when_the_loop_has_read_cuts() -> None:
    """Before the topic is there it would end, and the checkpoint be blamed for it."""
    told: list[str] = []
    stream = spark_that(lambda: NoTopic(told), lambda _: None)  # type: ignore[arg-type,return-value]

    def drain() -> Ledger:
        told.append("pass")
        if told.count("pass") == 1:
            raise KafkaDown("unknown topic")
        return Ledger("p")

    stream.begin()
    with pytest.raises(KafkaDown):
        stream.run(drain, lambda _=0: False, Observer())
    with pytest.raises(SparkFailed):
        stream.run(drain, lambda _=0: False, Observer())
    stream.close()

    assert told[:2] == ["pass", "pass"]
    assert told.count("query") == 1


# ---------------------------------------------------------------- the checkpoint
def test_a_checkpoint_that_cannot_be_written_is_replaced_and_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    checkpoint = Checkpoint(str(tmp_path / "file" / "state"), warnings.append)

    first, second = checkpoint.folder(), checkpoint.folder()

    assert Path(first).is_dir()
    assert second != first
    (warning,) = warnings
    assert "Not a directory" in warning
    assert "it decides nothing" in warning


def test_a_checkpoint_that_can_be_written_or_is_not_ours_to_judge_stays(tmp_path: Path) -> None:
    for configured in (
        str(tmp_path / "new" / "state"),
        f"file://{tmp_path}/x",
        "hdfs://host/state",
    ):
        assert Checkpoint(configured).folder() == configured


def test_after_a_query_that_ended_by_itself_another_folder_is_used(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.folder() == str(tmp_path)

    checkpoint.give_up("No space left on device")

    assert checkpoint.folder() != str(tmp_path)
