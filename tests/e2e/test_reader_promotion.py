"""Services read on while a standby of the source is promoted: an epoch that continues, or not."""

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from gauss_cdc_lab.services import Addresses
from producer.errors import CdcError, SourceSwitched
from tests.e2e.path import Path, until
from tests.e2e.reading import Reading, each_way, equal
from tests.e2e.test_promotion import Pair, killed_and_promoted, paired, waited_for

NAMES = ("account", "entry", "quiet")


def read(addresses: Addresses, path: Path) -> AbstractContextManager[dict[str, Reading]]:
    client = {"bootstrap.servers": addresses.kafka_bootstrap}
    return each_way(client, addresses.registry_url, path.prefix, NAMES)


def lose_a_commit(
    pair: Pair,
    path: Path,
    readings: dict[str, Reading],
    statement: str,
    error: type[CdcError],
) -> None:
    """Let services have a commit that the promoted standby lacks; `run` stops there."""
    pair.cut_off()
    pair.primary.ask(statement)
    path.arrive()
    equal(readings, pair.primary.url, NAMES)
    pair.primary.stop(signal.SIGKILL)
    pair.promote()
    until(lambda: path.failure is not None, "the stop", threading.Event().wait)
    with pytest.raises(error):
        path.stop()
    path.failure = None


def test_services_go_on_behind_the_promotion(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """Each commit that they are given leaves both tables at the same sum."""
    with (
        waited_for(addresses, topic_prefix, new_database) as (pair, path),
        read(addresses, path) as readings,
    ):
        whole = readings["commits"]
        sums = set[int]()

        def taken() -> None:
            balances = sum(row["balance"] for row in whole.copies["account"].rows.values())
            deltas = sum(row["delta"] for row in whole.copies["entry"].rows.values())
            sums.add(balances - deltas)

        whole.taken = taken  # type: ignore[method-assign]
        killed_and_promoted(pair)
        path.source = pair.standby.url
        path.arrive()
        equal(readings, pair.standby.url, NAMES)
        path.stop()

        assert sums == {0}
        assert not any(one.copies[name].gaps for one in readings.values() for name in NAMES)


def test_services_are_told_what_a_forced_switch_lost_and_read_it_again(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    with paired(addresses, topic_prefix, new_database()) as (pair, path):
        path.start()
        path.arrive()
        pair.wait_for_slot(path.options.slot)
        with read(addresses, path) as readings:
            lost = "UPDATE account SET balance = 1 WHERE id = 7"
            lose_a_commit(pair, path, readings, lost, SourceSwitched)

            path.options = replace(path.options, accept_switch=True, repair="auto")
            path.start()
            until(lambda: path.progress.has_streamed, "the stream", threading.Event().wait)
            pair.standby.ask("INSERT INTO entry VALUES (3, 4)")
            path.source = pair.standby.url
            path.arrive()
            equal(readings, pair.standby.url, NAMES)
            path.stop()

            for way, one in readings.items():
                told = {name: len(one.copies[name].gaps) for name in NAMES}
                assert told == {"account": 1, "entry": 0, "quiet": 0}, way


def test_services_begin_anew_where_the_promoted_server_has_no_slot(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """What was committed after the standby was cut off is not there; all tables are loaded."""
    with paired(addresses, topic_prefix, new_database()) as (pair, path):
        pair.standby.set("sync_replication_slots", "off")
        path.start()
        path.arrive()
        with read(addresses, path) as readings:
            lose_a_commit(pair, path, readings, "INSERT INTO entry VALUES (7, 1)", CdcError)

            path.options = replace(path.options, accept_gap=True)
            path.start()
            path.source = pair.standby.url
            pair.standby.ask("UPDATE account SET balance = 2 WHERE id = 8")
            path.arrive()
            equal(readings, pair.standby.url, NAMES)
            path.stop()
