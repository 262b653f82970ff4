"""The registry's client: what it refuses, and how soon it gives up."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from producer.errors import CdcError, RegistryDown, RegistryError, SchemaRefused
from producer.kafka.registry import Registry
from tests.registry_answers import NO_SCHEMA

STATUS = {
    "down": 503,
    "incompatible": 409,
    "denied": 401,
    "page": 200,
    "invalid": 422,
    "busy": 429,
    "late": 408,
    "gateway": 504,
    "nowhere": 404,
    "unknown": 404,
}
NOTHING = [f"nothing{n}" for n in range(len(NO_SCHEMA))]
UNKNOWN = b'{"error_code": 40403, "message": "Schema not found"}'
BODY = {
    "unknown": UNKNOWN,
    "another": b'{"schemaType": "PROTOBUF", "schema": "syntax = \\"proto3\\";"}',
    **dict(zip(NOTHING, NO_SCHEMA, strict=True)),
    "page": b"<html>",
    "incompatible": b'{"error_code": 409, "message": "no"}',
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Answers as its path says."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            kind = self.path.split("/")[1]
            self.send_response(STATUS.get(kind, 200))
            self.end_headers()
            self.wfile.write(BODY.get(kind, b"{}"))

        def do_GET(self) -> None:
            kind = self.path.split("/")[1]
            self.send_response(STATUS.get(kind, 200))
            self.end_headers()
            self.wfile.write(BODY.get(kind, b'{"mode": "%s"}' % kind.upper().encode()))

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("down", RegistryDown),
        ("incompatible", SchemaRefused),
        ("denied", RegistryError),
        ("page", RegistryError),
        ("invalid", SchemaRefused),
        ("busy", RegistryDown),
        ("late", RegistryDown),
        ("gateway", RegistryDown),
        ("nowhere", RegistryError),
        *((kind, RegistryError) for kind in NOTHING),
    ],
)
def test_answers_become_errors_that_say_what_to_do(
    server: str, kind: str, error: type[CdcError]
) -> None:
    registry = Registry(f"{server}/{kind}")

    with pytest.raises(error) as caught:
        registry.register("bank.public.account-value", '"string"')

    assert type(caught.value) is error
    assert "bank.public.account-value" in str(caught.value)
    registry.close()


def test_a_registry_that_accepts_and_never_answers_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://user:pencil@127.0.0.1:{silent.getsockname()[1]}"
        registry = Registry(url, {"timeout": "0.2", "max.retries": "1"})

        with pytest.raises(RegistryDown) as caught:
            registry.register("s", '"string"')

        assert "pencil" not in str(caught.value)
        registry.close()


def test_settings_that_the_client_does_not_know_are_reported() -> None:
    for options in ({"tiemout": "1"}, {"timeout": "soon"}, {"ssl.ca.location": "/nowhere"}):
        with pytest.raises(RegistryError, match=r"\[registry\]"):
            Registry("http://127.0.0.1:1", options)


def test_a_record_that_is_not_framed_is_none_of_ours() -> None:
    registry = Registry("http://127.0.0.1:1")
    for value in (b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x"):
        with pytest.raises(ValueError, match="framing"):
            registry.read_cut(value)
    registry.close()


@pytest.mark.parametrize("kind", ["down", "busy", "gateway", "nowhere", "denied", *NOTHING])
def test_a_registry_that_does_not_answer_is_no_reason_to_pass_over_a_record(
    server: str, kind: str
) -> None:
    registry = Registry(f"{server}/{kind}", {"max.retries": "0"})
    with pytest.raises(RegistryError):
        registry.read_cut(b"\0\0\0\0\7payload")
    registry.close()


def test_an_id_that_the_registry_does_not_know_is_nobodys(server: str) -> None:
    registry = Registry(f"{server}/unknown")
    with pytest.raises(ValueError, match="schema"):
        registry.read_cut(b"\0\0\0\0\7payload")
    assert registry.unknown == 7
    registry.close()


def test_a_schema_of_another_language_is_nobodys(server: str) -> None:
    registry = Registry(f"{server}/another")
    with pytest.raises(ValueError, match="another one"):
        registry.read_cut(b"\0\0\0\0\7payload")
    registry.close()


@pytest.mark.parametrize("kind", NOTHING)
def test_an_answer_to_a_question_that_is_none_is_an_error_of_ours(server: str, kind: str) -> None:
    registry = Registry(f"{server}/{kind}")
    for ask in (registry.has, registry.would_refuse):
        with pytest.raises(RegistryError, match="answer"):
            ask("bank.public.account-value", '"string"')
    with pytest.raises(RegistryError, match="answer"):
        registry.is_read_only()
    registry.close()


@pytest.mark.parametrize(
    ("kind", "read_only"),
    [("readonly", True), ("readonly_override", True), ("readwrite", False), ("nowhere", False)],
)
def test_a_registry_says_whether_it_takes_schemas(
    server: str, kind: str, *, read_only: bool
) -> None:
    registry = Registry(f"{server}/{kind}")

    assert registry.is_read_only() is read_only
    registry.close()
