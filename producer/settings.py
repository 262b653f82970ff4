"""The base of every section of the configuration."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr

from producer.secret_words import holds_secret

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def duration(text: str, *, bare_seconds: bool = False) -> timedelta:
    """Read `500ms`, `10s`, `5m`, `24h`, `7d`; raise ValueError for anything else.

    With `bare_seconds` a number without a unit is seconds.

    >>> duration("1.5m"), duration("5", bare_seconds=True)
    (datetime.timedelta(seconds=90), datetime.timedelta(seconds=5))
    """
    written = text.strip()
    if bare_seconds and re.fullmatch(r"\d+(?:\.\d+)?", written):
        written += "s"
    if (match := _DURATION.fullmatch(written)) is None:
        raise ValueError("write a duration as 500ms, 10s, 5m, 24h or 7d")
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        raise ValueError("a duration of more than 2.7 million years") from None


def _duration(value: object) -> object:
    """Plain numbers are seconds, which pydantic reads by itself."""
    return duration(value) if isinstance(value, str) else value


def _without_password(value: object) -> object:
    """Refuse a dsn or URL that holds a password: the file is printed, and shown to others."""
    if holds_secret(value):
        raise ValueError(
            "a password must not be in the file; use the variable, or the file of its own, "
            "that docs/security.md names"
        )
    return value


Options = dict[str, str | int | float | bool | SecretStr]
Public = Annotated[str, BeforeValidator(_without_password)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]


class Section(BaseModel):
    """Unknown keys are errors; a loaded configuration never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        validate_default=True,
        hide_input_in_errors=True,  # it may be a misplaced secret
    )
