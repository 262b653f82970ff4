"""Kafka's security settings in the words of its Java client; real brokers: tests/integration."""

import ctypes
import os
from pathlib import Path

import confluent_kafka.cimpl
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from spark_consumers.api import Options
from spark_consumers.errors import SettingRefused
from spark_consumers.security import (
    TABLE,
    java_client,
    java_properties,
    portable,
    with_secrets,
)
from tests.certificates import authority, written

BROKER = {"bootstrap.servers": "b:9093"}
SCRAM = {
    **BROKER,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "cdc",
    "sasl.password": "pencil",
}
OAUTH = {
    **BROKER,
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "cdc",
    "sasl.oauthbearer.client.secret": 'a"b',
    "sasl.oauthbearer.scope": "kafka read",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=x",
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}


def test_names_and_spellings_of_librdkafka_are_java_s() -> None:
    assert java_client({**SCRAM, "security.protocol": "sasl_ssl", "linger.ms": 5}) == {
        "kafka.bootstrap.servers": "b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
        ' required username="cdc" password="pencil";',
    }
    assert java_client({"metadata.broker.list": "b:9"}) == {"kafka.bootstrap.servers": "b:9"}


@pytest.mark.parametrize(
    ("secret", "written"),
    [
        ('se"cret', r'"se\"cret"'),
        ("back\\slash", r'"back\\slash"'),
        ("semi;colon=equals", '"semi;colon=equals"'),
        ("it's", '"it\'s"'),
        ("ключ-💚", '"ключ-💚"'),
        ("line\nend\r", r'"line\nend\r"'),
        ("// no comment /* at all", '"// no comment /* at all"'),
    ],
)
def test_a_password_of_any_characters_is_quoted_as_java_reads_it(secret: str, written: str) -> None:
    jaas = java_client({**SCRAM, "sasl.password": secret})["kafka.sasl.jaas.config"]

    assert jaas.endswith(f" password={written};")


def test_a_certificate_travels_as_text(tmp_path: Path) -> None:
    root = authority()
    own = root.issue("cdc")
    locked = {
        "ssl.ca.location": str(written(tmp_path / "root.crt", root.pem)),
        "ssl.certificate.location": str(written(tmp_path / "own.crt", own.pem)),
        "ssl.key.location": str(written(tmp_path / "own.key", own.key_pem("pencil"))),
        "ssl.key.password": "pencil",
    }
    inline = {
        "ssl.ca.pem": root.pem,
        "ssl.certificate.pem": own.pem,
        "ssl.key.pem": own.key_pem(pkcs1=True),
    }
    store = pkcs12.serialize_key_and_certificates(
        None, own.key, own.certificate, None, serialization.BestAvailableEncryption(b"pencil")
    )
    (tmp_path / "own.p12").touch(mode=0o600)
    (tmp_path / "own.p12").write_bytes(store)
    stored = {
        "ssl.ca.pem": root.pem,
        "ssl.keystore.location": str(tmp_path / "own.p12"),
        "ssl.keystore.password": "pencil",
    }

    for settings in (locked, inline, stored):
        assert java_client({**BROKER, "security.protocol": "ssl", **settings}) == {
            "kafka.bootstrap.servers": "b:9093",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": root.pem,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": own.pem,
            "kafka.ssl.keystore.key": own.key_pem(),
        }


def test_a_token_is_asked_for_at_the_address_that_the_jvm_allows() -> None:
    options = java_client(OAUTH)

    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    assert options["kafka.sasl.login.callback.handler.class"].endswith(
        ".oauthbearer.OAuthBearerLoginCallbackHandler"
    )
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        r' clientId="cdc" clientSecret="a\"b" scope="kafka read"'
        ' extension_logicalCluster="lkc-1" extension_pool="x";'
    )
    assert java_properties(OAUTH) == {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://login/token"
    }
    assert java_properties(SCRAM) == {}
    claim = {"sasl.oauthbearer.sub.claim.name": "azp"}
    assert java_client({**OAUTH, **claim}) == {**options, f"kafka.{next(iter(claim))}": "azp"}


