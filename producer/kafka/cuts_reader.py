"""Records of the cuts topic or the DDL topic, from one offset to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from producer.core.ports import Stored
from producer.errors import BrokerDown
from producer.kafka.client import QUIET, of_error, offset_of, ours

_ASK: Final = 10.0  # seconds for an answer about offsets
_TRY: Final = 0.2  # seconds
_SILENT_READS: Final = 150  # 30 s


class CutsReader:
    """Reads a topic of one partition in exact windows, and its bounds."""

    def __init__(self, client: Mapping[str, Any], topic: str) -> None:
        common = {
            **QUIET,
            **client,
            "group.id": "gauss-cdc-producer",  # never joined: offsets are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
        self.topic = topic
        self._committed = Consumer({**common, "isolation.level": "read_committed"})
        self._uncommitted = Consumer({**common, "isolation.level": "read_uncommitted"})

    def bounds(self) -> tuple[int, int]:
        """First offset and high watermark, from the broker."""
        return self._watermarks(self._uncommitted)

    def lso(self) -> int:
        """End of what read_committed readers see, from the broker."""
        return self._watermarks(self._committed)[1]

    def _watermarks(self, consumer: Consumer) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(self.topic, 0), timeout=_ASK, cached=False
            )
        except KafkaException as exc:
            raise ours(exc) from exc
        return low, high

    def read(self, low: int, high: int) -> list[Stored]:
        """Committed records with low <= offset < high; `high` is at most the LSO.

        Raises BrokerDown after 30 s without a record, and other CdcErrors of Kafka.
        """
        if low >= high:
            return []
        consumer = self._committed
        partition = TopicPartition(self.topic, 0, low)
        out: list[Stored] = []
        silent = 0
        try:
            consumer.assign([partition])
            while True:
                # A batch that is not full is waited for: so the first of what is there alone.
                for message in consumer.consume(1, _TRY) + consumer.consume(1000, 0):
                    if (error := message.error()) is not None:
                        raise of_error(error)
                    if (offset := offset_of(message)) >= high:
                        return out
                    silent = 0
                    out.append(Stored(offset, _bytes(message.key()), _bytes(message.value())))
                # The last offsets may be markers, which are never delivered: compare positions.
                position = consumer.position([partition])[0].offset
                if position >= high:
                    return out
                silent += 1
                if silent > _SILENT_READS:
                    raise BrokerDown("the cuts topic cannot be read", position=position, end=high)
        except KafkaException as exc:
            raise ours(exc) from exc
        finally:
            consumer.unassign()

    def close(self) -> None:
        """Close both consumers."""
        self._committed.close()
        self._uncommitted.close()


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
