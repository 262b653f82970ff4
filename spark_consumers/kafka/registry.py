"""Schemas by id, from any Confluent-compatible registry."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schemas.registry_client import ITS_URL, NO_REGISTRY, UNREADABLE, http_of, is_avro, settings
from spark_consumers.errors import (
    ApplyError,
    RegistryDown,
    RegistryRefused,
    SchemaUnknown,
    SubjectUnknown,
)

SchemaOf = Callable[[int], dict[str, Any]]

_MISSING: Final = 404
_SUBJECT_NOT_FOUND: Final = {40401, 40402}  # with _MISSING: a topic without values
_SCHEMA_NOT_FOUND: Final = 40403  # with _MISSING: the id, not the address
_LATER: Final = {408, 429}  # a time limit, too many requests: treated as no answer
_SERVER: Final = 500


def _none(_: str) -> None:
    return None


class SchemaCache:
    """Schemas by id, fetched once."""

    def __init__(
        self, fetch: Callable[[int], str], newest: Callable[[str], int | None] = _none
    ) -> None:
        """`fetch` gives a schema's text, `newest` the id of a subject's; from a registry client."""
        self._fetch, self._newest = fetch, newest
        self._schemas: dict[int, dict[str, Any]] = {}

    def __call__(self, schema_id: int) -> dict[str, Any]:
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = json.loads(self._fetch(schema_id))
        return schema

    def newest(self, topic: str) -> int | None:
        """Return the id of the newest schema of a topic's values; None: it has none."""
        return self._newest(f"{topic}-value")


def newest_id(schema_of: SchemaOf, topics: Sequence[str]) -> int:
    """Return the id of the newest schema of a topic's values: of the first that has one.

    Raises SubjectUnknown where none has.
    """
    if isinstance(schema_of, SchemaCache):
        for topic in topics:
            if (newest := schema_of.newest(topic)) is not None:
                return newest
    raise SubjectUnknown(
        "the schema registry has no schema of a topic",
        topic=topics[-1],
        hint="are prefix and table right, and is the table captured?",
    )


def registry_at(url: str, options: Mapping[str, Any] | None = None) -> SchemaCache:
    """Schemas of a Confluent-compatible registry.

    Its errors are RegistryDown, RegistryRefused and SchemaUnknown.
    """
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415  heavy
    from confluent_kafka.schema_registry.error import (  # noqa: PLC0415
        OAuthTokenError,
        SchemaRegistryError,
    )

    httpx = http_of(SchemaRegistryClient)
    shown = re.sub(r"//[^/@]*@", "//", url)  # for messages: without credentials
    try:
        client = SchemaRegistryClient(settings(url, options))
    except (ValueError, TypeError, OSError) as error:  # an unknown setting, a missing file
        why = str(error).replace(url, shown)
        raise RegistryRefused(
            f"[registry] cannot be used: {why}", hint="correct url and options"
        ) from error

    def asked(ask: Callable[[], Any], where: dict[str, Any]) -> Any:
        where["url"] = shown
        try:
            return ask()
        except SchemaRegistryError as error:
            raise _refusal(error.http_status_code, error.error_code, where) from error
        except (httpx.HTTPError, OAuthTokenError) as error:  # what no server answered
            if (tls := _tls_error(error)) is not None:
                is_final = isinstance(tls, ssl.SSLCertVerificationError)
                raise (RegistryRefused if is_final else RegistryDown)(
                    "no TLS with the registry",
                    hint="ssl.ca.location in [registry.options] names its authority, the URL a "
                    "name that its certificate holds; ssl.certificate.location is ours, if it asks",
                    reason=getattr(tls, "verify_message", "") or tls.reason,
                    **where,
                ) from error
            raise RegistryDown(
                "the schema registry does not answer", error=type(error).__name__, **where
            ) from error
        except (httpx.InvalidURL, *UNREADABLE) as error:
            raise RegistryRefused(NO_REGISTRY, hint=ITS_URL, **where) from error

    def text_of(schema_id: int) -> str | None:
        found = client.get_schema(schema_id)
        return found.schema_str if is_avro(found.schema_str, found.schema_type) else None

    def id_of(subject: str) -> int:
        return int(str(client.get_latest_version(subject).schema_id))

    def fetch(schema_id: int) -> str:
        text = asked(lambda: text_of(schema_id), {"schema_id": schema_id})
        if text is None:
            what = "a record names a schema that is not Avro"
            raise SchemaUnknown(what, schema_id=schema_id, url=shown)
        return str(text)

    def newest(subject: str) -> int | None:
        try:
            return int(asked(lambda: id_of(subject), {"subject": subject}))
        except SubjectUnknown:
            return None

    return SchemaCache(fetch, newest)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Find the error of TLS behind the HTTP library's."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _refusal(status: int, code: int, where: Mapping[str, Any]) -> ApplyError:
    """Convert an answer that is not a schema into an error, by its codes."""
    if status == _MISSING and code in _SUBJECT_NOT_FOUND:
        return SubjectUnknown("the schema registry has no schema of a topic", **where)
    if status == _MISSING and code == _SCHEMA_NOT_FOUND:
        return SchemaUnknown(
            "the schema registry does not know a schema that a record names",
            hint="is it the registry that `run` uses, and has it lost nothing?",
            **where,
        )
    if 0 < status < _SERVER and status not in _LATER:
        return RegistryRefused(
            "the schema registry refused",
            status=status,
            code=code,
            hint="are URL and credentials right?",
            **where,
        )
    return RegistryDown("the schema registry does not answer", status=status, **where)
