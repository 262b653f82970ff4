"""The arguments of a run: frozen values, made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from producer.core.events import Limits
from producer.core.ports import Tuning
from producer.kafka.topics import TopicSettings
from producer.native import Choice
from producer.sources.dial import ConnectionArguments
from producer.sources.gauss.options import Interface, Role, Terms, Vendor
from producer.sources.section import SourceSection
from schemas.topics import Topics
from schemas.types import TypeOptions


@dataclass(frozen=True, slots=True)
class Options:
    """All of `gauss-cdc run`; fields as in the configuration file."""

    source: ConnectionArguments
    slot: str
    publication: str  # of PostgreSQL; "": there is none
    prefix: str
    client: Mapping[str, Any] = field(repr=False)  # librdkafka; it holds secrets
    registry_url: str
    registry_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    kind: str = "postgres"
    section: SourceSection | None = None  # [source], for what a kind alone has
    plugin: str = "pgoutput"
    plugin_options: Mapping[str, str] = field(default_factory=dict)
    failover_slot: Literal["auto", "on", "off"] = "auto"  # of PostgreSQL: standbys have it, too
    # From here to unknown_message: openGauss and GaussDB only.
    hosts: tuple[str, ...] = ()  # all nodes, as host:port; (): the one of `source`
    role: Role = "primary"  # which of them is read
    ha_port: int | None = None  # for replication; None: the port of `source`
    interface: Interface = "stream"
    unknown_message: Literal["stop", "quarantine"] = "stop"
    without_identity: Literal["stop", "skip-and-record"] = (
        "stop"  # changes that do not identify a row
    )
    unfit_row: Literal["stop", "quarantine"] = (
        "stop"  # too large, or with a value that has no representation
    )
    types: TypeOptions = field(default_factory=TypeOptions)
    exactly_once: bool = True
    messages: bool = False  # logical messages, too
    transaction_metadata: bool = False  # Debezium's BEGIN and END, and a block in each row
    key: Literal["table", "primary-key"] = "table"
    partition_by: Literal["table", "primary-key"] = "table"
    max_row_bytes: int = 8 << 20
    native: Choice = "auto"
    topic_settings: TopicSettings = field(default_factory=TopicSettings)
    limits: Limits = field(default_factory=Limits)
    repair: Literal["auto", "ask", "off"] = "auto"  # tables with gaps are read again
    look_seconds: float = 3.0  # between two looks at the source's catalog
    status_seconds: float = 2.0
    kafka_silence_seconds: float = 30.0  # then the source is released
    loads_beside: bool = False  # a first load reads each table while the stream goes on
    load_rate: int = 50_000  # rows a second of a load beside the stream, at most; 0 = no limit
    tuning: Tuning = field(default_factory=Tuning)
    incompatible: Literal["stop", "new-version", "quarantine"] = "stop"  # schemas, for the registry
    ddl_text: bool = False  # statements, definitions and defaults stand in <prefix>.ddl as text
    accept_gap: bool = False
    accept_switch: bool = False
    load: bool = True

    @property
    def topics(self) -> Topics:
        """Names of the prefix."""
        return Topics(self.prefix)

    @property
    def terms(self) -> Terms:
        """How decoding options are judged: `effective(plugin_options, terms)`; not PostgreSQL."""
        return Terms(
            product=Vendor(self.kind),
            plugin=self.plugin,
            role=self.role,
            interface=self.interface,
            status_seconds=self.status_seconds,
        )
