"""Records that become columns natively, beside the same by Python.

What a row is `ChangeRows` says; that each value of each type is one in both ways, test_rows.py.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.cuts.versions import Version
from spark_consumers.decode import RowDecoder, split
from spark_consumers.errors import StreamError
from spark_consumers.kafka.history import TableNote
from spark_consumers.native import IS_BUILT
from spark_consumers.source.batches import change_batches
from spark_consumers.source.rows import OURS, ChangeRows
from spark_consumers.spark import batches as module
from spark_consumers.spark.batches import Batches
from tests.schemas.types.values import Sample, numeric_mod
from tests.spark_consumers.source.test_rows import columns_of, encoded, every, shown_rows

NARROW = TableSchema(
    TableId("s", "t"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("small", 21, -1, "smallint"),
        Column("n", 1700, numeric_mod(9, 2), "numeric(9,2)"),
        Column("scaled", 1700, numeric_mod(9, 2), "numeric(9,2)"),
        Column("r", 700, -1, "real"),
        Column("gone", 1184, -1, "timestamp with time zone", nullable=False),
        Column("marks", 1007, -1, "integer[]"),
        Column("tags", 1009, -1, "text[]"),
        Column("v", 25, -1, "text"),
    ),
    ("id",),
    identity_columns=("id",),
)
WIDE = replace(
    NARROW,
    columns=(
        Column("v", 25, -1, "text"),
        Column("id", 20, -1, "bigint", nullable=False),
        Column("small", 23, -1, "integer"),
        Column("n", 1700, numeric_mod(20, 2), "numeric(20,2)"),
        Column("scaled", 1700, numeric_mod(12, 4), "numeric(12,4)"),
        Column("r", 701, -1, "double precision"),
        Column("tags", 1009, -1, "text[]"),
        Column("later", 1114, -1, "timestamp without time zone"),
    ),
)
SCHEMAS = {7: envelope_schema("bank", NARROW), 8: envelope_schema("bank", WIDE)}


def made(schemas: Mapping[int, dict[str, Any]], *, native: bool = True) -> Batches[ChangeRows]:
    wanted = columns_of(*schemas.values())
    return change_batches(wanted.names[: -len(OURS)], wanted, schemas, native_parts=native)


def change(dice: random.Random) -> bytes:
    """A change of a table that had two schemas, and rows that are sent in part."""
    schema_id, table = dice.choice([(7, NARROW), (8, WIDE)])
    texts = {
        "id": "7", "small": "-3", "n": dice.choice(["1.50", "NaN"]), "scaled": "-0.01",
        "r": dice.choice(["0.1", "-0", "Infinity"]), "marks": "{1,2}",
        "gone": dice.choice(["2024-02-29 23:59:59.25+00", "0001-01-01 00:00:00+00", "infinity"]),
        "tags": dice.choice(['{a,"",NULL,金}', "{{a}}"]), "later": "9999-12-31 23:59:59.999999",
        "v": dice.choice(["", "金额 🐘", "x" * 40]),
    }  # fmt: skip

    def row(*, is_old: bool = False) -> list[Any]:
        cells: list[Any] = []
        for column in table.columns:
            cell: Any = texts[column.name]
            if column.nullable and dice.random() < 0.2:
                cell = None
            elif not is_old and column.name != "id" and dice.random() < 0.1:
                cell = UNCHANGED
            cells.append(cell)
        return cells

    key = [texts["id"] if column.name == "id" else None for column in table.columns]
    full = replace(table, replica_identity=ReplicaIdentity.FULL)
    op, of, kind, before, after = dice.choice(
        [
            ("c", table, "", None, row(is_old=True)),
            ("r", table, "", None, row(is_old=True)),
            ("u", table, "", None, row()),
            ("u", table, "K", key, row()),
            ("u", full, "O", row(is_old=True), row()),
            ("d", table, "K", key, None),
            ("d", full, "O", row(is_old=True), None),
            ("t", table, "", None, None),
        ]
    )
    return encoded(of, op, kind, before, after, schema_id=schema_id)


@pytest.mark.parametrize("seed", range(8))
def test_rows_stand_in_the_order_of_the_records_whoever_reads_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(module, "_ROWS", dice.choice([1, 7, 10_000]))
    values = [change(dice) for _ in range(dice.choice([40, 300]))]
    fetched = dice.choice([1, 30, 1_000])
    found = []
    note = TableNote(NARROW.id, Version(1, 1), "gap", "rewritten")
    for native in (True, False):
        batches, rows = made(SCHEMAS, native=native), []
        batches.let_add(lambda rows: rows.note(note))
        for start in range(0, len(values), fetched):
            for at in range(start, min(start + fetched, len(values))):
                batches.take("t", [(0, at, values[at])])
            if batches.are_full:
                rows += shown_rows(batches)
        found.append(rows + shown_rows(batches))
        assert shown_rows(batches) == []

    natively, plainly = found
    for one, other in zip(natively, plainly, strict=True):
        assert repr(one) == repr(other)


@pytest.mark.parametrize(("options", "sample"), list(every()))
def test_python_reads_only_what_avro_could_not_hold(options: TypeOptions, sample: Sample) -> None:
    table = TableSchema(TableId("s", "t"), (sample.column(),))
    schemas = {7: envelope_schema("bank", table, EnvelopeOptions(types=options))}
    for text in sample.texts:
        value, batches = encoded(table, "c", "", None, [text], options), made(schemas)
        rows = batches.rows_for("t", 0, 0, value)
        is_taken = rows is not None and rows.take([(0, 0, value)], 0) == 1
        exact = RowDecoder(schemas[7]).raw(split(value)[1])["source"]["exact"]
        assert is_taken == (IS_BUILT and exact is None)


def test_an_envelope_of_another_release_is_read_by_python() -> None:
    schema = envelope_schema("bank", NARROW)
    schema["fields"].append({"name": "more", "type": "string"})
    value = encoded(NARROW, "t", "", None, None) + b"\x02x"

    batches = made({7: schema})
    batches.take("t", [(0, 0, value)])

    assert batches.rows_for("t", 0, 0, value) is None
    assert [row["_change_type"] for row in shown_rows(batches)] == ["truncate"]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("broken", [b"", b"\0\0\0\0\x09", "cut short"])
def test_a_record_that_nobody_can_read_is_told_by_its_place(
    broken: bytes | str, *, native: bool
) -> None:
    whole = encoded(NARROW, "t", "", None, None)
    batches = made(SCHEMAS, native=native)
    value = broken if isinstance(broken, bytes) else whole[:-30]

    with pytest.raises(StreamError, match="cannot be decoded") as told:
        batches.take("t", [(0, 5, whole), (0, 6, value)])

    assert told.value.where == {"topic": "t", "partition": 0, "offset": 6}
