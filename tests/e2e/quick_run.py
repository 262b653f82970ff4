"""`gauss-cdc run`, which looks at the catalog five times a second.

Its position at rest stands in Kafka as soon, too: `wait` waits for it.
"""

import logging
import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from gauss_cdc import wiring
from gauss_cdc.config import load
from producer.core.loop import Progress
from producer.core.ports import RunObserver
from producer.pipeline import run

# A server that has imported all of it, and forks: half of the time of a start are imports.
_FORKED: Final = multiprocessing.get_context("forkserver")


def started(configuration: Path, log: Path, **tuning: int) -> BaseProcess:
    """Start it as a process of its own, which can be killed; `tuning`: fields of `Tuning`."""
    _FORKED.set_forkserver_preload([__name__])
    process = _FORKED.Process(target=_run, args=(configuration, log, tuning), daemon=True)
    process.start()
    return process


def _run(configuration: Path, log_file: Path, changed: dict[str, Any]) -> None:
    with log_file.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log, stop = logging.getLogger("run"), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    options = wiring.producer_options(load(configuration))
    watch = RunObserver(
        on_step=lambda _: None,
        on_load=lambda *_: None,
        on_note=log.info,
        stop_asked=lambda seconds: stop.wait(seconds) if seconds else stop.is_set(),
        on_warning=log.warning,
        on_retry=log.warning,
    )
    tuning = replace(options.tuning, rest_seconds=0.2, look_share=0, **changed)
    limits = replace(options.limits, heartbeat_seconds=0.2)
    options = replace(options, look_seconds=0.2, tuning=tuning, limits=limits)
    run(options, watch, Progress())
