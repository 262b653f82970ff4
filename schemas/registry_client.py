"""How both halves ask a schema registry: how long they wait, and what foreign bytes may raise."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

# Three tries of five seconds, a second apart at most: without them a registry that accepts and
# never answers holds its client for minutes.
_PATIENCE: Final[Mapping[str, Any]] = {
    "timeout": 5,
    "max.retries": 2,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 1000,
}
_NUMBERS: Final = {*_PATIENCE, "cache.capacity", "cache.latest.ttl.sec"}

# What an Avro reader raises for foreign bytes or a foreign schema.
UNREADABLE: Final = (
    ValueError,
    LookupError,
    EOFError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    struct.error,
)


def settings(url: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings of Confluent's client; a number may be given as text, as [registry.options] has it.

    Raises ValueError or TypeError for a number that is none.

    >>> settings("http://registry", {"timeout": "9"})["timeout"]
    9.0
    """
    given = {
        name: float(value) if name in _NUMBERS else value for name, value in (options or {}).items()
    }
    return {"url": url, **_PATIENCE, **given}
