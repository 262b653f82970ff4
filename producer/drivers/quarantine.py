"""What could not be decoded, kept with its bytes and position.

Written by a plain producer, before anything else is decided: it must be there
also when the stream stops because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from producer.drivers.kafka_client import QUIET
from producer.drivers.topics import TopicAdmin
from producer.errors import BrokerDown
from schemas.positions import Lsn

_PATIENCE: Final = 30.0  # seconds


def quarantine(
    client: Mapping[str, Any], admin: TopicAdmin, *, topic: str, lsn: int, payload: bytes, why: str
) -> None:
    """Write one record, durable; raise BrokerDown."""
    admin.ensure([topic])
    failed: list[KafkaError | None] = []
    producer = Producer({**QUIET, **client, "acks": "all"})
    try:
        producer.produce(
            topic,
            value=payload,
            partition=0,
            headers=[("lsn", repr(Lsn(lsn)).encode()), ("reason", why.encode())],
            on_delivery=lambda error, _: failed.append(error),
        )
        left = producer.flush(_PATIENCE)
    except KafkaException as error:
        raise BrokerDown("the quarantine topic takes nothing", topic=topic) from error
    if left or failed != [None]:
        raise BrokerDown("the quarantine topic does not answer", topic=topic)
