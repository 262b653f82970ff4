"""What each release wrote is read by this one: topics, ledgers, and values of the reader.

tests/golden/record_release.py makes the recordings, on a real server and a real broker.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from gauss_cdc_reader.changes import decoder_of
from gauss_cdc_reader.commits import WholeCommits
from schemas.tables import UNCHANGED, TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.kafka.history import History, ShapeHistory
from spark_consumers.kafka.read import Clients, CutReader, RangeReader
from spark_consumers.kafka.registry import SchemaCache
from spark_consumers.loop.job import Applier
from spark_consumers.model import Ledger, Rows, Segment
from spark_consumers.sinks.postgres import ledger as kept_ledger
from spark_consumers.sinks.step import check_place
from tests.sim.broker import Broker, Entry
from tests.sim.reading import SimCluster, SimConsumer
from tests.sim.world import Whoever, World

RECORDED: Final = sorted((Path(__file__).parents[1] / "golden" / "releases").glob("*.json.gz"))
_MARKER: Final = Entry("", None, None, None, None, is_marker=True)


class Alone(Whoever):
    """Nothing else happens: what waits goes on."""

    def park(self, *_: object, **__: object) -> None:
        pass


class Release:
    """A recording, on a broker that has nothing else."""

    def __init__(self, path: Path) -> None:
        self.said: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        self.prefix: str = self.said["prefix"]
        self.schema_of = SchemaCache(lambda one: self.said["schemas"][str(one)])

    @cached_property
    def clients(self) -> Clients:
        topics = self.said["topics"]
        broker = Broker(World(0), {name: len(one["partitions"]) for name, one in topics.items()})
        broker.cluster_id = self.said["cluster"]
        broker.topic_ids = {name: one["id"] for name, one in topics.items()}
        for name, topic in topics.items():
            for at, part in enumerate(topic["partitions"]):
                log = broker.logs[name, at] = [_MARKER] * part["end"]
                for offset, key, value, headers in part["records"]:
                    named = [(header, _bytes(text)) for header, text in headers]
                    log[offset] = Entry("", None, _bytes(key), _bytes(value), named)
        return Clients(
            consumer=lambda settings: SimConsumer(Alone(), broker, settings),
            cluster=lambda *_, **__: SimCluster(Alone(), broker),
            now=lambda: broker.world.now,
            sleep=lambda _: None,
        )

    def ledger(self, when: str) -> Ledger:
        """The row of a PostgreSQL target, as today's `apply` reads it."""
        (row,) = self.said["target"][when]["ledger"]
        return kept_ledger._ledger([row[name] for name in kept_ledger._FIELDS])

    def applied(self, sink: Copies) -> Copies:
        cuts = CutReader({}, self.prefix, self.schema_of, clients=self.clients)
        rows = RangeReader({}, self.prefix, self.schema_of, clients=self.clients)
        Applier(cuts, rows, sink).drain()
        assert (cuts.replay.alarms, cuts.replay.suspect) == (0, None)
        return sink


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


Row: TypeAlias = dict[str, Any]


class Table:
    """A copy: rows by the key, which is that of their time."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Row] = {}

    def apply(self, op: str, key: Iterable[str], before: Row | None, after: Row | None) -> None:
        if op == "t":
            self.rows.clear()
            return
        old = before or after
        assert old is not None
        kept = self.rows.pop(tuple(old[name] for name in key), {})
        if after is not None:
            self.rows[tuple(after[name] for name in key)] = kept | after

    def content(self, columns: Iterable[str]) -> list[Row]:
        """Rows with these columns; one that came later is NULL in older rows."""
        return in_order({name: row.get(name) for name in columns} for row in self.rows.values())


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str([*row.values()]))


class Copies:
    """A target of texts."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.tables = defaultdict[TableId, Table](Table)
        self.keys: dict[TableId, tuple[str, ...]] = {}

    def start(self) -> Ledger:
        self._ledger = replace(self._ledger, fence=self._ledger.fence + 1)
        return self._ledger

    def check(self) -> None:
        pass

    def ledger(self) -> Ledger:
        return self._ledger

    def stage(self, _: Segment, rows: Rows) -> Rows:
        return rows

    def step(self, segment: Segment, rows: Rows) -> Ledger:
        check_place(self._ledger, segment)
        for change in rows.ddl:
            if change.after is not None:
                self.keys[change.after.id] = change.after.key
        for table, changes in rows.changes.items():
            for one in changes:
                before, after = (_sent(one.columns, row) for row in (one.before, one.after))
                self.tables[table].apply(one.op, self.keys[table], before, after)
        self._ledger = replace(segment.upto, fence=self._ledger.fence)
        return self._ledger

    def close(self) -> None:
        pass


def _sent(columns: Iterable[str], row: Sequence[Any] | None) -> Row | None:
    if row is None:
        return None
    return {n: cell for n, cell in zip(columns, row, strict=True) if cell is not UNCHANGED}


@pytest.fixture(
    params=RECORDED, ids=lambda path: path.name.removesuffix(".json.gz"), scope="module"
)
def release(request: pytest.FixtureRequest) -> Release:
    return Release(request.param)


def test_apply_takes_all_that_stands_in_kafka(release: Release) -> None:
    copies = release.applied(Copies(Ledger(release.prefix)))

    for table, rows in release.said["rows"].items():
        assert copies.tables[TableId.of(table)].content(rows[0]) == in_order(rows), table
    assert moved(copies.ledger()) == moved(release.ledger("new epoch"))


def moved(ledger: Ledger) -> tuple[object, ...]:
    """What a heartbeat behind it leaves as it is."""
    place = ledger.epoch, ledger.n, ledger.seq, ledger.writer, ledger.instance
    return *place, ledger.state, ledger.inexact, ledger.topics, ledger.committed_at


@pytest.mark.parametrize("when", ["loaded", "taken over", "new epoch"])
def test_apply_goes_on_behind_each_ledger(release: Release, when: str) -> None:
    sink = Copies(release.ledger(when))
    sink.keys = release.applied(Copies(Ledger(release.prefix))).keys

    release.applied(sink)

    assert moved(sink.ledger()) == moved(release.ledger("new epoch"))


# Texts of the source -> the reader's values, where they are not the texts.
VALUES: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("id", "n"), int),
    "balance": Decimal,
    "at": datetime.fromisoformat,
    "day": lambda text: text if text == "infinity" else datetime.fromisoformat(text).date(),
    "raw": lambda text: bytes.fromhex(text.removeprefix("\\x")),
    "is_open": "t".__eq__,
    "tags": lambda _: ["a", None, "ü"],
}


@pytest.mark.parametrize("since", [None, Version(1, 0)], ids=["its loads", "the first commit"])
def test_the_reader_gives_all_commits_and_their_values(
    release: Release, since: Version | None
) -> None:
    shapes, tables = ShapeHistory(), defaultdict[TableId, Table](Table)
    decoder = decoder_of(shapes)
    history = History(
        {}, release.prefix, release.schema_of, decoder=decoder, clients=release.clients
    )
    place = history.loads() if since is None else history.behind(since)
    shapes.update(history.shapes(place))

    for commit in WholeCommits(history, shapes).behind(place):
        if commit is None:
            break
        for one in commit.changes:
            if one.op != "gap":
                tables[one.table].apply(one.op, one.key or (), one.before, one.after)

    for table, texts in release.said["rows"].items():
        rows = [
            {n: t if t is None else VALUES.get(n, str)(t) for n, t in row.items()} for row in texts
        ]
        assert str(tables[TableId.of(table)].content(rows[0])) == str(in_order(rows)), table
