"""Prometheus reads where everything stands."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import suppress
from pathlib import Path as File
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.serve.server import serve
from gauss_cdc.serve.standing import StandingMetrics
from gauss_cdc.serve.table import METRICS, STATUS
from tests.e2e.path import Path, ask


def scrape(url: str) -> dict[str, float]:
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        " ".join([one.name, *filter(None, [one.labels.get("place")])]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def served_in_this_process(config: Config) -> str:
    return serve(config.listening("127.0.0.1:0").serve, StandingMetrics(config), {}, {})


def test_every_metric_is_there_and_true(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY)")
    config = Config.model_validate(
        {
            "source": {"dsn": source, "slot": topic_prefix},
            "kafka": {
                "prefix": topic_prefix,
                "client": {"bootstrap.servers": addresses.kafka_bootstrap},
            },
            "registry": {"url": addresses.registry_url},
            "target": {"dsn": target},
        }
    )
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, "INSERT INTO t VALUES (1)")
        path.catch_up()
        found = scrape(served_in_this_process(config))

    # No load is under way, there are no CSNs, and nobody else changed the target; the server does
    # not limit its log.
    absent = {"load_rows", "load_left_seconds", "lag_csns", "overwritten_rows", "missing_rows"}
    absent |= {"safe_wal_bytes", "wal_left_seconds"}
    absent |= {"retention_left_seconds"}  # the target lacks nothing
    of_status = {name for name, one in METRICS.items() if STATUS in one.by}
    assert {name.split()[0] for name in found} == {f"gauss_cdc_{n}" for n in of_status - absent}
    assert found["gauss_cdc_up"] == found["gauss_cdc_target_exact"] == 1
    assert found["gauss_cdc_kafka_seq"] == found["gauss_cdc_target_seq"] == 1
    assert found["gauss_cdc_lag_commits"] == found["gauss_cdc_inexact_tables"] == 0


def test_a_place_that_does_not_answer_is_reported(addresses, topic_prefix, new_database) -> None:
    config = Config.model_validate(
        {
            "source": {"dsn": "postgresql://nobody@127.0.0.1:1/none", "slot": topic_prefix},
            "kafka": {
                "prefix": topic_prefix,
                "client": {"bootstrap.servers": addresses.kafka_bootstrap},
            },
            "registry": {"url": addresses.registry_url},
        }
    )

    found = scrape(served_in_this_process(config))

    assert (found["gauss_cdc_up"], found["gauss_cdc_place_up source"]) == (0, 0)
    assert found["gauss_cdc_place_up kafka"] == 1


def test_one_place_that_is_down_hides_no_other(addresses, topic_prefix, new_database) -> None:
    """Target: nobody listens. Source and Kafka are told, by `status`, too."""
    source = new_database()
    raw = {
        "source": {"dsn": source, "slot": topic_prefix},
        "kafka": {
            "prefix": topic_prefix,
            "client": {"bootstrap.servers": addresses.kafka_bootstrap},
        },
        "registry": {"url": addresses.registry_url},
        "target": {"dsn": "postgresql://nobody@127.0.0.1:1/none"},
    }
    config = Config.model_validate(raw)
    ask(source, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", topic_prefix)

    found = scrape(served_in_this_process(config))
    with Endpoints(config) as places:
        standing = places.standing()

    assert (found["gauss_cdc_up"], found["gauss_cdc_place_up target"]) == (0, 0)
    assert found["gauss_cdc_place_up source"] == found["gauss_cdc_place_up kafka"] == 1
    assert found["gauss_cdc_slot_active"] == 0
    assert standing.source is not None
    assert set(standing.down) == {"target"}
    assert "127.0.0.1" in standing.as_json()["down"]["target"]


SCRAPES = 60


@pytest.fixture
def served(place: tuple[Path, File]) -> Iterator[tuple[int, str]]:
    """`status --serve` as a process: its id, its URL."""
    command = [sys.executable, "-m", "gauss_cdc", "status", "--config", str(place[1])]
    with subprocess.Popen([*command, "--serve", "0"], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        found = next(filter(None, (re.search(r"(http\S+)/metrics", line) for line in child.stderr)))
        yield child.pid, found[1]
        child.terminate()


def connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


def test_many_scrapes_at_once_are_one_look(served: tuple[int, str]) -> None:
    """Sixty of them once had 514 threads and 90 connections."""
    pid, url = served
    with futures.ThreadPoolExecutor(SCRAPES) as pool:
        asked = [pool.submit(scrape, url) for _ in range(SCRAPES)]
        most = 0
        while futures.wait(asked, 0.02).not_done:
            most = max(most, len(list(File(f"/proc/{pid}/task").iterdir())))
        found = [one.result() for one in asked]

    assert most < SCRAPES
    assert {one["gauss_cdc_place_up kafka"] for one in found} == {1}


def test_clients_that_say_nothing_keep_nobody_out(served: tuple[int, str]) -> None:
    _, url = served
    silent = [connected(url) for _ in range(12)]

    assert scrape(url)["gauss_cdc_place_up kafka"] == 1

    for one in silent:
        one.close()


def test_clients_that_never_end_their_question_keep_nobody_out(served: tuple[int, str]) -> None:
    _, url = served
    is_over, all_ask = threading.Event(), threading.Barrier(9)

    def drip() -> None:
        with connected(url) as one, suppress(OSError):
            one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            all_ask.wait()
            while not is_over.wait(0.5):
                one.sendall(b"a")

    with futures.ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(drip) for _ in range(8)]
        try:
            all_ask.wait()
            assert scrape(url)["gauss_cdc_place_up kafka"] == 1
        finally:
            is_over.set()
        for one in asking:
            one.result()
