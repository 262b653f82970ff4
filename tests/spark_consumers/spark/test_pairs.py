"""Records as typed changes, natively and by Python: both are the same; no Spark.

What the values are to be, integration/test_typed_changes.py says.
"""

import random
from typing import Any

import pytest

from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.decode import RowDecoder, split
from spark_consumers.errors import StreamError
from spark_consumers.native import IS_BUILT
from spark_consumers.spark import batches as module
from spark_consumers.spark.pairs import change_schema, pair_batches
from spark_consumers.spark.shapes import types_of
from tests.schemas.types.values import Sample
from tests.spark_consumers.source.test_batches import NARROW, SCHEMAS, change
from tests.spark_consumers.source.test_rows import encoded, every, shown_rows


def rows_of(
    schemas: dict[int, dict[str, Any]], *values: bytes, fetched: int = 1_000
) -> list[dict[str, Any]]:
    """The rows of both ways, which are the same, in columns of the newest schema."""
    out = []
    for native in (True, False):
        schema = change_schema(types_of(schemas[max(schemas)]))
        made, rows = pair_batches(schema, schemas, native_parts=native), []
        for start in range(0, len(values), fetched):
            for at in range(start, min(start + fetched, len(values))):
                made.take("t", [(at % 3, at, values[at])])
            if made.are_full:
                rows += shown_rows(made)
        out.append(rows + shown_rows(made))
    natively, plainly = out
    for one, other in zip(natively, plainly, strict=True):
        assert repr(one) == repr(other)
    return natively


@pytest.mark.parametrize("seed", range(8))
def test_changes_stand_in_the_order_of_the_records_whoever_reads_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(module, "_ROWS", dice.choice([1, 7, 10_000]))
    values = [change(dice) for _ in range(dice.choice([40, 300]))]

    rows = rows_of(SCHEMAS, *values, fetched=dice.choice([1, 30, 1_000]))

    assert [(row["partition"], row["offset"]) for row in rows] == [
        (at % 3, at) for at in range(len(values))
    ]


@pytest.mark.parametrize(("options", "sample"), list(every()))
def test_python_reads_only_what_avro_could_not_hold(options: TypeOptions, sample: Sample) -> None:
    for nullable in (True, False):
        table = TableSchema(TableId("s", "t"), (sample.column(nullable=nullable),))
        schema = envelope_schema("bank", table, EnvelopeOptions(types=options))
        values = [encoded(table, "c", "", None, [text], options) for text in sample.texts]
        values += [encoded(table, "u", "O", [text], [text], options) for text in sample.texts]
        rows_of({7: schema}, *values)
        made = pair_batches(change_schema(types_of(schema)), {7: schema})
        for value in values:
            rows = made.rows_for("t", 0, 0, value)
            is_taken = rows is not None and rows.take([(0, 0, value)], 0) == 1
            source = RowDecoder(schema).raw(split(value)[1])["source"]
            fits = source["exact"] is None and source["before_exact"] is None
            assert is_taken == (IS_BUILT and fits)


def test_a_table_without_columns_has_changes() -> None:
    table = TableSchema(TableId("s", "t"), ())
    values = [encoded(table, "c", "", None, []), encoded(table, "t", "", None, None)]

    rows = rows_of({7: envelope_schema("bank", table)}, *values)

    assert [(row["op"], row["before"], row["after"]) for row in rows] == [
        ("c", None, {}),
        ("t", None, None),
    ]


def test_what_is_said_of_a_change_may_be_unknown() -> None:
    """A source may have no csn, and an older release no columns of an old row."""
    table = TableSchema(TableId("s", "t"), (Column("id", 23, -1, "integer"),))
    row, *_ = rows_of({7: envelope_schema("bank", table)}, encoded(table, "c", "", None, ["1"]))

    assert {name: row[name] for name in ("seq", "ordinal", "csn", "lsn", "xid", "epoch")} == {
        "seq": 5001, "ordinal": 3, "csn": 99, "lsn": 0x40, "xid": 700, "epoch": 2,
    }  # fmt: skip
    assert row["committed_at"].timestamp() == 1_714_561_200.123456
    assert row["before_columns"] is row["unsent"] is row["exact"] is row["before_exact"] is None


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("broken", "why"),
    [(b"", "cannot be decoded"), (b"\0\0\0\0\x09", "does not name"), (None, "cannot be decoded")],
)
def test_a_record_that_nobody_can_read_is_told_by_its_place(
    broken: bytes | None, why: str, *, native: bool
) -> None:
    whole = encoded(NARROW, "t", "", None, None)
    made = pair_batches(change_schema(types_of(SCHEMAS[7])), SCHEMAS, native_parts=native)
    value = whole[:-30] if broken is None else broken

    with pytest.raises(StreamError, match=why) as told:
        made.take("t", [(0, 5, whole), (0, 6, value)])

    assert told.value.where["offset"] == 6
