"""A segment in parts: put together they are all of it, each up to one place of commit order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.control import Range, SchemaChange
from schemas.envelope import envelope_schema
from schemas.tables import TableId, TableSchema
from schemas.topics import Topics
from spark_consumers.cuts.complete import Promised
from spark_consumers.decode.rows import COMMIT_ORDER
from spark_consumers.errors import Incomplete
from spark_consumers.kafka import parts
from spark_consumers.kafka.content import Content, Decoders
from spark_consumers.kafka.parts import PartsInOrder, in_turn
from spark_consumers.kafka.ranges import count
from spark_consumers.model import Change, CommitRows, Rows
from tests.spark_consumers.feed import alter, table

A, B = table("a", "id text, v text"), table("b", "id text, v text")
WIDER = table("a", "id text, v text, w text")
IDS = {A: 1, B: 2, WIDER: 3}
SCHEMAS = {at: envelope_schema("bank", schema) for schema, at in IDS.items()}
ENCODERS = {
    schema: compile_encoder(schema, prefix="bank", schema_id=at, database="d")
    for schema, at in IDS.items()
}
Place = tuple[int, int]  # seq, ordinal


def topic(schema: TableSchema) -> str:
    return Topics("bank").table(schema.id)


@dataclass
class Log:
    """Records by topic and partition, and what the cut says of them."""

    rows: dict[int, int] = field(default_factory=dict)  # of each commit
    records: dict[tuple[str, int], list[bytes | None]] = field(default_factory=dict)
    ddl: list[SchemaChange] = field(default_factory=list)
    wanted: list[tuple[TableId, Change]] = field(default_factory=list)
    native: bool = True
    reads: list[int] = field(default_factory=list)  # records of each

    def put(
        self, schema: TableSchema, place: Place, partition: int = 0, op: str = "c", cell: Any = b"x"
    ) -> None:
        """Write a row; a TRUNCATE counts once, wherever else it stands."""
        seq, ordinal = place
        key = b"%d.%d" % place
        cells: list[Any] = [key, cell, b"w"][: len(schema.columns)]
        tx = TransactionConstants(700, 99, 1, seq, 0, 0, 1)
        after = None if op == "t" else cells
        value = bytes(ENCODERS[schema].encode(op, "", None, after, tx, 1, ordinal))
        self.records.setdefault((topic(schema), partition), []).append(value)
        texts = [one.decode(errors="surrogateescape") for one in cells] if after else None
        self.wanted.append((schema.id, Change(seq, ordinal, op, schema.names(), None, texts)))
        self.rows[seq] = max(self.rows.get(seq, 0), ordinal + 1)

    def alter(self, place: Place) -> None:
        """Write a schema change, which the driver reads before all rows."""
        self.ddl.append(replace(alter(A, WIDER), seq=place[0], ordinal=place[1]))
        self.rows[place[0]] = max(self.rows.get(place[0], 0), place[1] + 1)

    def tombstone(self, schema: TableSchema, partition: int = 0) -> None:
        self.records.setdefault((topic(schema), partition), []).append(None)

    @property
    def ranges(self) -> list[Range]:
        """All records; each partition's in two ranges, with an offset between them."""
        out = []
        for (name, partition), values in self.records.items():
            half = len(values) // 2
            out += [Range(name, partition, half + 1, len(values) + 1)]
            out += [Range(name, partition, 0, half)] if half else []
        return out

    def value(self, place: tuple[str, int], offset: int) -> bytes | None:
        values = self.records[place]
        return values[offset if offset < len(values) // 2 else offset - 1]

    def read(self, ranges: Sequence[Range]) -> Content:
        self.reads.append(count(ranges))
        content = Content(Decoders(Topics("bank"), SCHEMAS.__getitem__, native=self.native))
        for r in ranges:
            for offset in range(r.start, r.end):
                value = self.value((r.topic, r.partition), offset)
                if value is not None:
                    content.take(r.topic, [(r.partition, offset, value)])
        return content

    def promise(self) -> Promised:
        first, last = min(self.rows), max(self.rows)
        rows = [self.rows.get(seq, 0) for seq in range(first, last + 1)]
        return Promised(1, CommitRows(first, rows), None)

    def parts(self) -> list[Rows]:
        """The parts, whose rows are taken before the next part is read, as a target does."""
        out = []
        for part in PartsInOrder(self.promise(), self.ranges, self.ddl, self.read):
            taken = {table: list(changes) for table, changes in part.changes.items()}
            out.append(Rows(taken, list(part.ddl)))
        return out

    def check(self) -> list[Rows]:
        """All parts are everything, in commit order, and none is divided where it must not be."""
        found, last = self.parts(), (-1, -1)
        for part in found:
            places = [COMMIT_ORDER(c) for c in chain(*part.changes.values(), part.ddl)]
            if places:
                assert last < min(places)
                last = max(places)
        for one in (A.id, B.id):
            rows = [c for part in found for c in part.changes.get(one, ())]
            wanted = [change for of, change in self.wanted if of == one]
            assert rows == sorted(wanted, key=COMMIT_ORDER)
        ddl = [change for part in found for change in part.ddl]
        assert ddl == sorted(self.ddl, key=COMMIT_ORDER)
        return found


@pytest.fixture(params=[True, False], ids=["native", "python"])
def log(request, monkeypatch: pytest.MonkeyPatch) -> Log:
    few_at_a_time(monkeypatch)
    return Log(native=request.param)


def few_at_a_time(monkeypatch: pytest.MonkeyPatch, first: int = 2, most: int = 1) -> None:
    """A first part of two records, and one record in each that follows."""
    monkeypatch.setattr(parts, "_FIRST", first)
    monkeypatch.setattr(parts, "PART_BYTES", most)


def test_rows_of_several_partitions_come_in_commit_order(log: Log) -> None:
    for at in range(12):
        log.put(A if at % 3 else B, (1 + at // 5, at % 5), partition=at % 2)

    assert len(log.check()) > 4


def test_a_partition_that_is_far_ahead_waits_for_the_others(log: Log) -> None:
    for at in range(6):
        log.put(A, (1, at + 6))
    for at in range(6):
        log.put(B, (1, at))

    found = log.check()

    assert next(list(part.changes) for part in found if part.changes) == [B.id]


def test_schema_changes_come_between_the_rows_before_and_behind_them(log: Log) -> None:
    log.alter((1, 0))
    for at in (1, 2, 3):
        log.put(A, (1, at))
    log.alter((1, 4))
    for at in (5, 6):
        log.put(WIDER, (1, at))
    log.put(B, (1, 7))
    log.alter((1, 8))

    log.check()


def test_a_commit_may_hold_schema_changes_only(log: Log) -> None:
    log.alter((1, 0))
    log.alter((1, 1))

    (part,) = log.check()
    assert len(part.ddl) == 2


def test_a_table_that_was_written_with_two_schemas_stays_in_order(log: Log) -> None:
    for at in range(12):
        log.put(WIDER if at % 4 == 3 else A, (1, at), partition=at % 3)

    log.check()


def test_a_truncation_stands_in_each_partition_and_counts_once(log: Log) -> None:
    for at in range(4):
        log.put(A, (1, at), partition=at % 2)
    for partition in range(3):
        log.put(A, (1, 4), partition, op="t")
    for at in range(5, 9):
        log.put(A, (1, at), partition=at % 2)
    log.put(B, (2, 0))

    log.check()


def test_tombstones_count_as_records_wherever_they_stand(log: Log) -> None:
    for _ in range(5):
        log.tombstone(A, 1)
        log.tombstone(B)
    for at in range(4):
        log.put(A, (1, at), partition=at % 2)
        log.tombstone(A, 0)
    for _ in range(5):
        log.tombstone(A, 1)

    log.check()


def test_a_partition_may_hold_tombstones_only(log: Log) -> None:
    log.put(A, (1, 0))
    for _ in range(5):
        log.tombstone(B)

    log.check()


def test_bytes_that_are_no_text_come_too(log: Log) -> None:
    for at in range(9):
        log.put(A, (1, at), partition=at % 2, cell=b"\xff%d" % at if at % 3 else b"x")

    log.check()


def lost(log: Log) -> None:
    log.records[topic(A), 0].pop(2)


def lost_last(log: Log) -> None:
    log.records[topic(A), 1].pop()


def twice(log: Log) -> None:
    log.records[topic(A), 0].insert(2, log.records[topic(A), 0][2])


def twice_elsewhere(log: Log) -> None:
    log.records[topic(B), 0].append(log.records[topic(A), 0][0])


def one_for_another(log: Log) -> None:
    values = log.records[topic(A), 0]
    values[3] = values[2]


def of_another_commit(log: Log) -> None:
    log.put(B, (7, 0))
    del log.rows[7]


def ddl_lost(log: Log) -> None:
    log.ddl.pop()


def ddl_twice(log: Log) -> None:
    log.ddl.append(log.ddl[0])


WRONG = [lost, lost_last, twice, twice_elsewhere, one_for_another, of_another_commit]


@pytest.mark.parametrize("wrong", [*WRONG, ddl_lost, ddl_twice])
@pytest.mark.parametrize("first", [1, 2, 1_000])
def test_what_is_not_the_commit_is_refused(
    log: Log, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Log], None], first: int
) -> None:
    few_at_a_time(monkeypatch, first)
    for at in range(10):
        log.put(A, (1, at), partition=at % 2)
    log.alter((1, 10))
    log.put(B, (1, 11))
    assert log.check()
    wrong(log)

    with pytest.raises(Incomplete):
        log.parts()


def test_parts_are_as_large_as_rows_allow(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(100):
        log.put(A, (1, at))

    few_at_a_time(monkeypatch, most=1 << 20)
    log.check()
    assert log.reads == [2, 8, 32, 58]
    log.reads.clear()
    few_at_a_time(monkeypatch)
    log.check()
    assert log.reads == [2, *[1] * 98]


def test_a_partition_that_is_ahead_is_not_read_on(log: Log) -> None:
    """What waits for others is held: no more of it than one reading brings."""
    for at in range(40):
        log.put(A, (1, at + 40))
    for at in range(40):
        log.put(B, (1, at))
    one = PartsInOrder(log.promise(), log.ranges, (), log.read)
    most = 0
    for _ in one:
        most = max(most, sum(map(len, one._waiting.values())))

    assert most <= 2


def test_the_rows_of_one_partition_come_in_turn(log: Log) -> None:
    for at in range(9):
        log.put(A, (1, 2 * at), partition=1)
    log.tombstone(A, 1)

    found = list(in_turn(log.ranges, log.read))

    assert [c for part in found for c in part.changes.get(A.id, ())] == [c for _, c in log.wanted]
    assert log.reads == [2, *[1] * 8]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "a", "b", "wider", "ddl", "t", "odd", "tombstone"]),
        st.integers(0, 2),  # partition
        st.integers(0, 9),  # 0: a commit begins
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans(), st.integers(1, 3), st.sampled_from([1, 300, 1 << 20]))
def test_any_commits_in_parts_are_what_they_are_at_once(
    steps: list[tuple[str, int, int]], native: bool, first: int, most: int
) -> None:
    log, place = Log(native=native), (1, -1)
    for kind, partition, chance in steps:
        if kind == "tombstone":
            log.tombstone(A, partition)
            continue
        place = (place[0] + 1, 0) if chance == 0 and log.rows else (place[0], place[1] + 1)
        match kind:
            case "ddl":
                log.alter(place)
            case "t":
                for each in range(partition + 1):
                    log.put(A, place, each, op="t")
            case "odd":
                log.put(A, place, partition, cell=b"\xff")
            case _:
                log.put({"a": A, "b": B, "wider": WIDER}[kind], place, partition)
    if not log.rows:
        return
    with pytest.MonkeyPatch.context() as patch:
        few_at_a_time(patch, first, most)
        log.check()
