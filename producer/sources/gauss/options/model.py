"""The terms of a source, and the decided options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from producer.sources.decoders import Format
from producer.sources.gauss.options.table import Decoding, Vendor

Role: TypeAlias = Literal["primary", "standby", "any"]
Interface: TypeAlias = Literal["stream", "sql"]


@dataclass(frozen=True, slots=True)
class Advice:
    """A value that is accepted, and the warning about it."""

    option: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f'{self.option} = "{self.value}": {self.reason}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """How a source is decoded."""

    options: tuple[tuple[str, str], ...]  # to send, in this order; the same for SQL functions
    format: Format  # for the decoder; its encoding is the database's once that is known
    mode: Decoding
    product: Vendor
    plugin: str
    interface: Interface
    ordered_by: Literal["lsn", "csn"]
    status_seconds: float
    warnings: tuple[Advice, ...] = ()
    needs_server: tuple[str, ...] = ()  # rules that only a server can decide, for display

    def get(self, name: str) -> str | None:
        """Return a value that is sent; None where the server's default applies."""
        return dict(self.options).get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a source is read: what the rules use besides the options."""

    product: Vendor
    plugin: str
    role: Role = "primary"
    interface: Interface = "stream"
    status_seconds: float = 10.0
    binary: bool = False  # pg_logical_slot_*_binary_changes
