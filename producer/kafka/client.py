"""Shared by all Kafka clients: settings, and the conversion of librdkafka's errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message

from producer.errors import (
    BrokerDown,
    CdcError,
    Fenced,
    GroupUnusable,
    KafkaNotPermitted,
    RowTooLarge,
)
from producer.errors import KafkaError as OurKafkaError

FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001  confluent-kafka's own constants
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
_DOWN: Final = {
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_LEADER_FOR_PARTITION,  # a topic made just now, or a leader that moved
}
# librdkafka caches leader epochs: after a broker came back it uses the old one for ever
# (librdkafka issue 4620).  The workaround is a new client.
STALE_EPOCHS: Final = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
_UNDONE: Final = {
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
    # A topic that was deleted while we run: the next start says so.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_NOT_PERMITTED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# librdkafka prints these twenty times a second while a broker is down; our errors report them once.
# A broker that comes back may not know its topics yet; librdkafka would ask again in 5 minutes.
QUIET: Final[Mapping[str, Any]] = {"log_level": 2, "topic.metadata.refresh.interval.ms": 5_000}
# For clients that are polled: only then librdkafka forwards its log lines. They say why a broker
# is unreachable (a name, a port, a certificate), which error codes do not.
LOGGED: Final[Mapping[str, Any]] = {"log_level": 3, "logger": logging.getLogger("librdkafka")}


def transactional_id(prefix: str) -> str:
    """Name the one writer of a prefix: the fence, and the resource of an ACL."""
    return f"gauss-cdc.{prefix}"


def ours(exc: BaseException) -> CdcError:
    """Turn librdkafka's exceptions into ours, by error code."""
    if isinstance(exc, CdcError):
        return exc
    if (error := error_in(exc)) is None:
        return OurKafkaError("the Kafka client failed", error=type(exc).__name__)
    return of_error(error)


def error_in(exc: BaseException | None) -> KafkaError | None:
    """Find librdkafka's error: a SystemError has it as its cause or context.

    None: there is none.
    """
    while exc is not None and not isinstance(exc, KafkaException):
        exc = exc.__cause__ or exc.__context__
    return None if exc is None else exc.args[0]


REFUSING: Final = {
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


class BrokerErrors:
    """Errors that librdkafka reports outside of answers: why no broker accepts the client.

    An answer reports only the timeout.  Pass `listen` as `error_cb`.
    """

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._since: float | None = None

    def listen(self, error: KafkaError) -> None:
        """Record an error as librdkafka reports it."""
        if error.code() in REFUSING:
            self._last = error
            self._since = self._since or time.monotonic()
        elif self._since is None and error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last = error

    def wait(self, client: Any, future: Any) -> Any:
        """Return a future's result; after a refusal wait only until other brokers had a chance.

        Raises the refusal as a CdcError then, and what the future raises.
        """
        while not future.done():
            client.poll(0.1)
            if self._since is not None and time.monotonic() - self._since > _GRACE:
                raise self.explain(BrokerDown("no answer from Kafka"))
        return future.result()

    def explain(self, error: CdcError) -> CdcError:
        """Add the reported reason; a refused login stops, a TLS error may be due to a restart."""
        reported, self._last, self._since = self._last, None, None
        if reported is None or not isinstance(error, BrokerDown):
            return error
        if reported.code() not in REFUSING:
            error.where.setdefault("reason", reported.str())
            return error
        if reported.code() == KafkaError._SSL:  # noqa: SLF001
            return BrokerDown(
                "no TLS with Kafka",
                hint="ssl.ca.location names the broker's authority, and bootstrap.servers a name "
                "that its certificate holds; is the port one for TLS?",
                reason=reported.str(),
            )
        return OurKafkaError(
            "Kafka refuses the login",
            hint="check sasl.mechanism, sasl.username and the password (GAUSS_CDC_KAFKA_PASSWORD)",
            reason=reported.str(),
        )


_GRACE: Final = 2.0  # seconds for other brokers to accept the client after one refused it


def of_error(error: KafkaError) -> CdcError:
    """Turn one librdkafka error into ours."""
    code, where = error.code(), {"error": error.name()}
    if code in FENCED:
        return Fenced(
            "another producer of this prefix took over",
            hint="one `gauss-cdc run` a prefix; this one leaves",
            **where,
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return OurKafkaError(
            "the broker refuses kafka.transaction-timeout",
            hint="lower it, or raise the broker's transaction.max.timeout.ms",
            **where,
        )
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return OurKafkaError(
            "fewer brokers are up than a new topic is to have copies",
            hint="start them, or lower kafka.replication (-1: the brokers'"
            " default.replication.factor)",
            **where,
        )
    if code in _NOT_PERMITTED:
        return KafkaNotPermitted(
            "the brokers do not allow it",
            hint="`gauss-cdc check` names the right that is missing; docs/security.md has them all",
            **where,
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return RowTooLarge(
            "the broker refuses a record as too large",
            hint="raise max.message.bytes of the topic, or lower kafka.max-row-bytes",
            **where,
        )
    if code in _DOWN | STALE_EPOCHS:
        return BrokerDown("no answer from Kafka", hint="is the broker up?", **where)
    if code in _UNDONE or error.retriable() or error.txn_requires_abort():
        return GroupUnusable("the open group failed and is sent again", **where)
    return OurKafkaError("Kafka refused", text=error.str(), **where)


def offset_of(message: Message) -> int:
    """The offset of a message; -1: unknown."""
    offset = message.offset()
    return -1 if offset is None or offset == OFFSET_INVALID else offset
