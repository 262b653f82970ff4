"""A kill takes the whole session with it."""

import subprocess
import sys

from gauss_cdc.sandbox.demo.programs import _processes, end_session

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

    end_session(child.pid)

    child.wait(10)
    child.stdout.close()
    assert is_gone(grandchild)


def is_gone(pid):
    """Dead; in a container nobody may have buried it."""
    return all(pid != living or is_zombie for living, is_zombie in _processes())
