"""The Avro schemas of the records we own, as they are registered."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Final

CUT: Final = "cut"
SCHEMA_CHANGE: Final = "schema_change"


@cache
def avsc(name: str) -> dict[str, Any]:
    """Return `avro/<name>.avsc` as parsed JSON; callers must not change it."""
    text = resources.files("schemas").joinpath(f"avro/{name}.avsc").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def canonical(name: str) -> str:
    """Return the schema as the compact text that is registered."""
    return json.dumps(avsc(name), separators=(",", ":"))
