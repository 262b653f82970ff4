"""Where the history of a standby that is read takes another way."""

from collections.abc import Callable

import pytest

from producer.core.takeover.history import OneHistory
from producer.errors import ConnectionLost
from producer.wire.replication import Received
from schemas.positions import Lsn


class Standby:
    """A server that is promoted while something is done with it."""

    def __init__(self) -> None:
        self.timeline = 1

    def said(self) -> tuple[str, int]:
        return "4711", self.timeline

    def promoted_in(self, found: Received | None) -> Callable[[], Received | None]:
        def done() -> Received | None:
            self.timeline += 1
            return found

        return done


MESSAGES = Received(messages=[(1, 1, b"B")])


@pytest.mark.parametrize("found", [MESSAGES, Received(keepalive_end=Lsn(8))])
def test_nothing_is_taken_of_a_read_in_which_a_standby_was_promoted(found: Received) -> None:
    standby = Standby()
    history = OneHistory(standby.said)

    assert history.read(lambda: found) is found
    with pytest.raises(ConnectionLost, match="promoted") as caught:
        history.read(standby.promoted_in(found))  # type: ignore[arg-type]
    assert (caught.value.where["timeline"], caught.value.where["before"]) == (2, 1)


def test_a_read_that_brings_nothing_asks_for_nothing() -> None:
    standby = Standby()
    history = OneHistory(standby.said)

    assert history.read(standby.promoted_in(Received()))  # type: ignore[arg-type]


def test_a_slot_is_of_the_history_that_was_there_before() -> None:
    standby = Standby()
    history = OneHistory(standby.said)

    assert history.made(lambda: MESSAGES) is MESSAGES
    assert history.made(standby.promoted_in(None)) is None  # it is not made yet
    with pytest.raises(ConnectionLost, match="promoted"):
        history.made(lambda: MESSAGES)
