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
    """Product."""

    dsn: Public
    """Without a password: `postgresql://user@host:port/database?sslrootcert=FILE`. Off this machine
    TLS is verified unless it says otherwise, see docs/security.md."""

    hosts: tuple[str, ...] = ()
    """All servers of the cluster, as `["db1:5432", "db2:5432"]`; unset = the dsn's. After a
    switch-over `run` continues at the one with the right role."""

    role: Literal["primary", "standby", "any"] = "primary"
    """Which server of `hosts` is read. PostgreSQL 16 and later: with `standby` the slot is made
    there, and stays; `any` = where the slot is, on the first start a standby. openGauss, GaussDB:
    slots are made on the primary."""

    slot: str = "gauss_cdc"
    """Replication slot. The first `run` of a prefix creates it, with the first load."""

    plugin: str | None = None
    """Output plugin; unset = `pgoutput` of PostgreSQL, else `mppdb_decoding`."""

    options: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(default_factory=dict)
    """The plugin's own, see the tables of options: those that we set, or that would change the
    target's content, are refused."""

    status_interval: Duration = timedelta(seconds=2)
    """Longest time between two status messages. PostgreSQL gives a `run` up that was silent for
    three of them."""

    repair: Literal["auto", "ask", "off"] = "auto"
    """Tables with rows or values that the source did not send: `auto` reads them again, less often
    where gaps come again and again; `ask` waits for `gauss-cdc snapshot --table T`; `off` marks
    them only. Where a table cannot be read again by itself, `auto` is `ask`."""

    password: SecretStr = SecretStr("")
    """Read from GAUSS_CDC_SOURCE_PASSWORD; never printed."""

    password_file: Path | None = None
    """File that holds the password; used where the variable is not set."""

    password_command: tuple[str, ...] = ()
    """A command that prints the password, as a list of words, without a shell; run at logins, for
    tokens that are good for minutes. Instead of a password."""

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
