"""The schema registry: what the implementations of Confluent's API have in common.

Subject compatibility stays as it was found; normalisation is off; a refusal
stops before the row.  Ids are cached by the client.
"""

from __future__ import annotations

import io
import json
import re
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from producer.core.records.cut_code import encode_commits
from producer.core.records.framing import framed
from producer.errors import RegistryDown, RegistryError, SchemaRefused
from schemas.control import Commits, Cut, SchemaChange, change_from_avro, cut_from_avro, cut_to_avro
from schemas.load import CUT, SCHEMA_CHANGE, avsc, canonical, check_bounded
from schemas.registry_client import ITS_URL, NO_REGISTRY, UNREADABLE, http_of, is_avro, settings

_INCOMPATIBLE: Final = 409
_MISSING: Final = 404
_SCHEMA_NOT_FOUND: Final = 40403  # with _MISSING: the id, not the address
_INVALID: Final = 422
_LATER: Final = {408, 429}  # a timeout, too many requests: treated as no answer
_SERVER: Final = 500
# Behind a prefix: the subject that stores another one's compatibility while that is NONE.
_BEFORE: Final = ".gauss-cdc-restore"
_NO_LEVEL: Final = "GLOBAL"
_FRAME: Final = 5  # bytes before a record: a zero, and its schema's id
# What fastavro raises for foreign bytes or a foreign schema.
_UNREADABLE: Final = (*UNREADABLE, SchemaParseException, SchemaResolutionError)
# What the client raises: refusals, the HTTP library's own errors, and what an answer raises that
# is not a registry's.
httpx: Final = http_of(SchemaRegistryClient)
_NO_ANSWER: Final = (httpx.InvalidURL, *UNREADABLE)
_ERRORS: Final = (SchemaRegistryError, OAuthTokenError, httpx.HTTPError, *_NO_ANSWER)


