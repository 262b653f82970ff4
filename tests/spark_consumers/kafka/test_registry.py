"""The consumer's registry client: what it raises, as the real HTTP client meets it."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from schemas.errors import Verdict
from spark_consumers.errors import (
    ApplyError,
    RegistryDown,
    RegistryRefused,
    SchemaUnknown,
)
from spark_consumers.kafka.registry import registry_at
from tests.registry_answers import NO_SCHEMA

QUICK = {"max.retries": "0", "timeout": "5"}  # as text, as [registry.options] has it
ANSWERS = {
    "there": (200, b'{"schema": "\\"string\\""}'),
    "broken": (500, b"{}"),
    "busy": (503, b"no JSON"),
    "later": (429, b"{}"),
    "denied": (401, b"{}"),
    "nowhere": (404, b'{"error_code": 404, "message": "no such page"}'),
    "unknown": (404, b'{"error_code": 40403, "message": "Schema not found"}'),
    "page": (200, b"<html>"),
    **{f"nothing{n}": (200, body) for n, body in enumerate(NO_SCHEMA)},
    "another": (200, b'{"schemaType": "PROTOBUF", "schema": "syntax = \\"proto3\\";"}'),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Answers as its path says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = ANSWERS[self.path.split("/")[1]]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://user:pencil@127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("broken", RegistryDown),
        ("busy", RegistryDown),
        ("later", RegistryDown),
        ("denied", RegistryRefused),
        ("nowhere", RegistryRefused),
        ("unknown", SchemaUnknown),
        ("page", RegistryRefused),
        *((f"nothing{n}", RegistryRefused) for n in range(len(NO_SCHEMA))),
        ("another", SchemaUnknown),
    ],
)
def test_an_answer_without_a_schema_is_an_error_of_ours(
    server: str, kind: str, error: type[ApplyError]
) -> None:
    with pytest.raises(error) as caught:
        registry_at(f"{server}/{kind}", QUICK)(7)

    assert type(caught.value) is error
    assert caught.value.where["schema_id"] == 7
    assert "127.0.0.1" in str(caught.value)
    assert "pencil" not in str(caught.value)


@pytest.mark.parametrize("kind", ["page", *(f"nothing{n}" for n in range(len(NO_SCHEMA)))])
def test_an_answer_without_an_id_is_an_error_of_ours(server: str, kind: str) -> None:
    with pytest.raises(RegistryRefused, match="answer"):
        registry_at(f"{server}/{kind}", QUICK).newest("bank.public.account")


def test_a_schema_is_fetched_once(server: str) -> None:
    schema_of = registry_at(f"{server}/there", QUICK)

    assert schema_of(7) is schema_of(7)


def test_a_registry_that_is_down_passes() -> None:
    """Nothing listens, or the name does not exist: errors of the HTTP library."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    for url in (f"http://127.0.0.1:{free}", "http://registry.invalid"):
        with pytest.raises(RegistryDown, match="does not answer") as caught:
            registry_at(url, QUICK)(7)

        assert caught.value.verdict is Verdict.RETRY
        assert caught.value.where["url"] == url


def test_a_registry_that_accepts_and_never_answers_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryDown):
            registry_at(url, {"timeout": "0.2", "max.retries": "0"})(7)


@pytest.mark.parametrize(
    "options", [{"tiemout": "1"}, {"timeout": "soon"}, {"ssl.ca.location": "/nowhere"}]
)
def test_settings_that_the_client_does_not_know_are_said(options: dict[str, str]) -> None:
    with pytest.raises(RegistryRefused, match=r"\[registry\]"):
        registry_at("http://127.0.0.1:1", options)
