"""One record behind Confluent's header: a zero byte and the schema's id, four bytes big-endian."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro


def framed(schema_id: int, schema: Any, record: Mapping[str, Any]) -> bytes:
    """Write a record with fastavro; `schema` is already parsed. For records other than rows.

    Raises ValueError for a field that the schema lacks: it would be left out in silence.
    """
    out = io.BytesIO()
    out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, schema, record, strict_allow_default=True)
    return out.getvalue()
