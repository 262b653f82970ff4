"""Topics of a prefix: created with stated settings, or checked against them.

An existing topic without the settings we need is refused with the command that
corrects it; no topic of a user is changed silently.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports without __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from producer.errors import BrokerDown, CdcError, TopicUnfit
from producer.kafka.client import LOGGED, QUIET, STALE_EPOCHS, BrokerErrors, ours
from schemas.control import Topic
from schemas.topics import below, unified

_TIMEOUT: Final = 10.0
_CONTROL_BYTES: Final = 1 << 20  # a START names all topics; a broker's default is a little more
_LEADERLESS: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
_TRIES, _PAUSE = 150, 0.1
_AT_ONCE: Final = 500  # topics whose settings are asked for; each has some kilobytes of them
_RECORDS: Final = 5_000  # that a request may cost the controller, which takes no more than 10,000
DAY_MS: Final = 86_400_000
# Retention goes by a record's time.  By our clock, days behind, records would go before anybody
# read them; and a broker refuses those of one that is an hour ahead.
_BY_BROKER: Final = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings for new topics of a prefix."""

    partitions: int = 1
    replication: int = -1  # the broker's default
    data_retention_ms: int = 7 * DAY_MS
    cuts_retention_ms: int = 30 * DAY_MS
    max_message_bytes: int = 9 << 20


