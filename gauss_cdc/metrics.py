"""`gauss-cdc status --serve`: the standing as Prometheus metrics, read at each scrape."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gauss_cdc.config import Config
from gauss_cdc.places import Places, Standing
from producer.errors import CdcError
from spark_consumers.errors import ApplyError

METRICS: Final[dict[str, str]] = {  # after gauss_cdc_; what is not known is not told
    "lag_commits": "Source transactions in Kafka that the target does not hold",
    "lag_bytes": "Bytes of the source's log that are not in Kafka yet",
    "lag_seconds": "Age of the newest applied commit; 0 where nothing is behind",
    "retained_wal_bytes": "Bytes of log that the source keeps for our slot",
    "slot_active": "1 while somebody streams from the slot",
    "cuts_age_seconds": "Age of the newest record of cuts; heartbeats keep it young",
    "epoch": "Epoch of the newest record of cuts",
    "kafka_seq": "Newest source transaction in Kafka",
    "target_seq": "Newest source transaction at the target",
    "target_exact": "1 while the target equals the source at one commit",
    "inexact_tables": "Tables of the target that are not exact",
}


def values(standing: Standing) -> dict[str, float | None]:
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
    if (target := standing.target) is not None:
        found["target_seq"] = target.seq
        found["target_exact"] = float(target.state == "EXACT")
        found["inexact_tables"] = len(target.inexact)
    return found


class _Standing(Collector):
    """Asks all three places at each scrape; a place that fails is `up 0`."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def collect(self) -> Iterator[GaugeMetricFamily]:
        label, name_of = ["source"], [self._config.kafka.prefix]
        up = GaugeMetricFamily("gauss_cdc_up", "1 if every place answered", labels=label)
        try:
            with Places(self._config) as places:
                standing = places.standing()
        except (CdcError, ApplyError):
            up.add_metric(name_of, 0)
            yield up
            return
        up.add_metric(name_of, 1)
        yield up
        for name, value in values(standing).items():
            if value is not None:
                gauge = GaugeMetricFamily(f"gauss_cdc_{name}", METRICS[name], labels=label)
                gauge.add_metric(name_of, value)
                yield gauge


def serve(config: Config, host: str, port: int) -> int:
    """Serve /metrics in the background; return the port, which 0 lets the system choose."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Standing(config))
    server, _ = start_http_server(port, addr=host, registry=registry)
    return int(server.server_port)
