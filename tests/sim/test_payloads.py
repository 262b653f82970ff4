"""The simulated server speaks as the recorded ones do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producer.sources.postgres.pgoutput import decode
from tests.sim.payloads import payload

GOLDEN = Path(__file__).parents[1] / "golden" / "pgoutput"
RECORDED = sorted(
    {
        bytes.fromhex(message["hex"])
        for path in GOLDEN.glob("*.json")
        for message in json.loads(path.read_text(encoding="utf-8"))["messages"]
    }
)


def test_recorded_messages_are_of_all_kinds() -> None:
    assert {chr(recorded[0]) for recorded in RECORDED} == set("BCDIMORTUY")


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.hex()[:20])
def test_a_decoded_message_becomes_the_bytes_of_the_server_again(recorded: bytes) -> None:
    assert payload(decode(recorded)) == recorded
