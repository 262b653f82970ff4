"""Reading without a broker ends."""

import pytest

from producer.drivers.cuts_reader import CutsReader
from producer.errors import BrokerDown


def test_bounds_without_a_broker_end(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.drivers.cuts_reader._ASK", 0.5)
    reader = CutsReader({"bootstrap.servers": nobody}, "bank.cuts")
    try:
        for ask in (reader.bounds, reader.lso):
            with pytest.raises(BrokerDown):
                ask()
        assert reader.read(5, 5) == []
    finally:
        reader.close()
