"""Looks at everything again and again, in a thread of its own, while somebody reads the page.

A look asks source, Kafka and target, so there is one at a time, whoever asks how often.  It costs
as much as there are tables: the longer it takes, the seldomer it is.  So is `check`, which asks
questions for each table, and runs beside the looks.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from gauss_cdc import doctor
from gauss_cdc.config import Config
from gauss_cdc.inspect.check import check_all
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.page.facts import facts
from gauss_cdc.page.series import Series
from producer.errors import CdcError
from schemas.errors import shortened
from schemas.findings import Finding, refused
from spark_consumers.errors import ApplyError

_log = logging.getLogger("gauss_cdc.page")

_COMPARED: Final = 30.0  # seconds between two looks at the source's catalog
_CHECKED: Final = 20.0  # seconds between two runs of `check`, at least
_SELDOM: Final = 100  # times as long as it took, at least
_REST: Final = 30  # times as long as a look took, until the next one, at least
_UNREAD: Final = 30.0  # seconds without a reader after which nobody looks any more
_FIRST: Final = 40.0  # seconds for which a reader waits for the first look


class Lookout:
    """The newest facts, as JSON."""

    def __init__(
        self,
        config: Config,
        listens: Sequence[str] = (),
        *,
        every: float = 2.0,
        more: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """`every`: seconds between looks, at least; `more`: facts of others in each answer."""
        self._config, self._listens, self._every, self._more = config, listens, every, more
        self._series, self._check = Series(), _Check(config)
        self._found: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        self._has_looked = threading.Event()
        self._thread: threading.Thread | None = None
        self._read_at = 0.0  # by the monotonic clock

    def facts(self) -> bytes:
        """Return the newest facts; begin to look, if nobody does."""
        self._read_at = time.monotonic()
        with self._lock:
            if self._thread is None:
                self._has_looked.clear()
                self._thread = threading.Thread(target=self._look, name="page", daemon=True)
                self._thread.start()
        self._has_looked.wait(_FIRST)
        return json.dumps({**self._found, **self._more()}).encode()

    def _look(self) -> None:
        """Look until nobody reads; connections are made anew where a place did not answer."""
        while True:
            try:
                self._look_while_whole()
            except Exception as error:  # noqa: BLE001  shown: the page outlives what it looks at
                _log.exception("a look failed")
                self._found = {**self._found, "failed": shortened([str(error)])}
                self._has_looked.set()
                time.sleep(self._every)
            with self._lock:
                if self._is_unread():
                    self._thread = None
                    return

    def _look_while_whole(self) -> None:
        with ExitStack() as stack:
            places = stack.enter_context(Endpoints(self._config))
            while not self._is_unread():
                began = time.monotonic()
                answers = doctor.ask(
                    *(self._config, self._listens, places, self._check.found()),
                    compared_within=_COMPARED,
                )
                took = time.monotonic() - began
                self._take(answers, took)
                if answers.standing.down:
                    time.sleep(self._every)
                    return
                time.sleep(max(self._every - took, min(_REST * took, _UNREAD / 2)))

    def _take(self, answers: doctor.Answers, seconds: float) -> None:
        now = time.time()
        samples = [one for program in answers.programs for one in program.samples]
        self._series.add(now, answers.standing, samples)
        self._found = {
            **facts(self._config, answers),
            "at": now,
            "took": round(seconds, 2),
            "series": self._series.as_json(),
        }
        self._has_looked.set()

    def _is_unread(self) -> bool:
        return time.monotonic() - self._read_at > max(_UNREAD, 3 * self._every)


class _Check:
    """What `check` found last; one that takes long holds no look up."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._found: list[Finding] = []
        self._due = 0.0  # by the monotonic clock
        self._thread: threading.Thread | None = None

    def found(self) -> list[Finding]:
        """Return it, and run it if it is time."""
        is_running = self._thread is not None and self._thread.is_alive()
        if not is_running and time.monotonic() >= self._due:
            self._thread = threading.Thread(target=self._run, name="check", daemon=True)
            self._thread.start()
        return self._found

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._found = list(check_all(self._config, fix=False))
        except (CdcError, ApplyError) as error:
            self._found = [refused("check", error)]
        now = time.monotonic()
        self._due = now + max(_CHECKED, _SELDOM * (now - began))
