"""Options of the data source `gauss_cdc`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.errors import SettingRefused
from spark_consumers.kafka.history import History, Standing
from spark_consumers.kafka.registry import SchemaCache, newest_id, registry_at
from spark_consumers.versions import Version

_ROWS: Final = 200_000
_NAMES: Final = (
    *("table", "prefix", "registry", "startingversion", "endingversion", "maxrowspertrigger"),
)
_KAFKA: Final = "kafka."
_REGISTRY: Final = "registry."
SNAPSHOT: Final = "snapshot"
LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read, from where, and until where."""

    table: TableId
    prefix: str  # [kafka] prefix of the source
    client: Mapping[str, Any] = field(repr=False)  # librdkafka's settings
    registry: str = field(repr=False)
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
        schema, _, name = given["table"].rpartition(".")
        try:
            start = given.get("startingversion", SNAPSHOT).strip()
            end = given.get("endingversion", LATEST).strip()
            return cls(
                TableId(schema or "public", name),
                given["prefix"],
                _below(_KAFKA, given),
                given["registry"],
                _below(_REGISTRY, given),
                start if start in (SNAPSHOT, LATEST) else Version.parse(start),
                None if end == LATEST else Version.parse(end),
                int(given.get("maxrowspertrigger", _ROWS)),
            )
        except ValueError as error:
            raise SettingRefused(
                "an option of gauss_cdc is not valid",
                hint="startingVersion is snapshot, latest or a commit as 2/5001; endingVersion "
                "latest or a commit",
                why=error,
            ) from None

    @property
    def topic(self) -> str:
        """The table's topic."""
        return Topics(self.prefix).table(self.table)

    def schema_of(self) -> SchemaCache:
        """Find schemas by id."""
        return registry_at(self.registry, self.registry_options)

    def newest(self) -> dict[str, Any]:
        """Return the newest schema of the table's values."""
        schema_of = self.schema_of()
        return schema_of(newest_id(schema_of, self.topic))

    def history(self, schema_of: SchemaCache) -> History:
        """Open the cuts."""
        return History(self.client, self.prefix, schema_of)

    def first(self, history: History) -> Standing:
        """Return the place behind which reading begins."""
        match self.start:
            case Version() as version:  # this commit is the first
                return history.behind(version._replace(seq=max(0, version.seq - 1)))
            case "latest":
                return history.newest()
            case _:
                return history.loads()


def _below(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    return {n.removeprefix(prefix): v for n, v in options.items() if n.startswith(prefix)}
