"""Reading without a broker ends."""

import pytest

from producer.errors import BrokerDown
from producer.kafka.cuts_reader import CutsReader


def test_bounds_without_a_broker_end(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.kafka.cuts_reader._ASK", 0.5)
    reader = CutsReader({"bootstrap.servers": nobody}, "bank.cuts")
    try:
        for ask in (reader.bounds, reader.lso):
            with pytest.raises(BrokerDown):
                ask()
        assert reader.read(5, 5) == []
    finally:
        reader.close()
