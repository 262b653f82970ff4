"""Debezium's transaction metadata: a block in each row, BEGIN and END in a topic of their own.

`provide.transaction.metadata` of Debezium.  BEGIN and END are in the Kafka transaction of the
rows that they frame and in no range of a cut: readers of commits neither need nor see them.
A reader that has read as many rows as an END counts has the whole transaction.

The id is `xid:commit LSN` in BEGIN, rows and END alike; Debezium's holds the LSN of each
event, so that the three differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import fastavro

from producer.core.records.avro import long, text
from producer.core.records.framing import framed
from schemas.envelope import transaction_key_schema, transaction_schema

_KEY = fastavro.parse_schema(transaction_key_schema())
_VALUE = fastavro.parse_schema(transaction_schema())


@dataclass(slots=True)
class Counted:
    """The events of one source transaction, numbered as they are encoded."""

    id: str
    total: int = 0
    of: dict[str, int] = field(default_factory=dict)  # by table, as `schema.table`

    def number(self, table: str) -> tuple[int, int]:
        """Count one event: its place in the transaction, and among those of its table; from 1."""
        self.total += 1
        place = self.of[table] = self.of.get(table, 0) + 1
        return self.total, place

    def take_back(self, table: str, total: int) -> None:
        """Count as many events as were written: those behind `total` were not."""
        if self.total > total:
            self.of[table] -= self.total - total
            self.total = total
            if not self.of[table]:
                del self.of[table]

    def block(self, table: str) -> bytes:
        """Count one event and return the envelope's `transaction` field."""
        total, place = self.number(table)
        return b"\x02" + text(self.id.encode()) + long(total) + long(place)


@dataclass(frozen=True, slots=True)
class TransactionWriter:
    """Where BEGIN and END go, and how they are written."""

    topic: str
    key_id: int
    value_id: int

    def begin(self, id_: str, committed_at_us: int) -> tuple[bytes, bytes]:
        """Return key and value of BEGIN."""
        return self._framed(id_, "BEGIN", None, None, committed_at_us)

    def end(self, counted: Counted, committed_at_us: int) -> tuple[bytes, bytes]:
        """Return key and value of END, which has the number of events of each table."""
        return self._framed(counted.id, "END", counted.total, counted.of, committed_at_us)

    def _framed(
        self, id_: str, status: str, count: int | None, of: Mapping[str, int] | None, at_us: int
    ) -> tuple[bytes, bytes]:
        collections = None
        if of is not None:
            collections = [{"data_collection": t, "event_count": n} for t, n in of.items()]
        value = {
            "status": status,
            "id": id_,
            "event_count": count,
            "data_collections": collections,
            "ts_ms": at_us // 1000,
        }
        return framed(self.key_id, _KEY, {"id": id_}), framed(self.value_id, _VALUE, value)
