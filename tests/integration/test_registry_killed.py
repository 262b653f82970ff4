"""A `run` that is killed while a subject takes everything, in front of a real registry."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urljoin

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from gauss_cdc_lab.services import LocalServices
from producer.errors import SchemaRefused
from producer.kafka.registry import Registry
from tests.services_fixtures import open_directory

TEXT, NUMBER = '"string"', '"int"'
PROGRAM = """
from producer.kafka.registry import Registry
Registry({!r}).register_anyway({!r}, {!r}, prefix={!r})
"""


class Gate(ThreadingHTTPServer):
    """Hands requests on; the registration of a subject that takes everything never returns."""

    daemon_threads = True

    def __init__(self, registry: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.registry = registry
        self.is_open = False  # the subject takes everything
        self.reached = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gate

    def _hand_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if self.server.is_open and self.command == "POST":
            self.server.reached.set()
            threading.Event().wait()
        ask = urllib.request.Request(
            self.server.registry + self.path, body or None, method=self.command
        )
        ask.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        try:
            with urllib.request.urlopen(ask, timeout=60) as answer:
                status, said = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read()
        if b"NONE" in body and self.command == "PUT":
            self.server.is_open = True
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = _hand_on  # noqa: N815  the library's names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def own_registry() -> Iterator[str]:
    """URL of a registry that nobody else uses, and that lists no more than its two oldest subjects.

    Apicurio lists 1,000, unless told otherwise.
    """
    services = LocalServices(open_directory())
    try:
        url = services.start("registry").registry_url
        registry = Registry(url)
        for name in ("one", "two"):
            registry.register(name, NUMBER)
        place = "/apis/registry/v3/admin/config/properties/apicurio.ccompat.max-subjects"
        told = urllib.request.Request(
            urljoin(url, place),
            b'{"value": "2"}',
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(told, timeout=60):
            pass
        yield url
    finally:
        services.remove()


@pytest.fixture
def gate(own_registry: str) -> Iterator[Gate]:
    with Gate(own_registry) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("level", ["FULL_TRANSITIVE", "FORWARD"])
def test_the_next_run_gives_a_subject_its_compatibility_back(
    gate: Gate, own_registry: str, topic_prefix: str, level: str
) -> None:
    subject = f"{topic_prefix}.public.t-value"
    client = SchemaRegistryClient({"url": own_registry})
    assert sorted(client.get_subjects()) == ["one", "two"]
    client.register_schema(subject, Schema(NUMBER, "AVRO"))
    client.set_compatibility(subject, level)
    program = PROGRAM.format(gate.url, subject, TEXT, topic_prefix)
    killed = subprocess.Popen([sys.executable, "-c", program])
    assert gate.reached.wait(120)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert own_level(own_registry, subject) == "NONE"

    registry = Registry(own_registry)
    assert registry.repair(topic_prefix) == [subject]
    assert registry.repair(topic_prefix) == []

    assert own_level(own_registry, subject) == level
    registry.register_anyway(subject, TEXT, prefix=topic_prefix)
    registry.register_anyway(
        subject, '"boolean"', prefix=topic_prefix
    )  # a second note of the same subject
    assert len(client.get_versions(subject)) == 3
    assert own_level(own_registry, subject) == level
    assert registry.repair(topic_prefix) == []


def own_level(url: str, subject: str) -> str | None:
    """Asked anew: clients remember."""
    try:
        return str(SchemaRegistryClient({"url": url}).get_compatibility(subject))
    except SchemaRegistryError:
        return None


def test_a_registry_whose_own_level_holds_for_all_is_reported(
    own_registry: str, topic_prefix: str
) -> None:
    """Apicurio takes a subject's NONE for no level of its own."""
    subject = f"{topic_prefix}.public.t-value"
    client, registry = SchemaRegistryClient({"url": own_registry}), Registry(own_registry)
    registry.register(subject, NUMBER)
    client.set_compatibility(level="BACKWARD")

    with pytest.raises(SchemaRefused, match="for this change, then start again"):
        registry.register_anyway(subject, TEXT, prefix=topic_prefix)

    assert own_level(own_registry, subject) in {None, "NONE"}
    assert registry.repair(topic_prefix) == []