class TopicAdmin:
    """Makes, checks and describes topics.

    Its calls raise a CdcError where the brokers refuse or do not answer.
    """

    def __init__(self, client: Mapping[str, Any], settings: TopicSettings) -> None:
        self._errors = BrokerErrors()
        self._client = {**QUIET, **LOGGED, "error_cb": self._errors.listen, **client}
        self._admin = AdminClient(self._client)
        self._settings = settings

    def _ours(self, exc: KafkaException) -> CdcError:
        """Turn an exception into ours, with librdkafka's own lines about it in the log."""
        self._admin.poll(0)
        return self._errors.explain(ours(exc))

    def cluster_id(self) -> str:
        """Return the cluster's id: offsets mean something only there."""
        try:
            asked = self._admin.describe_cluster(request_timeout=_TIMEOUT)
            described = self._errors.wait(self._admin, asked)
        except KafkaException as exc:
            raise self._ours(exc) from exc
        return str(described.cluster_id)

    def high_watermarks(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        """Name -> partition -> high watermark."""
        try:
            return self._ends(topics)
        except KafkaException as exc:
            raise self._ours(exc) from exc

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        """Name -> topic, of those that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found: dict[str, Topic] = {}
        try:
            futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT)
            for name, future in futures.items():
                try:
                    described = future.result()
                except KafkaException as exc:
                    if exc.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise
                found[name] = Topic(str(described.topic_id), len(described.partitions))
        except KafkaException as exc:
            raise self._ours(exc) from exc
        return found

    def _ends(self, topics: Mapping[str, Topic]) -> dict[str, dict[int, int]]:
        """High watermarks; a partition that has no leader yet is asked again."""
        highs: dict[str, dict[int, int]] = {name: {} for name in topics}
        missing = {
            TopicPartition(name, p): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name, topic in topics.items()
            for p in range(topic.partitions)
        }
        is_stale = False
        for left in reversed(range(_TRIES)):
            if not missing:
                break
            if is_stale:
                self._admin, is_stale = AdminClient(self._client), False
            asked = self._admin.list_offsets(missing, request_timeout=_TIMEOUT)
            for place, future in asked.items():
                try:
                    highs[place.topic][place.partition] = future.result().offset
                except KafkaException as exc:
                    code = exc.args[0].code()
                    if code not in _LEADERLESS | STALE_EPOCHS or not left:
                        raise
                    is_stale = is_stale or code in STALE_EPOCHS
                else:
                    del missing[place]
            if missing:
                time.sleep(_PAUSE)
        return highs

    def list_below(self, prefix: str) -> list[str]:
        """Names of all topics of a prefix."""
        return sorted(name for name in self.names() if name.startswith(below(prefix)))

    def ensure(self, data: Iterable[str], *, cuts: str = "", ddl: str = "") -> None:
        """Create the missing topics, check the existing ones.

        Raises TopicUnfit where Kafka takes a name for another's, and what `ensure_apart` raises.
        """
        for name, why in self.ensure_apart(data, cuts=cuts, ddl=ddl).items():
            raise _taken(name, why)

    def ensure_apart(
        self,
        data: Iterable[str],
        *,
        cuts: str = "",
        ddl: str = "",
        there: Mapping[str, Topic] = MappingProxyType({}),
    ) -> dict[str, str]:
        """Do the same; return those whose names Kafka takes for others', and what it says.

        `there`: topics that were just read.

        Raises BrokerDown where new topics do not show; TopicUnfit for settings that do not fit.
        """
        wanted = self._wanted(data, cuts, ddl)
        missing = wanted.keys() - self._check_all(wanted, strict=(cuts, ddl), known=there)
        if not missing:
            return {}
        # One request would make two of one name, which no later one, or other cluster, would.
        first: dict[str, str] = {}
        refused = {
            name: f"Topic '{name}' collides with topic: {other}"
            for name in sorted(missing)
            if (other := first.setdefault(unified(name), name)) != name
        }
        refused |= self._make({name: wanted[name] for name in first.values()})
        self._await([name for name in first.values() if name not in refused])
        return refused

    def _await(self, made: Sequence[str]) -> None:
        """The controller creates topics, in their order; brokers show them a little later."""
        hidden = set(made)
        for _ in range(_TRIES):
            if hidden and self.existing(made[-1:]):
                hidden -= self.existing(hidden).keys()
            if not hidden:
                return
            time.sleep(_PAUSE)
        raise BrokerDown(
            "topics were created, but the broker does not show them", topics=len(hidden)
        )

    def check(
        self,
        data: Iterable[str],
        *,
        cuts: str = "",
        ddl: str = "",
        there: Mapping[str, Topic] = MappingProxyType({}),
    ) -> None:
        """Check the existing topics; create none.  `there`: as in `ensure_apart`."""
        self._check_all(self._wanted(data, cuts, ddl), strict=(cuts, ddl), known=there)

    def try_to_make(self, data: Iterable[str], *, cuts: str = "", ddl: str = "") -> None:
        """Ask the brokers whether they would create topics; create none.

        A topic that exists but is hidden from us does not change the answer.

        Raises TopicUnfit where Kafka takes the name of `cuts` or `ddl` for another's.
        """
        if wanted := self._wanted(data, cuts, ddl):
            for name, why in self._make(wanted, validate_only=True).items():
                if name in (cuts, ddl):
                    raise _taken(name, why)

    def names(self) -> set[str]:
        """Names of all topics that we may see."""
        try:
            return set(self._admin.list_topics(timeout=_TIMEOUT).topics)
        except KafkaException as exc:
            raise self._ours(exc) from exc

    def _wanted(
        self, data: Iterable[str], cuts: str, ddl: str
    ) -> dict[str, tuple[int, dict[str, str]]]:
        """Topic -> partitions and configuration."""
        settings = self._settings
        wanted: dict[str, tuple[int, dict[str, str]]] = {}
        size = str(settings.max_message_bytes)
        for name in data:
            retention = str(settings.data_retention_ms)
            wanted[name] = (
                settings.partitions,
                {"retention.ms": retention, "max.message.bytes": size},
            )
        if cuts:
            retention = str(max(settings.cuts_retention_ms, settings.data_retention_ms))
            # A START names all topics: some hundred bytes each.
            wanted[cuts] = (1, {"retention.ms": retention, "max.message.bytes": size})
        if ddl:
            wanted[ddl] = (1, {"retention.ms": "-1", "max.message.bytes": size})
        return wanted

    def _check_all(
        self,
        wanted: Mapping[str, tuple[int, dict[str, str]]],
        *,
        strict: tuple[str, str],
        known: Mapping[str, Topic],
    ) -> set[str]:
        there = {name: known[name] for name in wanted if name in known}
        there |= self.existing(wanted.keys() - there.keys())
        for name, entries in self._configs(there).items():
            partitions, asked = wanted[name]
            if name not in strict:
                _check_kept(name, entries, int(asked["max.message.bytes"]))
                continue
            if there[name].partitions != partitions:
                raise TopicUnfit(
                    "a control topic must have one partition",
                    topic=name,
                    partitions=there[name].partitions,
                    hint=f"kafka-topics.sh --delete --topic {name}, then start again",
                )
            _check_kept(name, entries, _CONTROL_BYTES)
            self._check_retention(name, entries, asked)
        return set(there)

    def _configs(self, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Name -> settings of a topic, some hundred in one request."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found: dict[str, Mapping[str, Any]] = {}
        try:
            for at in range(0, len(asked), _AT_ONCE):
                some = asked[at : at + _AT_ONCE]
                futures = self._admin.describe_configs(some, request_timeout=_TIMEOUT)
                found |= {one.name: future.result() for one, future in futures.items()}
        except KafkaException as exc:
            raise self._ours(exc) from exc
        return found

    def _make(
        self, missing: Mapping[str, tuple[int, dict[str, str]]], *, validate_only: bool = False
    ) -> dict[str, str]:
        """Return those whose names Kafka takes for others': all of ours are valid in themselves."""
        replication = self._settings.replication
        requests: list[list[NewTopic]] = []
        records = _RECORDS  # of the request before the first one
        for name, (partitions, asked) in missing.items():
            config = {"cleanup.policy": "delete", **_BY_BROKER, **asked}
            cost = 1 + partitions + len(config)
            if records + cost > _RECORDS:
                requests.append([])
                records = 0
            records += cost
            requests[-1].append(NewTopic(name, partitions, replication, config=config))
        refused: dict[str, str] = {}
        for new in requests:
            refused |= self._make_some(new, validate_only=validate_only)
        return refused

    def _make_some(self, new: list[NewTopic], *, validate_only: bool) -> dict[str, str]:
        refused: dict[str, str] = {}
        try:
            futures = self._admin.create_topics(
                new,
                operation_timeout=_TIMEOUT,
                request_timeout=_TIMEOUT,
                validate_only=validate_only,
            )
            for name, future in futures.items():
                try:
                    future.result()
                except KafkaException as exc:
                    code = exc.args[0].code()
                    if code == KafkaError.TOPIC_EXCEPTION:
                        refused[name] = str(exc.args[0].str())
                    elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        except KafkaException as exc:
            raise self._ours(exc) from exc
        return refused

    def _check_retention(
        self, name: str, entries: Mapping[str, Any], asked: Mapping[str, str]
    ) -> None:
        """Refuse a control topic whose records go before the rows that they name."""
        retention = int(entries["retention.ms"].value)
        if retention != -1 and retention < self._settings.data_retention_ms:
            raise TopicUnfit(
                "the topic's retention is shorter than that of the data topics",
                topic=name,
                hint=f"{_alter(name)} retention.ms={asked['retention.ms']}",
            )


def _check_kept(name: str, entries: Mapping[str, Any], limit: int) -> None:
    """Refuse a topic that would lose our records; `limit`: bytes that one may have."""
    if entries["cleanup.policy"].value != "delete":
        raise TopicUnfit(
            "the topic is compacted: it would drop changes",
            topic=name,
            hint=f"{_alter(name)} cleanup.policy=delete",
        )
    if int(entries["max.message.bytes"].value) < limit:
        raise TopicUnfit(
            "the topic accepts only records smaller than ours",
            topic=name,
            hint=f"{_alter(name)} max.message.bytes={limit}",
        )


def _alter(topic: str) -> str:
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"


def _taken(topic: str, why: str) -> TopicUnfit:
    return TopicUnfit(
        "Kafka takes the topic's name for another one's",
        topic=topic,
        reason=why,
        hint="delete the other topic if nobody needs it, or take another kafka.prefix",
    )
