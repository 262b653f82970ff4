"""What the emulated server is: its settings, its texts, and the interface to what stands behind.

Two things stand behind: a recording (`replay`) or a PostgreSQL (`facade`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gauss_cdc_lab.emulator.model import PROFILES, Profile, Sent
from gauss_cdc_lab.emulator.options import StreamOptions
from schemas.positions import Lsn

NORMAL_MODE: Final = 1  # ServerMode of a single node


@dataclass(frozen=True, slots=True)
class EmulatedProduct:
    """Everything about the server that is not behind it."""

    profile: Profile = PROFILES["og7"]
    role: int = NORMAL_MODE
    has_thread_pool: bool = True  # replication goes to the HA port only
    time_zone: str = "UTC"
    sender_timeout_ms: int = 30_000  # logical_sender_timeout
    idle_command_ms: int = 6_000  # wal_sender_timeout: while no stream runs
    busy_seconds: float = 0.0  # how long a slot stays active after its client vanished
    decoders: int = 20  # parallel decodings at once
    # While a stream runs, a facade commits something empty this often, as the other databases
    # and background jobs of a real server do; 0: never.
    background_seconds: float = 0.0
    shards: int = 0  # of a distributed GaussDB, whose coordinator this is; 0: centralized
    settings: Mapping[str, str] = field(default_factory=dict)  # GUCs that PostgreSQL has not

    @property
    def is_gaussdb(self) -> bool:
        return self.profile.name == "gaussdb"

    @property
    def version(self) -> str:
        """The text of the SQL function of that name."""
        compiled = "compiled at 2026-11-20 20:36:50 commit 0 last mr  release on x86_64-linux-gnu"
        if self.is_gaussdb:
            return f"gaussdb (GaussDB Kernel 505.2.0 build 00000000) {compiled}, 64-bit"
        release = {"og3": "3.0.3", "og5": "5.0.0", "og6": "6.0.0"}.get(
            self.profile.name, "7.0.0-RC2"
        )
        return f"(openGauss {release} build ) {compiled}, compiled by g++ 12.2.0, 64-bit"


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is connected: the startup message's words, checked."""

    user: str
    database: str
    parameters: Mapping[str, str]
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """The row of IDENTIFY_SYSTEM without the database."""

    identifier: str
    timeline: int
    position: Lsn


@dataclass(slots=True)
class EmulatedSlot:
    """A logical slot as its users see it."""

    name: str
    plugin: str
    database: str
    confirmed: Lsn
    confirmed_csn: int = 0  # of a slot in CSN order; such slots exist on GaussDB only


class Client(Protocol):
    """The other end of an ordinary session."""

    async def receive(self) -> tuple[bytes, bytes]:
        """Next message: letter and body."""

    async def send(self, frames: bytes) -> None:
        """Messages, whole."""


class OrdinarySql(Protocol):
    """One session's ordinary SQL."""

    def key(self) -> bytes:
        """BackendKeyData's 8 bytes."""

    async def serve(self, client: Client) -> None:
        """Serve an ordinary session from behind its login until it ends."""

    async def execute(self, text: bytes) -> list[bytes]:
        """Run a simple query of a walsender; backend messages without ReadyForQuery."""

    async def settings(self) -> Mapping[str, str]:
        """What shapes values in a stream that this session starts, by its name (TimeZone, …)."""

    async def close(self) -> None: ...


class SlotStream(Protocol):
    """What a walsender sends."""

    async def more(self) -> Iterable[Sent]:
        """Wait for messages; may be cancelled without losing any."""

    def idle(self) -> Iterable[Sent]:
        """What a batch still holds; asked for when nothing was sent for a second."""

    def read_to(self) -> int:
        """End of WAL as far as it is read: a keepalive's walEnd."""

    def is_behind(self) -> bool:
        """Whether more is known to come at once."""

    async def confirm(self, flushed: int) -> None:
        """The client's `flush` went forward; not clamped."""

    async def close(self) -> None: ...


class Backend(Protocol):
    """The database behind the emulated server.  Errors are `Refused`."""

    async def sql(self, peer: Peer) -> OrdinarySql:
        """A session; Refused if the database does not exist."""

    async def system(self) -> System: ...

    async def slot(self, name: str) -> EmulatedSlot | None: ...

    async def slot_to_read(self, name: str) -> EmulatedSlot | None:
        """As `slot`, for START_REPLICATION."""

    async def slots(self) -> list[EmulatedSlot]: ...

    async def create(self, peer: Peer, name: str, plugin: str) -> tuple[Lsn, str, Closing]:
        """Make a slot: consistent point, snapshot's name, and what ends that snapshot."""

    async def drop(self, name: str) -> None: ...

    async def advance(self, name: str, confirmed: Lsn) -> None: ...

    async def stream(
        self, slot: EmulatedSlot, start: Lsn, asked: StreamOptions, sql: OrdinarySql
    ) -> SlotStream: ...

    async def cancel(self, key: bytes) -> None:
        """A CancelRequest's 8 bytes."""

    async def close(self) -> None: ...


class Closing(Protocol):
    """Something that lives until the session's next command."""

    async def close(self) -> None: ...
