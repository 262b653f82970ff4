"""Prometheus reads where everything stands."""

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from gauss_cdc.config import Config
from gauss_cdc.metrics import METRICS, serve
from tests.e2e.path import Path, ask


def scrape(port: int) -> dict[str, float]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {f.name: f.samples[0].value for f in text_string_to_metric_families(text)}


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
        found = scrape(serve(config, "127.0.0.1", 0))

    assert set(found) == {"gauss_cdc_up", *(f"gauss_cdc_{name}" for name in METRICS)}
    assert found["gauss_cdc_up"] == found["gauss_cdc_target_exact"] == 1
    assert found["gauss_cdc_kafka_seq"] == found["gauss_cdc_target_seq"] == 1
    assert found["gauss_cdc_lag_commits"] == found["gauss_cdc_inexact_tables"] == 0


def test_a_place_that_does_not_answer_is_told(addresses, topic_prefix, new_database) -> None:
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

    assert scrape(serve(config, "127.0.0.1", 0)) == {"gauss_cdc_up": 0}
