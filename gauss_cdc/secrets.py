"""Secrets: which settings are secret, where they come from, and how they are masked.

A secret is in the environment or in a file of its own, never in the configuration,
which is printed and shown to others.  A secret option is written as a reference:

    [kafka.client]
    "ssl.key.password" = { env = "KAFKA_KEY_PASSWORD" }
    "sasl.password" = { file = "/run/secrets/kafka" }

The secrets that were read are replaced by stars in everything that a command writes to
stderr: logs, messages, tracebacks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

from pydantic import SecretStr

from producer.secret_words import IN_URL, PRIVATE_KEY, SETTING, holds_secret, is_secret
from schemas.secret_file import exposed

STARS: Final = "**********"
_LEAST: Final = 4  # characters of a secret that is searched for in other text
_PASSWORD: Final = 8  # … of the text after a colon, which may be a part of a password

_known: set[str] = set()
_variables: set[str] = set()


def option(name: str, value: object, *, way: str = "") -> object:
    """Read one option of a table: a public value as it is, a reference as the secret.

    Raises ValueError, without the value, where a secret stands in the file.
    """
    if isinstance(value, Mapping):
        return SecretStr(referenced(value))
    if isinstance(value, SecretStr):
        return value
    if is_secret(name) or holds_secret(value):
        raise ValueError(
            "secrets must not be in the file; write "
            f'{{ env = "VARIABLE" }} or {{ file = "PATH" }} in the place of the value{way}'
        )
    return value


def referenced(reference: Mapping[str, Any]) -> str:
    """Read what `{ env = "VARIABLE" }` or `{ file = "PATH" }` names.

    Raises ValueError for any other form, an unset variable, and as `from_file`.
    """
    match dict(reference):
        case {"env": str(variable), **rest} if not rest:
            if variable not in os.environ:
                raise ValueError(f"the variable {variable} is not set")
            return from_environment(variable)
        case {"file": str(path), **rest} if not rest:
            return from_file(Path(path))
    raise ValueError('write a reference as { env = "VARIABLE" } or { file = "PATH" }')


def from_environment(variable: str) -> str:
    """Read a secret's variable, which must be set."""
    _variables.add(variable)
    return known(os.environ[variable])


@contextmanager
def hidden() -> Iterator[None]:
    """Take the secrets' variables out of the environment, which child processes inherit."""
    held = {name: os.environ.pop(name) for name in _variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)


def from_file(path: Path) -> str:
    """Read a secret's file, without its last line end.

    Raises ValueError where it cannot be read, is not UTF-8, or others may read it.
    """
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            if why := exposed(path, os.fstat(file.fileno())):
                raise ValueError(why)
            return known(file.read().removesuffix("\n").removesuffix("\r"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8") from None


def known(secret: str) -> str:
    """Remember a secret, to mask it; returns it."""
    parts = [secret]
    if (behind := secret.partition(":")[2]) and len(behind) >= _PASSWORD:
        parts.append(behind)  # of user:password the second alone, too
    for part in parts:
        lines = part.strip().splitlines()
        for text in (part, *(line for line in lines if "-----" not in line)):
            _known.update(t for t in _forms(text) if len(t.strip()) >= _LEAST)
    return secret


def _forms(text: str) -> Iterable[str]:
    """The text as others may write it: in a URL, in JSON, in Python, in JAAS."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    url = (quote(text), quote(text, safe=""))
    return {text, *url, json.dumps(text)[1:-1], repr(text)[1:-1], escaped}


def masked(text: str) -> str:
    """Replace known secrets, and what looks like one, by stars.

    >>> masked("GET http://me:pencil@registry, password=pencil")
    'GET http://me:**********@registry, password=**********'
    """
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, STARS)
    text = IN_URL.sub(rf"\1{STARS}@", text)
    text = PRIVATE_KEY.sub(STARS, text)
    return SETTING.sub(_starred, text)


def _starred(match: re.Match[str]) -> str:
    """Keep a value's quotes: a line of JSON stays one."""
    value = match[0][len(match[1]) :]
    quote_ = next((mark for mark in ('\\"', '"', "'") if value.startswith(mark)), "")
    return f"{match[1]}{quote_}{STARS}{quote_}"


class Masking:
    """A text stream that writes stars instead of secrets."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, secrets as stars; return the characters taken, as TextIO does."""
        self._stream.write(masked(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines one by one; a secret that spans two is not found."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
