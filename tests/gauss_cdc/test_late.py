"""A target that came late, whose configuration does not reach the source."""

import socket
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from gauss_cdc import rereads
from gauss_cdc.config import Config, load
from gauss_cdc.late import LateTables
from producer.core.ports import Wish
from producer.sources.requests import AskedAgain
from schemas.tables import TableId
from spark_consumers.cuts.ledger import LATE
from spark_consumers.model import Ledger

TOML = """\
[source]
dsn = "host=127.0.0.1 port={port} user=nobody dbname=bank"
slot = "bank"
publication = "bank"
[tables]
include = ["public.*"]
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "127.0.0.1:9092"
[registry]
url = "http://127.0.0.1:8081"
[target]
dsn = "host=127.0.0.1 dbname=copy"
name = "second"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "gauss-cdc.toml"
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        file.write_text(TOML.format(port=closed.getsockname()[1]))
    return load(file)


@pytest.mark.parametrize(
    "at", [None, Ledger("bank"), Ledger("bank", inexact={"other.a": LATE, "public.b": "a gap"})]
)
def test_who_lacks_nothing_does_not_ask(
    config: Config, caplog: pytest.LogCaptureFixture, at: Ledger | None
) -> None:
    LateTables(config, lambda: at).look(0.0)

    assert not caplog.records


def test_it_is_said_once_who_can_ask(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    late = LateTables(config, lambda: Ledger("bank", inexact={"public.a": LATE}))

    for _ in range(3):
        late.look(0.0)

    (line,) = caplog.messages
    assert line.startswith("the target began late, and cannot ask for its tables: ")
    assert line.endswith("gauss-cdc snapshot --for second")


def test_it_asks_once_what_somebody_asked_for_is_answered_without_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken back, or is the load of another target of this name, and began before."""
    asks = [AskedAgain(Wish(TableId("public", "a"), "second"), 1, datetime.now(UTC))]
    source = Mock(asked=lambda: asks)
    monkeypatch.setattr(rereads, "session", lambda _: nullcontext(source))
    late = LateTables(config, lambda: Ledger("bank", inexact={"public.a": LATE}))
    late.look(0.0)
    source.ask.assert_not_called()
    asks.clear()

    for _ in range(3):
        late.look(0.0)

    source.ask.assert_called_once_with([TableId("public", "a")], "second")
