"""Several `apply` under one: each goes on, whatever becomes of another."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gauss_cdc import several

# Plays `apply --target NAME`: says that it begins, and lives until its stdin ends.
PLAYED = """\
#!{python}
import os, sys, time
name = sys.argv[-1]
with open(f"{folder}/{{name}}", "a") as log:
    print(" ".join(sys.argv[1:]), os.getpid(), file=log, flush=True)
    if name.startswith("ends"):
        sys.exit(61)
    sys.stdin.read()
    print("left", file=log)
"""


class Played:
    """Runs `apply_each` in a thread, with programs that play `apply`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stop = folder, threading.Event()
        self._thread: threading.Thread | None = None
        self.code: int | None = None

    def start(self, *names: str) -> None:
        def run() -> None:
            self.code = several.apply_each(names, ["-v", "apply"], self._stop.wait)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def begins(self, name: str) -> list[int]:
        """Processes that began so far."""
        log = self._folder / name
        lines = log.read_text().splitlines() if log.exists() else []
        return [int(line.rpartition(" ")[2]) for line in lines if line != "left"]

    def says(self, name: str) -> str:
        return (self._folder / name).read_text()

    def stop(self) -> int | None:
        self._stop.set()
        return self.ends()

    def ends(self) -> int | None:
        if self._thread is not None:
            self._thread.join(60)
        return self.code


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    program = tmp_path / "python"
    program.write_text(PLAYED.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setattr(several.sys, "executable", str(program))
    monkeypatch.setattr(several, "_FIRST", 0.3)
    return Played(tmp_path)


def test_one_that_ends_begins_again_and_the_other_goes_on(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.start("copy", "ends")
    until(lambda: len(played.begins("ends")) == 3)
    assert played.stop() == 61

    assert played.says("copy").startswith("-m gauss_cdc -v apply --with-parent --target copy ")
    assert played.says("copy").endswith("left\n")
    assert len(played.begins("copy")) == 1
    (line, *_) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert line.getMessage() == "apply ended: the other targets go on, and it begins again"
    assert line.context == {"target": "ends", "exit_code": 61, "in_seconds": 0.3}


def test_one_that_is_killed_begins_again(played: Played) -> None:
    played.start("copy", "lake")
    until(lambda: len(played.begins("copy")) == 1)
    os.kill(*played.begins("copy"), signal.SIGKILL)
    until(lambda: len(played.begins("copy")) == 2)

    assert played.stop() == 137
    assert len(played.begins("lake")) == 1


def test_where_none_runs_any_more_it_ends(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "_FIRST", 60.0)
    played.start("ends", "ends-too")

    assert played.ends() == 61


def test_one_that_is_well_again_leaves_no_trace(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "_WELL", 0.5)
    played.start("copy", "lake")
    until(lambda: len(played.begins("copy")) == 1)
    os.kill(*played.begins("copy"), signal.SIGKILL)
    until(lambda: len(played.begins("copy")) == 2)
    time.sleep(1.5)

    assert played.stop() == 0


def test_a_process_that_ends_by_itself_keeps_its_exit_code() -> None:
    program = "import sys, gauss_cdc.several as s; s.leave_with_parent(print); sys.exit(61)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 61


@pytest.mark.parametrize("is_signalled", [False, True])
def test_a_process_leaves_with_its_parent_and_not_at_once_if_both_are_signalled(
    is_signalled: bool,
) -> None:
    program = (
        "import sys, time, gauss_cdc.several as s; from gauss_cdc.watch import StopSignal;"
        "stop = StopSignal(); s.leave_with_parent(stop.ask);"
        "print('begun', flush=True); is_asked = stop.asked(60); time.sleep(1);"
        "sys.exit(0 if is_asked else 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.stdin.close()
        if is_signalled:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
