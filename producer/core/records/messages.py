"""Logical messages of the source (pg_logical_emit_message) as Debezium's `m` records.

They are written to a topic of their own, in the Kafka transaction of their group, and in no
range of a cut: a reader of commits neither needs nor sees them.  With exactly-once a
plain reader gets each of them once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import fastavro

from producer.core.changes import Logical
from producer.core.records.encode import TransactionConstants
from producer.core.records.framing import framed
from producer.core.records.reference import numbered
from schemas.envelope import EnvelopeOptions, message_key_schema, message_schema
from schemas.positions import Lsn

COLLECTION: Final = "message"  # the name under which an END counts them

_KEY = fastavro.parse_schema(message_key_schema())
_VALUE = fastavro.parse_schema(message_schema())


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """Where messages go, and how they are written."""

    topic: str
    key_id: int
    value_id: int
    prefix: str
    database: str
    options: EnvelopeOptions

    def write(
        self, message: Logical, tx: TransactionConstants, lsn: Lsn, *, in_transaction: bool
    ) -> tuple[bytes, bytes]:
        """Return key and value; a message outside of a transaction has no transaction id."""
        committed = tx.committed_at_us
        value = {
            "op": "m",
            "ts_ms": tx.now_us // 1000,
            "source": {
                "version": self.options.version,
                "connector": self.options.connector,
                "name": self.prefix,
                "ts_ms": committed // 1000,
                "snapshot": "false",
                "db": self.database,
                "sequence": f'["{tx.commit_lsn:d}","{lsn:d}"]',
                "ts_us": committed,
                "ts_ns": committed * 1000,
                "schema": "",
                "table": "",
                "txId": tx.xid if in_transaction else None,
                "lsn": lsn,
                "xmin": None,
                "csn": tx.csn,
                "epoch": tx.epoch,
                "seq": tx.seq,
            },
            "transaction": numbered(tx, COLLECTION),
            "message": {"prefix": message.prefix, "content": message.content},
        }
        return (
            framed(self.key_id, _KEY, {"prefix": message.prefix}),
            framed(self.value_id, _VALUE, value),
        )
