"""What `check` says of connections, and that the documentation names every setting."""

from pathlib import Path

import pytest

from gauss_cdc.config_serve import ServeSection
from gauss_cdc.inspect.protection import kafka, registry, served
from producer.sources import dsn
from schemas.findings import Level
from tests.certificates import authority, written

SETTINGS = Path(__file__).parents[3] / "docs" / "reference" / "dsn.md"


@pytest.mark.parametrize(
    ("client", "said", "level"),
    [
        ({}, "not encrypted, no login, and leaves this machine", Level.WARNING),
        ({"bootstrap.servers": "localhost:9092"}, "not encrypted, no login", Level.OK),
        (
            {"bootstrap.servers": "127.0.0.1:9092,k2:9092"},
            "not encrypted, no login, and leaves this machine",
            Level.WARNING,
        ),
        ({"security.protocol": "SSL"}, "TLS, verified, no login", Level.OK),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512"},
            "TLS, verified, SCRAM-SHA-512",
            Level.OK,
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"},
            "not encrypted, PLAIN, and leaves this machine",
            Level.WARNING,
        ),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": False},
            "TLS, not verified, no login, and leaves this machine",
            Level.WARNING,
        ),
        (
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
            "TLS, name not verified, no login, and leaves this machine",
            Level.WARNING,
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.certificate.location": "/c",
                "ssl.key.location": "/k",
            },
            "TLS, verified, client certificate",
            Level.OK,
        ),
    ],
)
def test_kafka_s_connections_are_identified_by_their_settings(
    client: dict[str, object], said: str, level: Level
) -> None:
    found = kafka({"bootstrap.servers": "k1:9092", **client})

    assert (found.what, found.level) == (said, level)


@pytest.mark.parametrize(
    ("url", "level"),
    [
        ("http://127.0.0.1:8081", Level.OK),
        ("https://registry:8081", Level.OK),
        ("http://registry:8081", Level.WARNING),
        ("https://a:8081,http://b:8081", Level.WARNING),
    ],
)
def test_a_registry_in_clear_text_is_warned_of(url: str, level: Level) -> None:
    assert registry(url).level is level


def test_the_documentation_names_every_setting_of_a_dsn() -> None:
    page = SETTINGS.read_text("utf-8")

    missing = [name for name in dsn._KNOWN if f"`{name}`" not in page]

    assert set(missing) <= {"password", "sslpassword"}  # secrets do not stand in a dsn


def test_how_probes_and_metrics_are_protected(tmp_path: Path) -> None:
    server = authority().issue("localhost", "localhost")
    certificate = written(tmp_path / "server.crt", server.pem)
    key = written(tmp_path / "server.key", server.key_pem())

    plain = served(ServeSection(listen="127.0.0.1:9187"))
    assert (plain.level, plain.what) == (Level.OK, "127.0.0.1:9187: not encrypted, no login")
    files = {"certificate": certificate, "key": key, "token": "a-token-of-one-test"}
    section = ServeSection.model_validate({"listen": "0.0.0.0:9187", **files})
    assert served(section).what == "0.0.0.0:9187: TLS, token"
    key.unlink()
    gone = served(section)
    assert (gone.level, "server.key: No such file" in gone.what) == (Level.ERROR, True)
