"""Which of librdkafka's settings the direct producer follows; others are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from producer.kafka.direct.records import CODECS

_FOLLOWED: Final = {
    *("bootstrap.servers", "metadata.broker.list", "client.id"),
    *("compression.type", "compression.codec", "batch.size", "linger.ms", "message.max.bytes"),
    *("request.timeout.ms", "transactional.id", "transaction.timeout.ms"),
    *("acks", "enable.idempotence", "security.protocol"),
}
# They say nothing of what is written, or are of librdkafka's insides.
_WITHOUT_MEANING: Final = {
    *("queue.buffering.max.kbytes", "queue.buffering.max.messages", "batch.num.messages"),
    *("topic.metadata.refresh.interval.ms", "log_level", "logger", "log.connection.close"),
    *("max.in.flight", "max.in.flight.requests.per.connection", "debug"),
}
# Of consumers, which read cuts with the same settings.
_OF_CONSUMERS: Final = ("fetch.", "queued.", "session.", "heartbeat.", "group.", "check.crcs")
WAY_OUT: Final = '[kafka] producer = "librdkafka" has all of its settings'


class Settings(NamedTuple):
    """What the direct producer is told."""

    servers: list[tuple[str, int]]
    client: str
    compression: str
    batch_bytes: int
    linger: float  # seconds
    request_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


def refusal(client: Mapping[str, Any]) -> str | None:
    """Say why librdkafka's settings cannot be followed; None: they can be."""
    protocol = str(client.get("security.protocol", "plaintext")).lower()
    if protocol != "plaintext":
        return f"security.protocol = {protocol}: it has neither TLS nor logins"
    compression = _compression(client)
    if compression not in CODECS:
        return f"compression.type = {compression}: it has {', '.join(sorted(CODECS))}"
    unknown = sorted(
        name
        for name in client
        if name not in _FOLLOWED | _WITHOUT_MEANING and not name.startswith(_OF_CONSUMERS)
    )
    return f"it does not have {', '.join(unknown)}" if unknown else None


def settings_of(client: Mapping[str, Any]) -> Settings:
    """Read them; `refusal` has none."""
    servers = str(client.get("bootstrap.servers") or client["metadata.broker.list"])
    most = int(client.get("message.max.bytes", 1_000_000))
    return Settings(
        servers=[_address(one) for one in servers.split(",") if one.strip()],
        client=str(client.get("client.id", "gauss-cdc")),
        compression=_compression(client),
        batch_bytes=min(int(client.get("batch.size", 1_000_000)), most),
        linger=float(client.get("linger.ms", 5)) / 1000,
        request_timeout_ms=int(client.get("request.timeout.ms", 30_000)),
        transactional_id=client.get("transactional.id"),
        transaction_timeout_ms=int(client.get("transaction.timeout.ms", 60_000)),
    )


def _compression(client: Mapping[str, Any]) -> str:
    return str(client.get("compression.type", client.get("compression.codec", "none")))


def _address(server: str) -> tuple[str, int]:
    """Host and port.

    >>> _address(" PLAINTEXT://[::1]:9093"), _address("broker")
    (('::1', 9093), ('broker', 9092))
    """
    host, colon, port = server.strip().rpartition("://")[2].rpartition(":")
    if not colon or port.endswith("]"):
        host, port = server.strip().rpartition("://")[2], "9092"
    return host.strip("[]"), int(port)
