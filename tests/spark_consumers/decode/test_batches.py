"""Values in Arrow's buffers are those that Python finds; what does not fit them is refused."""

import struct
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_consumers import native
from spark_consumers.decode.batches import Spans, runs, values_in

PLACES = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 1))
VALUES = st.none() | st.binary(max_size=4)
ROWS = st.lists(st.tuples(PLACES, st.integers(0, 30), VALUES), max_size=20)
TYPES = st.sampled_from(["binary", "large_binary"])


def batch(rows, kind: str = "binary") -> pa.RecordBatch:
    columns = zip(*[(*place, at, value) for place, at, value in rows], strict=True)
    kinds = ["string", "int32", "int64", kind]
    arrays = [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)] if rows else [
        pa.array([], k) for k in kinds
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, ["topic", "partition", "offset", "value"])


@given(
    ROWS, TYPES, st.lists(st.integers(1, 5), min_size=2, max_size=8),
    st.integers(0, 3),
)  # fmt: skip
def test_values_in_buffers_are_those_that_python_finds(rows, kind, steps, cut) -> None:
    marks = list(accumulate(steps))
    spans = Spans()
    for start, stop in zip(marks[::2], marks[1::2], strict=False):
        spans.add(start, stop)
    one = batch(rows, kind).slice(cut)

    seen = 0
    for topic, partition, first, size in runs(one):
        mine = rows[cut + first : cut + first + size]
        assert {place for place, _, _ in mine} == {(topic, partition)}
        seen += size
        inside = [
            value
            for _, at, value in mine
            if any(a <= at < b for a, b in zip(spans.starts, spans.stops, strict=True))
        ]
        for is_native in (True, False):
            found = values_in(one, first, size, spans, is_native=is_native)
            assert found.records == len(inside)
            assert [found[at] for at in range(len(found))] == [v for v in inside if v is not None]
    assert seen == one.num_rows


def test_neighbouring_ranges_are_one_span() -> None:
    spans = Spans()
    for start, stop in ((1, 3), (3, 5), (6, 7)):
        spans.add(start, stop)

    assert (spans.starts, spans.stops) == ([1, 6], [5, 7])


ENDS, DATA, OFFSETS = struct.pack("<3i", 0, 2, 3), b"abc", struct.pack("<2q", 4, 5)


@pytest.mark.parametrize(
    ("buffers", "rows"),
    [
        ((None, ENDS[:8], DATA, OFFSETS), (0, 0, 2)),
        ((None, ENDS, DATA, OFFSETS[:8]), (0, 0, 2)),
        ((None, ENDS, DATA, OFFSETS), (1, 0, 2)),
        ((None, ENDS, DATA, OFFSETS), (0, 1, 2)),
        ((None, ENDS, DATA, OFFSETS), (-1, 0, 2)),
        ((None, ENDS, DATA, OFFSETS), (0, 0, -1)),
        ((None, ENDS, DATA, OFFSETS), (1 << 40, 0, 2)),
        ((b"", ENDS, DATA, OFFSETS), (0, 0, 2)),
        ((None, ENDS, DATA[:2], OFFSETS), (0, 0, 2)),
        ((None, ENDS, None, OFFSETS), (0, 0, 2)),
        ((None, struct.pack("<3i", 0, 2, 1), DATA, OFFSETS), (0, 0, 2)),
        ((None, struct.pack("<3i", -1, 2, 3), DATA, OFFSETS), (0, 0, 2)),
    ],
)
def test_buffers_that_no_record_batch_has_are_refused(buffers, rows) -> None:
    if not native.IS_BUILT:
        return
    with pytest.raises(ValueError, match=r"buffer|batch"):
        native.arrow_values(buffers, rows, ([0], [9]))
    found = native.arrow_values((None, ENDS, DATA, OFFSETS), (0, 0, 2), ([0], [9]))
    assert [found[0], found[1]] == [b"ab", b"c"]
