"""What people read while a command runs, and how it is asked to leave."""

import io
import signal
import socket
import subprocess
import sys

import pytest
from rich.console import Console

from gauss_cdc import watch
from gauss_cdc.inspect.look import findings_table
from schemas.findings import Finding, Level


def test_brackets_are_no_markup() -> None:
    """`[ddl] apply` is a key, and `[/b]` may be a table's name."""
    with watch.console.capture() as said:
        watch.say("s.[/b] is not applied: [ddl] apply = tables")
        watch.console.print(findings_table([Finding(Level.ERROR, "[tables]", "[/b]", "")]))

    assert "s.[/b] is not applied: [ddl] apply = tables" in said.get()
    assert "[tables]" in said.get()


def test_names_of_tables_stop_no_progress_bar_and_steer_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may create a table ended `run` on a terminal with `a[/x]`, at each start."""
    out = io.StringIO()
    monkeypatch.setattr(watch, "console", Console(file=out, force_terminal=True, width=100))
    with watch.TableBars("loading") as bars:
        bars.show("public.a[/x]\x1b]0;", 5, 10)
        bars.show("public.a[/x]\x1b]0;", 6, 10)

    assert "loading public.a[/x]\\x1b]0;" in out.getvalue()
    assert "\x1b]0;" not in out.getvalue()


def test_what_looks_like_a_picture_in_a_name_is_written() -> None:
    with watch.console.capture() as said:
        watch.say("`gauss-cdc snapshot --table public.a:x:b`")

    assert "public.a:x:b`" in said.get()


_HANGS = """
import sys
import psycopg2
from gauss_cdc.watch import StopSignal
stop = StopSignal(limit=0.2)
print("ready", flush=True)
psycopg2.connect(host="127.0.0.1", port=int(sys.argv[1]), user="u", dbname="d")
"""


def test_the_limit_holds_while_the_main_thread_is_in_a_call_that_hangs() -> None:
    """Python would run its handler when libpq comes back, which it does not."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with subprocess.Popen(
            [sys.executable, "-c", _HANGS, str(silent.getsockname()[1])],
            stdout=subprocess.PIPE,
            text=True,
        ) as hanging:
            assert hanging.stdout is not None
            assert hanging.stdout.readline() == "ready\n"
            server, _ = silent.accept()
            with server:
                server.recv(1)  # libpq waits for the answer to its first packet from here on
                hanging.send_signal(signal.SIGTERM)
                assert hanging.wait(60) == 143


def test_a_command_that_was_left_exits_by_the_signal_that_asked() -> None:
    program = (
        "import os, signal, sys; from gauss_cdc.watch import StopSignal; stop = StopSignal();"
        "before = stop.exit_code; os.kill(os.getpid(), signal.SIGINT); stop.asked(60);"
        "sys.exit(stop.exit_code if before == 0 else 1)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 130
