"""Statements and rows by chance, with kills of `run`: at every barrier the target is equal.

GAUSS_CDC_DDL_SECONDS=600 GAUSS_CDC_DDL_SEED=7 pytest tests/e2e/test_ddl_random.py
"""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from producer.core.catalog.look import Cause
from spark_consumers.errors import KafkaDown
from spark_consumers.loop import job
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.ddl_play import START, Play
from tests.e2e.path import Path, ask, until
from tests.e2e.tables import differences
from tests.e2e.test_ddl import install

SECONDS = float(os.environ.get("GAUSS_CDC_DDL_SECONDS", "30"))
SEED = int(os.environ.get("GAUSS_CDC_DDL_SEED", "1"))

TOML = """
[source]
dsn = "{source}"
slot = "{prefix}"
publication = "{prefix}"
status-interval = "1s"
[kafka]
prefix = "{prefix}"
{more}
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
"""


class Killed(Path):
    """`run` is a program of its own, killed without a word; the consumer's loop stays here."""

    settings = TOML

    def read_at(self) -> str:
        """The DSN under which `run` reads the source."""
        return self.source

    def begin(self, folder, more="") -> None:
        self.file = folder / f"{self.prefix}.toml"
        self.configure(more)
        self.log = folder / "run.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.markers = itertools.count(1)
        self.go()

    def configure(self, more="") -> None:
        """Settings of [kafka] for the next `run`."""
        self.file.write_text(
            self.settings.format(
                source=self.read_at(),
                prefix=self.prefix,
                kafka=self.options.client["bootstrap.servers"],
                registry=self.options.registry_url,
                more=more,
            )
        )

    def go(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "gauss_cdc", "run", "--config", str(self.file)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait()

    def forget(self) -> None:
        """The consumer dies, too: another one begins with the ledger."""
        self.sink.close()
        self.sink = PostgresSink(self.target, self.prefix)
        self.applier = job.Applier(self.cuts, self.rows, self.sink)

    def grow(self, seq) -> None:
        """Wait until the target has come as far as a commit; `run` may be in the next ones."""

        def is_there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return self.applier.drain().seq >= seq

        until(is_there, f"commit {seq}", time.sleep)

    def barrier(self):
        """Wait until the target holds a row written now."""
        marker = next(self.markers)
        ask(self.source, "INSERT INTO public.marker VALUES (%s)", marker)

        def is_there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                self.ledger = self.applier.drain()
            except KafkaDown:  # nothing has made the topics yet
                return False
            return bool(
                ask(self.target, "SELECT to_regclass('public.marker') IS NOT NULL")[0][0]
                and ask(self.target, "SELECT 1 FROM public.marker WHERE id = %s", marker)
            )

        until(is_there, f"marker {marker}", time.sleep)
        return self.ledger


def is_doubt(why: str) -> bool:
    """Say whether a look suspects it: what described a statement ended with a killed `run`."""
    is_suspected = why.startswith("suspected: ")
    return is_suspected or any(cause.value.partition("{")[0] in why for cause in Cause)


@pytest.mark.parametrize("lossy", [False, True], ids=["exact", "with holes"])
def test_whatever_is_run_the_target_is_equal(
    addresses, topic_prefix, new_database, tmp_path, lossy
) -> None:
    source, target = new_database(), new_database()
    ask(source, START)
    play = Play(source, SEED, lossy=lossy)
    until_when = time.monotonic() + SECONDS / 2
    with Killed(addresses, topic_prefix, source, target) as path:
        path.begin(tmp_path)
        try:
            path.barrier()
            install(source, topic_prefix)
            while time.monotonic() < until_when:
                if play.random.random() < 0.4:
                    path.kill()
                    play.some(10)
                    path.go()
                if play.random.random() < 0.2:
                    path.forget()
                play.some(30)
                inexact = path.barrier().inexact
                reported = "\n".join(play.done[-80:])
                odd = {table: why for table, why in inexact.items() if not is_doubt(why)}
                assert lossy or not odd, f"seed {SEED}: {odd}\n{reported}"
                found = differences(source, target, set(inexact))
                assert found == [], f"seed {SEED}: {found}\n{reported}"
            # What a look suspects behind a kill is read again.
            until(lambda: lossy or not path.barrier().inexact, "an exact target", time.sleep)
        finally:
            (tmp_path / "statements.sql").write_text("\n".join(play.done))
            path.kill(signal.SIGTERM)
            play.close()
