"""A worker that crashes fails its test only: the run goes on, ends, and names the test."""

import subprocess
import sys
from pathlib import Path

CRASHED = """
import os

def test_before():
    pass

def test_that_crashes():
    with open("crashes", "a") as file:
        print("once", file=file)
    os._exit(3)

def test_behind():
    pass
"""
WORKERS = 2
CRASHING = (4, 5, 9)
FILES = 12  # each ended file that is handed out again stops one worker


def test_the_run_ends_behind_a_worker_that_crashed(tmp_path: Path) -> None:
    ended = "\n".join(f"def test_{at}(): pass" for at in range(3))
    for at in range(FILES):
        text = CRASHED if at in CRASHING else ended
        (tmp_path / f"test_{at:02}.py").write_text(text, encoding="utf-8")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.workers", "-n", str(WORKERS)),
            *("--dist", "loadfile", "--no-loadscope-reorder", "-c", "/dev/null"),
            *("--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    failed = len(CRASHING)
    assert f"{failed} failed, {3 * FILES - failed} passed" in done.stdout, done.stdout + done.stderr
    for at in CRASHING:
        assert f"test_{at:02}.py::test_that_crashes" in done.stdout
    assert (tmp_path / "crashes").read_text(encoding="utf-8") == "once\n" * failed
