import os
import signal
import subprocess
import sys

from gauss_cdc_lab.services import process
from gauss_cdc_lab.services.process import ProcessCommand


def test_a_child_that_ended_is_reaped_by_the_first_query(tmp_path) -> None:
    child = ProcessCommand(["sleep", "600"], tmp_path).spawn(tmp_path / "log")
    assert child.alive
    child.send(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped

    assert not child.alive

    assert child.pid not in process._CHILDREN


CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
GRANDCHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_a_grandchild_does_not_outlive_its_session():
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, GRANDCHILD],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())

    process.end_session(child.pid)

    child.wait(10)
    child.stdout.close()
    assert is_gone(grandchild)


def test_a_child_whose_session_is_ended_is_reaped(tmp_path) -> None:
    child = ProcessCommand(["sleep", "600"], tmp_path).spawn(tmp_path / "log")

    process.end_session(child.pid)

    assert child.pid not in process._CHILDREN


def is_gone(pid):
    """Dead; in a container nobody may have buried it."""
    return all(pid != living or is_zombie for living, is_zombie in process.processes())
