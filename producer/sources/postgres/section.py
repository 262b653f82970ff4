"""[source] of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from producer.sources.dial import ConnectionArguments
from producer.sources.postgres import options
from producer.sources.section import SourceSection, refused


class PostgresSection(SourceSection):
    """[source] with kind = "postgres"."""

    kind: Literal["postgres"] = "postgres"

    failover_slot: Literal["auto", "on", "off"] = "auto"
    """PostgreSQL 17 and later: standbys with `sync_replication_slots` have the slot, too, so that
    `run` continues after a promotion. `auto`: where several servers are named."""

    publication: str = Field(default="gauss_cdc", min_length=1, max_length=63)
    """PostgreSQL: publication, which the first `run` or `check --fix` creates from [tables]."""

    @property
    def output_plugin(self) -> str:
        return self.plugin or "pgoutput"

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield from super().problems()
        if self.output_plugin != "pgoutput":
            yield ("plugin",), "PostgreSQL is read by pgoutput"
        yield from refused(options.problems(self.options))

    def connection(self) -> ConnectionArguments:
        """Of a cluster, with all its hosts: role and slot decide which one is read."""
        found = self._dsn(is_cluster=True)
        return replace(found, hosts=self.hosts or found.hosts, role=self.role, slot=self.slot)

    def own(self) -> dict[str, Any]:
        return {"failover_slot": self.failover_slot, "publication": self.publication}
