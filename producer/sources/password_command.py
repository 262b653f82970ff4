"""A password that a command prints: tokens of a cloud, which are good for minutes.

The command is run at a login, without a shell, and again when its answer is older than a minute.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from producer.errors import ConnectionLost, LoginRefused, SourceError

_SECONDS: Final = 30.0  # until a command that does not end is given up
_GOOD_FOR: Final = 60.0  # seconds; the shortest token in use lives for some minutes

_answers: dict[tuple[str, ...], tuple[float, str]] = {}  # when, by time.monotonic, and which


@dataclass(frozen=True, slots=True)
class PasswordCommand:
    """Words of a command line; `known` learns each password, to mask it in logs."""

    words: tuple[str, ...]
    known: Callable[[str], str] = field(default=str, repr=False, compare=False)

    def __call__(self) -> str:
        """Return the password; errors do not show what the command wrote.

        Raises ConnectionLost where it failed, as it may once in a while; LoginRefused where it
        always will.
        """
        at, password = _answers.get(self.words, (float("-inf"), ""))
        if time.monotonic() - at > _GOOD_FOR:
            password = self.known(self._run())
            _answers[self.words] = time.monotonic(), password
        return password

    def _run(self) -> str:
        try:
            done = subprocess.run(  # noqa: S603  the operator's own command
                self.words,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                encoding="utf-8",
            )
        except subprocess.TimeoutExpired:
            raise self._failed(ConnectionLost, f"it did not end in {_SECONDS:.0f} s") from None
        except OSError as error:
            raise self._failed(LoginRefused, error.strerror or type(error).__name__) from None
        except UnicodeDecodeError:
            raise self._failed(LoginRefused, "its output is not text in UTF-8") from None
        password = done.stdout.removesuffix("\n").removesuffix("\r")
        if done.returncode:
            raise self._failed(ConnectionLost, f"it ended with {done.returncode}")
        if not password or "\n" in password:
            lines = len(password.splitlines())
            raise self._failed(LoginRefused, f"it printed {lines} lines, not one")
        return password

    def _failed(self, error: type[SourceError], why: str) -> SourceError:
        return error(
            "the password command failed",
            hint="run [source] password-command by hand, as the user of `run`; what it prints is"
            " the password, and is not logged",
            program=self.words[0],
            reason=why,
        )
