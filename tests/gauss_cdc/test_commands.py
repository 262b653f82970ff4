"""No command ends in a traceback: whatever is wrong is one message, a hint and an exit code."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gauss_cdc import cli, logs

COMMANDS = [
    "run",
    "apply",
    "check",
    "check --json",
    "doctor",
    "size",
    "status",
    "status --serve 0",
    "wait",
    "wait --timeout 5",
    "cuts",
    "tail",
    "slot show",
    "slot create",
    "slot list",
    "slot advance",
    "slot drop --yes",
    "ddl install",
    "ddl uninstall",
    "ddl show",
    "ddl plan SELECT",
    "config show",
    "record --out new",
]
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Say]:
    """Run a command line in this process; (exit code, stderr)."""
    monkeypatch.chdir(tmp_path)
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    stderr = sys.stderr

    def run(*words: str) -> tuple[int, str]:
        out = io.StringIO()
        monkeypatch.setattr(sys, "argv", ["gauss-cdc", *words])
        monkeypatch.setattr(sys, "stderr", out)
        try:
            cli.main()
        except SystemExit as left:
            return int(left.code or 0), out.getvalue()
        return 0, out.getvalue()

    hook = threading.excepthook
    yield run
    threading.excepthook = hook
    monkeypatch.setattr(sys, "stderr", stderr)
    logs.reset()
    logs.set_up()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_configuration_that_cannot_be_read_is_said(
    say: Say, command: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("[source\n")
    (tmp_path / "raw.toml").write_bytes(b"\xff\xfe\x00")
    for name, why in (
        ("none.toml", "No such file"),
        (".", "Is a directory"),
        ("bad.toml", "not TOML"),
        ("raw.toml", "not a text file"),
    ):
        code, said = say(*command.split(), "--config", name)

        assert code == 2, said
        assert why in said
        assert "Traceback" not in said


def test_bad_usage_is_json_where_stderr_is(say: Say) -> None:
    code, said = say("--log-format", "json", "wait", "--lsn", "here")

    assert code == 2
    assert "is not a position" in json.loads(said)["message"]


def test_a_table_without_its_schema_is_said_at_once(say: Say) -> None:
    code, said = say("verify", "--table", "account")

    assert code == 2
    assert "write it as schema.table, as public.account" in said


@pytest.mark.parametrize("words", [("verify", "--table"), ("tail",)])
def test_a_table_that_can_be_read_as_two_is_said_with_the_way_to_write_it(
    say: Say, words: tuple[str, ...]
) -> None:
    code, said = say(*words, "app.v2.t")

    assert code == 2
    assert "app.v2.t can be read as several tables" in said
    assert '"a.b".c or a."b.c"' in said


@pytest.mark.parametrize(
    "words",
    [
        ("ddl", "install", "--dsn", "postgresql://postgres:pencil@db/bank"),
        ("emulator", "--facade", "postgresql://postgres:pencil@db/bank"),
        ("emulator", "--facade", "host=db user=postgres password=pencil"),
        ("emulator", "--replay", "x", "--catalog", "postgresql://u:pencil@db/scratch"),
        ("emulator", "--facade", "postgresql://postgres@db/bank", "--password", "pencil"),
    ],
)
def test_no_secret_is_an_argument(say: Say, words: tuple[str, ...]) -> None:
    Path("x").touch()

    code, said = say(*words)

    assert code == 2
    assert re.search(r"must not be an argument; set GAUSS_CDC_|No such option '--password'", said)
    assert "pencil" not in said


def test_the_emulator_s_passwords_are_files_or_variables(say: Say) -> None:
    facade = ("emulator", "--facade", "postgresql://postgres@127.0.0.1:1/bank")
    for name, mode in (("open", 0o644), ("secret", 0o600)):
        Path(name).touch(mode=mode)
        Path(name).write_text("pencil\n", "utf-8")

    assert "set GAUSS_CDC_EMULATOR_PASSWORD" in say(*facade)[1]
    assert "others may read" in say(*facade, "--password-file", "open")[1]
    with_both = say(*facade, "--password-file", "secret", "--upstream-password-file", "secret")
    assert with_both[0] == 1
    assert "the emulator cannot start" in with_both[1]  # nothing listens there


@pytest.mark.parametrize(
    "words", ["verify", "status --serve 0", "apply --replace", "apply --listen 127.0.0.1:1"]
)
def test_what_needs_one_of_several_targets_says_their_names(
    say: Say, words: str, tmp_path: Path
) -> None:
    dsn = "postgresql://cdc@127.0.0.1:1"
    (tmp_path / "gauss-cdc.toml").write_text(
        f'[source]\ndsn = "{dsn}/bank"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
        f'[[target]]\nname = "copy"\ndsn = "{dsn}/copy"\n'
        f'[[target]]\nname = "other"\ndsn = "{dsn}/other"\n'
    )
    for more, why in (("", "name one by --target, of copy, other"), ("x", "x is no target")):
        code, said = say(*words.split(), *(["--target", more] if more else []))

        assert code == 2, said
        assert why in said


def test_a_duration_is_seconds_or_has_a_unit(say: Say) -> None:
    code, said = say("wait", "--timeout", "soon")

    assert code == 2
    assert "write a duration as 500ms" in said
    assert say("wait", "--timeout", "1" * 400 + "d")[0] == 2


def test_a_source_that_is_down_is_one_line(say: Say, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no server listens
        port = taken.getsockname()[1]
        (tmp_path / "gauss-cdc.toml").write_text(
            f'[source]\ndsn = "postgresql://cdc@127.0.0.1:{port}/bank"\n'
            f'[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:{port}"\n'
            f'[registry]\nurl = "http://127.0.0.1:{port}"\n'
        )
        for command in ("slot show", "slot list", "slot drop --yes", "ddl show", "record --out x"):
            code, said = say(*command.split())

            assert code == 10, said
            assert said.startswith("gauss-cdc: cannot connect (")
            assert len(said.splitlines()) == 1


def test_a_port_in_use_is_one_line(say: Say, tmp_path: Path) -> None:
    (tmp_path / "gauss-cdc.toml").write_text(
        '[source]\ndsn = "postgresql://cdc@127.0.0.1:1/bank"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = say("status", "--serve", str(taken.getsockname()[1]))

    assert code == 5, said
    assert "Address already in use" in said
    assert "Traceback" not in said


def test_an_output_that_cannot_be_written_is_one_line(say: Say) -> None:
    code, said = say("zip", "/dev/null/there.zip")

    assert code == 5, said
    assert "/dev/null: " in said
    assert len(said.splitlines()) == 1


def _shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m gauss_cdc"
    return subprocess.run(
        ["bash", "-c", line.replace("GAUSS", program)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_reader_that_leaves_and_a_full_disk() -> None:
    left = _shell("GAUSS --help | true; echo ${PIPESTATUS[0]}")
    full = _shell("GAUSS --version > /dev/full; echo $?")

    assert (left.stdout, left.stderr) == ("0\n", "")
    assert full.stdout == "5\n"
    assert full.stderr == "gauss-cdc: No space left on device\n"


def test_a_locale_without_unicode_a_terminal_of_ascii_and_no_home(tmp_path: Path) -> None:
    file = tmp_path / "数据.toml"
    file.write_text('[source]\n"数" = 1\n')

    said = _shell(
        f"unset HOME; GAUSS config show --config {file}; echo $?",
        LC_ALL="C",
        PYTHONIOENCODING="ascii",
        PYTHONUTF8="0",
    )

    assert said.stdout == "2\n"
    assert "required, but missing" in said.stderr
    assert "Traceback" not in said.stderr


def test_apply_that_is_asked_to_leave_while_its_target_is_down_leaves_cleanly(
    tmp_path: Path,
) -> None:
    (tmp_path / "gauss-cdc.toml").write_text(
        '[source]\ndsn = "postgresql://cdc@127.0.0.1:1/bank"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
        '[target]\ndsn = "postgresql://cdc@127.0.0.1:1/copy"\n'
    )
    with subprocess.Popen(
        [sys.executable, "-m", "gauss_cdc", "apply"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as apply:
        assert apply.stderr is not None
        first = apply.stderr.readline()
        apply.send_signal(signal.SIGTERM)
        rest = apply.stderr.read()

    assert re.search(r"WARNING gauss_cdc\.apply: .*; retrying in \d+\.\d s$", first), first
    assert apply.returncode == 0, rest
    assert "Traceback" not in rest


def test_check_asks_a_place_that_is_silent_once(say: Say, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as source,
        socket.create_server(("127.0.0.1", 0)) as target,
    ):
        at = [one.getsockname()[1] for one in (source, target)]
        (tmp_path / "gauss-cdc.toml").write_text(
            f'[source]\ndsn = "postgresql://cdc@127.0.0.1:{at[0]}/bank?connect_timeout=2&sslmode=disable"\n'
            '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
            '[registry]\nurl = "http://127.0.0.1:1"\n'
            f'[target]\ndsn = "postgresql://cdc@127.0.0.1:{at[1]}/copy?connect_timeout=2&sslmode=disable"\n'
        )
        code, _ = say("check")
        asked = [len([*waiting(one)]) for one in (source, target)]

    # By psycopg2, and once more by our own wire, which says why it cannot be reached.
    assert (code, asked) == (1, [2, 2])


def waiting(server: socket.socket) -> Iterator[socket.socket]:
    """Take the connections that no test has accepted."""
    server.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            connection, _ = server.accept()
            with connection:
                yield connection
