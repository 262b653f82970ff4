"""Types of extensions, which have another oid in every database and are found by their names.

Any other extension's type is its text, as a composite or a range of a user's own is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from schemas.types.base import (
    SOURCE_TYPE,
    AvroType,
    NotRepresentable,
    SqlType,
    always,
    plain,
    same,
    semantic,
    shape,
)
from schemas.types.json import JSON
from schemas.types.text import text_type

_QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
_PAIR: Final = re.compile(rf"{_QUOTED}=>(?:{_QUOTED}|NULL)(?:, |$)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def _pairs(text: str) -> dict[str, str | None]:
    r"""Read what hstore's output function writes.

    >>> _pairs('"a"=>"1", "b\\""=>NULL')
    {'a': '1', 'b"': None}
    """
    out: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        if (match := _PAIR.match(text, at)) is None:
            raise NotRepresentable
        key, value = match.groups()
        out[_ESCAPE.sub(r"\1", key)] = None if value is None else _ESCAPE.sub(r"\1", value)
        at = match.end()
    return out


def _dump_pairs(pairs: dict[str, str | None]) -> str:
    return ", ".join(
        f"{_quoted(key)}=>{'NULL' if value is None else _quoted(value)}"
        for key, value in pairs.items()
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _as_json(text: str) -> str:
    return json.dumps(_pairs(text), ensure_ascii=False, separators=(",", ":"))


def _vector(text: str) -> list[float]:
    if not (text.startswith("[") and text.endswith("]")):
        raise NotRepresentable
    return [float(part) for part in text[1:-1].split(",")]


def _dump_vector(values: list[float]) -> str:
    return "[" + ",".join(repr(value).removesuffix(".0") for value in values) + "]"


LTREE: Final = shape("io.debezium.data.Ltree", same)
HSTORE: Final = shape(f"{JSON.key}/HSTORE", lambda v: _dump_pairs(json.loads(v)))
HSTORE_MAP: Final = shape("map", _dump_pairs)
VECTOR: Final = shape("io.debezium.data.DoubleVector", _dump_vector)

_hstore: Final = semantic("string", JSON.key, **{SOURCE_TYPE: "HSTORE"})
_map: Final[AvroType] = {"type": "map", "values": ["null", "string"]}
_doubles: Final[dict[str, Any]] = {
    "type": "array", "items": "double", "connect.version": 1, "connect.name": VECTOR.key,
}  # fmt: skip

TYPES: Final = (
    text_type("citext", 0),
    SqlType("ltree", (), LTREE, always(semantic("string", LTREE.key)), plain(same), 0, "text"),
    SqlType(
        "hstore", (), HSTORE, always(_hstore), plain(_as_json), zero="{}",
        variants={"hstore=map": SqlType("hstore", (), HSTORE_MAP, always(_map), plain(_pairs))},
    ),
    SqlType("vector", (), VECTOR, always(_doubles), plain(_vector)),  # pgvector's
)  # fmt: skip

BY_NAME: Final = {entry.name: entry for entry in TYPES}
