"""`make test-upgrade`: `run` and `apply` of an older commit are replaced one by one, under load.

    python -m tests.upgrade [commit]

By default the commit that recorded what the last release writes (tests/golden/releases).  Both
orders are played: `apply` first, as docs/releases.md advises, and `run` first.  After each upgrade
both are killed once.  Each sample of the target is checked, and all rows at the end.  The older
release works without native modules.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console

from gauss_cdc_lab.demo import DemoPlan
from gauss_cdc_lab.demo.play import demo
from tests.tree import ROOT

ORDERS: Final = (("apply", "run"), ("run", "apply"))


def last_release() -> str:
    """Return the commit that recorded it."""
    log = ("log", "-1", "--format=%H", "--", "tests/golden/releases")
    return git(*log).decode().strip()


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def main(commit: str) -> int:
    """Play both orders; 1: a difference was found."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=git("archive", commit), check=True)
        is_equal = True
        for order in ORDERS:
            console.print(f"from {commit}: {' first, then '.join(order)}")
            plan = DemoPlan(seconds=5, kills=0, rate=100, older=Path(folder), upgrades=order)
            is_equal &= demo(plan, console).is_equal
    return int(not is_equal)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or [last_release()]))
