"""How old a lake's newest commit is while rows are committed: what a reader of it sees.

    python benchmarks/age.py [--kind iceberg|delta] [--interval 30s]… [--rate N] [--seconds N]

For each `[target] interval` (none: the default) a source, `run` and `apply` of their own; rows are
committed at a fixed rate, five in a transaction.  Twice a second the newest watermark is read, as
`status` does: its commit's age is a sample, once a step of the measurement is there.  At the end
`verify` compares the lake with the source.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import threading
import time
from contextlib import closing
from statistics import quantiles
from typing import Final

from latency import Source
from report import Report, finish, number, parser
from rig import GAUSS_CDC, Rig, program, rig, unique

from gauss_cdc import target
from gauss_cdc.config import load

_LOOK: Final = 0.5  # seconds between two samples
_PATIENCE: Final = "300s"


def ages(at: Rig, kind: str, interval: str, rate: int, seconds: float) -> tuple[list[float], int]:
    """Return the ages in seconds, ascending, and how many watermarks they are of."""
    source, name = Source(at, 5), unique("age")
    lake = {"kind": kind, "dsn": str(at.folder / name)} | (
        {"interval": interval} if interval else {}
    )
    own = {"target": lake, "spark": {"checkpoint": str(at.folder / f"{name}-state")}}
    path = at.configuration(name, source.url, own)
    samples: list[tuple[float, float]] = []  # when, committed when
    is_over = threading.Event()

    def sample() -> None:
        config = load(path)
        with closing(target.kind_of(config).inspector(target.setup(config))) as inspector:
            while not is_over.wait(_LOOK):
                ledger = inspector.ledger()
                if ledger is not None and ledger.committed_at:
                    samples.append((time.time(), ledger.committed_at / 1e6))

    commands = [(*GAUSS_CDC, one, "--config", str(path)) for one in ("run", "apply")]
    with (
        program(commands[0], path.with_suffix(".log")),
        program(commands[1], path.with_suffix(".apply.log")),
    ):
        source.commit(rate, 5.0)  # the first step compiles what the later ones use
        at.call("wait", "--timeout", _PATIENCE, config=path)
        looking = threading.Thread(target=sample, daemon=True)
        looking.start()
        source.commit(rate, seconds)
        is_over.set()
        looking.join()
        at.call("wait", "--timeout", _PATIENCE, config=path)
        at.call("verify", config=path)
    commits = list(dict.fromkeys(committed for _, committed in samples))[1:]
    if not commits:
        raise SystemExit(f"{interval or 'default'}: no step in {seconds:.0f} s")
    return sorted(now - of for now, of in samples if of in commits), len(commits)


def main() -> None:
    """Measure, print."""
    options = parser(__doc__)
    options.add_argument("--kind", choices=["iceberg", "delta"], default="iceberg")
    options.add_argument("--interval", action="append", help="of [target]; repeat it")
    options.add_argument("--rate", type=int, default=1000, help="rows a second")
    options.add_argument("--seconds", type=float, default=240.0, help="of each measurement")
    given = options.parse_args()
    report = Report("age")
    rows = []
    with rig(given.set) as at:
        for interval in given.interval or [""]:
            found, steps = ages(at, given.kind, interval, given.rate, given.seconds)
            cuts = quantiles(found, n=20)
            row = [interval or "default", number(steps), number(cuts[9]), number(cuts[18])]
            rows.append([*row, number(found[-1])])
    title = f"Age of the newest commit, {given.kind}, {given.rate:,} rows/s"
    report.table(title, ["interval", "steps", "p50 s", "p95 s", "most s"], rows)
    finish(report, given)


if __name__ == "__main__":
    main()
