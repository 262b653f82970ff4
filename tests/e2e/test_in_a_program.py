"""`apply` in a Spark program that has a session and queries of its own."""

import threading
from typing import Any

import pytest

from gauss_cdc.apply import apply
from gauss_cdc.config import Config
from tests.e2e.path import Path, ask, content, until


@pytest.fixture
def own_query(spark: Any) -> Any:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = frame.writeStream.format("noop").trigger(processingTime="1 second").queryName("own")
    started = query.start()
    yield started
    started.stop()


def test_apply_uses_the_program_s_session_and_ends_nothing_of_the_program_s(
    addresses, topic_prefix, new_database, spark, own_query, tmp_path
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    stop, failures = threading.Event(), []
    config = Config.model_validate(
        {
            "source": {"dsn": source, "slot": topic_prefix, "publication": topic_prefix},
            "kafka": {
                "prefix": topic_prefix,
                "client": {"bootstrap.servers": addresses.kafka_bootstrap},
            },
            "registry": {"url": addresses.registry_url},
            "target": {"kind": "postgres", "dsn": target},
            "spark": {"checkpoint": str(tmp_path / "checkpoint")},
        }
    )

    def applied() -> None:
        try:
            apply(config, lambda s=0: stop.wait(s) if s else stop.is_set(), session=spark)
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    def names() -> set[str]:
        return {query.name for query in spark.streams.active}

    def is_equal() -> bool:
        (there,) = ask(target, "SELECT to_regclass('t') IS NOT NULL")[0]
        return bool(failures) or (there and content(target, "t") == content(source, "t"))

    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        thread = threading.Thread(target=applied)
        thread.start()
        try:
            ours = {"own", f"gauss-cdc {topic_prefix}"}
            until(lambda: bool(failures) or names() == ours, "a query of ours", stop.wait)
            ask(source, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 1000) n")
            until(is_equal, "rows", stop.wait)
        finally:
            stop.set()
            thread.join()

    assert failures == []
    assert names() == {"own"}
    assert own_query.isActive
    assert own_query.exception() is None
    assert spark.range(3).count() == 3
