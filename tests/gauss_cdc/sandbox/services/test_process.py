import os
import signal

from gauss_cdc.sandbox.services import process
from gauss_cdc.sandbox.services.process import ProcessCommand


def test_a_child_that_ended_is_reaped_by_the_first_query(tmp_path) -> None:
    child = ProcessCommand(["sleep", "600"], tmp_path).spawn(tmp_path / "log")
    assert child.alive
    child.send(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped

    assert not child.alive

    assert child.pid not in process._CHILDREN
