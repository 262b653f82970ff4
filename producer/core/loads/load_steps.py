"""Steps of loads, which become durable together: a small table costs no Kafka transaction alone.

A step is a record of TABLE and what was sent before it.  Many of them stand in one Kafka
transaction: END of a table, all of small ones, BEGIN of the next.  Each names its own offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from producer.core.delivery.tally import Runs
from producer.core.events import Acknowledgement, Place, Records
from producer.errors import GroupUnusable
from schemas.control import LoadPhase, Range, TableLoad


@dataclass(frozen=True, slots=True)
class LoadStep:
    """A record of TABLE, and what is sent before it."""

    cut: TableLoad  # its offsets are not known yet
    records: Records = ()
    places: Mapping[Place, int] | None = None  # of `records`, how many; None: they are counted
    unnamed: Records = ()  # for plain readers: no cut names them

    @property
    def is_begin(self) -> bool:
        """Say whether a shape comes with it."""
        return self.cut.phase is LoadPhase.BEGIN

    def batches(self) -> list[Records]:
        """Return what is sent, in order."""
        if not len(self.unnamed):
            return [self.records] if len(self.records) else []
        return [[*self.records, *self.unnamed]]


def counted(records: Records) -> dict[Place, int]:
    """Count records by topic and partition."""
    return Counter((topic, partition) for topic, partition, *_ in records)


def with_offsets(
    steps: Sequence[LoadStep], acknowledged: Sequence[Acknowledgement]
) -> list[TableLoad]:
    """Give each record of TABLE the offsets of what it names.

    Acknowledgements come in the order sent, per partition. Raises GroupUnusable where one is
    missing or has no offset.
    """
    runs: dict[Place, Runs] = {}
    for topic, partition, start, end in acknowledged:
        if start < 0:
            raise GroupUnusable("a record of a chunk was acknowledged without an offset")
        runs.setdefault((topic, partition), Runs()).add(start, end)
    none = Runs()

    def taken(places: Mapping[Place, int]) -> tuple[Range, ...]:
        out: list[Range] = []
        for place, count in places.items():
            of = runs.get(place, none)
            if of.count < count:
                raise GroupUnusable("records of a chunk without an acknowledgement")
            out += [Range(*place, start, end) for start, end in of.take(count)]
        return tuple(out)

    cuts = []
    for step in steps:
        places = counted(step.records) if step.places is None else step.places
        ranges = taken(places)
        taken(counted(step.unnamed))
        cuts.append(replace(step.cut, ranges=ranges, rows=sum(places.values())))
    if any(left.count for left in runs.values()):
        raise GroupUnusable("more acknowledgements than records of a chunk")
    return cuts
