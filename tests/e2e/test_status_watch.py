"""`status --watch` on a terminal of its own."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path as File

import click
import pytest

from gauss_cdc.inspect import watching
from tests.e2e.commands import command
from tests.e2e.path import Path, ask

SHOWN, HIDDEN = b"\x1b[?25h", b"\x1b[?25l"  # the terminal's cursor


def read_until(terminal: int, what: bytes) -> bytes:
    """Read what a terminal is sent, until it was sent `what`."""
    seen = b""
    while what not in seen:
        seen += os.read(terminal, 1 << 16)
    return seen


def test_it_draws_what_changes_and_ends_with_ctrl_c(place: tuple[Path, File]) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    ours, theirs = pty.openpty()
    words = ["status", "--config", str(file), "--watch", "0.2s"]
    with subprocess.Popen(
        [sys.executable, "-m", "gauss_cdc", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"},
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = read_until(ours, b"Ctrl-C ends")
        assert HIDDEN in seen
        assert re.search(rb"EXACT at commit \d+/0 ", seen)
        ask(path.source, "INSERT INTO t VALUES (1)")
        path.catch_up()
        epoch = path.catch_up().epoch
        read_until(ours, f"EXACT at commit {epoch}/1 ".encode())

        process.send_signal(signal.SIGINT)
        read_until(ours, SHOWN)
        assert process.wait() == 0
    os.close(ours)


def test_it_is_refused_where_there_is_no_terminal(place: tuple[Path, File]) -> None:
    file = place[1]
    for words, why in (
        (["--watch"], "--watch draws on a terminal; for programs: status --json"),
        (["--watch", "1s", "--json"], "--watch, --json and --serve exclude each other"),
    ):
        result = command(file, "status", *words)
        assert isinstance(result.exception, click.UsageError)
        assert result.exception.message == why
    assert watching.console.is_terminal is False


@pytest.fixture(autouse=True)
def _no_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's colors would stand between the words."""
    monkeypatch.setenv("NO_COLOR", "1")
