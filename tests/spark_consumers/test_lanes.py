"""What executors receive, and what they write, without any of them."""

import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import UNCHANGED
from spark_consumers.errors import ApplyError, TargetRefused
from spark_consumers.lanes import Copied, _Job, copy_rows
from spark_consumers.model import Change
from spark_consumers.sinks.base import StagedShape
from spark_consumers.sinks.postgres.loader import CopyLoader, copy_line
from tests.spark_consumers.feed import table


def test_a_staged_line_distinguishes_null_unsent_and_text() -> None:
    change = Change(3, 4, "u", ("a", "b"), ["\\N", UNCHANGED], [None, "x\ty\nz\r"])

    assert copy_line(9, change) == ("9\t3\t4\tu\t\\N\t0\t\\\\N\t\\N\t\\N\tx\\ty\\nz\\r\n")
    assert copy_line(9, Change(3, 4, "t", ("a",), None, None)) == (
        "9\t3\t4\tt\t\\N\t\\N\t\\N\t\\N\n"
    )


def test_a_task_holds_the_target_s_secret_only_and_prints_none() -> None:
    job = _Job(CopyLoader({"host": "db", "password": "of-the-target"}), ["stage"], {}, {}, {})

    travels = pickle.dumps(partial(copy_rows, job))

    assert b"of-the-target" in travels
    assert "of-the-target" not in repr(job)
    assert set(job.__slots__) == {"loader", "stages", "places", "schemas", "ranges", "native"}


# ---------------------------------------------------------------- a task
A = table("a", "id text, v text")
TOPIC = "bank.public.a"


class Kept:
    """A target that keeps what a task brings, or refuses it."""

    def __init__(self, refused: str | None = None) -> None:
        self.refused = refused
        self.staged: list[tuple[str, int, list[Any]]] = []

    def takes(self, shape: StagedShape) -> bool:
        return True

    def load(self, stages: Sequence[str], task: int, changes: Any) -> str | None:
        self.staged = [(stages[at], task, change.after) for at, some in changes for change in some]
        return self.refused

    def explained(self, refused: str, shapes: Sequence[StagedShape]) -> ApplyError:
        return TargetRefused(refused)


def record(ordinal: int, *, schema_id: int = 7) -> bytes:
    encoder = compile_encoder(A, prefix="bank", schema_id=schema_id, database="d")
    tx = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
    return bytes(encoder.encode("c", "", None, [b"%d" % ordinal, b"x"], tx, 1, ordinal))


def task(loader: Kept, rows: list[tuple[str, int, int, bytes | None]]) -> Copied:
    job = _Job(
        loader, ["stage"], {(TOPIC, 7): 0}, {7: envelope_schema("bank", A)},
        {(TOPIC, 0): [(3, 5), (7, 8)]},
    )  # fmt: skip
    (copied,) = copy_rows(job, rows)
    return copied


def test_a_task_stages_the_records_of_its_ranges_and_counts_them() -> None:
    loader = Kept()
    rows = [(TOPIC, 0, at, record(at)) for at in range(2, 10)]

    copied = task(loader, rows)

    assert loader.staged == [("stage", 0, [str(at), "x"]) for at in (3, 4, 7)]
    assert (copied.records, copied.refused) == (3, None)


def test_a_tombstone_counts_as_a_record_and_is_no_row() -> None:
    loader = Kept()

    copied = task(loader, [(TOPIC, 0, 3, record(3)), (TOPIC, 0, 4, None)])

    assert (len(loader.staged), copied.records) == (1, 2)


def test_a_record_of_a_schema_that_the_cut_does_not_name_ends_the_task() -> None:
    with pytest.raises(ValueError, match="schema 8"):
        task(Kept(), [(TOPIC, 0, 3, record(3, schema_id=8))])


def test_what_the_target_refuses_comes_back_as_plain_data() -> None:
    assert task(Kept("23505"), [(TOPIC, 0, 3, record(3))]).refused == "23505"
