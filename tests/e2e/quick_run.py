"""`gauss-cdc run`, which looks at the catalog five times a second; argument: the configuration."""

import logging
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from gauss_cdc import wiring
from gauss_cdc.config import load
from producer.core.loop import Progress
from producer.core.ports import RunObserver
from producer.pipeline import run

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log, stop = logging.getLogger("run"), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    options = wiring.producer_options(load(Path(sys.argv[1])))
    watch = RunObserver(
        on_step=lambda _: None,
        on_load=lambda *_: None,
        on_note=log.info,
        stop_asked=lambda seconds: stop.wait(seconds) if seconds else stop.is_set(),
        on_warning=log.warning,
        on_retry=lambda error, seconds: log.warning("%s: again in %g s", error, seconds),
    )
    tuning = replace(options.tuning, rest_seconds=0.2)
    run(replace(options, look_seconds=0.2, tuning=tuning), watch, Progress())
