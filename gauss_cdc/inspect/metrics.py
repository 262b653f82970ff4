"""`gauss-cdc status --serve`: the standing as Prometheus metrics, read at each scrape."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import ENDPOINTS, Endpoints, ReplicationStatus
from gauss_cdc.logs import log

_log = logging.getLogger("gauss_cdc.metrics")

METRICS: Final[dict[str, str]] = {  # after gauss_cdc_; unknown values are omitted
    "place_up": "1 if the place of label `place` answered: source, kafka, registry, target",
    "lag_commits": "Source transactions in Kafka that the target does not hold",
    "lag_bytes": "Bytes of the source's log that are not in Kafka yet",
    "lag_seconds": "Age of the newest applied commit (of the load where there is none); "
    "0 where nothing is behind",
    "retained_wal_bytes": "Bytes of log that the source keeps for our slot",
    "slot_active": "1 while a client streams from the slot",
    "cuts_age_seconds": "Age of the newest record of cuts; heartbeats keep it young",
    "foreign_cuts": "Records of cuts since its newest STATE that are not ours",
    "epoch": "Epoch of the newest record of cuts",
    "kafka_seq": "Newest source transaction in Kafka",
    "load_rows": "Rows in Kafka of a table (label `table`) that is being loaded",
    "load_left_seconds": "Time until the end of that load, by the source's estimate",
    "target_seq": "Newest source transaction at the target",
    "target_exact": "1 while the target equals the source at one commit",
    "inexact_tables": "Tables of the target that are not exact",
}


def values(standing: ReplicationStatus) -> dict[str, float | None]:
    """Every metric's value."""
    found: dict[str, float | None] = {
        "lag_commits": standing.commits_behind,
        "lag_bytes": standing.bytes_behind,
        "lag_seconds": standing.seconds_behind,
    }
    if (source := standing.source) is not None:
        found["retained_wal_bytes"] = source.retained_bytes
        found["slot_active"] = float(source.active)
    if (cuts := standing.cuts) is not None:
        found["cuts_age_seconds"] = time.time() - cuts.written_at / 1e6
        found["epoch"], found["kafka_seq"] = cuts.epoch, cuts.seq
        found["foreign_cuts"] = cuts.alarms
    if (target := standing.target) is not None:
        found["target_seq"] = target.seq
        found["target_exact"] = float(target.state == "EXACT")
        found["inexact_tables"] = len(target.inexact)
    return found


class _Standing(Collector):
    """Reads all servers at each scrape; if one does not answer, the others are still reported."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def collect(self) -> Iterator[GaugeMetricFamily]:
        label, name_of = ["source"], [self._config.kafka.prefix]
        up = GaugeMetricFamily("gauss_cdc_up", "1 if every place answered", labels=label)
        each = GaugeMetricFamily(
            "gauss_cdc_place_up", METRICS["place_up"], labels=[*label, "place"]
        )
        with Endpoints(self._config) as places:
            standing = places.standing()
        up.add_metric(name_of, float(not standing.down))
        yield up
        for place in ENDPOINTS:
            if place == "target" and self._config.target is None:
                continue
            # The registry is asked for what Kafka holds.
            if place == "registry" and place not in standing.down and standing.cuts is None:
                continue
            each.add_metric([*name_of, place], float(place not in standing.down))
            if place in standing.down:
                log(_log, logging.WARNING, "no answer", place=place, why=standing.down[place])
        yield each
        yield from of_loads(standing, name_of, label)
        for name, value in values(standing).items():
            if value is not None:
                gauge = GaugeMetricFamily(f"gauss_cdc_{name}", METRICS[name], labels=label)
                gauge.add_metric(name_of, value)
                yield gauge


def of_loads(
    standing: ReplicationStatus, name_of: list[str], label: list[str]
) -> Iterator[GaugeMetricFamily]:
    """What has a value for each table."""
    loads = standing.cuts.under_way if standing.cuts is not None else ()
    for name, of in (("load_rows", "rows"), ("load_left_seconds", "left_s")):
        gauge = GaugeMetricFamily(f"gauss_cdc_{name}", METRICS[name], labels=[*label, "table"])
        for load in loads:
            if (value := getattr(load, of)) is not None:
                gauge.add_metric([*name_of, str(load.table)], float(value))
        if gauge.samples:
            yield gauge


def serve(config: Config, host: str, port: int) -> int:
    """Serve /metrics in the background; return the port, which 0 lets the system choose."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Standing(config))
    server, _ = start_http_server(port, addr=host, registry=registry)
    return int(server.server_port)