class Registry:
    """Registers schemas, and reads and writes the control records framed with their ids.

    Its calls raise RegistryDown where it does not answer, else RegistryError.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url = re.sub(r"//[^/@]*@", "//", url)  # for messages: without credentials
        try:
            self._client = SchemaRegistryClient(settings(url, options))
        except (ValueError, TypeError, OSError) as exc:  # an unknown setting, a missing file
            why = str(exc).replace(url, self._url)
            raise RegistryError(
                f"[registry] cannot be used: {why}", hint="correct url and options"
            ) from exc
        self._parsed: dict[int, Any] = {}
        self._own: dict[str, tuple[int, Any]] = {}
        self.unknown: int | None = None  # the newest schema id that the registry does not have

    def register(self, subject: str, schema: Mapping[str, Any] | str) -> int:
        """Register a schema, or find it; return its id.

        Raises SchemaRefused where the subject does not take it.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
        try:
            return int(self._client.register_schema(subject, Schema(text, "AVRO")))
        except _ERRORS as exc:
            raise self._ours(exc, subject) from exc

    def register_anyway(self, subject: str, schema: Mapping[str, Any] | str, *, prefix: str) -> int:
        """Register a schema that the subject's compatibility refuses, as its next version.

        The subject's compatibility is NONE for that one call, then restored; a crash in
        between leaves a note in the registry, for `repair` of this prefix.
        """
        try:
            return self.register(subject, schema)
        except SchemaRefused:
            pass
        try:
            level = self._level(subject) or _NO_LEVEL
            self._note(prefix, subject, level)
            self._client.set_compatibility(subject, "NONE")
            try:
                return self.register(subject, schema)
            except SchemaRefused as exc:
                raise SchemaRefused(
                    exc.what,
                    hint="it refuses although the subject's compatibility is NONE: a global rule "
                    "applies (Apicurio), or the schema breaks a rule; set the global level to "
                    "NONE for this change, then start again",
                    subject=subject,
                    url=self._url,
                ) from exc
            finally:
                self._restore(subject, level)
                self._forget(prefix)
        except _ERRORS as exc:
            raise self._ours(exc, subject) from exc

    def repair(self, prefix: str) -> list[str]:
        """Restore the compatibility of subjects that a killed `run` left at NONE; return them.

        They are found by one name: a list of subjects may end at the thousandth (Apicurio's does).
        """
        try:
            noted = [self._noted(prefix, version) for version in self._versions(prefix + _BEFORE)]
            for subject, level in noted:
                self._restore(subject, level)
            if noted:
                self._forget(prefix)
        except _ERRORS as exc:
            raise self._ours(exc, prefix + _BEFORE) from exc
        return [subject for subject, _ in noted]

    def _note(self, prefix: str, subject: str, level: str) -> None:
        # Its versions have one shape, so that each level takes all of them.
        kept = {"type": "record", "name": "before", "fields": [], "doc": f"{subject} {level}"}
        self._client.register_schema(prefix + _BEFORE, Schema(json.dumps(kept), "AVRO"))

    def _noted(self, prefix: str, version: int) -> tuple[str, str]:
        kept = self._client.get_version(prefix + _BEFORE, version).schema
        subject, _, level = json.loads((kept and kept.schema_str) or "null")["doc"].rpartition(" ")
        return subject, level

    def _versions(self, subject: str) -> list[int]:
        try:
            return list(self._client.get_versions(subject))
        except SchemaRegistryError as exc:
            if exc.http_status_code == _MISSING:
                return []
            raise

    def _restore(self, subject: str, level: str) -> None:
        if level != _NO_LEVEL:
            self._client.set_compatibility(subject, level)
        elif self._level(subject) is not None:
            self._client.delete_config(subject)

    def _forget(self, prefix: str) -> None:
        self._client.delete_subject(prefix + _BEFORE)
        self._client.clear_caches()  # type: ignore[no-untyped-call]  # it would not register the same note again

    def would_refuse(self, subject: str, schema: Mapping[str, Any] | str) -> bool:
        """Say whether the registry would refuse this version; False where it is the first."""
        text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
        try:
            return not self._client.test_compatibility(subject, Schema(text, "AVRO"))
        except SchemaRegistryError as exc:
            if exc.http_status_code == _MISSING:
                return False
            if exc.http_status_code == _INVALID:
                return True
            raise self._ours(exc, subject) from exc
        except _ERRORS as exc:
            raise self._ours(exc, subject) from exc

    def has(self, subject: str, schema: Mapping[str, Any] | str) -> bool:
        """Say whether a subject has this very schema; nothing is registered."""
        text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
        try:
            int(str(self._client.lookup_schema(subject, Schema(text, "AVRO")).schema_id))
        except SchemaRegistryError as exc:
            if exc.http_status_code == _MISSING:
                return False
            raise self._ours(exc, subject) from exc
        except _ERRORS as exc:
            raise self._ours(exc, subject) from exc
        return True

    def is_read_only(self) -> bool:
        """Say whether the registry reports that it accepts no schemas.

        False where it does not say it.
        """
        try:
            mode = self._client.get_global_mode()
        except SchemaRegistryError as exc:
            if 0 < exc.http_status_code < _SERVER:
                return False  # not every product has modes, or shows them to every user
            raise self._ours(exc, "") from exc
        except _ERRORS as exc:
            raise self._ours(exc, "") from exc
        return mode.upper().startswith("READONLY")

    def _level(self, subject: str) -> str | None:
        """A subject's own compatibility; None where the registry's applies."""
        try:
            return str(self._client.get_compatibility(subject))
        except SchemaRegistryError as exc:
            if exc.http_status_code == _MISSING:
                return None
            raise

    def own(self, name: str, subject: str) -> None:
        """Register one of our record schemas (`schemas/avro/<name>.avsc`)."""
        self._own[name] = self.register(subject, canonical(name)), _ours(name)

    def encode(self, name: str, record: Mapping[str, Any]) -> bytes:
        """Write a control record in Confluent's framing."""
        schema_id, parsed = self._own[name]
        return framed(schema_id, parsed, record)

    def encode_cut(self, cut: Cut) -> bytes:
        """Write a record of cuts."""
        if isinstance(cut, Commits):
            return b"\x00" + self._own[CUT][0].to_bytes(4, "big") + encode_commits(cut)
        return self.encode(CUT, cut_to_avro(cut))

    def read_cut(self, value: bytes) -> Cut:
        """Read a record of cuts; ValueError: it is not one, or its schema is unknown."""
        return cut_from_avro(self._decode(CUT, value))

    def read_change(self, value: bytes) -> SchemaChange:
        """Read a schema change; ValueError: it is not one, or its schema is unknown."""
        record = self._decode(SCHEMA_CHANGE, value)
        try:
            return change_from_avro(record)
        except (LookupError, TypeError) as exc:
            raise ValueError("a schema change without some of its fields") from exc

    def _decode(self, name: str, value: bytes) -> dict[str, Any]:
        """Read a framed control record; the writer's schema is an older or newer one of ours."""
        if len(value) < _FRAME or value[0] != 0:
            raise ValueError("it is not in Confluent's framing")
        schema_id = int.from_bytes(value[1:_FRAME], "big")
        schema = self._schema(schema_id)
        if schema is None or schema["name"] != _full_name(name):
            raise ValueError("its schema is another one")
        stream = io.BytesIO(value[_FRAME:])
        try:
            record = fastavro.schemaless_reader(stream, schema, _ours(name))
        except _UNREADABLE as exc:
            raise ValueError("its bytes do not follow its schema") from exc
        if stream.read(1) or not isinstance(record, dict):
            raise ValueError("bytes are left over")
        return record

    def _schema(self, schema_id: int) -> Any:
        """Return a writer's schema; None where the registry has none of this id, or it is unfit.

        A registry that does not answer raises: it is never a reason to skip a record.
        """
        if schema_id in self._parsed:
            return self._parsed[schema_id]
        try:
            found = self._client.get_schema(schema_id)
            text = found.schema_str if is_avro(found.schema_str, found.schema_type) else None
        except SchemaRegistryError as exc:
            if (exc.http_status_code, exc.error_code) != (_MISSING, _SCHEMA_NOT_FOUND):
                raise self._ours(exc, f"id {schema_id}") from exc
            self.unknown = schema_id
            return None  # not cached: a replica may have it a little later
        except _ERRORS as exc:
            raise self._ours(exc, f"id {schema_id}") from exc
        try:
            schema = json.loads(text or "null")  # null: of another language
            check_bounded(schema)
            parsed: Any = fastavro.parse_schema(schema)
            self._parsed[schema_id] = parsed if isinstance(parsed, dict) else None
        except _UNREADABLE:  # a foreign schema, in another language
            self._parsed[schema_id] = None
        return self._parsed[schema_id]

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _ours(self, exc: Exception, subject: str) -> RegistryError:
        where = {"subject": subject, "url": self._url}
        if isinstance(exc, _NO_ANSWER):
            return RegistryError(NO_REGISTRY, hint=ITS_URL, **where)
        if isinstance(exc, SchemaRegistryError):
            if exc.http_status_code in {_INCOMPATIBLE, _INVALID}:
                return SchemaRefused(
                    "the registry refuses the new schema as incompatible"
                    if exc.http_status_code == _INCOMPATIBLE
                    else "the registry refuses the new schema as invalid or against its rules",
                    hint="see `gauss-cdc check`; set the subject's compatibility to what your "
                    "readers need (NONE takes everything), then start again",
                    **where,
                )
            refused = 0 < exc.http_status_code < _SERVER
            if refused and exc.http_status_code not in _LATER:
                return RegistryError(
                    "the registry refused",
                    status=exc.http_status_code,
                    code=exc.error_code,
                    hint="are URL and credentials right?",
                    **where,
                )
            if exc.http_status_code >= _SERVER:
                return RegistryDown(
                    "the schema registry fails",
                    status=exc.http_status_code,
                    code=exc.error_code,
                    hint="its log says why; a schema may be too large for its store, such as of a"
                    " table with an enum of many labels: exclude that table",
                    **where,
                )
        if (tls := tls_error(exc)) is not None:
            kind = RegistryError if isinstance(tls, ssl.SSLCertVerificationError) else RegistryDown
            return kind(
                "no TLS with the registry",
                hint="ssl.ca.location in [registry.options] names its authority, the URL a name "
                "that its certificate holds; ssl.certificate.location is ours, if it asks for one",
                reason=getattr(tls, "verify_message", "") or tls.reason,
                **where,
            )
        return RegistryDown(
            "the schema registry does not answer", error=type(exc).__name__, **where
        )


def tls_error(exc: BaseException | None) -> ssl.SSLError | None:
    """Find the TLS error that caused an HTTP library's error.  None: none did."""
    while exc is not None and not isinstance(exc, ssl.SSLError):
        exc = exc.__cause__ or exc.__context__
    return exc


@cache
def _ours(name: str) -> Any:
    """Parse one of our record schemas: else fastavro would, for each record."""
    return fastavro.parse_schema(avsc(name))


def _full_name(name: str) -> str:
    schema = avsc(name)
    return f"{schema['namespace']}.{schema['name']}"
