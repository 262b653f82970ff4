"""Logins at a target that fail, and what is said of them: by code, whatever language it speaks."""

import socket
from collections.abc import Callable

import pytest

from gauss_cdc import target
from gauss_cdc.config import Config, load
from schemas.errors import Verdict
from spark_consumers.errors import TargetDown, TargetLogin
from spark_consumers.sinks.postgres.sink import PostgresSink

FILE = """\
[source]
dsn = "postgresql://u@127.0.0.1:1/none"
slot = "s"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "127.0.0.1:1"
[registry]
url = "http://127.0.0.1:1"
[target]
dsn = "{}"
"""


@pytest.fixture
def config(tmp_path) -> Callable[[str], Config]:
    def make(dsn: str) -> Config:
        file = tmp_path / "gauss-cdc.toml"
        file.write_text(FILE.format(dsn))
        return load(file)

    return make


def sink(config: Config) -> PostgresSink:
    return PostgresSink(target.setup(config).connect, "bank")


@pytest.mark.parametrize("role", ["nobody_such", "postgres"])
def test_a_login_that_no_retry_mends_stops_with_the_servers_words(
    postgres_url: str, config: Callable[[str], Config], role: str
) -> None:
    """Not there: the role, or the database."""
    base, _, name = postgres_url.rpartition("/")
    name = name if role != "postgres" else "nowhere_such"
    dsn = f"{base.replace('postgres@', f'{role}@')}/{name}"

    with pytest.raises(TargetLogin) as refused:
        sink(config(dsn)).start()

    assert refused.value.verdict is Verdict.STOP
    assert refused.value.exit_code == 68
    assert "such" in refused.value.what
    assert refused.value.where["sqlstate"] in {"28000", "3D000"}
    assert refused.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_a_target_that_is_not_there_passes_and_says_where(
    config: Callable[[str], Config], host: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    dsn = f"postgresql://u@{host}:{port}/d?sslmode=prefer&connect_timeout=5"

    with pytest.raises(TargetDown, match="cannot be reached") as lost:
        sink(config(dsn)).start()

    assert lost.value.verdict is Verdict.RETRY
    assert host in str(lost.value)
