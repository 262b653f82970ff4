"""Options of the data source `gauss_cdc`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import SettingRefused, StreamError
from spark_consumers.kafka.history import Found, History, Standing
from spark_consumers.kafka.logins import check_logins
from spark_consumers.kafka.read import CLIENTS, Clients
from spark_consumers.kafka.registry import SchemaCache, newest_id, registry_at
from spark_consumers.source.java_names import librdkafka_client

_ROWS: Final = 200_000
_NAMES: Final = (
    *("table", "tables", "prefix", "registry", "startingversion", "endingversion"),
    *("startingtimestamp", "endingtimestamp", "maxrowspertrigger", "allowplaintextlogin"),
)
# What Spark's catalog adds to the options of a table that was made with USING gauss_cdc: its own
# properties (TableCatalog's PROP_…), and each option once more as a property.
_OF_CATALOG: Final = (
    *("collation", "comment", "external", "is_managed_location", "location", "owner", "path"),
    *("provider", "serialization.format", "table_type"),
)
_PROPERTY: Final = "option."
_KAFKA: Final = "kafka."
_REGISTRY: Final = "registry."
SNAPSHOT: Final = "snapshot"
LATEST: Final = "latest"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read, from where, and until where."""

    tables: tuple[TableId, ...]
    prefix: str  # [kafka] prefix of the source
    client: Mapping[str, Any] = field(repr=False)  # librdkafka's settings
    registry: str | SchemaCache = field(repr=False)  # its URL
    registry_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    start: str | Version | datetime = SNAPSHOT
    end: Version | datetime | None = None
    rows: int = _ROWS  # of a micro-batch, about: commits are whole
    is_nested: bool = False  # a frame for several tables, each in a column of its own

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read Spark's options, whose names have no case; raise SettingRefused."""
        given = {name.lower(): value for name, value in options.items()}
        known = {n for n in given if not n.startswith((_KAFKA, _REGISTRY, _PROPERTY))}
        if unknown := known - {*_NAMES, *_OF_CATALOG}:
            raise SettingRefused(
                f"gauss_cdc has no option {min(unknown)}", options=", ".join(_NAMES)
            )
        if "tables" not in given:
            given.setdefault("table", given.get("path", ""))  # load("public.account")
        elif given.get("table"):
            raise SettingRefused("gauss_cdc reads `table`, or `tables`", hint="leave one out")
        for name in ("tables" if "tables" in given else "table", "prefix", "registry"):
            if not given.get(name):
                raise SettingRefused(
                    f"the option {name} is missing",
                    hint="Spark hands on none of those of a table that was made with USING: "
                    "CREATE TEMPORARY VIEW has them, and SELECT ... WITH (...) gives them"
                    if not options
                    else "",
                )
        client = librdkafka_client(_below(_KAFKA, given))
        if given.get("allowplaintextlogin", "false").lower() != "true":
            check_logins(client, given["registry"], _below(_REGISTRY, given))
        try:
            made = cls(
                _asked(given),
                given["prefix"],
                client,
                given["registry"],
                _below(_REGISTRY, given),
                _bound(given, "starting") or SNAPSHOT,
                _ending(given),
                _positive(given.get("maxrowspertrigger", str(_ROWS))),
                is_nested="tables" in given,
            )
        except ValueError as error:
            raise SettingRefused(
                "an option of gauss_cdc is not valid",
                hint="startingVersion is snapshot, latest, 0 or a commit as 2/5001; endingVersion "
                "latest or a commit; in place of them, startingTimestamp and endingTimestamp are "
                'as 2026-01-31T12:00:00Z; table is schema.table, with "quotes" around a name '
                "with dots; tables are several of them, with commas between",
                why=error,
            ) from None
        return made

    def schema_of(self) -> SchemaCache:
        """Find schemas by id."""
        if isinstance(self.registry, str):
            return registry_at(self.registry, self.registry_options)
        return self.registry

    def shapes(self) -> tuple[dict[TableId, dict[str, Any]], int | None]:
        """Return the schemas whose columns are read, and the greatest id if they are the newest.

        They are those of the last commits where an end is given, so that those before a change of
        a type can be read apart.
        """
        schema_of, names, ids = self.schema_of(), Topics(self.prefix), dict[TableId, int]()
        if self.end is not None:
            with closing(self.history(schema_of)) as history:
                topics = self.all_of(history).topics.values()
                ids |= {one.table: one.schema_ids[-1] for one in topics if one.schema_ids}
        are_newest = not ids
        for table in self.tables:
            if table not in ids:
                ids[table] = newest_id(schema_of, names.names(table))
        shapes = {table: schema_of(ids[table]) for table in self.tables}
        return shapes, max(ids.values()) if are_newest else None

    def history(self, schema_of: SchemaCache, clients: Clients = CLIENTS) -> History:
        """Open the cuts."""
        return History(self.client, self.prefix, schema_of, clients=clients)

    def first(self, history: History) -> Standing:
        """Return the place behind which reading begins; StreamError where it is yet to come."""
        match self.start:
            case Version() as version:  # this commit is the first
                return history.behind(version.before())
            case datetime() as time:
                if (found := history.since(_micros(time))) is None:
                    raise StreamError(
                        "no commit is as late as startingTimestamp",
                        hint="`latest` as startingVersion begins with the next one",
                        newest=str(history.newest().version),
                        time=time.isoformat(),
                    )
                return history.behind(found.before())
            case "latest":
                return history.newest()
            case _:
                return history.snapshot(self.tables)

    def all_of(self, history: History) -> Found:
        """Return what a batch reads; raise StreamError where its end has not come."""
        first = self.first(history)
        return history.walk(self.tables, first).take_all(self._last(history))

    def _last(self, history: History) -> Version | None:
        """Return the last commit of a batch; None: all that there are."""
        if not isinstance(self.end, datetime):
            return self.end
        later = history.since(_micros(self.end) + 1)
        return None if later is None else later.before()


