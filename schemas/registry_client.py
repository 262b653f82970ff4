"""How both halves ask a schema registry: how long they wait, and what foreign bytes may raise."""

from __future__ import annotations

import json
import struct
import sys
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

# What an Avro reader raises for foreign bytes or a foreign schema, and Confluent's client for an
# answer that it did not expect.
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


NO_REGISTRY: Final = "the answer is not a schema registry's"
ITS_URL: Final = "is the URL right, and is it a proxy that answers?"


def http_of(client: type) -> Any:
    """Return the HTTP library that the version of a client's class is written for.

    Its errors are raised by the client: httpx, or httpx2.
    """
    return sys.modules[client.__module__].httpx


def is_avro(answer: object, language: str | None) -> bool:
    """Say whether a registry answered with an Avro schema, not with one of another language.

    Raises ValueError for an answer that is no schema: a proxy's, for instance.

    >>> is_avro('{"type": "record"}', None), is_avro('syntax = "proto3";', "PROTOBUF")
    (True, False)
    """
    if not isinstance(answer, str):
        raise ValueError("an answer without a schema")  # noqa: TRY004  of the server
    if language not in (None, "", "AVRO"):
        return False
    schema = json.loads(answer)
    if isinstance(schema, (list, str)) or (isinstance(schema, dict) and "type" in schema):
        return True
    raise ValueError("an answer that is no Avro schema")


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
