"""Geometric types: a point is Debezium's record, the others are their text."""

from __future__ import annotations

import re
import struct
from typing import Any, Final

from schemas.types.base import AvroType, NotRepresentable, SqlType, always, plain, shape
from schemas.types.text import text_type

_POINT: Final = re.compile(r"\(([^,()]+),([^,()]+)\)")

POINT_AVRO: Final[AvroType] = {
    "type": "record",
    "name": "Point",
    "namespace": "io.debezium.data.geometry",
    "fields": [
        {"name": "x", "type": "double"},
        {"name": "y", "type": "double"},
        {"name": "wkb", "type": ["null", "bytes"], "default": None},
        {"name": "srid", "type": ["null", "int"], "default": None},
    ],
    "connect.doc": "Geometry (POINT)",
    "connect.version": 1,
    "connect.name": "io.debezium.data.geometry.Point",
}


def _point(text: str) -> dict[str, Any]:
    if (match := _POINT.fullmatch(text)) is None:
        raise NotRepresentable
    return _located(float(match[1]), float(match[2]))


def _located(x: float, y: float) -> dict[str, Any]:
    """Return Debezium's point: its well-known binary form is little-endian, of type 1."""
    return {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


def _dump_point(value: dict[str, Any]) -> str:
    return f"({_number(value['x'])},{_number(value['y'])})"


def _number(value: float) -> str:
    text = repr(value).removesuffix(".0")
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


POINT: Final = shape("io.debezium.data.geometry.Point", _dump_point)

TYPES: Final = (
    SqlType(
        "point", (600,), POINT, always(POINT_AVRO), plain(_point), 1017, zero=_located(0.0, 0.0)
    ),
    text_type("lseg", 1018, 601),
    text_type("path", 1019, 602),
    text_type("box", 0, 603),
    text_type("box[]", 0, 1020),  # the only arrays with another delimiter, `;`
    text_type("polygon", 1027, 604),
    text_type("line", 629, 628),
    text_type("circle", 719, 718),
)
