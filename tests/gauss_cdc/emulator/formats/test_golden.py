"""The encoders print what a real server sent, byte by byte, from what was really done."""

import pytest

from gauss_cdc.emulator.formats import encoder
from gauss_cdc.emulator.model import PROFILES, Sent
from tests.gauss_cdc.emulator.formats.recordings import MODES, WORKLOADS, recording
from tests.gauss_cdc.emulator.formats.truth import transactions


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_done_becomes_what_was_sent(workload: str, mode: str) -> None:
    recorded = recording(workload, mode)
    stream = encoder(recorded.mode, PROFILES["og7"], recorded.encoding)

    sent: list[Sent] = []
    for transaction in transactions(workload):
        sent += stream.feed(transaction)
    # All batched recordings pause once, at their end: what is left over goes out then.
    sent += stream.idle()

    for number, (ours, theirs) in enumerate(zip(sent, recorded.sent, strict=False)):
        assert ours == theirs, number
    assert len(sent) == len(recorded.sent)
