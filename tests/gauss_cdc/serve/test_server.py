"""Who may read what over HTTP: words for everybody, the rest for who has a token or certificate."""

import base64
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gauss_cdc import logs
from gauss_cdc.config_serve import ServeSection
from gauss_cdc.errors import ConfigError
from gauss_cdc.serve import server
from gauss_cdc.serve.server import serve
from tests.certificates import Certificate, authority, written

TOKEN = "a-tökén-of-one-test"


class One(Collector):
    """A collector with one value."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("one", "A number", value=1)


def served(**settings: object) -> str:
    section = ServeSection.model_validate({"listen": "127.0.0.1:0", **settings})
    probes = {"/healthz": lambda: "alive", "/readyz": lambda: "behind", "/wait": lambda: "standby"}
    return serve(section, One(), probes, {"/page": page})


def page(_: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/html")])
    return [b"<p>"]


def ask(
    url: str,
    path: str,
    token: str = "",
    context: ssl.SSLContext | None = None,
    **headers: str | bytes,
) -> tuple[int, str]:
    parts = urlsplit(url)
    port = parts.port
    line = (
        HTTPSConnection("localhost", port, context=context, timeout=30)
        if parts.scheme == "https"
        else HTTPConnection("127.0.0.1", port, timeout=30)
    )
    if token:
        headers["Authorization"] = f"Bearer {token}".encode()
    with closing(line):
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()


def test_probes_are_one_word_each() -> None:
    url = served(token=TOKEN)

    assert ask(url, "/healthz") == (200, "alive\n")
    assert ask(url, "/readyz") == (503, "behind\n")
    assert ask(url, "/wait") == (200, "standby\n")
    assert ask(url, "/") == ask(url, "/metrics/x") == (404, "not found\n")


def test_metrics_need_the_token_in_a_header() -> None:
    url = served(token=TOKEN)

    refused = (401, "unauthorized\n")
    assert ask(url, "/metrics") == ask(url, "/metrics", "a-tökén-of-one-tesT") == refused
    assert ask(url, "/metrics?token=a-t%C3%B6k%C3%A9n-of-one-test") == refused
    assert ask(url, "/metrics", TOKEN[:-1]) == ask(url, "/metrics", TOKEN + "x") == refused
    status, text = ask(url, "/metrics", TOKEN)
    assert (status, "one 1.0" in text) == (200, True)


def test_without_a_token_this_machine_reads_metrics() -> None:
    assert ask(served(), "/metrics")[0] == 200


def test_a_browser_sends_the_token_as_a_password() -> None:
    url = served(token=TOKEN)

    def login(words: str) -> str:
        return f"Basic {base64.b64encode(words.encode()).decode()}"

    assert ask(url, "/page", Authorization=login(f"anybody:{TOKEN}")) == (200, "<p>")
    for wrong in (login(f"{TOKEN}:x"), login(f"x:{TOKEN}x"), login(TOKEN), "Basic ?", "Basic"):
        assert ask(url, "/page", Authorization=wrong)[0] == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost", 200), ("127.0.0.1:9", 200), ("[::1]:9187", 200)),
        *(("rebound.example", 403), ("rebound.example:9187", 403), ("127.0.0.1.example", 403)),
    ],
)
def test_a_name_that_others_may_point_to_us_is_refused(host: str, status: int) -> None:
    """A page of theirs reads what its own name gives."""
    url = served()
    assert [ask(url, path, Host=host)[0] for path in ("/page", "/metrics")] == [status] * 2
    assert ask(url, "/healthz", Host=host)[0] == 200


def test_the_newest_lines_are_read_as_metrics_are() -> None:
    url = served(token=TOKEN)
    logs.of_service()
    try:
        logging.getLogger("gauss_cdc").info("password=pencil-of-a-test")
    finally:
        logging.getLogger().removeHandler(logs._newest)
        logs.set_up()

    assert ask(url, "/log")[0] == 401
    _, said = ask(url, "/log", TOKEN)
    assert said.endswith("INFO    gauss_cdc: password=**********\n")


@pytest.fixture
def root() -> Certificate:
    return authority()


@pytest.fixture
def files(root: Certificate, tmp_path: Path) -> dict[str, object]:
    server = root.issue("localhost", "localhost")
    return {
        "certificate": written(tmp_path / "server.crt", server.pem),
        "key": written(tmp_path / "server.key", server.key_pem()),
    }


def client(root: Certificate, tmp_path: Path, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=root.pem)
    if own is not None:
        pair = written(tmp_path / "client.pem", own.pem + own.key_pem())
        context.load_cert_chain(pair)
    return context


def test_tls_with_a_token(root: Certificate, files: dict[str, object], tmp_path: Path) -> None:
    url = served(token=TOKEN, **files)
    context = client(root, tmp_path)

    assert url.startswith("https://")
    assert ask(url, "/healthz", context=context) == (200, "alive\n")
    assert ask(url, "/metrics", context=context)[0] == 401
    assert ask(url, "/metrics", TOKEN, context)[0] == 200
    with pytest.raises(OSError):  # noqa: PT011  closed, or reset
        ask(url.replace("https", "http"), "/metrics", TOKEN)


def test_tls_with_a_client_s_certificate(
    root: Certificate, files: dict[str, object], tmp_path: Path
) -> None:
    clients = authority("Clients")
    ca = written(tmp_path / "clients.crt", clients.pem)
    url = served(**files, **{"client-ca": ca})

    nobody = client(root, tmp_path)
    assert ask(url, "/readyz", context=nobody) == (503, "behind\n")
    assert ask(url, "/metrics", context=nobody)[0] == 401
    known = client(root, tmp_path, clients.issue("prometheus"))
    assert ask(url, "/metrics", context=known)[0] == 200
    stranger = client(root, tmp_path, root.issue("prometheus"))
    with pytest.raises(OSError):  # noqa: PT011  refused in the handshake, or behind it
        ask(url, "/metrics", context=stranger)


def test_clients_that_never_begin_tls_keep_nobody_out(
    root: Certificate, files: dict[str, object], tmp_path: Path
) -> None:
    url = served(token=TOKEN, **files)
    port = urlsplit(url).port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]

    assert ask(url, "/metrics", TOKEN, client(root, tmp_path))[0] == 200

    for one in silent:
        one.close()


@pytest.mark.parametrize("is_secured", [False, True])
def test_clients_that_never_ask_make_room_for_one_that_does(
    root: Certificate,
    files: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_secured: bool,
) -> None:
    """A probe that waited for the patience with each of them would have the program restarted."""
    monkeypatch.setattr(server, "_SILENT", 60.0)
    monkeypatch.setattr(server._Request, "timeout", 60.0)
    url = served(token=TOKEN, **(files if is_secured else {}))
    context = client(root, tmp_path) if is_secured else None
    port = urlsplit(url).port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]

    for _ in range(3):
        assert ask(url, "/healthz", context=context) == (200, "alive\n")

    for one in silent:
        one.close()


def test_what_others_could_read_is_not_served() -> None:
    section = ServeSection(listen="0.0.0.0:0")

    with pytest.raises(ConfigError, match=r"serve\.listen: 0\.0\.0\.0:0 is reached from outside"):
        serve(section, One(), {}, {})


def test_a_port_in_use_is_named() -> None:
    port = urlsplit(served()).port

    with pytest.raises(OSError, match="in use") as error:
        served(listen=f"127.0.0.1:{port}")
    assert error.value.filename == f"127.0.0.1:{port}"
