"""Run a command of gauss-cdc and note each millisecond of its CPU what its main thread does.

    python benchmarks/sampled.py OUT run --config FILE

OUT becomes a JSON list of [seconds of the monotonic clock, where, CPU-seconds]: `where` is the
innermost Python code, a module or a generated function; a call of a library counts for its
caller.  A sample is weighed by the CPU that the thread used since the last one, so that what waits
costs nothing.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from gauss_cdc.__main__ import main

_EVERY: Final = 0.001  # seconds of the process's CPU
_ROOT: Final = Path(__file__).parents[1]

Samples = list[tuple[float, str, float]]


@contextmanager
def sampling(samples: Samples) -> Iterator[None]:
    """Note what the main thread does, until the block ends."""
    last = time.thread_time()

    def note(_number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.thread_time()
        where = frame.f_code.co_filename if frame is not None else "?"
        samples.append((time.monotonic(), where, now - last))
        last = now

    signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def short(file: str) -> str:
    """Name a file from the repository's root on, of a library its last two parts.

    >>> short("/usr/lib/python3/site-packages/confluent_kafka/serializing.py")
    'confluent_kafka/serializing.py'
    """
    if file.startswith((str(_ROOT / "producer"), str(_ROOT / "schemas"))):
        return str(Path(file).relative_to(_ROOT))
    return "/".join(Path(file).parts[-2:])


if __name__ == "__main__":
    out, sys.argv = Path(sys.argv[1]), ["gauss-cdc", *sys.argv[2:]]
    taken: Samples = []
    try:
        with sampling(taken):
            main()
    finally:
        out.write_text(json.dumps([(at, short(where), used) for at, where, used in taken]), "utf-8")
