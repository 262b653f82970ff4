"""In the order of CSNs each commit has a greater one; what does not would be lost at a restart."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.model import Transaction
from producer.core.changes import Begin
from producer.errors import CsnOrderBroken
from producer.sources.gauss.csn_order import OneBehind
from producer.wire.replication import Received
from schemas.positions import Lsn
from tests.producer.native.gauss_twins import agree
from tests.producer.native.twins import World
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, capture
from tests.producer.sources.gauss.test_held import (
    ALL,
    CHANGES,
    ITEM,
    STYLES,
    gauss_of,
    mode_of,
    sent,
    transaction,
)
from tests.producer.sources.gauss.test_stream import held_for, messages_of


def of_csns(*csns: int) -> list[Transaction]:
    """Commits that follow each other in the log."""
    made = [transaction(1_000 + 100 * at, *CHANGES) for at in range(len(csns))]
    return [replace(one, csn=csn) for one, csn in zip(made, csns, strict=True)]


@pytest.mark.parametrize(("csns", "resume"), [
    pytest.param((100, 100), 0, id="two pieces"),
    pytest.param((100, 110, 105), 0, id="one that comes late"),
    pytest.param((100, 100), 100, id="a piece of what was delivered"),
])  # fmt: skip
@pytest.mark.parametrize("read", [1, 1 << 20])
@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_a_commit_that_is_not_above_the_one_before_stops(
    style: str, is_batch: bool, read: int, csns: tuple[int, ...], resume: int
) -> None:
    mode = mode_of(style, is_batch, output_order=1)
    messages = sent(of_csns(*csns, 200), mode, "gaussdb")

    taken = agree(World([ITEM], resume=resume), messages, gauss_of(mode), ALL, read)

    assert taken.error.startswith("CsnOrderBroken: the source's CSNs do not rise")
    assert f"csn={csns[-1]}, before={max(csns)}" in taken.error
    assert "output-order = 0" in taken.error
    assert len(taken.records) <= 4 * (len(csns) - 1)


@pytest.mark.parametrize(("style", "is_batch"), STYLES)
def test_commits_that_rise_are_walked(style: str, is_batch: bool) -> None:
    mode = mode_of(style, is_batch, output_order=1)
    messages = sent(of_csns(100, 101, 400, 401), mode, "gaussdb")

    taken = agree(World([ITEM], resume=100), messages, gauss_of(mode), ALL, 1 << 20)

    assert not taken.error
    assert taken.walked_rows >= 2 * 4


@pytest.mark.parametrize("name", CAPTURES)
def test_commits_of_a_recorded_session_rise(name: str) -> None:
    """No server in the order of CSNs was at hand: sessions that commit one by one have it, too."""
    read = capture(name)

    out = [message for _, message in held_for(read, by_csn=True).messages(messages_of(read))]

    csns = [message.csn for message in out if isinstance(message, Begin)]
    assert csns == sorted({csn for csn in csns if csn is not None})


class Session:
    """What a session is asked to send."""

    received_end = Lsn(7)

    def __init__(self) -> None:
        self.sent: list[tuple[int, bool]] = []

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        raise AssertionError(timeout, wake_fds)

    def has_input(self) -> bool:
        return True

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:
        self.sent.append((flush, reply))


def test_a_commit_is_confirmed_once_a_later_one_came() -> None:
    session, newest = Session(), [0]
    behind = OneBehind(session, lambda: newest[0])

    for csn, durable in ((0, 90), (100, 90), (100, 100), (105, 100), (110, 105), (110, 110)):
        newest[0] = csn
        behind.send_status(Lsn(durable))
    behind.send_status(Lsn(0), reply=True)

    assert [at for at, _ in session.sent] == [0, 90, 90, 100, 105, 105, 105]
    assert session.sent[-1] == (105, True)
    assert (behind.received_end, behind.has_input()) == (7, True)


def test_a_restart_brings_the_newest_commit_again_and_what_followed_under_its_csn() -> None:
    """The session of the first run is confirmed below 100, so the server sends both pieces."""
    mode = mode_of("b", False, output_order=1)
    messages = sent(of_csns(100, 100), mode, "gaussdb")
    session = Session()
    behind = OneBehind(session, lambda: 100)

    behind.send_status(Lsn(100))
    taken = agree(World([ITEM], resume=100), messages, gauss_of(mode), ALL, 1 << 20)

    assert session.sent == [(0, False)]
    assert CsnOrderBroken.__name__ in taken.error
