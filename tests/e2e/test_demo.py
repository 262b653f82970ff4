"""`gauss-cdc demo` as a person starts it, and ends it with a signal.

Other signals take the same way: tests/gauss_cdc_lab/demo/test_scene.py.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services_fixtures import open_directory


@pytest.fixture
def temporary():
    directory = open_directory()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_a_signal_under_load_leaves_nothing_behind(temporary):
    demo = subprocess.Popen(
        [sys.executable, "-m", "gauss_cdc", "demo", "--seconds", "600"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,  # as a terminal's foreground job: the signal is for it alone
    )
    assert demo.stderr is not None
    said = []
    for line in demo.stderr:
        said.append(line)
        if "starting `gauss-cdc run`" in line:
            break

    demo.send_signal(signal.SIGTERM)
    said += demo.stderr
    code = demo.wait(60)
    demo.stderr.close()

    assert code == 130, said
    assert "interrupted" in "".join(said)
    assert list(temporary.iterdir()) == []
    assert processes_of(temporary) == []


def processes_of(directory):
    """Command lines that name the folder."""
    if (proc := Path("/proc")).is_dir():
        lines = []
        for file in proc.glob("[0-9]*/cmdline"):
            try:
                lines.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue
    else:
        lines = subprocess.run(
            ["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    return [line for line in lines if str(directory) in line]
