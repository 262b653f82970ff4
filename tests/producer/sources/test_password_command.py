"""A command's line is the password; what goes wrong says so, and shows nothing of it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from producer.errors import ConnectionLost, LoginRefused, SourceError
from producer.sources import password_command
from producer.sources.dsn import parse_dsn
from producer.sources.password_command import PasswordCommand


def command(text: str, *more: str, **options: Any) -> PasswordCommand:
    return PasswordCommand((sys.executable, "-c", text, *more), **options)


def test_its_line_is_the_password_and_is_masked_from_then_on() -> None:
    secrets = []

    def known(secret: str) -> str:
        secrets.append(secret)
        return secret

    assert command("print('tok en')", known=known)() == "tok en"
    assert secrets == ["tok en"]


def test_it_is_run_again_when_its_answer_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = "import sys; f = open(sys.argv[1], 'a+'); f.write('x'); print(f.tell())"
    counted, now = command(count, str(tmp_path / "count")), [1000.0]
    monkeypatch.setattr(password_command.time, "monotonic", lambda: now[0])
    assert (counted(), counted()) == ("1", "1")
    now[0] += 61.0
    assert counted() == "2"


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("print('secret'); raise SystemExit(3)", ConnectionLost, "it ended with 3"),
        ("pass", LoginRefused, "it printed 0 lines, not one"),
        ("print('secret\\nsecret')", LoginRefused, "it printed 2 lines, not one"),
        ("import os; os.write(1, b'secret\\xff')", LoginRefused, "is not text"),
    ],
)
def test_what_fails_is_said_without_what_it_wrote(
    text: str, error: type[SourceError], why: str
) -> None:
    with pytest.raises(error) as raised:
        command(text)()
    assert why in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(LoginRefused, match="No such file"):
        PasswordCommand(("/nowhere/program",))()


def test_both_clients_ask_it_at_their_login() -> None:
    arguments = replace(
        parse_dsn("postgresql://me@db/bank?sslmode=disable"),
        password_command=command("print('to' + 'ken')"),
    )
    assert arguments.libpq()["password"] == arguments.current_password() == "token"
    assert "token" not in repr(arguments)
