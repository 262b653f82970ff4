"""What [serve] may be: beyond this machine only with TLS and a login."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from gauss_cdc.config import load
from gauss_cdc.config_serve import ServeSection
from gauss_cdc.errors import ConfigError
from tests.certificates import authority, written

TOKEN = "a-token-of-one-test"
OUTSIDE = "0.0.0.0:9187"


def problems(**settings: object) -> list[str]:
    return [key for key, _ in ServeSection.model_validate(settings).problems()]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listen": "127.0.0.1:9187"},
        {"listen": "[::1]:0"},
        {"listen": "localhost:9187", "token": TOKEN},
        {"listen": OUTSIDE, "certificate": "a", "key": "b", "token": TOKEN},
        {"listen": OUTSIDE, "certificate": "a", "key": "b", "client-ca": "c"},
    ],
)
def test_what_is_served(settings: dict[str, object]) -> None:
    assert problems(**settings) == []


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"listen": OUTSIDE}, ["listen", "listen"]),
        ({"listen": OUTSIDE, "token": TOKEN}, ["listen"]),
        ({"listen": "[::]:1", "certificate": "a", "key": "b"}, ["listen"]),
        ({"listen": "metrics.example:1", "certificate": "a", "key": "b"}, ["listen"]),
        ({"certificate": "a"}, ["key"]),
        ({"key": "b"}, ["certificate"]),
        ({"client-ca": "c"}, ["certificate"]),
        ({"token": "short"}, ["token-file"]),
        ({"token-file": "empty"}, ["token-file"]),
    ],
)
def test_what_is_refused(settings: dict[str, object], keys: list[str]) -> None:
    assert problems(**settings) == keys


@pytest.mark.parametrize("listen", [":9187", "9187", "host", "host:", "a/b:1", "me@host:1", "[::1"])
def test_an_address_has_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(ValidationError, match="is not an address: write"):
        ServeSection(listen=listen)


def test_a_key_is_closed_to_others_and_has_no_password(tmp_path: Path) -> None:
    server = authority().issue("localhost", "localhost")
    certificate = written(tmp_path / "server.crt", server.pem)

    def refused(key: Path) -> str:
        with pytest.raises(ConfigError) as error:
            ServeSection(certificate=certificate, key=key).tls()
        return str(error.value)

    open_key = written(tmp_path / "open.key", server.key_pem(), mode=0o644)
    assert refused(open_key).startswith("serve.key: others may read this file: chmod 600")
    assert refused(tmp_path / "none.key").endswith("none.key: No such file or directory")
    locked = written(tmp_path / "locked.key", server.key_pem("a password"))
    assert refused(locked).startswith(f"serve.certificate: {certificate}: ")
    good = written(tmp_path / "good.key", server.key_pem())
    assert ServeSection(certificate=certificate, key=good).tls() is not None


SMALL = """\
[source]
dsn = "postgresql://cdc@db/bank"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "localhost:9092"
[registry]
url = "http://localhost:8081"
[serve]
"""


def test_every_command_refuses_what_others_could_read(tmp_path: Path) -> None:
    file = written(tmp_path / "gauss-cdc.toml", f'{SMALL}listen = "{OUTSIDE}"\n')

    with pytest.raises(ConfigError) as error:
        load(file)

    where = f"{file}:10: serve.listen: {OUTSIDE} is reached from outside: set "
    assert str(error.value).splitlines() == [
        f"{where}certificate and key",
        f"{where}token-file, or client-ca",
    ]


def test_the_token_is_read_from_its_file_or_variable_and_never_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = written(tmp_path / "token", f"{TOKEN}\n")
    file = written(tmp_path / "gauss-cdc.toml", f'{SMALL}token-file = "{held}"\n')

    loaded = load(file)
    assert loaded.serve.token.get_secret_value() == TOKEN
    assert TOKEN not in repr(loaded) + loaded.model_dump_json()
    monkeypatch.setenv("GAUSS_CDC_SERVE_TOKEN", TOKEN[::-1])
    assert load(file).serve.token.get_secret_value() == TOKEN[::-1]
    held.chmod(0o644)
    monkeypatch.delenv("GAUSS_CDC_SERVE_TOKEN")
    with pytest.raises(ConfigError, match="others may read this file"):
        load(file)