def test_a_program_s_login_that_others_could_read_has_to_be_allowed() -> None:
    plain = {**SCRAM, "sasl.mechanism": "PLAIN", "security.protocol": "sasl_plaintext"}
    for client, options in ((plain, {}), (SCRAM, {"basic.auth.user.info": "me:pencil"})):
        with pytest.raises(SettingRefused, match=r"without TLS.*allow_plaintext_login"):
            Options(client, "http://registry", "bank", options)
        Options(client, "http://registry", "bank", options, allow_plaintext_login=True)
    Options(plain, lambda _: {}, "bank", allow_plaintext_login=True)


def test_names_that_need_not_match_are_said_as_java_says_it() -> None:
    options = java_client({**SCRAM, "ssl.endpoint.identification.algorithm": "none"})

    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({**SCRAM, "ssl.crl.location": "/crl"}, "ssl.crl.location"),
        ({**SCRAM, "ssl.something.new": "x"}, "ssl.something.new"),
        ({**SCRAM, "sasl.something.new": "x"}, "sasl.something.new"),
        ({**SCRAM, "ssl.curves.list": "X25519"}, "ssl.curves.list"),
        ({**SCRAM, "enable.ssl.certificate.verification": False}, "enable.ssl.certificate"),
        ({**SCRAM, "ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}, "ssl.cipher.suites"),
        ({**SCRAM, "ssl.certificate.pem": "x"}, "ssl.key.location"),
        ({**SCRAM, "ssl.key.pem": "x"}, "ssl.certificate.location"),
        ({**SCRAM, "ssl.ca.location": "/nowhere"}, "ssl.ca.location"),
        ({**SCRAM, "ssl.ca.location": "/tmp"}, "ssl.ca.location"),
        ({**SCRAM, "sasl.password": ""}, "sasl.password"),
        ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({**BROKER, "security.protocol": "sasl_ssl"}, "sasl.mechanism"),  # GSSAPI by default
        ({**BROKER, "security.protocol": "tls"}, "security.protocol"),
        ({**OAUTH, "sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method"),
        ({**OAUTH, "sasl.oauthbearer.client.secret": ""}, "sasl.oauthbearer.client.secret"),
        ({**OAUTH, "sasl.oauthbearer.grant.type": "urn:x"}, "sasl.oauthbearer.grant.type"),
        ({**OAUTH, "sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config"),
        ({**OAUTH, "sasl.oauthbearer.extensions": 'a"b=c'}, "sasl.oauthbearer.extensions"),
        ({**OAUTH, "enable.sasl.oauthbearer.unsecure.jwt": True}, "enable.sasl.oauthbearer"),
        ({**OAUTH, "oauth_cb": print}, "oauth_cb"),
        ({**SCRAM, "kafka.isolation.level": "read_uncommitted"}, "kafka.isolation.level"),
        ({**SCRAM, "kafka.group.id": "mine"}, "kafka.group.id"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(
    settings: dict[str, object], setting: str
) -> None:
    with pytest.raises(SettingRefused) as caught:
        java_client(settings)

    assert str(caught.value.where["setting"]).startswith(setting)
    assert caught.value.hint
    assert "pencil" not in str(caught.value)


def library_s_names() -> list[str]:
    """Names of all settings of librdkafka that look like security, by the library itself."""
    library, c = ctypes.CDLL(confluent_kafka.cimpl.__file__), ctypes.CDLL(None)
    c.tmpfile.restype = ctypes.c_void_p
    file = ctypes.c_void_p(c.tmpfile())
    library.rd_kafka_conf_properties_show(file)
    c.fflush(file)
    lines = os.pread(c.fileno(file), 1 << 20, 0).decode().splitlines()
    c.fclose(file)
    names = {line.split("|")[0].strip() for line in lines if "|" in line}
    words = ("ssl", "sasl", "security", "https", "oauth", "kerberos", "cert", "jaas")
    return sorted(name for name in names if any(word in name for word in words))


@pytest.mark.parametrize("name", library_s_names())
def test_no_security_setting_of_the_library_is_passed_over(name: str) -> None:
    rows = {row.librdkafka: row for row in TABLE}
    aliases = {f"sasl.oauthbearer.client.credentials.client.{x}": x for x in ("id", "secret")}
    row = rows[f"sasl.oauthbearer.client.{aliases[name]}" if name in aliases else name]

    if not row.refused:
        assert row.java
        return
    for client in (SCRAM, OAUTH, BROKER):
        with pytest.raises(SettingRefused) as caught:
            java_client({**client, name: "pencil"})
        assert caught.value.where["setting"] == name
        assert "[spark.options]" in caught.value.hint
        assert "pencil" not in str(caught.value)


def test_an_area_of_which_the_java_client_s_own_settings_are_given_is_its_owner_s() -> None:
    jaas = "com.sun.security.auth.module.Krb5LoginModule required;"
    own = {"kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.jaas.config": jaas}
    kerberos = {"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/k", "ssl.ca.pem": "CA"}

    assert java_client({**BROKER, "security.protocol": "sasl_ssl", **kerberos, **own}) == {
        "kafka.bootstrap.servers": "b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CA",
        **own,
    }
    engine = {"kafka.ssl.engine.factory.class": "com.example.Engine"}
    assert java_client({**SCRAM, "ssl.crl.location": "/crl", **engine}) == {
        **java_client(SCRAM),
        **engine,
    }
    assert java_properties({"kafka.sasl.oauthbearer.token.endpoint.url": "https://x"}) == {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://x"
    }


def test_a_key_with_a_wrong_password_is_refused_without_showing_it() -> None:
    own = authority().issue("cdc")
    settings = {
        **BROKER,
        "security.protocol": "ssl",
        "ssl.certificate.pem": own.pem,
        "ssl.key.pem": own.key_pem("right one"),
        "ssl.key.password": "wrong one",
    }

    with pytest.raises(SettingRefused, match="cannot be read") as caught:
        java_client(settings)

    assert "wrong one" not in str(caught.value)
    assert caught.value.__cause__ is None


# ---------------------------------------------------------------- to executors, as librdkafka's
def test_only_what_is_no_secret_travels_in_the_open() -> None:
    planted = {row.librdkafka: f"planted-{row.librdkafka}" for row in TABLE}
    paths = {name for name in planted if name.endswith((".location", ".file"))}
    client = {name: value for name, value in planted.items() if name not in paths}

    settings, secrets = portable(client)

    del client["ssl.keystore.password"]  # there is a key besides
    assert with_secrets(settings, secrets) == client
    words = ("password", "secret", "key", "passphrase", "config", "assertion", "cb")
    seen = settings.keys() - {"sasl.kerberos.keytab"}  # a path
    assert not [name for name in seen if any(word in name for word in words)]
    assert {"sasl.username", "ssl.ca.pem", "security.protocol"} <= settings.keys()


def test_what_files_hold_travels_as_text_and_a_key_s_place_serves_who_has_it(
    tmp_path: Path,
) -> None:
    files = {"ssl.ca": "an authority", "ssl.certificate": "ours", "ssl.key": "a key"}
    places = {}
    for area, text in files.items():
        path = tmp_path / area
        path.write_text(text)
        path.chmod(0o600)
        places[f"{area}.location"] = str(path)

    settings, secrets = portable(places)

    text = {"ssl.ca.pem": "an authority", "ssl.certificate.pem": "ours"}
    assert secrets == {"ssl.key.pem": "a key"}
    assert with_secrets(settings, secrets) == {**text, **secrets}
    assert with_secrets(settings, {}) == {**text, "ssl.key.location": places["ssl.key.location"]}


def test_a_folder_of_authorities_and_functions_stay_where_they_are(tmp_path: Path) -> None:
    folder = {"ssl.ca.location": str(tmp_path)}

    assert portable({**folder, "oauth_cb": print, "kafka.sasl.jaas.config": "x"}) == (folder, {})
