"""A standalone Spark cluster on this machine: a master and workers from pyspark's own jars."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from typing import Any, Final, Self

from gauss_cdc_lab.services.addresses import Addresses
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import (
    LOOPBACK,
    Process,
    ProcessCommand,
    end_session,
    free_ports,
    members,
    poll,
)

_START_SECONDS: Final = 180.0
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_JOB_START: Final = b'{"Event":"SparkListenerJobStart"'
_EXECUTOR_ADDED: Final = b'{"Event":"SparkListenerExecutorAdded"'
_QUERY_START: Final = (
    b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent"'
)
# Short runs compile little; executors get the same by `settings`.
_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkCluster:
    """One master and some workers of one core each; ends with everything that it started."""

    def __init__(self, folder: Path, addresses: Addresses, *, workers: int = 2) -> None:
        self.folder, self._addresses = folder, addresses
        self._port, self._web = free_ports(2)
        self._workers: list[Process] = []
        self._master: Process | None = None
        self.workers = workers

    @property
    def master(self) -> str:
        """As `--master` takes it."""
        return f"spark://{LOOPBACK}:{self._port}"

    def log(self, name: str) -> EventLog:
        """Return the event log of the applications that were started under a name."""
        return EventLog(self.folder / "events" / name)

    def settings(self, log: EventLog) -> dict[str, str]:
        """Return the settings of an application here: small, and with an event log."""
        return {
            "spark.master": self.master,
            "spark.jars": ",".join(map(str, self._addresses.spark_jars)),
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _JAVA,
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.folder.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def environment(self) -> dict[str, str]:
        """Return the variables of a driver."""
        return {"JAVA_HOME": str(self._addresses.java_home), "PYSPARK_PYTHON": sys.executable}

    def submit(
        self, program: Path, *arguments: str | Path, py_files: Path, log: EventLog
    ) -> ProcessCommand:
        """Return the `spark-submit` of a program here."""
        settings = (f"{name}={value}" for name, value in self.settings(log).items())
        return ProcessCommand(
            (
                _home() / "bin" / "spark-submit",
                *(part for setting in settings for part in ("--conf", setting)),
                *("--py-files", py_files, program, *arguments),
            ),
            directory=self.folder,
            environment=self.environment(),
        )

    def __enter__(self) -> Self:
        try:
            self._master = self._spawn(
                "master",
                *("master.Master", "--host", LOOPBACK),
                *("--port", str(self._port), "--webui-port", str(self._web)),
            )
            self._wait("the master", lambda: self._state() is not None, [self._master])
            for number in range(self.workers):
                self._workers.append(
                    self._spawn(
                        f"worker-{number}",
                        *("worker.Worker", "--host", LOOPBACK, "--webui-port", "0"),
                        *("--cores", "1", "--memory", "1g"),
                        *("--work-dir", str(self.folder / f"work-{number}"), self.master),
                    )
                )
            self._wait("the workers", self._is_complete, [self._master, *self._workers])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in (*self._workers, *([self._master] if self._master else [])):
            end_session(process.pid)  # executors live in their worker's session
            process.wait(_START_SECONDS)

    @property
    def leaders(self) -> list[int]:
        """The workers' pids; what each of them started is in its session."""
        return [worker.pid for worker in self._workers]

    def executors(self) -> list[int]:
        """Return the executors' pids."""
        return [pid for worker in self._workers for pid in members(worker.pid) if _is_executor(pid)]

    def kill_executor(self) -> int:
        """End one executor as a power cut would; the master starts another one."""
        pid = self.executors()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def _is_complete(self) -> bool:
        workers = (self._state() or {}).get("workers", ())
        return [one["state"] for one in workers] == ["ALIVE"] * self.workers

    def _state(self) -> dict[str, Any] | None:
        """Return what the master says of itself; None: it does not answer yet."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._web}/json/", timeout=5) as page:
                return dict(json.load(page))
        except (OSError, json.JSONDecodeError):
            return None  # while it starts, its web server answers each path with a page

    def _spawn(self, name: str, main: str, *arguments: str) -> Process:
        main = f"org.apache.spark.deploy.{main}"
        command: list[str | Path] = [_home() / "bin" / "spark-class", main, *arguments]
        environment = {
            **self.environment(),
            "SPARK_HOME": str(_home()),
            "SPARK_CONF_DIR": str(_home() / "conf"),  # that of drivers: all have the same classes
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
        }
        return ProcessCommand(command, self.folder, environment=environment).spawn(
            self.folder / f"{name}.log"
        )

    def _wait(self, what: str, is_so: Callable[[], bool], processes: Sequence[Process]) -> None:
        is_there = False

        def is_decided() -> bool:
            nonlocal is_there
            is_there = is_so()
            return is_there or not all(one.alive for one in processes)

        poll(is_decided, _START_SECONDS)
        if not is_there:  # not asked again: a busy master may take longer than a question waits
            raise ServiceError(f"{what} of Spark did not start; see {self.folder}/*.log")


def _home() -> Path:
    spec = util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _is_executor(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return _EXECUTOR in command and b"java" in command.split(b"\0")[0]


class EventLog:
    """What the event logs of some applications say of their jobs; each byte is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._at: dict[str, int] = {}  # application -> bytes that were read
        self._jobs: list[dict[str, Any]] = []
        self._has_query = False
        self._executors = 0

    @property
    def executors(self) -> int:
        """How many executors have registered so far, those that ended included."""
        self._follow()
        return self._executors

    @property
    def has_started(self) -> bool:
        """Whether a session was there that could begin jobs: a query of its was started."""
        self._follow()
        return self._has_query

    def jobs(self) -> list[str]:
        """Return what the jobs that were started so far are for, without those of queries."""
        self._follow()
        return [job["Properties"]["spark.job.description"] for job in self._jobs]

    def _follow(self) -> None:
        """Read what was written since; a log gets another name at its end."""
        for file in sorted(self.folder.iterdir()):
            application = file.name.removesuffix(".inprogress")
            with file.open("rb") as log:
                log.seek(self._at.get(application, 0))
                new = log.read()
            whole = new[: new.rfind(b"\n") + 1]  # what is behind it is being written
            self._at[application] = self._at.get(application, 0) + len(whole)
            for line in whole.splitlines():
                if line.startswith(_JOB_START):
                    self._take(json.loads(line))
                elif line.startswith(_EXECUTOR_ADDED):
                    self._executors += 1
                elif line.startswith(_QUERY_START):
                    self._has_query = True

    def _take(self, event: dict[str, Any]) -> None:
        said = event["Properties"].get("spark.job.description", "")
        if said and "batch = " not in said:
            self._jobs.append(event)
