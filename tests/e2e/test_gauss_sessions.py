"""Recorded sessions, SQL included: played against a replay with a catalog, and the facade."""

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.product import Backend, EmulatedProduct, System
from gauss_cdc_lab.emulator.replay import SYSTEM, Replay
from gauss_cdc_lab.emulator.scratch import Scratch
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from schemas.positions import Lsn, parse_lsn
from tests.gauss_cdc_lab.emulator import transcript
from tests.gauss_cdc_lab.emulator.running import Running
from tests.gauss_cdc_lab.emulator.transcript import (
    GOLDEN,
    Player,
    gate_of,
    ghost_salt,
    snapshot_name,
)

SESSIONS = sorted(p.name.removesuffix(".jsonl.gz") for p in GOLDEN.glob("session_*.jsonl.gz"))
SESSIONS.remove("session_errors")


def play(name: str, make: Callable[[], Any], masks: list[transcript.Mask]) -> Player:
    _, events = transcript.read(name)
    gate = gate_of(events)

    async def build() -> Emulator:
        backend, product = await make()
        return Emulator(product, backend, gate)

    with Running(build) as running:
        emulator = running.emulator
        is_errors = name == "session_errors"

        def port(startup: dict[str, Any]) -> int:
            return emulator.port if is_errors and startup["conn"] == 6 else emulator.ha_port

        player = Player(port, lambda: emulator.sessions, masks)
        try:
            player.play(events)
        finally:
            player.close()
    return player


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_answered_as_recorded(name: str, postgres_url: str) -> None:
    found = recording.load(GOLDEN / f"{name}.jsonl.gz")
    _, events = transcript.read(name)
    system = System(SYSTEM, 1, position_told(events))

    async def make() -> tuple[Backend, EmulatedProduct]:
        product = EmulatedProduct(time_zone="<+08>-08")
        scratch = Scratch(Address.parse(postgres_url), product, found)
        return Replay(found, any_slot=False, catalog=scratch, system=system), product

    player = play(name, make, [snapshot_name, restart_lsn])

    assert player.compared > 60


def position_told(events: list[dict[str, Any]]) -> Lsn:
    """Where the recorded server's log ended when it was asked: injected."""
    rows = [bytes.fromhex(event.get("hex", "")) for event in events]
    reported = next(re.search(rb"0/[0-9A-F]+", raw) for raw in rows if SYSTEM.encode() in raw)
    assert reported is not None
    return parse_lsn(reported[0].decode())


def restart_lsn(raw: bytes) -> bytes:
    """A recording does not tell from where the server had to read."""
    return re.sub(rb"(logical\0\0\0\t)0/[0-9A-F]{7}", rb"\1?", raw)


def test_every_refusal_has_the_recorded_fields(new_database: Callable[[], str]) -> None:
    shop, other = new_database(), new_database()
    names = {"shop": name_of(shop), "shop_ora": name_of(other)}

    async def make() -> tuple[Backend, EmulatedProduct]:
        product = EmulatedProduct(time_zone="<+08>-08")
        facade = Facade(Address.parse(shop), product, databases=names)
        await facade.prepare("shop")
        with closing(psycopg2.connect(shop)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT gauss_compat.pg_create_logical_replication_slot(%s, 'mppdb_decoding')",
                ("sess_slot_err",),
            )
            connection.commit()
        return facade, product

    player = play("session_errors", make, [ghost_salt, error_number])

    assert player.compared > 37 * 20


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def error_number(raw: bytes) -> bytes:
    """PostgreSQL's own errors (division by zero) come without openGauss' internal number."""
    if b"division by zero" not in raw:
        return raw
    return raw[:1] + re.sub(rb"\0c\d+\0", b"\0c?\0", raw[5:])
