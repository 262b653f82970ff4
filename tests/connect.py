"""A Kafka Connect worker with Debezium's connectors, for as long as a block runs.

Jars come by the lock `debezium` (gauss_cdc/runtime/locks): Connect of the broker's
own version, Debezium's PostgreSQL source and JDBC sink, and Apicurio's Avro converter,
which is told to write Confluent's framing.
"""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from gauss_cdc.runtime import jars, java
from gauss_cdc_lab.services import Addresses
from gauss_cdc_lab.services.kafka import answers
from gauss_cdc_lab.services.process import LOOPBACK, Process, ProcessCommand, free_ports, poll

START_SECONDS: Final = 180.0

_WORKER: Final = """\
bootstrap.servers={kafka}
listeners=http://{host}:{port}
plugin.discovery=service_load
plugin.path={jars}
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=500
consumer.auto.offset.reset=earliest
consumer.isolation.level=read_committed
"""

_SHORT_RUNS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m")

_LOG4J: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


def converters(registry_url: str) -> dict[str, str]:
    """Settings of a connector that reads and writes Avro as Confluent's converter frames it."""
    root = registry_url.partition("/apis/")[0]
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": f"{root}/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {
        f"{side}.converter{name}": value
        for side in ("key", "value")
        for name, value in settings.items()
    }


class Refused(AssertionError):
    """The worker's words."""


class Connect:
    """One standalone worker; connectors are made and asked by its REST interface."""

    def __init__(
        self,
        addresses: Addresses,
        directory: Path,
        *,
        java: Sequence[str] = _SHORT_RUNS,
        classes: Sequence[Path] = (),
    ) -> None:
        """`java`: options of the virtual machine; `classes`: folders of further classes."""
        self._addresses, self._directory, self._java = addresses, directory, java
        self._classes = classes
        self._port: int
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        files = jars.fetch(["debezium"])["debezium"]
        (self._port,) = free_ports(1)
        worker = self._directory / "worker.properties"
        worker.write_text(
            _WORKER.format(
                kafka=self._addresses.kafka_bootstrap,
                host=LOOPBACK,
                port=self._port,
                jars=files[0].parent,
                directory=self._directory,
            )
            + "\n".join(f"{k}={v}" for k, v in converters(self._addresses.registry_url).items()),
            encoding="utf-8",
        )
        (self._directory / "log4j2.xml").write_text(_LOG4J, encoding="utf-8")
        runtime = java.find(shims=jars.cache())
        command = ProcessCommand(
            (
                runtime.executable,
                *self._java,
                "-Dfile.encoding=UTF-8",
                f"-Dlog4j2.configurationFile={self._directory / 'log4j2.xml'}",
                *("-cp", ":".join(map(str, (*files, *self._classes)))),
                "org.apache.kafka.connect.cli.ConnectStandalone",
                worker,
            ),
            directory=self._directory,
        )
        assert answers(self._addresses.kafka_bootstrap)
        self._process = command.spawn(self.log)
        assert poll(self._is_up, START_SECONDS), self.said()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send(signal.SIGTERM)
            if not self._process.wait(30):
                self._process.send(signal.SIGKILL)
                self._process.wait(30)
            self._process = None

    @property
    def pid(self) -> int:
        """Of the worker, while the block runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._directory / "connect.log"

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-6000:]

    def start(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a connector; a refused setting raises Refused."""
        self._ask("POST", "/connectors", {"name": name, "config": dict(settings)})

    def remove(self, name: str) -> None:
        """Stop a connector: what it had read is flushed first."""
        self._ask("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise if a task of the connector failed."""
        state = self._ask("GET", f"/connectors/{name}/status")
        for task in [state["connector"], *state["tasks"]]:
            assert task["state"] != "FAILED", task.get("trace", "") + self.said()

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.alive, self.said()
        try:
            self._ask("GET", "/connectors")
        except (Refused, urllib.error.URLError, OSError):  # it listens before it serves
            return False
        return True

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refused:
            raise Refused(refused.read().decode()) from None
        return json.loads(text) if text else None
