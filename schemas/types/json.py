"""JSON documents, as the text that the server keeps."""

from __future__ import annotations

from typing import Final

from schemas.types.base import SqlType, always, plain, same, semantic, shape

JSON: Final = shape("io.debezium.data.Json", same)
_json = always(semantic("string", JSON.key))

TYPES: Final = (
    SqlType("json", (114,), JSON, _json, plain(same), 199, "text"),
    SqlType("jsonb", (3802,), JSON, _json, plain(same), 3807, "text"),
)
