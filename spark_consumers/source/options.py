"""Options of the data source `gauss_cdc`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, Self

from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.errors import SettingRefused, StreamError
from spark_consumers.kafka.history import Found, History, Standing
from spark_consumers.kafka.read import CLIENTS, Clients
from spark_consumers.kafka.registry import SchemaCache, newest_id, registry_at
from spark_consumers.security import check_logins
from spark_consumers.versions import Version

_ROWS: Final = 200_000
_NAMES: Final = (
    *("table", "prefix", "registry", "startingversion", "endingversion", "maxrowspertrigger"),
    "allowplaintextlogin",
)
_KAFKA: Final = "kafka."
_REGISTRY: Final = "registry."
SNAPSHOT: Final = "snapshot"
LATEST: Final = "latest"
_NAME: Final = re.compile(r'(?:("(?:[^"]|"")+"|[^".]+)\.)?("(?:[^"]|"")+"|[^".]+)')


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read, from where, and until where."""

    table: TableId
    prefix: str  # [kafka] prefix of the source
    client: Mapping[str, Any] = field(repr=False)  # librdkafka's settings
    registry: str | SchemaCache = field(repr=False)  # its URL
    registry_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    start: str | Version = SNAPSHOT
    end: Version | None = None
    rows: int = _ROWS  # of a micro-batch, about: commits are whole

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read Spark's options, whose names have no case; raise SettingRefused."""
        given = {name.lower(): value for name, value in options.items()}
        known = {n: v for n, v in given.items() if not n.startswith((_KAFKA, _REGISTRY))}
        if unknown := known.keys() - {*_NAMES, "path"}:
            raise SettingRefused(
                f"gauss_cdc has no option {min(unknown)}", options=", ".join(_NAMES)
            )
        for name in ("table", "prefix", "registry"):
            if not given.get(name):
                raise SettingRefused(f"the option {name} is missing")
        if given.get("allowplaintextlogin", "false").lower() != "true":
            check_logins(_below(_KAFKA, given), given["registry"], _below(_REGISTRY, given))
        try:
            start = given.get("startingversion", SNAPSHOT).strip()
            end = given.get("endingversion", LATEST).strip()
            return cls(
                _table(given["table"]),
                given["prefix"],
                _below(_KAFKA, given),
                given["registry"],
                _below(_REGISTRY, given),
                start if start in (SNAPSHOT, LATEST) else Version.parse(start),
                None if end == LATEST else Version.parse(end),
                _positive(given.get("maxrowspertrigger", str(_ROWS))),
            )
        except ValueError as error:
            raise SettingRefused(
                "an option of gauss_cdc is not valid",
                hint="startingVersion is snapshot, latest or a commit as 2/5001; endingVersion "
                'latest or a commit; table is schema.table, with "quotes" around a name with dots',
                why=error,
            ) from None

    def schema_of(self) -> SchemaCache:
        """Find schemas by id."""
        if isinstance(self.registry, str):
            return registry_at(self.registry, self.registry_options)
        return self.registry

    def shape(self) -> tuple[dict[str, Any], int | None]:
        """Return the schema whose columns are read, and its id if it is the newest.

        It is that of the last commits where an end is given, so that those before a change of a
        type can be read apart.
        """
        schema_of = self.schema_of()
        if self.end is not None:
            with closing(self.history(schema_of)) as history:
                if ids := self.all_of(history).schema_ids:
                    return schema_of(ids[-1]), None
        newest = newest_id(schema_of, Topics(self.prefix).names(self.table))
        return schema_of(newest), newest

    def history(self, schema_of: SchemaCache, clients: Clients = CLIENTS) -> History:
        """Open the cuts."""
        return History(self.client, self.prefix, schema_of, clients=clients)

    def first(self, history: History) -> Standing:
        """Return the place behind which reading begins."""
        match self.start:
            case Version() as version:  # this commit is the first
                return history.behind(version.before())
            case "latest":
                return history.newest()
            case _:
                return history.snapshot(self.table)

    def all_of(self, history: History) -> Found:
        """Return what a batch reads; raise StreamError where its end has not come."""
        found = history.walk(self.table, self.first(history)).take_all(self.end)
        if self.end is not None and found.place.version < self.end:
            raise StreamError(
                "the cuts do not go as far as endingVersion",
                last=str(found.place.version),
                needed=str(self.end),
            )
        return found


def _table(text: str) -> TableId:
    """Read `schema.table`; a name in quotes may have dots.

    >>> _table("account"), _table('public."a.b"')
    (TableId(schema='public', name='account'), TableId(schema='public', name='a.b'))
    """
    if (found := _NAME.fullmatch(text.strip())) is None:
        raise ValueError(f"not a table: {text}")
    schema, name = (
        part[1:-1].replace('""', '"') if part and part[0] == '"' else part
        for part in found.groups()
    )
    return TableId(schema or "public", name or "")


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"not a number of rows: {text}")
    return number


def _below(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    return {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
