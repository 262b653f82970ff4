"""PostgreSQL, Kafka and a registry as processes of this machine, in one folder.

Ports are chosen once and remembered in the folder's state file, so that each
service comes back under the address that everybody knows; data stay until the
folder is removed.  The state file also knows each process, so that another
program can find, stop or adopt what an earlier one left running or, after a
crash, no longer has.
"""

import atexit
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, Literal, Protocol, Self

from rich.console import Console

from gauss_cdc.runtime import jars, java
from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.addresses import Addresses
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.kafka import KafkaService
from gauss_cdc_lab.services.postgres import Postgres
from gauss_cdc_lab.services.process import LOOPBACK, Process, ProcessCommand, free_ports, poll
from gauss_cdc_lab.services.registry import RegistryService
from gauss_cdc_lab.services.unpacked import unpack

Name = Literal["postgres", "kafka", "registry"]
NAMES: Final[tuple[Name, ...]] = ("postgres", "kafka", "registry")

_LOCKS: Final = ("kafka", "spark", "registry")
_PORTS: Final = ("postgres", "kafka", "kafka-controller", "registry")
_START_SECONDS: Final = 180.0  # seconds are usual; a busy machine may need many times that
_STOP_SECONDS: Final = 30.0


class Service(Protocol):
    """What a folder can hold: made ready, started, asked, and stopped by a signal."""

    @property
    def stop_signal(self) -> signal.Signals: ...

    @property
    def transient(self) -> str | None:
        """Words of its log on which it is started again at once."""

    def prepare(self) -> None:
        """Write configuration and make empty data, unless they are there."""

    def command(self) -> ProcessCommand: ...

    def answers(self) -> bool:
        """Whether it can be used now."""


