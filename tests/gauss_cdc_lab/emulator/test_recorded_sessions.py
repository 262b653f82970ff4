"""The emulator answers as the recorded server did."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.product import EmulatedProduct, EmulatedSlot
from gauss_cdc_lab.emulator.replay import Replay
from gauss_cdc_lab.emulator.server import Emulator
from producer.wire.protocol import copy_data
from producer.wire.replication import OPENGAUSS, status_update
from schemas.positions import Lsn
from tests.gauss_cdc_lab.emulator.running import Running
from tests.gauss_cdc_lab.emulator.transcript import GOLDEN, Player, gate_of, ghost_salt, read

RESTARTS = sorted(p.name.removesuffix(".jsonl.gz") for p in GOLDEN.glob("restart_*.jsonl.gz"))
NEEDS_SQL = {32, 33}  # played against the facade, in tests/integration


@contextmanager
def playing(name: str, events: list[dict], backend: Replay) -> Iterator[Player]:
    gate = gate_of(events)

    async def make() -> Emulator:
        return Emulator(EmulatedProduct(), backend, gate)

    with Running(make) as running:
        emulator = running.emulator

        def port(startup: dict) -> int:
            is_main = startup["conn"] == 6 and name == "session_errors"
            return emulator.port if is_main else emulator.ha_port

        masks = [ghost_salt] if name == "session_errors" else []
        player = Player(port, lambda: emulator.sessions, masks)
        try:
            yield player
        finally:
            player.close()


@pytest.mark.parametrize("name", RESTARTS)
def test_a_restart_brings_what_the_recorded_server_sent(name: str) -> None:
    header, events = read(name)
    events = without_busy_tries(events)
    found = recording.load(GOLDEN / f"{name}.jsonl.gz")
    backend = Replay(found, any_slot=True)

    with playing(name, events, backend) as player:
        player.play(events)

    connections = {event["conn"] for event in events}
    assert len(connections) == 3
    commits = header["commit_positions"]["connection1"]
    assert len(found.transactions) == len(commits)
    assert player.compared > 3 * 28  # logins and the stream


def without_busy_tries(events: list[dict]) -> list[dict]:
    """Leave out connections that found the slot still active: how long it was, chance decided."""
    busy = {
        event["conn"]
        for event in events
        if b"is already active" in bytes.fromhex(event.get("hex", ""))
        or b"reader worker failed" in bytes.fromhex(event.get("hex", ""))
    }
    return [event for event in events if event["conn"] not in busy]


def test_every_refusal_has_the_recorded_fields() -> None:
    _, events = read("session_errors")
    events = [event for event in events if event["conn"] not in NEEDS_SQL]
    found = recording.load(GOLDEN / "session_serial.jsonl.gz")
    backend = Replay(found, any_slot=False, other_databases=["shop_ora"])
    backend._slots["sess_slot_err"] = EmulatedSlot(
        "sess_slot_err", "mppdb_decoding", "shop", found.end
    )

    with playing("session_errors", events, backend) as player:
        player.play(events)

    assert player.compared > 35 * 20


def test_a_status_that_meets_the_end_does_not_throw_last_words_away() -> None:
    """A closed socket would reset the connection, and with it what is still on its way."""
    missing_slot = 8
    _, events = read("session_errors")
    events = [event for event in events if event["conn"] == missing_slot]
    assert events.pop()["note"] == "client closes the TCP connection"
    backend = Replay(recording.load(GOLDEN / "session_serial.jsonl.gz"), any_slot=False)
    status = status_update(write=Lsn(1), flush=Lsn(0), sent_at_us=0, dialect=OPENGAUSS)

    with playing("session_errors", events, backend) as player:
        player.play(events)  # to the end of what the server says
        for _ in range(2):  # the second finds out what became of the first
            player.connection(missing_slot).sendall(copy_data(status))


def test_a_damaged_recording_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "damaged.jsonl"
    file.write_text(json.dumps({"kind": "header"}) + "\n{\n")

    with pytest.raises(recording.DamagedRecording, match="line 2"):
        recording.load(file)
