"""[source]: which database is captured, and how; its rules across keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from gauss_cdc.settings import Duration, Public, Section
from producer.errors import OptionRefused
from producer.sources.gauss.options import DEFAULT_PLUGIN, PLUGINS, Terms, Vendor, problems
from producer.sources.postgres import options as pgoutput_options
from producer.wire.commands import SLOT_NAME

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/@]+):([0-9]{1,5})")
_NOT_POSTGRES: Final = (*("ha-port", "interface", "allow-internal-options", "unknown-message"),)


def _as_text(options: object) -> object:
    """Accept numbers and booleans of the file as text."""
    if not isinstance(options, dict):
        return options
    return {
        name: str(value).lower() if isinstance(value, bool | int) else value
        for name, value in options.items()
    }


class SourceSection(Section):
    """[source]: the database whose changes are captured."""

    kind: Literal["postgres", "opengauss", "gaussdb"] = "postgres"
    """Product."""

    dsn: Public
    """Without a password: `postgresql://user@host:port/database?sslrootcert=FILE`. Off this machine
    TLS is verified unless it says otherwise, see docs/security.md."""

    hosts: tuple[str, ...] = ()
    """All servers of the cluster, as `["db1:5432", "db2:5432"]`; unset = the dsn's, which may name
    several for PostgreSQL. After a switch-over `run` continues at the one with the right role."""

    role: Literal["primary", "standby", "any"] = "primary"
    """Which server of `hosts` is read. PostgreSQL 16 and later: with `standby` the slot is made
    there, and stays there; `any` = where the slot is, also after a promotion; on the first start
    a standby. openGauss, GaussDB: slots are made on the primary."""

    ha_port: int | None = Field(None, ge=1, le=65535)
    """openGauss, GaussDB: port for replication, mostly the main port + 1; unset = the dsn's port.
    Needed where `enable_thread_pool = on`."""

    slot: str = "gauss_cdc"
    """Replication slot. The first `run` of a prefix creates it, with the first load."""

    failover_slot: Literal["auto", "on", "off"] = "auto"
    """PostgreSQL 17 and later: standbys with `sync_replication_slots` have the slot, too, so that
    `run` continues after a promotion; `auto` = where several servers are named."""

    publication: str = Field("gauss_cdc", min_length=1, max_length=63)
    """PostgreSQL: publication. Created by the first `run` or `check --fix`, from [tables]."""

    plugin: str | None = None
    """Output plugin; unset = `pgoutput` of PostgreSQL, else `mppdb_decoding`."""

    interface: Literal["stream", "sql"] = "stream"
    """openGauss, GaussDB: `sql` reads by SQL functions, where streaming is not permitted."""

    options: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(default_factory=dict)
    """The plugin's own options, see the tables of decoding options: those that we set,
    or that would change the content of the target, are refused."""

    allow_internal_options: bool = False
    """openGauss, GaussDB: accept options that the servers of a cluster send each other: one data
    node of a distributed GaussDB is read by them."""

    status_interval: Duration = timedelta(seconds=2)
    """Longest time between two status messages, also on an idle stream. PostgreSQL gives a `run` up
    that was silent for three of them, and the next one continues."""

    unknown_message: Literal["stop", "quarantine"] = "stop"
    """openGauss, GaussDB: an undecodable message is kept with its position either way;
    `quarantine` continues after it, and its changes are missing at the target."""

    repair: Literal["auto", "ask", "off"] = "auto"
    """Tables with rows or values that the source did not send: `auto` reads them again while the
    stream goes on, less often where gaps come again and again; `ask` says so, and waits for
    `gauss-cdc snapshot --table T`; `off` marks them only. Where a table cannot be read again by
    itself, `auto` is `ask`."""

    password: SecretStr = SecretStr("")
    """Read from GAUSS_CDC_SOURCE_PASSWORD; never printed."""

    password_file: Path | None = None
    """File that holds the password; used where the variable is not set."""

    ssl_password: SecretStr = SecretStr("")
    """Of `sslkey`; read from GAUSS_CDC_SOURCE_SSL_PASSWORD; never printed."""

    ssl_password_file: Path | None = None
    """File that holds it; used where the variable is not set."""

    @field_validator("slot")
    @classmethod
    def _slot(cls, name: str) -> str:
        if SLOT_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a valid slot name: 1 to 63 of a-z, 0-9 and _")
        return name

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for address in hosts:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[2]) < 1 << 16:
                raise ValueError(f"{address!r}: write host:port, or [::1]:port")
        if len(set(hosts)) < len(hosts):
            raise ValueError("a host is named twice")
        return hosts

    @property
    def output_plugin(self) -> str:
        """The plugin, the default one filled in."""
        return self.plugin or ("pgoutput" if self.kind == "postgres" else DEFAULT_PLUGIN)

    @property
    def terms(self) -> Terms:
        """The terms for checking options; for openGauss and GaussDB."""
        return Terms(
            product=Vendor(self.kind),
            plugin=self.output_plugin,
            role=self.role,
            interface=self.interface,
            status_seconds=self.status_interval.total_seconds(),
            allow_internal=self.allow_internal_options,
        )

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Find what is wrong across keys: which key, and why."""
        if self.kind == "postgres":
            yield from self._not_for_postgres()
            return
        if self.plugin is not None and self.plugin not in PLUGINS[Vendor(self.kind)]:
            known = ", ".join(PLUGINS[Vendor(self.kind)])
            yield ("plugin",), f"{self.kind} has no {self.plugin!r}; one of {known}"
            return
        if "failover_slot" in self.model_fields_set:
            yield ("failover-slot",), 'only with kind = "postgres"'
        if self.interface == "sql" and self.role == "standby":
            yield ("role",), "SQL functions move slots, which only a primary does"
        for refused in problems(self.options, self.terms):
            yield ("options", str(refused.where.get("option", ""))), _said(refused)

    def _not_for_postgres(self) -> Iterator[tuple[tuple[str, ...], str]]:
        for key in _NOT_POSTGRES:
            if key.replace("-", "_") in self.model_fields_set:
                yield (key,), 'only with kind = "opengauss" or "gaussdb"'
        if self.output_plugin != "pgoutput":
            yield ("plugin",), "PostgreSQL is read by pgoutput"
        for refused in pgoutput_options.problems(self.options):
            yield ("options", str(refused.where.get("option", ""))), _said(refused)


def _said(refused: OptionRefused) -> str:
    """The line names the option already."""
    where = ", ".join(
        f"{name} {refused.where[name]}" for name in ("value", "range") if refused.where.get(name)
    )
    rule = refused.what.removeprefix("decoding option refused: ")
    return f"{rule} ({where})" + (f"; {refused.hint}" if refused.hint else "")
