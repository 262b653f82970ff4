"""[source] of openGauss and GaussDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from producer.sources.gauss.options import DEFAULT_PLUGIN, PLUGINS, Terms, Vendor, problems
from producer.sources.section import SourceSection, refused


class GaussSection(SourceSection):
    """[source] with kind = "opengauss" or "gaussdb"."""

    kind: Literal["opengauss", "gaussdb"]

    ha_port: int | None = Field(None, ge=1, le=65535)
    """openGauss, GaussDB: port for replication, mostly the main port + 1; else the dsn's. Needed
    with `enable_thread_pool = on`."""

    interface: Literal["stream", "sql"] = "stream"
    """openGauss, GaussDB: `sql` reads by SQL functions, where streaming is not permitted."""

    unknown_message: Literal["stop", "quarantine"] = "stop"
    """openGauss, GaussDB: an undecodable message, which is kept with its position. `quarantine`
    continues after it; its changes are missing at the target."""

    @property
    def output_plugin(self) -> str:
        return self.plugin or DEFAULT_PLUGIN

    @property
    def terms(self) -> Terms:
        """The terms for checking options."""
        return Terms(
            product=Vendor(self.kind),
            plugin=self.output_plugin,
            role=self.role,
            interface=self.interface,
            status_seconds=self.status_interval.total_seconds(),
        )

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield from super().problems()
        known = PLUGINS[Vendor(self.kind)]
        if self.output_plugin not in known:
            yield ("plugin",), f"{self.kind} has no {self.plugin!r}; one of {', '.join(known)}"
            return
        if self.interface == "sql" and self.role == "standby":
            yield ("role",), "SQL functions move slots, which only a primary does"
        yield from refused(problems(self.options, self.terms))

    def own(self) -> dict[str, Any]:
        return {
            "ha_port": self.ha_port,
            "interface": self.interface,
            "unknown_message": self.unknown_message,
        }
