"""TLS and logins of a registry: the real one, behind a proxy that asks for both."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gauss_cdc_lab.services.process import LOOPBACK
from producer.errors import RegistryError
from producer.kafka.registry import Registry
from spark_consumers.errors import RegistryRefused
from spark_consumers.kafka.registry import registry_at
from tests.certificates import Certificate, authority, self_signed, written

LOGIN = 'cdc:pä"ss:\\word'
SCHEMA = '{"type": "record", "name": "row", "fields": []}'


@dataclass
class Front:
    folder: Path
    urls: dict[str, str]

    def options(self, **more: str) -> dict[str, str]:
        return {
            "ssl.ca.location": str(self.folder / "root.crt"),
            "basic.auth.user.info": LOGIN,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@contextmanager
def _proxy(upstream: str, certificate: Certificate, folder: Path, root: Path, *, mutual: bool):
    """A reverse proxy with TLS and basic authentication; its port."""
    where = urlsplit(upstream)

    class Handler(BaseHTTPRequestHandler):
        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            expected = "Basic " + base64.b64encode(LOGIN.encode()).decode()
            if self.headers.get("Authorization") != expected:
                self.send_error(401)
                return
            ours = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
            kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            ours.request(self.command, where.path + self.path, body, kind)
            answer = ours.getresponse()
            said = answer.read()
            ours.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = _pass  # noqa: N815  as the library calls them

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:  # a client that does not trust us hangs up
            pass

    served = folder / "served.pem"
    written(served, certificate.key_pem() + certificate.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(root)
    server = Server((LOOPBACK, 0), Handler)
    # Not in `accept`, where one who does not shake hands would stop everybody.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def front(registry_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    root, folder = authority(), tmp_path_factory.mktemp("registry")
    own = root.issue("cdc")
    written(folder / "root.crt", root.pem)
    written(folder / "own.crt", own.pem)
    written(folder / "own.key", own.key_pem("key pencil"))
    served = {
        "good": root.issue("registry", LOOPBACK),
        "mutual": root.issue("registry", LOOPBACK),
        "expired": root.issue("registry", LOOPBACK, expired=True),
        "self-signed": self_signed("registry", LOOPBACK),
        "wrong name": root.issue("registry", "other.test"),
    }
    with ExitStack() as stack:
        urls = {}
        for name, certificate in served.items():
            port = stack.enter_context(
                _proxy(
                    registry_url, certificate, folder, folder / "root.crt", mutual=name == "mutual"
                )
            )
            urls[name] = f"https://{LOOPBACK}:{port}"
        yield Front(folder, urls)


@pytest.mark.parametrize("how", ["good", "mutual"])
def test_both_clients_reach_a_registry_behind_tls_and_a_login(
    front: Front, topic_prefix: str, how: str
) -> None:
    options = front.options()
    if how == "mutual":
        options |= {
            "ssl.certificate.location": str(front.folder / "own.crt"),
            "ssl.key.location": str(front.folder / "own.key"),
            "ssl.key.password": "key pencil",
        }

    schema_id = Registry(front.urls[how], options).register(topic_prefix, SCHEMA)

    assert registry_at(front.urls[how], options)(schema_id)["name"] == "row"


@pytest.mark.parametrize("how", ["expired", "self-signed", "wrong name", "stranger", "password"])
def test_both_clients_say_what_is_not_right(front: Front, topic_prefix: str, how: str) -> None:
    url, options = front.urls.get(how, front.urls["good"]), front.options()
    if how == "stranger":
        other = written(front.folder / "other.crt", authority("Other").pem)
        options["ssl.ca.location"] = str(other)
    if how == "password":
        options["basic.auth.user.info"] = "cdc:wrong-one"

    with pytest.raises(RegistryError) as ours:
        Registry(url, options).register(topic_prefix, SCHEMA)
    with pytest.raises(RegistryRefused) as theirs:
        registry_at(url, options)(1)

    for error in (ours.value, theirs.value):
        assert error.where["status"] == 401 if how == "password" else error.where["reason"]
        assert error.hint
        assert "wrong-one" not in str(error)
    assert type(ours.value) is RegistryError  # no retry mends it
