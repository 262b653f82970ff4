"""Where a play takes place: a folder, services, two databases, one configuration."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from pydantic import SecretStr

from gauss_cdc.config import Config, load
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.demo.disguise import Disguise
from gauss_cdc_lab.services import Addresses, LocalServices, postgres
from producer.errors import CdcError
from producer.sources.postgres.section import PostgresSection
from schemas.accept import Foreign

_POSTGRES: Final = """\
[source]
dsn = {source}
slot = {slot}
publication = {slot}
"""
_TOML: Final = """\
{source_lines}
[tables]
include = ["public.*"]
exclude = {exclude}

[kafka]
prefix = {prefix}
exactly-once = {exactly_once}

[kafka.client]
"bootstrap.servers" = {kafka}

[registry]
url = {registry}

{target_lines}

[spark]
master = "local[2]"
checkpoint = {checkpoint}

[spark.options]
"spark.driver.memory" = "1g"
# Short runs compile little, and who is killed leaves no files outside of the folder.
"spark.driver.extraJavaOptions" = {java}
"""
_TARGET: Final = """\
[target]
kind = {kind}
dsn = {target}
"""
_LAKE: Final = """\
mode = {mode}
interval = "1s"
"""
_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.io.tmpdir={}"


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that `run` and `apply` are pointed at."""

    folder: Path
    services: LocalServices
    source_url: str
    target_url: str
    config_file: Path
    target_kind: str = "postgres"
    mode: str = "scd1"  # of a lake

    @property
    def is_lake(self) -> bool:
        """Say whether the target is a folder of tables."""
        return self.target_kind in ("delta", "iceberg")

    @property
    def config(self) -> Config:
        """For our own looks at Kafka, which say nothing while the broker is dead."""
        config = load(self.config_file)
        client = {**config.kafka.client, "log_level": 0}
        # In disguise, too, PostgreSQL itself is asked how far it is.
        source = config.source
        if not isinstance(source, PostgresSection):
            source = PostgresSection(dsn=self.source_url, slot=source.slot)
        real = {"dsn": self.source_url, "password": SecretStr("")}
        return config.model_copy(
            update={
                "kafka": config.kafka.model_copy(update={"client": client}),
                "source": source.model_copy(update=real),
            }
        )


def make_databases(addresses: Addresses) -> tuple[str, str]:
    """An empty source and an empty target."""
    for name in ("source", "target"):
        postgres.create_database(addresses.postgres_url(), name)
    return addresses.postgres_url("source"), addresses.postgres_url("target")


def set_up(
    services: LocalServices,
    folder: Path,
    *,
    source: str,
    target: str,
    prefix: str = "bank",
    exactly_once: bool = True,
    disguise: Disguise | None = None,
    target_kind: str = "postgres",
    mode: str = "scd1",
) -> Scene:
    """Write the configuration; services and databases are there.

    A lake's target is a folder; it follows tables with a key only.
    """
    is_lake = target_kind in ("delta", "iceberg")
    target = str(folder / "lake") if is_lake else target
    addresses = services.addresses
    (folder / "logs").mkdir(exist_ok=True)
    file = folder / "gauss-cdc.toml"
    values = {
        "source": source,
        "target": target,
        "kind": target_kind,
        "mode": mode,
        "exclude": ["public.visit"] if is_lake else [],
        "slot": prefix,
        "prefix": prefix,
        "exactly_once": exactly_once,
        "kafka": addresses.kafka_bootstrap,
        "registry": addresses.registry_url,
        "checkpoint": str(folder / "state"),
        "java": _JAVA.format(folder / "tmp"),
    }
    # A JSON string is a TOML string.
    quoted = {name: json.dumps(value) for name, value in values.items()}
    lines = _POSTGRES.format(**quoted) if disguise is None else disguise.lines(prefix)
    target_lines = _TARGET.format(**quoted) + _LAKE.format(**quoted) * is_lake
    text = _TOML.format(**quoted, source_lines=lines, target_lines=target_lines)
    file.write_text(text, encoding="utf-8")
    return Scene(folder, services, source, target, file, target_kind, mode)


def open_folder() -> Path:
    """A temporary folder that PostgreSQL's user may enter when root plays."""
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-demo-"))
    folder.chmod(0o711)
    return folder


class CutsFollower:
    """Follows the cuts, to know the newest commit in Kafka."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self.seq = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look at a dead broker is not waited for."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        at = 0
        with Endpoints(self._config) as places:
            while not self._stop.wait(0.3):
                try:
                    end = places.reader().lso()
                    for _, cut in places.read_cuts(at, end):
                        if not isinstance(cut, Foreign):
                            self.seq = cut.head.last_seq
                    at = max(at, end)
                except CdcError:
                    continue  # the topic is not there yet, or the broker is dead


class Interrupted(KeyboardInterrupt):
    """A stop was requested: Ctrl-C, SIGTERM, or a closed terminal."""


class Interrupts:
    """The first signal interrupts; from then on, and while we clear up, none does."""

    _NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._is_over = self._is_held = self._is_asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._NUMBERS:
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: object, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end(self) -> None:
        """We are leaving: let nothing come between."""
        self._is_over = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Between starting a process and knowing it there is no good moment to leave."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_asked and not self._is_over:
            self._is_over = True
            raise Interrupted

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        del number
        self._is_asked = True
        if not self._is_over and not self._is_held:
            self._is_over = True
            raise Interrupted
