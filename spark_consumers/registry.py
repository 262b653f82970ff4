"""Schemas by id, from any Confluent-compatible registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from spark_consumers.errors import KafkaDown

SchemaOf = Callable[[int], dict[str, Any]]


class Registry:
    """Schemas by id, fetched once."""

    def __init__(self, fetch: Callable[[int], str]) -> None:
        """`fetch` gives a schema's text, for instance from a registry client."""
        self._fetch = fetch
        self._schemas: dict[int, dict[str, Any]] = {}

    def __call__(self, schema_id: int) -> dict[str, Any]:
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = json.loads(self._fetch(schema_id))
        return schema


def registry_at(url: str, options: Mapping[str, Any] | None = None) -> Registry:
    """Schemas of a Confluent-compatible registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415  heavy
    from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415

    client = SchemaRegistryClient({"url": url, **(options or {})})

    def fetch(schema_id: int) -> str:
        try:
            text: str = client.get_schema(schema_id).schema_str or ""
        except SchemaRegistryError as error:
            raise KafkaDown("the schema registry refused", schema_id=schema_id) from error
        except OSError as error:
            raise KafkaDown("the schema registry does not answer", url=url) from error
        return text

    return Registry(fetch)
