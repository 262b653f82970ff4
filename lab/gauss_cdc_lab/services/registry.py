"""One schema registry: Apicurio, spoken to by Confluent's API only.

Its schemas live in an H2 file, so that ids survive a restart.  Ids are inside
every record in Kafka: a registry that forgot them would make all of it unreadable.
"""

import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from gauss_cdc.runtime.java import Java
from gauss_cdc_lab.services.process import LOOPBACK, ProcessCommand


class RegistryService:
    """A registry unpacked in `home`, whose data live in `directory`."""

    name: Final = "registry"
    stop_signal: Final = signal.SIGTERM
    transient: Final = None

    def __init__(self, directory: Path, *, java: Java, home: Path, port: int) -> None:
        self._directory, self._java, self._home = directory, java, home
        self._port = port

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    def command(self) -> ProcessCommand:
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self._port,
            "quarkus.log.level": "WARN",
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            # H2 writes half a second after a commit by default; after
            # `kill -9` an id that was given out would be given out again.
            "apicurio.datasource.url": f"jdbc:h2:file:{self._directory / 'schemas'};WRITE_DELAY=0",
            "apicurio.rest.deletion.artifact.enabled": "true",
            "apicurio.rest.deletion.artifact-version.enabled": "true",
        }
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
        (jar,) = self._home.glob("apicurio-registry-app-*-runner.jar")
        return ProcessCommand(
            (
                self._java.executable,
                *options,
                *(f"-D{name}={value}" for name, value in settings.items()),
                "-jar",
                jar,
            ),
            directory=self._home,
        )

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:  # noqa: S310 - our own http
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