def _bound(given: Mapping[str, str], which: str) -> str | Version | datetime | None:
    """Read a version or a time; one of them."""
    version, time = (given.get(f"{which}{kind}", "").strip() for kind in ("version", "timestamp"))
    if version and time:
        raise ValueError(f"give one of {which}Version and {which}Timestamp")
    if time:
        found = datetime.fromisoformat(time)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if version in ("", SNAPSHOT, LATEST):
        return version or None
    return Version(1, 0) if version == "0" else Version.parse(version)


def _ending(given: Mapping[str, str]) -> Version | datetime | None:
    end, start = _bound(given, "ending"), _bound(given, "starting")
    if isinstance(end, str):
        if end == LATEST:
            return None
        raise ValueError(f"not an end: {end}")
    is_behind = isinstance(start, Version) and isinstance(end, Version) and start > end
    if is_behind or (isinstance(start, datetime) and isinstance(end, datetime) and start > end):
        raise ValueError(f"the start, {start}, is behind the end, {end}")
    return end


def _micros(time: datetime) -> int:
    """µs since 1970-01-01 UTC, exactly."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def _asked(given: Mapping[str, str]) -> tuple[TableId, ...]:
    if "tables" in given:
        return _tables(given["tables"])
    (table, *others) = _tables(given["table"])
    if others:
        raise ValueError("`tables` may name several, `table` names one")
    return (table,)


def _tables(text: str) -> tuple[TableId, ...]:
    """Read `schema.table`, or several, with commas between; a name in quotes may have dots.

    >>> _tables("account"), _tables('public."a.b"')
    ((TableId(schema='public', name='account'),), (TableId(schema='public', name='a.b'),))
    >>> [str(table) for table in _tables('bank.account, "a,b.c"')]
    ['bank.account', 'public."a,b.c"']
    """
    found: dict[str, TableId] = {}
    for one in _divided(text):
        table = TableId.parse(one.strip(), "public")
        if found.setdefault(str(table).lower(), table) != table:
            raise ValueError(f"names that differ in case only: {table}")
    return tuple(found.values())


def _divided(text: str) -> list[str]:
    """Divide a text at commas that are not in quotes."""
    parts, is_quoted = [""], False
    for one in text:
        is_quoted ^= one == '"'
        if one == "," and not is_quoted:
            parts.append("")
        else:
            parts[-1] += one
    return parts


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"not a number of rows: {text}")
    return number


def _below(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    return {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
