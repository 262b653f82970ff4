"""Spark jobs of a driver program: one job that can be stopped, and what its tasks log in with.

A job is one of a micro-batch, and is cancelled by its own tag: the query goes on.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from spark_consumers.spark import jvm
from spark_consumers.spark.executors import SecretFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_LOOK: Final = 0.2  # seconds between two looks at `stop`
_IDLE: Final = 15.0  # seconds without a task: the master has none, or others have its cores
_UNTAKEN: Final = (
    f"no executor took the job for {_IDLE:.0f} s; are all cores of the cluster in use, or its "
    "workers gone?"
)


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A micro-batch whose jobs are to be begun: its session, and what makes a job one of its."""

    spark: SparkSession
    properties: Mapping[str, str] = field(default_factory=dict)


def run_job(
    batch: OpenBatch,
    work: Sequence[T],
    do: Callable[[T], R],
    *,
    description: str,
    stop: Callable[[], bool],
) -> list[R]:
    """Do each piece of work in a task, under a description; cancelled when `stop` says so.

    Raises Untaken where no executor takes it for some time: Spark would wait for one for ever.
    """
    spark = batch.spark
    tag, done = f"gauss-cdc-{uuid.uuid4().hex}", threading.Event()
    is_untaken = False

    def watch() -> None:
        nonlocal is_untaken
        idle = Idle(lambda: jvm.has_tasks(spark, tag))
        while not done.wait(_LOOK):
            with suppress(*jvm.GONE_ERRORS):  # which the job raises as well
                if stop():
                    jvm.cancel_jobs(spark, tag)  # again: it may come before the job has begun
                elif idle.is_over():
                    is_untaken = True
                    jvm.cancel_jobs(spark, tag)

    watcher = threading.Thread(target=watch, name="a job's stop", daemon=True)
    with jvm.described(spark, description, tag, batch.properties):
        watcher.start()
        try:
            return jvm.tasks(spark, work, do)
        except jvm.SPARK_ERRORS as error:
            if is_untaken:
                raise Untaken(_UNTAKEN) from error
            raise
        finally:
            done.set()
            watcher.join()


class Untaken(Exception):
    """No executor takes a job."""


class Idle:
    """Says when a job had no task for too long."""

    def __init__(
        self, has_tasks: Callable[[], bool], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._has_tasks, self._now = has_tasks, now
        self._over_at, self._next = now() + _IDLE, now() + _IDLE / 3

    def is_over(self) -> bool:
        """Look now and then; a task that was seen begins the time anew."""
        now = self._now()
        if now < self._next:
            return False
        self._next = now + _IDLE / 3
        if self._has_tasks():
            self._over_at = now + _IDLE
        return now >= self._over_at


class Secrets:
    """A file of secrets for tasks: of this machine, or sent by Spark to where its tasks run."""

    def __init__(self, secrets: Mapping[str, str], *, are_sent: bool = True) -> None:
        """`secrets` by their settings; `are_sent`: executors of a cluster get them."""
        self._secrets = dict(secrets)
        self._are_sent = are_sent
        self._folder: Path | None = None
        self._given: tuple[str, SecretFile] | None = None  # application, file

    def given(self, spark: SparkSession) -> SecretFile | None:
        """Say where tasks find them; the first call of a session puts them there.

        None: there are none, or tasks have their own.
        """
        if not self._secrets:
            return None
        if not (is_local := jvm.is_local(spark)) and not self._are_sent:
            return None
        application = jvm.application(spark)
        if self._given is None or self._given[0] != application:
            path = self._written()
            if not is_local:
                jvm.send_file(spark, str(path))
            file = SecretFile(str(path) if is_local else path.name, is_sent=not is_local)
            self._given = application, file
        return self._given[1]

    def _written(self) -> Path:
        """Write a file that nobody else may read; its name is no other application's."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-"))  # 0700
        path = self._folder / f"secrets-{uuid.uuid4().hex}.json"
        path.touch(0o600)
        path.write_text(json.dumps(self._secrets), "utf-8")
        return path

    def close(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._given = None
