"""A function as the target."""

from pathlib import Path

import pytest

from spark_consumers.errors import Superseded
from spark_consumers.loop.job import Applier, PassOptions
from spark_consumers.model import Ledger
from spark_consumers.sinks.callback import CallbackSink, Group
from spark_consumers.sinks.positions import LocalPosition
from tests.spark_consumers.feed import Feed, insert, table

A = table("a", "id integer, v text")


def started() -> Feed:
    feed = Feed()
    feed.start()
    for number in range(3):
        feed.commits([insert(A, str(number), "x")])
    return feed


def run(feed: Feed, sink: CallbackSink) -> Ledger:
    return Applier(feed.read_cuts, feed.read_rows, sink, PassOptions(strict=True)).drain()


def test_groups_come_in_order_and_the_file_remembers(tmp_path: Path) -> None:
    feed, seen = started(), []
    position = LocalPosition(tmp_path / "new" / "ledger.json")

    def fn(group: Group) -> None:
        seen.append(group.upto.seq)

    run(feed, CallbackSink(fn, "bank", position=position))
    feed.commits([insert(A, "9", "x")])
    again = CallbackSink(fn, "bank", position=position)
    assert again.start().seq == 3
    ledger = run(feed, again)
    again.close()

    assert seen == [0, 1, 2, 3, 4]
    assert again.ledger() == ledger


def test_a_group_whose_function_failed_comes_again(tmp_path: Path) -> None:
    feed, seen = started(), []

    def fn(group: Group) -> None:
        seen.append(group.upto.seq)
        if seen == [0, 1]:
            raise OSError("disk full")

    sink = CallbackSink(fn, "bank", position=LocalPosition(tmp_path / "ledger.json"))
    with pytest.raises(OSError, match="disk full"):
        run(feed, sink)
    run(feed, sink)

    assert seen == [0, 1, 1, 2, 3]


def test_who_stores_the_ledger_with_its_effects_sees_each_group_once(tmp_path: Path) -> None:
    feed = started()
    held: list[Ledger] = []
    sink = CallbackSink(
        lambda group: held.append(group.upto),
        "bank",
        position=LocalPosition(tmp_path / "unused"),
        held=lambda: held[-1] if held else None,
    )

    run(feed, sink)
    (segment,) = feed.segments(held[-2], strict=True)
    with pytest.raises(Superseded):
        sink.step(segment, None)

    assert [ledger.seq for ledger in held] == [0, 1, 2, 3]
    assert not (tmp_path / "unused").exists()
