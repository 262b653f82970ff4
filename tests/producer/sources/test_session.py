"""What an ordinary session bears of a server; the rest is in test_gauss.py."""

import pytest

from producer.errors import DecodeError
from producer.sources.session import Session
from producer.wire.protocol import Frame


def test_settings_that_a_server_reports_without_end_stop() -> None:
    session = Session(None, None)

    for _ in range(2):  # what is told again takes no room
        for n in range(1000):
            session.note(Frame("S", b"name_%d\0value\0" % n))
    with pytest.raises(DecodeError):
        session.note(Frame("S", b"one more\0value\0"))

    assert len(session.parameters) == 1000
