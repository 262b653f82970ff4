"""What people bring from Spark's Kafka source, in librdkafka's names."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from spark_consumers.errors import SettingRefused
from spark_consumers.security import java_client
from spark_consumers.source.java_names import librdkafka_client

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_what_is_librdkafka_s_already_stays() -> None:
    given = {"bootstrap.servers": "b:9092", "sasl.username": "u", "ssl.ca.location": "ca.pem"}
    assert librdkafka_client(given) == given


@pytest.mark.parametrize("password", ["pencil", 'a"b\\c;d', "金 = x", "line\nbreak", "'q'"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_comes_back_as_the_java_client_gets_it(mechanism: str, password: str) -> None:
    """`java_client` writes what Java's StreamTokenizer reads."""
    client = {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "me",
        "sasl.password": password,
        "ssl.endpoint.identification.algorithm": "none",
    }
    java = {name.removeprefix("kafka."): text for name, text in java_client(client).items()}

    assert "sasl.jaas.config" in java
    assert librdkafka_client(java) == client


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN} username='me' password='pencil';",
        f'{PLAIN}\n  username="me"\n  password="pencil" ;',
        f'kafkashaded.{SCRAM} password="pencil" tokenauth="false" username=me;',
    ],
)
def test_a_login_is_read_as_people_write_it(text: str) -> None:
    found = librdkafka_client({"sasl.jaas.config": text})
    assert found == {"sasl.username": "me", "sasl.password": "pencil"}


def test_files_and_texts_of_certificates_have_other_names(tmp_path: Path) -> None:
    store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "a.p12"}
    assert librdkafka_client({**store, "ssl.keystore.password": "x"}) == {
        "ssl.keystore.location": "a.p12",
        "ssl.keystore.password": "x",
    }
    trust = {"ssl.truststore.location": "ca.pem", "ssl.truststore.password": "changeit"}
    assert librdkafka_client(trust) == {"ssl.ca.location": "ca.pem"}
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem", "ssl.key.password": "x"}
    assert librdkafka_client(pem) == {
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "x",
    }
    texts = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "MINE",
        "ssl.keystore.key": "KEY",
    }
    assert librdkafka_client(texts) == {
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "MINE",
        "ssl.key.pem": "KEY",
    }


def test_librdkafka_takes_what_was_tuned() -> None:
    java = {
        "fetch.max.wait.ms": "100",
        "request.timeout.ms": "30000",
        "receive.buffer.bytes": "65536",
        "send.buffer.bytes": "65536",
        "socket.connection.setup.timeout.max.ms": "30000",
        "max.partition.fetch.bytes": "1048576",
        "fetch.min.bytes": "1",
        "reconnect.backoff.ms": "50",
        "metadata.max.age.ms": "300000",
        "connections.max.idle.ms": "540000",
        "ssl.endpoint.identification.algorithm": "",
        "max.poll.records": "5",
        "key.deserializer": "ByteArrayDeserializer",
    }
    Consumer({"group.id": "x", **librdkafka_client(java)}).close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.truststore.location", "kafka.truststore.jks"),
        ("ssl.truststore.location", "trust.p12"),
        ("ssl.keystore.location", "keystore"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required pencil;"),
        ("sasl.jaas.config", f'{PLAIN} password="pencil";'),
        ("sasl.login.callback.handler.class", "x.Handler"),
        ("ssl.enabled.protocols", "TLSv1.3"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name_without_its_value(
    name: str, value: str
) -> None:
    with pytest.raises(SettingRefused) as refused:
        librdkafka_client({name: value})

    assert f"kafka.{name}" in str(refused.value)
    assert "pencil" not in str(refused.value)
