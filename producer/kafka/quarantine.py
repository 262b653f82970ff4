"""What could not be decoded or delivered, kept with its bytes and position.

Written by a plain producer, before anything else is decided: the record must exist
even if the stream stops because of it.  After a crash it may exist twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from producer.errors import BrokerDown
from producer.kafka.client import QUIET, of_error, ours
from producer.kafka.topics import TopicAdmin
from schemas.positions import Lsn, lsn_text

_PATIENCE: Final = 30.0  # seconds
_MOST: Final = 900_000  # bytes of a record: what every broker accepts


class Quarantine:
    """The topic, created with its first record."""

    def __init__(self, client: Mapping[str, Any], admin: TopicAdmin, topic: str) -> None:
        self._client, self._admin, self._topic = client, admin, topic
        self._producer: Producer | None = None

    def put(self, payload: bytes, *, lsn: Lsn, why: str, table: str = "", **more: object) -> None:
        """Write one durable record; a payload that is too large is truncated.

        `more` become headers.  Raises BrokerDown, or what the broker refuses.
        """
        if self._producer is None:
            self._admin.ensure([self._topic])
            self._producer = Producer({**QUIET, **self._client, "acks": "all"})
        failed: list[KafkaError | None] = []
        said = {"lsn": lsn_text(lsn), "reason": why, **more}
        if len(payload) > _MOST:
            said["bytes"] = said.get("bytes", len(payload))
        try:
            self._producer.produce(
                self._topic,
                value=payload[:_MOST],
                key=table.encode() or None,
                partition=0,
                headers=[(name, str(value).encode()) for name, value in said.items()],
                on_delivery=lambda error, _: failed.append(error),
            )
            left = self._producer.flush(_PATIENCE)
        except KafkaException as error:
            raise ours(error) from error
        if failed and failed[0] is not None:
            raise of_error(failed[0])
        if left or not failed:
            raise BrokerDown("the quarantine topic does not answer", topic=self._topic)
