"""A sink of a few lines goes through `run` by the contract alone: here, a file of JSON lines."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gauss_cdc import target
from gauss_cdc.config import Config
from schemas.control import LoadPhase
from spark_consumers.errors import Fenced, Superseded, TargetDown
from spark_consumers.loop.job import PassOptions
from spark_consumers.loop.run import Polling, run
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks.base import Inspector, Kind, Setup
from spark_consumers.sinks.kinds import SINKS
from spark_consumers.sinks.step import check_fence, check_place
from tests.spark_consumers.feed import Feed, insert, table, update

A = table("a", "id integer, v text")


# ---------------------------------------------------------------- the sink
class JsonLines:
    """One line a step, with rows and ledger: a line that was torn was not written."""

    def __init__(self, setup: Setup) -> None:
        self._path, self._source = Path(setup.dsn), setup.source
        self._fence: int | None = None

    def start(self) -> Ledger:
        ledger = self.read()
        self._fence = ledger.fence + 1
        self._append(replace(ledger, fence=self._fence), [])
        return self.ledger()

    def read(self) -> Ledger:
        lines = self._path.read_text().splitlines(keepends=True) if self._path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        self._path.write_text("".join(whole))
        return Ledger(**json.loads(whole[-1])["ledger"]) if whole else Ledger(self._source)

    def check(self) -> None:
        pass

    def ledger(self) -> Ledger:
        return check_fence(self.read(), self._source, self._fence)

    def stage(self, segment: Segment, rows: Rows) -> Rows:
        return rows

    def step(self, segment: Segment, staged: Rows) -> Ledger:
        ledger = self.ledger()
        check_place(ledger, segment)
        changes = [change for rows in staged.changes.values() for change in rows]
        upto = replace(segment.upto, fence=ledger.fence)
        self._append(upto, [[c.seq, c.op, c.after] for c in changes])
        return upto

    def _append(self, ledger: Ledger, rows: list[Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"ledger": asdict(ledger), "rows": rows}) + "\n")

    def close(self) -> None:
        pass


class JsonLinesInspector(Inspector):
    def __init__(self, setup: Setup) -> None:
        self._sink = JsonLines(setup)

    def ledger(self) -> Ledger | None:
        return self._sink.read()


# ---------------------------------------------------------------- what it goes through
@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The one line: from here on the configuration knows the kind."""
    monkeypatch.setitem(SINKS, "json-lines", Kind(JsonLines, JsonLinesInspector))
    return Config.model_validate(
        {
            "source": {"dsn": "postgresql://cdc@db/bank"},
            "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "kafka:9092"}},
            "registry": {"url": "http://registry"},
            "target": {"kind": "json-lines", "dsn": str(tmp_path / "bank.jsonl")},
        }
    )


def go(config: Config, feed: Feed, sink: Any, until: Callable[[], bool]) -> None:
    run(
        sink, feed.read_cuts, feed.read_rows, Polling(lambda _: None),
        options=PassOptions(strict=True), stop=lambda _=0: until(),
    )  # fmt: skip


def content(config: Config) -> list[Any]:
    assert config.target is not None
    lines = [json.loads(line) for line in Path(config.target.dsn).read_text().splitlines()]
    return [row for line in lines for row in line["rows"]]


def fed() -> Feed:
    feed = Feed()
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    feed.load(A, LoadPhase.CHUNK, ["1", "x"])
    feed.load(A, LoadPhase.END)
    feed.commits([insert(A, "2", "y")], [update(A, "1", "z")])
    return feed


def test_a_sink_by_the_contract_alone_is_started_fed_in_commit_order_and_asked(
    config: Config,
) -> None:
    feed, setup, kind = fed(), target.setup(config), target.kind_of(config)
    sink, inspector = kind.sink(setup), kind.inspector(setup)

    def at_the_end() -> bool:
        ledger = inspector.ledger()
        return ledger is not None and ledger.seq == feed.seq

    go(config, feed, sink, at_the_end)

    assert content(config) == [
        [0, "r", ["1", "x"]],
        [1, "c", ["2", "y"]],
        [2, "u", ["1", "z"]],
    ]
    ledger = inspector.ledger()
    assert ledger is not None
    assert (ledger.epoch, ledger.seq, ledger.state, ledger.fence) == (1, 2, "EXACT", 1)
    assert list(inspector.reach()) == list(inspector.rights([A.id], has_ledger=True)) == []


def test_a_step_that_was_torn_is_made_again_and_no_other_one(config: Config) -> None:
    feed, setup = fed(), target.setup(config)
    torn: list[int] = []

    class Tearing(JsonLines):
        def _append(self, ledger: Ledger, rows: list[Any]) -> None:
            super()._append(ledger, rows)
            if ledger.seq == 1 and not torn:
                torn.append(1)
                whole = self._path.read_text()
                self._path.write_text(whole[:-5])
                raise TargetDown("the disk was pulled")

    go(config, feed, Tearing(setup), lambda: len(content_of_whole(config)) == 3)

    assert [row[0] for row in content_of_whole(config)] == [0, 1, 2]


def content_of_whole(config: Config) -> list[Any]:
    JsonLines(target.setup(config)).read()  # drops what is torn
    return content(config)


def test_the_rules_of_a_step_hold_for_it(config: Config) -> None:
    feed, setup = fed(), target.setup(config)
    first, second = JsonLines(setup), JsonLines(setup)
    segment, later = feed.segments(first.start(), strict=True)[:2]
    first.step(segment, Rows({}))

    with pytest.raises(Superseded):
        first.step(segment, Rows({}))
    second.start()
    with pytest.raises(Fenced):
        first.step(later, Rows({}))
