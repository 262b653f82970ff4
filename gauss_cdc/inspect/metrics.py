"""`gauss-cdc status --serve`: the standing as Prometheus metrics, read when they are scraped.

A look opens connections and threads at every place, so there is one at a time, and its answer is
given to everybody who asks within some seconds.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import ENDPOINTS, Endpoints, ReplicationStatus
from gauss_cdc.logs import log

_log = logging.getLogger("gauss_cdc.metrics")

_FRESH: Final = 5.0  # seconds for which an answer is given again
_CLIENTS: Final = 8  # each has a thread
_SILENT: Final = 5.0  # seconds until a client that has not asked is left

METRICS: Final[dict[str, str]] = {  # after gauss_cdc_; unknown values are omitted
    "place_up": "1 if the place of label `place` answered: source, kafka, registry, target",
    "lag_commits": "Source transactions in Kafka that the target does not hold",
    "lag_bytes": "Bytes of the source's log that are not in Kafka yet",
    "lag_csns": "CSNs that the source gave out and that are not in Kafka yet: in the order of "
    "CSNs, by a coordinator's heartbeats (enable-heartbeat)",
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
    "overwritten_rows": "Rows of others at the target that `apply` overwrote in a table (label "
    "`table`) since its load",
    "missing_rows": "Rows that `apply` was to change or delete and did not find there",
}


def values(standing: ReplicationStatus) -> dict[str, float | None]:
    """Every metric's value."""
    found: dict[str, float | None] = {
        "lag_commits": standing.commits_behind,
        "lag_bytes": standing.bytes_behind,
        "lag_csns": standing.csns_behind,
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
    """Reads all servers; if one does not answer, the others are still reported."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._looking = threading.Lock()
        self._found: list[GaugeMetricFamily] = []
        self._until = 0.0  # by the monotonic clock: for so long the answer is fresh

    def collect(self) -> list[GaugeMetricFamily]:
        with self._looking:
            if time.monotonic() >= self._until:
                self._found = list(self._look())
                self._until = time.monotonic() + _FRESH
            return self._found

    def _look(self) -> Iterator[GaugeMetricFamily]:
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
        yield from of_tables(standing, name_of, label)
        for name, value in values(standing).items():
            if value is not None:
                gauge = GaugeMetricFamily(f"gauss_cdc_{name}", METRICS[name], labels=label)
                gauge.add_metric(name_of, value)
                yield gauge


def of_tables(
    standing: ReplicationStatus, name_of: list[str], label: list[str]
) -> Iterator[GaugeMetricFamily]:
    """What has a value for each table."""
    loads = standing.cuts.under_way if standing.cuts is not None else ()
    met = standing.conflicts
    values: dict[str, Mapping[str, float | None]] = {
        "load_rows": {str(load.table): load.rows for load in loads},
        "load_left_seconds": {str(load.table): load.left_s for load in loads},
        "overwritten_rows": {table: one.overwritten for table, one in met.items()},
        "missing_rows": {table: one.missing for table, one in met.items()},
    }
    for name, found in values.items():
        gauge = GaugeMetricFamily(f"gauss_cdc_{name}", METRICS[name], labels=[*label, "table"])
        for table, value in found.items():
            if value is not None:
                gauge.add_metric([*name_of, table], float(value))
        if gauge.samples:
            yield gauge


def serve(config: Config, host: str, port: int) -> int:
    """Serve /metrics in the background; return the port, which 0 lets the system choose."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Standing(config))
    server = make_server(host, port, make_wsgi_app(registry), _Server, _Request)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)


class _Request(WSGIRequestHandler):
    timeout = _SILENT  # of one call: who sends a byte now and then needs the other one

    def setup(self) -> None:
        super().setup()
        self._patience = threading.Timer(_SILENT, self._leave)
        self._patience.daemon = True
        self._patience.start()

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        finally:
            self._patience.cancel()

    def finish(self) -> None:
        self._patience.cancel()
        super().finish()

    def _leave(self) -> None:
        with suppress(OSError):  # it has left
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape comes every few seconds."""


class _Server(ThreadingWSGIServer):
    """Serves so many clients at a time; the others wait in the system's queue."""

    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *given: Any) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self._free = threading.Semaphore(_CLIENTS)
        super().__init__(address, *given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()  # no thread could be started
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Keep quiet about a client that was silent or left."""
        _log.debug("a scrape ended early", exc_info=True)
