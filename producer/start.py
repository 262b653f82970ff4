"""What a start has, the real one of `run` and the one that `check` foresees.

Kafka and the registry as the options name them, the log of cuts over both, and the
request with which a takeover compares the source.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from producer.clock import SystemClock
from producer.core.log.cuts_log import CutsLog
from producer.core.ports import Delivery
from producer.core.takeover.takeover import TakeoverRequest
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicAdmin
from producer.options import Options
from producer.publish import fingerprint
from producer.sources.base import Source


@dataclass(frozen=True, slots=True)
class StartParts:
    """Clients that a start needs before it has a source."""

    options: Options
    stack: ExitStack
    admin: TopicAdmin
    registry: Registry
    clock: SystemClock

    @classmethod
    def open(cls, options: Options, stack: ExitStack) -> Self:
        """Make them; `stack` closes what is to be closed."""
        registry = Registry(options.registry_url, options.registry_options)
        stack.callback(registry.close)
        admin = TopicAdmin(options.client, options.topic_settings)
        return cls(options, stack, admin, registry, SystemClock())

    def reader(self, topic: str) -> CutsReader:
        """Open a reader of cuts or of schema changes."""
        reader = CutsReader(self.options.client, topic)
        self.stack.callback(reader.close)
        return reader

    def log(
        self,
        reader: CutsReader | None,
        delivery: Delivery | None = None,
        *,
        note: Callable[[str], None],
        blocking: Callable[..., Any] = lambda call, *args: call(*args),
    ) -> CutsLog:
        """Return the log of cuts: see `CutsLog`."""
        return CutsLog(
            names=self.options.topics,
            accept_gap=self.options.accept_gap,
            reader=reader,
            codec=self.registry,
            delivery=delivery,
            topics=self.admin,
            clock=self.clock,
            note=note,
            blocking=blocking,
        )

    def request(self, source: Source, **more: Any) -> TakeoverRequest:
        """Say who takes over what; `more`: what only the real start decides."""
        return TakeoverRequest(
            identity=source.identity(),
            fingerprint=fingerprint(self.options, source.fingerprint_inputs()),
            cluster_id=self.admin.cluster_id(),
            ddl_topic=self.options.topics.ddl,
            resumes=source.rereads,
            **more,
        )
