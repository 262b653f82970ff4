"""Feed the consumers' native part with mutated values: each is read as by Python, or left to it.

    python -m tests.spark_consumers.native.any_bytes [seconds] [seed]

Under AddressSanitizer: CONTRIBUTING.md.
"""

# ruff: noqa: T201  a command

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gauss_cdc_reader.changes import ValueDecoder
from producer.core.records.encode import RowEncoder, TransactionConstants, compile_encoder
from schemas.envelope import EnvelopeOptions, envelope_schema
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from schemas.types import TypeOptions
from spark_consumers.decode import RowDecoder, split
from spark_consumers.native import read_entries
from spark_consumers.source.batches import change_batches
from spark_consumers.source.rows import OURS
from spark_consumers.spark.batches import Batches
from spark_consumers.spark.pairs import change_schema, pair_batches
from spark_consumers.spark.shapes import types_of
from tests.schemas.types.values import SAMPLES
from tests.spark_consumers.decode import test_control, test_rows
from tests.spark_consumers.source.test_rows import columns_of, shown_rows

TABLES = 40
MOST_BYTES = 1_000  # of a cell
BYTES = b"\x00\x01\x02\x03\x04\x06\x0f\x10\x3f\x40\x7f\x80\x81\xc3\xed\xa0\xf4\xfe\xff\\\t\nNU"
OPTIONS = (TypeOptions(), *test_rows.OPTIONS)
ID = test_rows.ID
WAYS = (True, False)  # natively, and by Python


@dataclass
class AnyBytes:
    """Tables of every type and option, and chances."""

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.tables = [self._table(f"t{n}") for n in range(TABLES)]
        self.commits = test_control.payload(test_control.commits())
        self.read = self.left = 0

    def _table(
        self, name: str
    ) -> tuple[TableSchema, list[Any], RowEncoder, RowDecoder, ValueDecoder, Any]:
        samples = [self.random.choice(SAMPLES) for _ in range(self.random.randrange(6))]
        columns = [
            sample.column(f"c{at}", nullable=self.random.random() < 0.6)
            for at, sample in enumerate(samples)
        ]
        table = TableSchema(
            TableId("s", name), (Column("id", 23, nullable=False), *columns), ("id",),
            identity_columns=("id",),
        )  # fmt: skip
        options = EnvelopeOptions(types=self.random.choice(OPTIONS))
        encoder = compile_encoder(
            table, prefix="bank", schema_id=ID, database="bank", options=options
        )
        schema = envelope_schema("bank", table, options)
        wanted = columns_of(schema)
        names = [n for n in wanted.names[: -len(OURS)] if n == "id" or self.random.random() < 0.9]
        less = pa.schema([wanted.field(name) for name in (*names, *wanted.names[-len(OURS) :])])
        both = [change_batches(names, less, {ID: schema}, native_parts=native) for native in WAYS]
        types = {name: kind for name, kind in types_of(schema).items() if name in names}
        pairs = [pair_batches(change_schema(types), {ID: schema}, native_parts=n) for n in WAYS]
        return table, samples, encoder, RowDecoder(schema), ValueDecoder(schema), (both, pairs)

    def _as_arrow(self, both: Sequence[Batches[Any]], value: bytes) -> None:
        """Take a value twice: what did not fit must not be seen beside the next one."""
        natively, plainly = both
        rows = natively.rows_for("t", 0, 0, value)
        if rows is None:
            return
        for _ in range(2):
            if rows.take([(0, 0, value)], 0):
                plainly.put("t", 0, 0, value)
        assert repr(shown_rows(natively)) == repr(shown_rows(plainly))

    def once(self) -> None:
        """Take a value that may be broken, as Python reads it."""
        if self.random.random() < 0.05:
            read_entries(self._mutated(self.commits))
            return
        table, samples, encoder, decoder, reader, batches = self.random.choice(self.tables)
        value = self._value(table, samples, encoder)
        if self.random.random() < 0.8:
            value = self._mutated(value)
        for both in batches:
            self._as_arrow(both, value)
        values = reader.rows(ID)
        if values.take([value], 0):
            assert repr(list(values)) == repr([reader.decode(split(value)[1])])
        rows = decoder.rows(ID)
        if rows.take([value], 0):
            test_rows.same(rows, [decoder.decode(split(value)[1])], (0,))
            self.read += 1
        else:
            assert not len(rows)
            self.left += 1

    def _value(self, table: TableSchema, samples: list[Any], encoder: RowEncoder) -> bytes:
        def row(*, whole: bool) -> list[Any]:
            cells: list[Any] = [b"%d" % self.random.randrange(100)]
            for column, sample in zip(table.columns[1:], samples, strict=True):
                cell: Any = self.random.choice(sample.texts).encode()[:MOST_BYTES]
                if column.nullable and self.random.random() < 0.1:
                    cell = None
                elif not whole and self.random.random() < 0.1:
                    cell = UNCHANGED
                cells.append(cell)
            return cells

        key = [row(whole=True)[0], *[None] * len(samples)]
        op, kind, before, after = self.random.choice(
            [
                ("c", "", None, row(whole=True)),
                ("u", "", None, row(whole=False)),
                ("u", "K", key, row(whole=False)),
                ("u", "O", row(whole=True), row(whole=True)),
                ("d", "K", key, None),
                ("t", "", None, None),
            ]
        )
        tx = TransactionConstants(700, 99, 1, self.random.randrange(1 << 40), 0, 0, 1)
        try:
            return bytes(
                encoder.encode(op, kind, before, after, tx, 1, self.random.randrange(1 << 30))
            )
        except ValueError:  # a text that was cut is none of its type
            return self._value(table, samples, encoder)

    def _mutated(self, value: bytes) -> bytes:
        out = bytearray(value)
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(out) + 1)
            match self.random.randrange(5):
                case 0:
                    out[at : at + 1] = bytes([self.random.choice(BYTES)])
                case 1:
                    out[at : at + 1] = bytes([self.random.randrange(256)])
                case 2:
                    del out[at:]
                case 3:
                    del out[at : at + self.random.randrange(1, 9)]
                case _:
                    out[at:at] = bytes(self.random.choices(BYTES, k=self.random.randrange(12)))
        return bytes(out)


def main() -> None:
    """Feed for some seconds."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}")
    until = time.monotonic() + seconds
    rounds = read = left = 0
    while time.monotonic() < until:
        fuzz = AnyBytes(seed + rounds)
        for _ in range(2_000):
            fuzz.once()
        rounds, read, left = rounds + 1, read + fuzz.read, left + fuzz.left
    print(f"{read} values read as Python does, {left} left to it, no other end")


if __name__ == "__main__":
    main()