class LocalServices:
    """The services of one folder; each can be stopped, killed and started by itself.

    Stops what it started when the program ends, also by SIGTERM or SIGHUP,
    unless `keep`.  Use it from one thread at a time, except for `kill`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        postgres_kind: postgres.Kind | None = None,
        keep: bool = False,
        password: str = "",
        console: Console | None = None,
    ) -> None:
        """`password` of PostgreSQL's administrator; "": everybody on this machine is believed."""
        self.directory = directory.expanduser().absolute()
        self._console = console or Console(stderr=True)
        self._postgres_kind = postgres_kind
        self._keep, self._password = keep, password
        self._lock = threading.RLock()
        self._services: dict[Name, Service] = {}
        self._addresses: Addresses | None = None
        self._ports, self._processes = self._read_state()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def addresses(self) -> Addresses:
        """Where the services answer; known once `start` has run."""
        if self._addresses is None:
            raise ServiceError(f"the services of {self.directory} were not started here")
        return self._addresses

    def env(self) -> dict[str, str]:
        return self.addresses.environment()

    def running(self) -> tuple[Name, ...]:
        """The services whose processes are alive, of any parent."""
        return tuple(name for name in NAMES if self.process(name) is not None)

    def process(self, name: Name) -> Process | None:
        """The live process of a service."""
        process = self._processes.get(name)
        return process if process is not None and process.alive else None

    def start(self, name: Name | None = None) -> Addresses:
        """Start everything, or one service, and wait until it can be used."""
        if self._addresses is None:
            self._set_up()
        names = [n for n in (NAMES if name is None else (name,)) if self.process(n) is None]
        if not names:
            return self.addresses
        if not self._keep:
            _OPEN.add(self)
            _stop_on_signals()
        try:
            with self._says(names), ThreadPoolExecutor(len(names)) as pool:
                for job in [pool.submit(self._start, n) for n in names]:
                    job.result()
        except BaseException:
            if name is None:
                self.stop()
            raise
        return self.addresses

    def stop(self, name: Name | None = None) -> tuple[Name, ...]:
        """Ask one service or all to leave, wait until they have; return which did."""
        alive = [(n, p) for n in (NAMES if name is None else (name,)) if (p := self.process(n))]
        for n, process in alive:
            process.send(_STOP_SIGNALS[n])
        for _, process in alive:
            if not process.wait(_STOP_SECONDS):
                process.send(signal.SIGKILL)
                process.wait(_STOP_SECONDS)
        if name is None:
            _OPEN.discard(self)
        self._forget_dead()
        return tuple(n for n, _ in alive)

    def kill(self, name: Name) -> None:
        """End a service as a power cut would (SIGKILL)."""
        if (process := self.process(name)) is not None:
            process.send(signal.SIGKILL)
            process.wait(_STOP_SECONDS)
        self._forget_dead()

    def restart(self, name: Name) -> None:
        """Stop a service if it runs, and start it under its address, on its data."""
        self.stop(name)
        self.start(name)

    def remove(self) -> None:
        """Stop everything and delete the folder."""
        self.stop()
        postgres.remove_data(self.directory / "postgres")
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self, name: Name) -> Path:
        """The file that holds what a service said."""
        return self.directory / "logs" / f"{name}.log"

    def _set_up(self) -> None:
        """Find or fetch the programs, choose the ports."""
        try:
            (self.directory / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ServiceError(
                f"cannot write {self.directory}: {exc.strerror}", hint="Choose another folder."
            ) from exc
        runtime = java.find(shims=jars.cache())
        kind = self._postgres_kind or postgres.kind()
        binaries, lock = postgres.installed(kind), postgres.lock_name(kind)
        wanted = _LOCKS if binaries is not None else (*_LOCKS, lock)
        files = jars.fetch(wanted, console=self._console)
        if binaries is None:
            binaries = postgres.embedded(files[lock][0])
        if set(self._ports) != set(_PORTS):
            self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
            self._write_state()
        registry = RegistryService(
            self.directory / "registry",
            java=runtime,
            home=unpack(files["registry"][0]),
            port=self._ports["registry"],
        )
        self._services = {
            "postgres": Postgres(
                self.directory / "postgres",
                binaries=binaries,
                port=self._ports["postgres"],
                password=self._password,
            ),
            "kafka": KafkaService(
                self.directory / "kafka",
                java=runtime,
                jars=files["kafka"],
                port=self._ports["kafka"],
                controller=self._ports["kafka-controller"],
            ),
            "registry": registry,
        }
        self._addresses = Addresses(
            postgres_host=LOOPBACK,
            postgres_port=self._ports["postgres"],
            postgres_user=postgres.USER,
            postgres_password=self._password,
            kafka_bootstrap=f"{LOOPBACK}:{self._ports['kafka']}",
            registry_url=registry.url,
            spark_jars=files["spark"],
            java_home=runtime.home,
        )

    def _start(self, name: Name) -> None:
        """Start one service; runs in a thread of its own."""
        service, log = self._services[name], self.log(name)
        service.prepare()
        while True:
            said_before = log.stat().st_size if log.exists() else 0
            process = service.command().spawn(log)
            with self._lock:
                self._processes[name] = process
                self._write_state()
            if poll(partial(_is_decided, service, process), _START_SECONDS):
                if process.alive:
                    return
                said = _read_from(log, said_before)
                if service.transient is not None and service.transient in said:
                    continue
                what = "ended at once"
            else:
                process.send(signal.SIGKILL)
                said = _read_from(log, said_before)
                what = f"did not answer within {_START_SECONDS:.0f} seconds"
            tail = "\n".join(said.splitlines()[-15:])
            raise ServiceError(f"{name} {what}; the end of {log}:\n{tail}")

    @contextmanager
    def _says(self, names: list[Name]) -> Iterator[None]:
        if self._console.is_terminal:
            with self._console.status(f"starting {', '.join(names)}"):
                yield
        else:
            yield

    def _read_state(self) -> tuple[dict[str, int], dict[Name, Process]]:
        try:
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}, {}
        known = state["processes"]
        return state["ports"], {
            name: Process(known[name]["pid"], known[name]["started"])
            for name in NAMES
            if name in known
        }

    def _write_state(self) -> None:
        state = {
            "ports": self._ports,
            "processes": {
                name: {"pid": process.pid, "started": process.started}
                for name, process in self._processes.items()
            },
        }
        with self._lock:
            draft = self._state_file.with_suffix(".new")
            draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
            draft.replace(self._state_file)

    def _forget_dead(self) -> None:
        with self._lock:
            self._processes = {n: p for n, p in self._processes.items() if p.alive}
            if self.directory.is_dir():
                self._write_state()

    @property
    def _state_file(self) -> Path:
        return self.directory / "services.json"


_STOP_SIGNALS: Final[dict[Name, signal.Signals]] = {
    "postgres": Postgres.stop_signal,
    "kafka": KafkaService.stop_signal,
    "registry": RegistryService.stop_signal,
}

# What this program has to stop before it ends; its forks inherit the list, not the duty.
_OPEN: Final[set[LocalServices]] = set()
_PROGRAM: Final = os.getpid()


@atexit.register
def _stop_open() -> None:
    if os.getpid() == _PROGRAM:
        for services in list(_OPEN):
            services.stop()


def _stop_on_signals() -> None:
    """Stop also where atexit is not asked: at an unhandled SIGTERM or SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop_and_die)


def _stop_and_die(number: int, _frame: FrameType | None) -> None:
    _stop_open()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _is_decided(service: Service, process: Process) -> bool:
    """Whether a service answers, or never will.

    In this order a service is only taken for ready while its process is alive:
    what answers after its end is another process.
    """
    return service.answers() or not process.alive


def _read_from(log: Path, position: int) -> str:
    with log.open("rb") as file:
        file.seek(position)
        return file.read().decode("utf-8", errors="replace")
