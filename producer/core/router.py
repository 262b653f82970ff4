"""Routes a row: topic, key, partition, and the old row of a changed key."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass

from producer.core.changes import Cell, Cells
from producer.core.records.encode import RowEncoder, compile_key_texts, is_one_key
from producer.core.records.row_plan import KeyPlan, RowPlan
from schemas.tables import UNCHANGED, TableId, TableSchema


@dataclass(slots=True)
class Binding:
    """Where rows of one table version go, and how they are written."""

    table: TableSchema
    topic: str
    schema_id: int
    partitions: int
    encoder: RowEncoder
    key: bytes | None  # of every row, unless key_of says otherwise
    key_of: Callable[[Cells], bytes] | None  # Avro key of a row, with key = "primary-key"
    partition_of: Callable[[Cells], int] | None  # None: all rows into `partition`
    partition: int
    key_at: tuple[int, ...] = ()  # primary key's columns, where rows are keyed or placed by it
    tombstones: bool = False  # a record without value follows each delete
    key_plan: KeyPlan | None = None  # `key_of`, `partition_of` and `tombstones` as data

    @property
    def plan(self) -> RowPlan | None:
        """How a native part writes its rows; None: Python does, or finds each row's place."""
        is_planned = self.key_plan is not None or not self.key_at
        return self.encoder.plan if is_planned else None

    def place(self, cells: Cells) -> tuple[int, bytes | None]:
        """Return partition and key of a row."""
        return (
            self.partition if self.partition_of is None else self.partition_of(cells),
            self.key if self.key_of is None else self.key_of(cells),
        )

    def every_partition(self) -> range:
        """Return the partitions that rows may be in."""
        if self.partition_of is None:
            return range(self.partition, self.partition + 1)
        return range(self.partitions)

    def moved(self, old: Cells, new: Cells) -> tuple[Cells, Cells | None]:
        """Return the new row with its key complete, and the old row if its key was another one.

        A long key value that did not change is not sent in the new row, but with the old one.
        """
        columns = self.table.columns
        is_moved = False
        for at in self.key_at:
            was, now = old[at], new[at]
            if now is UNCHANGED:
                new = [*new[:at], was, *new[at + 1 :]]
            elif was != now and not is_one_key(columns[at], was, now):
                is_moved = True
        return new, old if is_moved else None


def partition_of(key: bytes, partitions: int) -> int:
    """Place a key as librdkafka's `consistent` partitioner does: crc32 of the key.

    >>> partition_of(b"public.account", 1)
    0
    """
    return binascii.crc32(key) % partitions


def placing(table: TableSchema, partitions: int) -> Callable[[Cells], int]:
    """Return `row's cells -> partition`, of its primary key's texts."""
    texts = compile_key_texts(table)
    return lambda cells: partition_of(b"\x00".join(map(_bytes, texts(cells))), partitions)


def _bytes(cell: Cell) -> bytes:
    assert isinstance(cell, bytes)  # a primary key is never NULL, and always sent
    return cell


def table_key(table: TableId) -> bytes:
    """Kafka key of a table: `schema.table` in UTF-8, without quotes.

    It places the rows of a table without a key: they stay in their partition whatever the names.
    """
    return f"{table.schema}.{table.name}".encode()
