"""The schema registry: what Confluent's API has in common with its relatives.

Subject compatibility stays as it was found; normalisation is off; a refusal
stops before the row.  Ids are cached by the client.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from producer.errors import RegistryDown, RegistryError, SchemaRefused
from schemas.load import avsc, canonical

_INCOMPATIBLE: Final = 409
_INVALID: Final = 422
_SERVER: Final = 500


class Registry:
    """Registers schemas, and reads and writes the control records framed with their ids."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url = url
        self._client = SchemaRegistryClient({"url": url, **(options or {})})
        self._parsed: dict[int, Any] = {}
        self._own: dict[str, tuple[int, Any]] = {}

    def register(self, subject: str, schema: Mapping[str, Any] | str) -> int:
        """Register a schema, or find it; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
        try:
            return int(self._client.register_schema(subject, Schema(text, "AVRO")))
        except Exception as exc:  # noqa: BLE001  the HTTP library's errors are not part of its API
            raise self._ours(exc, subject) from exc

    def own(self, name: str, subject: str) -> None:
        """Register one of our record schemas (`schemas/avro/<name>.avsc`)."""
        self._own[name] = self.register(subject, canonical(name)), fastavro.parse_schema(avsc(name))

    def encode(self, name: str, record: Mapping[str, Any]) -> bytes:
        """Write a control record in Confluent's framing."""
        schema_id, parsed = self._own[name]
        out = io.BytesIO()
        out.write(b"\x00" + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()

    def decode(self, value: bytes) -> dict[str, Any]:
        """Read a framed control record with the schema it was written with."""
        if len(value) < 5 or value[0] != 0:  # noqa: PLR2004
            raise RegistryError("a control record is not in Confluent's framing", size=len(value))
        schema_id = int.from_bytes(value[1:5], "big")
        if schema_id not in self._parsed:
            try:
                text = self._client.get_schema(schema_id).schema_str
            except Exception as exc:  # noqa: BLE001
                raise self._ours(exc, f"id {schema_id}") from exc
            self._parsed[schema_id] = fastavro.parse_schema(json.loads(text or "null"))
        record = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._parsed[schema_id], None)
        assert isinstance(record, dict)
        return record

    def _ours(self, exc: Exception, subject: str) -> RegistryError:
        where = {"subject": subject, "url": self._url}
        if isinstance(exc, SchemaRegistryError):
            if exc.http_status_code == _INCOMPATIBLE:
                return SchemaRefused(
                    "the registry finds the new schema incompatible",
                    hint="see `gauss-cdc check`; set the subject's compatibility to what your "
                    "readers need (NONE takes everything), then start again",
                    **where,
                )
            if exc.http_status_code < _SERVER and exc.http_status_code > 0:
                return RegistryError(
                    "the registry refused",
                    status=exc.http_status_code,
                    code=exc.error_code,
                    hint="are URL and credentials right?",
                    **where,
                )
        return RegistryDown(
            "the schema registry does not answer", error=type(exc).__name__, **where
        )
