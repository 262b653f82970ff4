"""What a run is asked to do: frozen plain arguments, made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from producer.core.events import Limits
from producer.drivers.postgres_dial import ConnectionArguments
from producer.drivers.topics import TopicSettings
from schemas.topics import Topics


@dataclass(frozen=True, slots=True)
class Options:
    """All of `gauss-cdc run`; fields as in the configuration file."""

    source: ConnectionArguments
    slot: str
    publication: str
    prefix: str
    client: Mapping[str, Any]  # librdkafka
    registry_url: str
    registry_options: Mapping[str, Any] = field(default_factory=dict)
    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    kind: str = "postgres"
    plugin: str = "pgoutput"
    plugin_options: Mapping[str, str] = field(default_factory=dict)
    unknown_message: Literal["stop", "quarantine"] = "stop"
    without_identity: Literal["stop", "skip-and-record"] = "stop"  # changes that name no row
    hold_bytes: int = 64 << 20  # of a transaction in memory, where it is held until its COMMIT
    spill_folder: str | None = None  # for what is beyond; None: the system's temporary folder
    exactly_once: bool = True
    key: Literal["table", "primary-key"] = "table"
    partition_by: Literal["table", "primary-key"] = "table"
    max_row_bytes: int = 8 << 20
    topic_settings: TopicSettings = field(default_factory=TopicSettings)
    limits: Limits = field(default_factory=Limits)
    status_seconds: float = 10.0
    kafka_silence_seconds: float = 30.0  # then the source is let go
    accept_gap: bool = False
    load: bool = True

    @property
    def topics(self) -> Topics:
        """Names of the prefix."""
        return Topics(self.prefix)
