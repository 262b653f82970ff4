"""What [serve] may be: beyond this machine only with TLS and a login."""

from pathlib import Path

import pytest
from pydantic import ValidationError

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
