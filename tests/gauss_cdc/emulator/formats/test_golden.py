"""The encoders print what a real server sent, byte by byte, positions included.

Two ways lead there.  From the truth: transactions built from what was done, without
any decoder.  And from the recordings: decoded by the producer and encoded again.
Only the time of a message (sendTime) is not compared.
"""

from collections.abc import Iterable

import pytest

from gauss_cdc.emulator.formats import encoder
from gauss_cdc.emulator.model import PROFILES, Row, Sent, Transaction
from tests.gauss_cdc.emulator.formats.recordings import (
    MODES,
    SESSIONS,
    WORKLOADS,
    Recording,
    recording,
    session_recordings,
)
from tests.gauss_cdc.emulator.formats.reread import reread
from tests.gauss_cdc.emulator.formats.truth import transactions


def encoded(recorded: Recording, fed: Iterable[tuple[Transaction, bool]]) -> list[Sent]:
    """What the encoder sends; a True lets it notice that nothing was sent for a second."""
    stream = encoder(recorded.mode, PROFILES["og7"], recorded.encoding)
    sent: list[Sent] = []
    for transaction, paused in fed:
        sent += stream.feed(transaction)
        if paused:
            sent += stream.idle()
    return sent


def assert_same(ours: list[Sent], recorded: Recording) -> None:
    for number, (our, their) in enumerate(zip(ours, recorded.sent, strict=False)):
        assert our == their, number
    assert len(ours) == len(recorded.sent)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_done_becomes_what_was_sent(workload: str, mode: str) -> None:
    recorded, done = recording(workload, mode), transactions(workload)

    # A batch is cut by its size, or by a pause: these recordings pause at their end only.
    ours = encoded(recorded, ((each, each is done[-1]) for each in done))

    assert_same(ours, recorded)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_decoded_becomes_what_was_sent(workload: str, mode: str) -> None:
    recorded = recording(workload, mode)
    rows = shapes(recording(workload, "ser_mppdb")) if mode == "ser_sql" else ()

    assert_same(encoded(recorded, reread(recorded, rows)), recorded)


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_and_restarts_are_sent_again(name: str) -> None:
    # A session with sql_decoding has a twin with mppdb_decoding, which tells the types.
    twins = {"restart_serial_sql": "restart_serial_mppdb", "session_sql": "session_serial"}
    twin = session_recordings(twins.get(name, name))
    recordings = session_recordings(name)

    assert recordings
    for recorded, other in zip(recordings, twin, strict=True):
        rows = shapes(other) if name in twins else ()
        assert_same(encoded(recorded, reread(recorded, rows)), recorded)


def shapes(recorded: Recording) -> list[Row]:
    return [
        item
        for transaction, _ in reread(recorded)
        for item in transaction.items
        if isinstance(item, Row)
    ]
