"""Steps of loads: each one names its own offsets, whatever else was sent with it."""

from collections.abc import Iterable

import pytest

from producer.core.events import Record
from producer.core.loads.load_steps import LoadStep, with_offsets
from producer.errors import GroupUnusable
from schemas.control import EXACT, Head, LoadPhase, Range, TableLoad
from schemas.tables import TableId

DDL = "p.ddl"


def step(phase: LoadPhase, table: str, records: Iterable[Record] = (), **more) -> LoadStep:
    head = Head(1, 1, 1, "one", 0, 0, 0)
    cut = TableLoad(head, TableId("s", table), phase, EXACT, ranges=(), rows=0, as_of=1)
    return LoadStep(cut, list(records), **more)


def record(topic: str, partition: int = 0) -> Record:
    return topic, partition, b"", b"", []


STEPS = [
    step(LoadPhase.BEGIN, "a", [record(DDL)], unnamed=[record("p.a", 0), record("p.a", 1)]),
    step(LoadPhase.CHUNK, "a", [record("p.a", 1), record("p.a", 0), record("p.a", 1)]),
    step(LoadPhase.END, "a"),
    step(LoadPhase.BEGIN, "b", [record(DDL)]),
    step(LoadPhase.CHUNK, "b", [record("p.b")] * 2, places={("p.b", 0): 2}),
    step(LoadPhase.CHUNK, "b", places={("p.b", 0): 0}),  # all its rows are in quarantine
]
RUNS = [("p.b", 0, 7, 9), (DDL, 0, 3, 4), (DDL, 0, 6, 7), ("p.a", 0, 0, 2), ("p.a", 1, 5, 8)]


def test_each_step_names_what_was_sent_for_it() -> None:
    assert [(cut.rows, cut.ranges) for cut in with_offsets(STEPS, RUNS)] == [
        (1, (Range(DDL, 0, 3, 4),)),
        (3, (Range("p.a", 1, 6, 8), Range("p.a", 0, 1, 2))),  # behind what tells plain readers
        (0, ()),
        (1, (Range(DDL, 0, 6, 7),)),
        (2, (Range("p.b", 0, 7, 9),)),
        (0, ()),
    ]


@pytest.mark.parametrize(
    "runs",
    [
        RUNS[1:],
        [*RUNS[:-1], ("p.a", 1, 5, 7)],
        [*RUNS, ("p.b", 0, 9, 10)],
        [("p.b", 0, -1, 1), *RUNS[1:]],
    ],
)
def test_an_acknowledgement_too_few_or_too_many_makes_the_steps_unusable(runs) -> None:
    with pytest.raises(GroupUnusable):
        with_offsets(STEPS, runs)
