"""Takes the rules of the protocol out of the product one by one: `make mutate`.

Each mutation is an edit of a file in a copy of the tree; its tests must fail there.  The
simulation has mutations of its own (`tests/sim/mutations.py`), which run with the tests.
`python -m tests.mutations.run NAME…` runs some of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.mutations import consumer, producer
from tests.mutations.table import Mutation
from tests.tree import PRODUCT

ROOT = Path(__file__).parents[2]
ALL = (*producer.MUTATIONS, *consumer.MUTATIONS)
LIMIT = 600  # seconds; a rule taken away may make a loop endless
COPIED = (*PRODUCT, "lab", "reader", "tests", "docs", "benchmarks")
FAILED = 1  # of pytest: tests ran, and some failed


def noticed_by(copy: Path, mutation: Mutation) -> str:
    """Run a mutation's tests on the mutated copy; the test that failed, '' if none did."""
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests],
            cwd=copy,
            env={
                **os.environ,
                "PYTHONPATH": f"{copy}:{copy / 'lab'}:{copy / 'reader'}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        path.write_text(text, encoding="utf-8")
    if done.returncode == 0:
        return ""
    if done.returncode != FAILED:
        raise SystemExit(f"{mutation.name}: the tests did not run\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return failed[0].split("::")[-1].split(" - ")[0] if failed else "failed"


def main(names: list[str]) -> int:
    """Run all mutations, or those named; the number of survivors."""
    chosen = [m for m in ALL if not names or m.name in names]
    console = Console(width=140)
    survivors = []
    table = Table("mutation", "rule", "noticed by", "seconds")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        copy.mkdir()
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "constraints.txt"):
            shutil.copy(ROOT / name, copy / name)
        for mutation in chosen:
            began = time.monotonic()
            by = noticed_by(copy, mutation)
            seconds = f"{time.monotonic() - began:.0f}"
            console.print(f"{mutation.name}: {by or 'SURVIVED'}, {seconds} s")
            table.add_row(mutation.name, mutation.rule, by or "[red]nobody", seconds)
            if not by:
                survivors.append(mutation.name)
    console.print(table)
    console.print(f"{len(chosen)} mutations, {len(survivors)} survivors: {survivors}")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
