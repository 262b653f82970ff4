"""A coordinator of a distributed GaussDB: `run` is a program, and is killed in its first load.

The emulator has what the manual says of coordinators, and ids as its nodes would give them out.
"""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from tests.e2e.gauss_facade import PASSWORD
from tests.e2e.path import ask, content, pause, until
from tests.e2e.test_ddl_random import Killed
from tests.e2e.test_gauss_modes import gauss
from tests.e2e.test_rereads import TABLES, Writer, make

__all__ = ["gauss"]

TOML = """
[source]
kind = "gaussdb"
dsn = "{source}"
plugin = "mppdb_decoding"
slot = "{prefix}"
[source.options]
output-order = "1"
parallel-decode-num = "2"
sending-batch = "1"
logical-receiver-num = "2"
enable-ddl-decoding = "true"
enable-heartbeat = "true"
[tables]
include = ["public.*"]
[load]
chunk-rows = 500
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[serve]
listen = "127.0.0.1:0"
"""


class Coordinated(Killed):
    """`run` reads the coordinator; everybody else is at the PostgreSQL behind it."""

    address: str
    settings = TOML

    def read_at(self) -> str:
        return f"{self.address}/{self.source.rsplit('/', 1)[1]}?sslmode=disable"

    def is_equal(self, *tables: str) -> bool:
        """All of them at one commit, exact, while somebody writes others."""
        self.barrier()
        there = [ask(self.target, "SELECT to_regclass(%s)", table) for table in tables]
        return not self.ledger.inexact and [(None,)] not in there


def told_metrics(log: Path) -> dict[str, float]:
    """What `run` tells of itself, of metrics that have one value."""
    url = re.findall(r"metrics on (\S+)", log.read_text())[-1]
    with urlopen(f"{url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {one.name: one.value for family in families for one in family.samples}


@pytest.mark.parametrize("gauss", ["gaussdb of 3"], indirect=True)
def test_a_coordinator_is_loaded_by_windows_under_load_and_a_kill(
    addresses, topic_prefix, new_database, tmp_path, gauss, monkeypatch
) -> None:
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    source, target = new_database(), new_database()
    make(source, (*TABLES, "marker"))
    ask(source, "DELETE FROM marker")
    with Coordinated(addresses, topic_prefix, source, target) as path:
        path.address = gauss
        path.begin(tmp_path)
        with Writer(source, TABLES, 10_000) as writer:
            until(lambda: "loaded table=public.a" in path.log.read_text(), "the first table", pause)
            path.kill()
            ask(source, "DELETE FROM b WHERE id % 3 = 0")
            path.go()
            until(lambda: path.is_equal(*TABLES), "the load's end", pause)
            # GaussDB leaves these rows out, and a coordinator's catalog cannot say which are there.
            ask(source, "CREATE TABLE filled AS SELECT n AS id FROM generate_series(1, 9) n")
            until(lambda: path.is_equal("filled"), "the table with its rows", pause)
            path.kill()  # a restart compares ids, those of nodes are ahead of the coordinator's
            path.go()
            path.barrier()
        path.barrier()
        with Endpoints(load(path.file)) as endpoints:

            def all_is_told() -> bool:
                path.barrier()  # the lease of `apply` writes into this server's log, too
                # The newest commit may wait for the one behind it.
                return endpoints.standing().csns_behind in {0, 1}

            until(all_is_told, "all that was told", pause)
            # A scrape has what the last look saw, which rests the longer the more it cost.
            until(
                lambda: all_is_told() and told_metrics(path.log)["gauss_cdc_lag_csns"] in {0, 1},
                "heartbeats that tell where the source's CSNs end",
                pause,
            )
        told = told_metrics(path.log)
        assert (told["gauss_cdc_ready"], told["gauss_cdc_slot_active"]) == (1, 1)
        path.kill()

        for table in (*TABLES, "filled"):
            assert content(target, table) == content(source, table), table
        assert (path.ledger.epoch, path.ledger.inexact, writer.commits > 20) == (1, {}, True)
