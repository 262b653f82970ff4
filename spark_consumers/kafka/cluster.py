"""What a Kafka cluster reports of itself: its id, its topics, where their logs end.

Asked over a connection of its own: a consumer answers such a question only after
the long poll that it has under way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from schemas.errors import LOAD_AGAIN
from spark_consumers.errors import KafkaDown, StreamError, TopicMissing

_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

# Lines of librdkafka, which come when a client is polled: why a broker cannot be had.
LOGGED: Final[Mapping[str, Any]] = {"log_level": 3, "logger": logging.getLogger("librdkafka")}

Places = Iterable[tuple[str, int]]
Offsets = dict[tuple[str, int], int]


class Cluster:
    """Queries of one cluster; KafkaDown without an answer.  `timeout`: seconds for each."""

    def __init__(self, client: Mapping[str, Any], *, timeout: float = 10.0) -> None:
        self._errors = _BrokerErrors()
        self._client = {**LOGGED, "error_cb": self._errors.on_error, **client}
        self._admin = AdminClient(self._client)
        self._timeout = timeout

    def id(self) -> str:
        """The cluster's own id."""
        cluster = self._asked(
            lambda: self._waited(self._admin.describe_cluster(request_timeout=self._timeout))
        )
        return str(cluster.cluster_id)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """A topic that was deleted and made again has another id."""
        topics = TopicCollection(list(names))
        futures = self._asked(
            lambda: self._admin.describe_topics(topics, request_timeout=self._timeout)
        )
        return {n: str(self._asked(f.result, topic=n).topic_id) for n, f in futures.items()}

    def first(self, places: Places) -> Offsets:
        """Where logs begin."""
        return self._offsets(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def stable(self, places: Places) -> Offsets:
        """The last stable offsets: everything below is decided."""
        return self._offsets(places, _LATEST, IsolationLevel.READ_COMMITTED)

    def high(self, places: Places) -> Offsets:
        """The high watermarks."""
        return self._offsets(places, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def _offsets(self, places: Places, spec: Any, level: Any) -> Offsets:
        asked = {TopicPartition(topic, partition): spec for topic, partition in places}
        futures = self._asked(
            lambda: self._admin.list_offsets(
                asked, isolation_level=level, request_timeout=self._timeout
            )
        )
        return {
            (tp.topic, tp.partition): self._asked(future.result, topic=tp.topic).offset
            for tp, future in futures.items()
        }

    def _asked(self, ask: Callable[[], Any], *, topic: str = "") -> Any:
        try:
            return ask()
        except KafkaException as error:
            if topic and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(
                    "the cluster does not know a topic",
                    hint="a broker that comes back learns of topics late; if this stays, the topic"
                    f" was deleted, and its rows are lost: {LOAD_AGAIN}",
                    topic=topic,
                ) from error
            self._admin.poll(0)  # calls back with librdkafka's errors
            # Another client: librdkafka keeps stale leader epochs for ever (its issue 4620).
            self._admin = AdminClient(self._client)
            raise self._explained(error) from error

    def _waited(self, future: Any) -> Any:
        """A future's result; after a refusal other brokers get only `_GRACE` seconds."""
        while not future.done():
            self._admin.poll(0.1)
            since = self._errors.refused_since
            if since is not None and time.monotonic() - since > _GRACE:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        return future.result()

    def _explained(self, error: KafkaException) -> StreamError:
        reported = self._errors.taken()
        if reported is None or error.args[0].code() not in _SILENT:
            return down(error, "the cluster does not answer")
        if reported.code() not in _REFUSING:
            said = down(error, "the cluster does not answer")
            said.where["reason"] = reported.str()
            return said
        if reported.code() == KafkaError._SSL:  # noqa: SLF001
            return KafkaDown(
                "no TLS with Kafka",
                hint="ssl.ca.location names the broker's authority, and bootstrap.servers a name "
                "that its certificate holds; is the port one for TLS?",
                reason=reported.str(),
            )
        return StreamError(
            "Kafka refuses the login",
            hint="check sasl.mechanism, sasl.username and the password (GAUSS_CDC_KAFKA_PASSWORD)",
            reason=reported.str(),
        )


class _BrokerErrors:
    """Why no broker takes us in, as librdkafka says: the answer says only that the time is over.

    Not a part of Cluster: a client whose callback refers to its owner is not freed with it, and
    continues to connect.
    """

    def __init__(self) -> None:
        self.refused_since: float | None = None
        self._last: KafkaError | None = None

    def on_error(self, error: KafkaError) -> None:
        """Keep the last error; a refusal takes precedence."""
        if error.code() in _REFUSING:
            self._last = error
            self.refused_since = self.refused_since or time.monotonic()
        elif self.refused_since is None and error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last = error

    def taken(self) -> KafkaError | None:
        """Return the newest error, and forget it."""
        last, self._last, self.refused_since = self._last, None, None
        return last


_GRACE: Final = 2.0  # seconds for other brokers to accept us where one refuses
_SILENT: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}  # noqa: SLF001
_REFUSING: Final = {
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


_NOT_PERMITTED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


def down(error: KafkaException, what: str) -> StreamError:
    """Make an error of ours from librdkafka's, by its code: a missing right is not retried."""
    cause = error.args[0]
    name = cause.name() if isinstance(cause, KafkaError) else str(cause)
    if isinstance(cause, KafkaError) and cause.code() in _NOT_PERMITTED:
        hint = "`gauss-cdc check` names the ACLs that apply needs"
        return StreamError("Kafka does not permit it: " + what, hint=hint, error=name)
    return KafkaDown(what, error=name)
