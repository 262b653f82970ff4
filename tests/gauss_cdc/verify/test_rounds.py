"""What is refused before anything is waited for, and what a round leaves to the next one."""

from collections.abc import Collection
from typing import Any

import pytest

from gauss_cdc.config import Config, ConfigError
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc.verify import rounds
from gauss_cdc.verify.report import TableReport
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


def test_a_table_that_goes_between_two_rounds_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Collection[str] | None] = []
    notes: list[str] = []

    def one(_config: Any, _request: Any, _observer: Any, wanted: Any, _stack: Any) -> Any:
        asked.append(wanted)
        if len(asked) > 1:
            return []
        return [
            TableReport("public.a", undecided="", is_passing=False),
            TableReport("public.staging", undecided="the stream has not", is_passing=True),
        ]

    monkeypatch.setattr(rounds, "_round", one)
    observer = VerifyObserver(notes.append, lambda *_: None, lambda _: False)

    found = verify(configured("postgres", "postgresql://127.0.0.1:1/t"), Request(), observer)

    assert [report.table for report in found or ()] == ["public.a"]
    assert asked == [None, ["public.staging"]]
    assert notes[-1] == "public.staging is gone: it is not compared"
