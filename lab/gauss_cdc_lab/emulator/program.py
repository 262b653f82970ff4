"""`gauss-cdc emulator`: put the parts together, serve until stopped."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import ROUNDS, Account, Gate, Line, StoredPassword
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import Backend, EmulatedProduct
from gauss_cdc_lab.emulator.replay import Replay
from gauss_cdc_lab.emulator.scratch import Scratch
from gauss_cdc_lab.emulator.server import LOOPBACK, Emulator
from gauss_cdc_lab.emulator.slots import Activity
from gauss_cdc_lab.emulator.upstream import Address

# Names of variables.
PASSWORD = "GAUSS_CDC_EMULATOR_PASSWORD"  # noqa: S105
UPSTREAM_PASSWORD = "GAUSS_CDC_UPSTREAM_PASSWORD"  # noqa: S105


@dataclass(frozen=True, slots=True)
class EmulatorOptions:
    """What the command line says."""

    replay: Path | None = None
    facade: str | None = None
    host: str = LOOPBACK
    port: int = 0
    ha_port: int = 0
    user: str = "cdc_user"
    password: str = field(default="", repr=False)
    upstream_password: str = field(default="", repr=False)  # of `facade` or `catalog`
    stored: StoredPassword = StoredPassword.SHA256
    line: Line = Line.SHA256
    rounds: int = ROUNDS
    product: str = ""
    paced: bool = False
    catalog: str | None = None
    tables: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    has_thread_pool: bool = True
    time_zone: str = "UTC"
    sender_timeout_ms: int = 30_000
    busy_seconds: float = 0.0
    background_seconds: float = 0.0
    shards: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


async def build(options: EmulatorOptions) -> Emulator:
    """An emulator that does not listen yet.

    Raises DamagedRecording, Refused or OSError if it cannot be.
    """
    played = recording.load(options.replay) if options.replay is not None else None
    if options.product:
        profile = PROFILES[options.product]
    else:
        profile = played.profile if played is not None else PROFILES["og7"]
    product = EmulatedProduct(
        profile=profile,
        has_thread_pool=options.has_thread_pool,
        sender_timeout_ms=options.sender_timeout_ms,
        busy_seconds=options.busy_seconds,
        background_seconds=options.background_seconds,
        shards=options.shards,
        settings=options.settings,
    )
    backend: Backend
    activity = Activity()
    if played is not None:
        scratch = None
        if options.catalog is not None:
            address = Address.parse(options.catalog, options.upstream_password)
            scratch = Scratch(address, product, played)
            await scratch.load(options.tables or _companion(options.replay, played))
        backend = Replay(played, paced=options.paced, catalog=scratch, activity=activity)
    else:
        assert options.facade is not None
        address = Address.parse(options.facade, options.upstream_password)
        facade = Facade(address, product)
        await facade.prepare(address.database)
        backend = facade
    account = Account(
        options.user,
        options.password,
        stored=options.stored,
        line=options.line,
        rounds=options.rounds,
    )
    return Emulator(
        product,
        backend,
        Gate([account]),
        host=options.host,
        port=options.port,
        ha_port=options.ha_port,
        tls=_tls(options),
        activity=activity,
    )


def run(options: EmulatorOptions, on_start: Callable[[Emulator], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(_run(options, on_start))


async def _run(options: EmulatorOptions, on_start: Callable[[Emulator], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    emulator = await build(options)
    await emulator.start()
    on_start(emulator)
    try:
        await stopped.wait()
    finally:
        await emulator.stop()


def _companion(file: Path | None, played: recording.Recording) -> Path:
    """The tables file that the recording's header names, next to it."""
    assert file is not None
    named = file.parent / str(played.header.get("tables", "tables.json"))
    return named if named.exists() else named.with_name(named.name + ".gz")


def _tls(options: EmulatorOptions) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate, options.key)
    return context
