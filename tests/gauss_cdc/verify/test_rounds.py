"""What is refused before anything is waited for."""

import pytest

from gauss_cdc.config import Config, ConfigError
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.verify.request import Request, VerifyObserver
from gauss_cdc.verify.rounds import verify
from spark_consumers.errors import LedgerUnseen
from spark_consumers.sinks.base import Inspector, Kind
from spark_consumers.sinks.kinds import SINKS

NOBODY = VerifyObserver(print, lambda *_: None, lambda _: pytest.fail("it waits"))


def configured(kind: str, dsn: str) -> Config:
    return Config.model_validate(
        {
            "source": {"dsn": "postgresql://cdc@127.0.0.1:1/bank"},
            "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "127.0.0.1:1"}},
            "registry": {"url": "http://127.0.0.1:1"},
            "target": {"kind": kind, "dsn": dsn},
        }
    )


def test_a_kind_that_gives_no_rows_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Kind(lambda _: pytest.fail("a sink"), lambda _: Inspector())
    monkeypatch.setitem(SINKS, "bare", bare)

    with pytest.raises(ConfigError, match="does not give its rows"):
        verify(configured("bare", "somewhere"), Request(), NOBODY)


def test_a_lake_whose_ledger_only_spark_can_read_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Endpoints, "cuts", lambda _: None)  # there is no topic yet
    with pytest.raises(LedgerUnseen, match="can be read by Spark only"):
        verify(configured("iceberg", "a_catalog"), Request(), NOBODY)
