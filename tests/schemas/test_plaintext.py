"""Which logins others could read on the network."""

import pytest

from schemas.plaintext import brokers, is_loopback, of_kafka, of_registry

PLAIN = {
    "bootstrap.servers": "kafka:9092",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
}
OAUTH = {**PLAIN, "sasl.mechanism": "OAUTHBEARER"}
TOKEN = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = {"basic.auth.user.info": "user:pencil"}


@pytest.fixture(autouse=True)
def without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("servers", "hosts"),
    [
        ("kafka", ["kafka"]),
        ("kafka:9092, SASL_PLAINTEXT://[::1]:9093,", ["kafka", "::1"]),
        ("[2001:db8::1]:9092,10.0.0.1:1", ["2001:db8::1", "10.0.0.1"]),
    ],
)
def test_brokers_are_found_in_every_form(servers: str, hosts: list[str]) -> None:
    assert brokers({"bootstrap.servers": servers}) == hosts
    assert brokers({"metadata.broker.list": servers}) == hosts
    # librdkafka takes the one that it is given last.
    assert brokers({"bootstrap.servers": "::1", "metadata.broker.list": servers})[1:] == hosts


@pytest.mark.parametrize(
    ("client", "settings"),
    [
        (PLAIN, ["security.protocol"]),
        (OAUTH, ["security.protocol"]),
        ({**PLAIN, "security.protocol": "SASL_PLAINTEXT"}, ["security.protocol"]),
        ({**PLAIN, "sasl.mechanism": "", "sasl.mechanisms": "plain"}, ["security.protocol"]),
        # librdkafka takes blanks around a value.
        (
            {**PLAIN, "security.protocol": " sasl_plaintext", "sasl.mechanism": " PLAIN"},
            ["security.protocol"],
        ),
        # One that is not this machine is enough.
        ({**PLAIN, "bootstrap.servers": "localhost:9092,kafka:9092"}, ["security.protocol"]),
        ({**PLAIN, "bootstrap.servers": "localhost:9092,[::1]:9093,127.0.0.1"}, []),
        ({**PLAIN, "security.protocol": "sasl_ssl"}, []),
        ({**PLAIN, "security.protocol": "plaintext"}, []),  # it logs in nowhere
        ({**PLAIN, "sasl.mechanism": "SCRAM-SHA-256"}, []),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, []),
        ({**OAUTH, "security.protocol": "sasl_ssl", TOKEN: "http://idp/token"}, [TOKEN]),
        ({**OAUTH, "security.protocol": "sasl_ssl", TOKEN: "https://idp/token"}, []),
        ({**OAUTH, "security.protocol": "sasl_ssl", TOKEN: "http://127.0.0.1:1/t"}, []),
        ({**PLAIN, "security.protocol": "sasl_ssl", TOKEN: "http://idp/token"}, []),
    ],
)
def test_logins_that_a_reader_of_the_network_could_use(
    client: dict[str, str], settings: list[str]
) -> None:
    assert [name for name, _ in of_kafka(client)] == settings


@pytest.mark.parametrize(
    ("own", "settings"),
    [
        # The Java client's login is its owner's; what it does not say is librdkafka's.
        ({"kafka.sasl.mechanism": "PLAIN"}, ["kafka.security.protocol"]),
        ({"kafka.sasl.mechanism": "SCRAM-SHA-512"}, []),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_SSL"}, []),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.bootstrap.servers": "localhost:9092"}, []),
    ],
)
def test_the_java_client_s_own_settings_are_judged_too(
    own: dict[str, str], settings: list[str]
) -> None:
    scram = {**PLAIN, "sasl.mechanism": "", "sasl.mechanisms": "SCRAM-SHA-256"}

    assert [name for name, _ in of_kafka({**scram, **own})] == settings


@pytest.mark.parametrize(
    ("url", "options", "settings"),
    [
        ("http://registry:8081", CREDENTIALS, ["url"]),
        ("HTTP://registry:8081/apis", CREDENTIALS, ["url"]),
        ("http://localhost:8081,http://registry:8081", CREDENTIALS, ["url"]),
        ("http://user:pencil@registry:8081", {}, ["url"]),
        ("http://registry:8081", {"bearer.auth.token": "x"}, ["url"]),
        ("http://registry:8081", {"timeout": "5"}, []),
        ("https://registry:8081", CREDENTIALS, []),
        ("http://[::1]:8081,http://127.0.0.1", CREDENTIALS, []),
        ("http://[::1]", {**CREDENTIALS, "url": "http://registry"}, ["options/url"]),
        ("http://[::1]", {**CREDENTIALS, "proxy": "http://proxy:3128"}, ["url"]),
        ("https://registry", {**CREDENTIALS, "proxy": "http://proxy:3128"}, []),
        (
            "https://registry",
            {"bearer.auth.issuer.endpoint.url": "http://idp/token"},
            ["options/bearer.auth.issuer.endpoint.url"],
        ),
    ],
)
def test_credentials_of_a_registry_without_tls(
    url: str, options: dict[str, str], settings: list[str]
) -> None:
    assert [name for name, _ in of_registry(url, options)] == settings


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_reads_what_is_sent_to_this_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://user@proxy:3128")

    ((_, said),) = of_registry("http://127.0.0.1:8081", CREDENTIALS)
    assert "sent to proxy without TLS" in said
    oauth = {**OAUTH, "security.protocol": "sasl_ssl", TOKEN: "http://[::1]:1/t"}
    assert [setting for setting, _ in of_kafka(oauth)] == [TOKEN]
    assert [*of_registry("https://registry", CREDENTIALS)] == []


@pytest.mark.parametrize("excepted", ["*", "db, 127.0.0.1", "LOCALHOST,.example"])
def test_a_host_that_no_proxy_is_for_is_judged_by_itself(
    excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    host = "localhost" if "LOCALHOST" in excepted else "127.0.0.1"

    assert [*of_registry(f"http://{host}:8081", CREDENTIALS)] == []


def test_what_is_said_names_the_host_and_no_secret() -> None:
    ((_, said),) = of_kafka({**PLAIN, "sasl.password": "pencil"})
    ((_, of),) = of_registry("http://user:pencil@registry:8081", {})

    assert said == "PLAIN would send a login to kafka without TLS: use SASL_SSL, or SCRAM"
    assert "registry" in of
    assert "pencil" not in said + of


def test_a_host_is_this_machine_however_it_is_written() -> None:
    assert is_loopback("LocalHost.")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("localhost.example")
    assert brokers({"bootstrap.servers": " a:1 , b:2, "}) == ["a", "b"]
