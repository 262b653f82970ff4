"""The Avro schemas of the records we own, as they are registered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

CUT: Final = "cut"
SCHEMA_CHANGE: Final = "schema_change"


@cache
def avsc(name: str) -> dict[str, Any]:
    """Return `avro/<name>.avsc` as parsed JSON; callers must not change it."""
    text = resources.files(__package__).joinpath(f"avro/{name}.avsc").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def canonical(name: str) -> str:
    """Return the schema as the compact text that is registered."""
    return json.dumps(avsc(name), separators=(",", ":"))


def check_bounded(schema: Any) -> None:
    """Refuse (ValueError) a schema in which some bytes stand for any number of items.

    An array of nulls is as long as its count says: a few forged bytes would be read for
    ever.  In a bounded one each item takes a byte, so that the bytes end first.
    """
    _least(schema, {})


def _least(schema: Any, named: dict[str, int]) -> int:
    """Return how many bytes a value takes at the least."""
    if isinstance(schema, list):
        for branch in schema:
            _least(branch, named)
        return 1  # which branch it is
    if not isinstance(schema, Mapping):
        return _SIZES.get(schema, named.get(schema, 1 if schema in _PRIMITIVES else 0))
    match schema["type"]:
        case "record" | "error":
            named[schema["name"]] = 0  # of itself, until it is known
            least = sum(_least(field["type"], named) for field in schema["fields"])
            named[schema["name"]] = least
            return least
        case "array":
            if not _least(schema["items"], named):
                raise ValueError("an array whose items take no bytes")
            return 1
        case "map":  # each entry has a key
            _least(schema["values"], named)
            return 1
        case "enum":
            named[schema["name"]] = 1
            return 1
        case "fixed":
            named[schema["name"]] = schema["size"]
            return int(schema["size"])
        case other:
            return _least(other, named)


_SIZES: Final = {"null": 0, "float": 4, "double": 8}
_PRIMITIVES: Final = frozenset({"boolean", "int", "long", "bytes", "string"})
