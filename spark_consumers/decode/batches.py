"""Record batches of Kafka's records -> the values of each partition that a segment means.

A batch has the columns topic, partition, offset and value, as Spark's Kafka source calls them.
Where the native part was built, values stay in Arrow's buffers; else they are `bytes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from spark_consumers import native

if TYPE_CHECKING:
    from spark_consumers.native._native import ArrowValues


@dataclass(slots=True)
class Spans:
    """Ranges of offsets of one partition, in order: from each start up to its stop."""

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    def add(self, start: int, stop: int) -> None:
        """Append a range that lies behind the others."""
        if self.stops and start <= self.stops[-1]:
            self.stops[-1] = stop
            return
        self.starts.append(start)
        self.stops.append(stop)


class PlainValues(list[bytes]):
    """Values of records within spans; those that have none (tombstones) are left out."""

    records = 0  # within the spans, tombstones too


Values: TypeAlias = "PlainValues | ArrowValues"


def runs(batch: Any) -> Iterator[tuple[str, int, int, int]]:
    """(topic, partition, first row, number of rows) of neighbours in a `pyarrow.RecordBatch`."""
    from pyarrow import compute  # noqa: PLC0415  on executors only

    topic, partition = batch.column("topic"), batch.column("partition")
    ends = {end for column in (topic, partition) for end in _ends(compute.run_end_encode(column))}
    first = 0
    for end in sorted(ends):
        yield topic[first].as_py(), partition[first].as_py(), first, end - first
        first = end


def _ends(encoded: Any) -> list[int]:
    ends: list[int] = encoded.run_ends.to_pylist()
    return ends


def values_in(batch: Any, first: int, size: int, spans: Spans, *, is_native: bool) -> Values:
    """Take those of `size` rows from `first` on that stand within spans; raise ValueError."""
    offset, value = batch.column("offset"), batch.column("value")
    if is_native and str(value.type) == "binary":
        valid, ends, data = value.buffers()
        _, offsets = offset.buffers()
        found = native.arrow_values(
            (valid, ends, data, offsets),
            (value.offset + first, offset.offset + first, size),
            (spans.starts, spans.stops),
        )
        if found is not None:
            return found
    out = PlainValues()
    for at, one in zip(
        offset.slice(first, size).to_pylist(), value.slice(first, size).to_pylist(), strict=True
    ):
        place = bisect_right(spans.starts, at) - 1
        if place < 0 or at >= spans.stops[place]:
            continue
        out.records += 1
        if one is not None:
            out.append(one)
    return out
