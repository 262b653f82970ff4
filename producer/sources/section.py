"""[source]: which database is captured, and how: what every kind of source has.

A kind adds its settings, its default plugin, and its rules across keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from producer.errors import OptionRefused
from producer.settings import Duration, Public, Section
from producer.sources.dial import ConnectionArguments, parse_dsn
from producer.wire.commands import SLOT_NAME

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/@]+):([0-9]{1,5})")


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

    kind: str
    """`postgres`, `opengauss` or `gaussdb`."""

    dsn: Public
    """Connection string without a password: `postgresql://user@host:port/database`."""

    hosts: tuple[str, ...] = ()
    """All servers of the cluster, as `["db1:5432", "db2:5432"]`; else the dsn's. After a
    switch-over `run` continues at the one with the right role."""

    role: Literal["primary", "standby", "any"] = "primary"
    """Which server of `hosts` is read. PostgreSQL 16 and later: `standby` makes the slot there,
    where it stays; `any` takes the server that has the slot, at first a standby. openGauss and
    GaussDB make slots on the primary."""

    slot: str = "gauss_cdc"
    """Replication slot, which the first `run` of a prefix creates."""

    plugin: str | None = None
    """Output plugin; else `pgoutput` of PostgreSQL, `mppdb_decoding` of the others."""

    options: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(default_factory=dict)
    """Options of the plugin. Those that we set are refused."""

    status_interval: Duration = timedelta(seconds=2)
    """Longest time between two status messages. PostgreSQL drops a `run` that was silent for three
    of them."""

    repair: Literal["auto", "ask", "off"] = "auto"
    """Tables with rows or values that the source did not send. `auto` reads them again, less often
    where gaps recur, or asks where it cannot; `ask` waits for `gauss-cdc snapshot --table T`; `off`
    only marks them."""

    password: SecretStr = SecretStr("")
    """Read from GAUSS_CDC_SOURCE_PASSWORD; never printed."""

    password_file: Path | None = None
    """File that holds the password; used where the variable is not set."""

    password_command: tuple[str, ...] = ()
    """Prints the password, in place of another one: words of a command, run without a shell at each
    login, for short-lived tokens."""

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
        return self.plugin or ""

    def problems(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Find what is wrong across keys: which key, and why."""
        if self.password_command and self.password.get_secret_value():
            yield ("password-command",), "there is a password already: leave one of the two out"

    def connection(self) -> ConnectionArguments:
        """What is logged in with."""
        return self._dsn()

    def own(self) -> dict[str, Any]:
        """Return the fields of `producer.options.Options` that this kind alone has."""
        return {}

    def _dsn(self, *, is_cluster: bool = False) -> ConnectionArguments:
        return parse_dsn(
            self.dsn,
            self.password.get_secret_value() or None,
            sslpassword=self.ssl_password.get_secret_value(),
            is_cluster=is_cluster,
        )


def refused(problems: Iterable[OptionRefused]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Say of each option of a plugin why it is refused."""
    for problem in problems:
        yield ("options", str(problem.where.get("option", ""))), _said(problem)


def _said(refused: OptionRefused) -> str:
    """The line names the option already."""
    where = ", ".join(
        f"{name} {refused.where[name]}" for name in ("value", "range") if refused.where.get(name)
    )
    rule = refused.what.removeprefix("decoding option refused: ")
    return f"{rule} ({where})" + (f"; {refused.hint}" if refused.hint else "")
