"""Converts the configuration into the frozen arguments of the halves."""

from __future__ import annotations

from dataclasses import replace

from gauss_cdc import secrets
from gauss_cdc.config import Config
from producer.core.events import Limits
from producer.core.ports import Tuning
from producer.kafka.topics import TopicSettings
from producer.options import Options
from producer.sources.dial import ConnectionArguments, parse_dsn
from producer.sources.password_command import PasswordCommand
from schemas.types import TypeOptions


def target_arguments(config: Config) -> ConnectionArguments:
    """Connection arguments of the target."""
    assert config.target is not None
    password = config.target.password.get_secret_value()
    return parse_dsn(
        config.target.dsn,
        password or None,
        sslpassword=config.target.ssl_password.get_secret_value(),
    )


def source_arguments(config: Config) -> ConnectionArguments:
    """Connection arguments of the source."""
    found, words = config.source.connection(), config.source.password_command
    if not words:
        return found
    return replace(found, password_command=PasswordCommand(words, secrets.known))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def producer_options(
    config: Config, *, accept_gap: bool = False, accept_switch: bool = False, load: bool = True
) -> Options:
    """Arguments of `producer.pipeline.run`."""
    kafka = config.kafka
    return Options(
        source=source_arguments(config),
        slot=config.source.slot,
        prefix=kafka.prefix,
        client=kafka.client_settings(),
        registry_url=config.registry.url,
        registry_options=config.registry.client(),
        include=config.tables.include,
        exclude=config.tables.exclude,
        kind=config.source.kind,
        section=config.source,
        plugin=config.source.output_plugin,
        plugin_options=config.source.options,
        hosts=config.source.hosts,
        role=config.source.role,
        repair=config.source.repair,
        without_identity=config.tables.without_identity,
        unfit_row=config.tables.unfit_row,
        types=TypeOptions(**config.types.model_dump()),
        incompatible=config.ddl.incompatible,
        ddl_text=config.ddl.text or config.ddl.apply == "all",
        exactly_once=kafka.exactly_once,
        messages=kafka.messages,
        transaction_metadata=kafka.transaction_metadata,
        key=kafka.key,
        partition_by=kafka.partition_by,
        max_row_bytes=kafka.max_row_bytes,
        native=kafka.native,
        topic_settings=TopicSettings(
            partitions=kafka.partitions,
            replication=kafka.replication,
            data_retention_ms=_milliseconds(kafka.retention.total_seconds()),
            max_message_bytes=kafka.max_row_bytes + (1 << 20),
        ),
        limits=Limits(
            group_rows=kafka.group_rows,
            group_seconds=kafka.group_time.total_seconds(),
            transaction_timeout=kafka.transaction_timeout.total_seconds(),
        ),
        status_seconds=config.source.status_interval.total_seconds(),
        load_rate=config.load.rate,
        loads_beside=config.load.mode == "chunks",
        tuning=Tuning(chunk_rows=config.load.chunk_rows),
        accept_gap=accept_gap,
        accept_switch=accept_switch,
        load=load,
        **{"publication": "", **config.source.own()},
    )
