"""`gauss-cdc demo --source gaussdb`, as a person starts it."""

import json
import subprocess
import sys

import pytest


@pytest.mark.timeout(900)
def test_the_demo_runs_on_postgresql_in_disguise() -> None:
    command = (sys.executable, "-m", "gauss_cdc", "demo", "--source", "gaussdb", "--json")
    short = ("--seconds", "8", "--kills", "2", "--rate", "60", "--workers", "3")

    done = subprocess.run([*command, *short], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout)
    assert figures["commits"] > 0
    assert figures["differences"] == []
    assert "in the disguise of gaussdb" in done.stderr
