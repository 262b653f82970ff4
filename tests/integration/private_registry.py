"""A registry behind proxies that ask for TLS and a login, one for each way of being wrong."""

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

from gauss_cdc_lab.services.process import LOOPBACK
from tests.certificates import Certificate, authority, self_signed, written

LOGIN = 'cdc:pä"ss:\\word'


@dataclass
class Front:
    folder: Path
    urls: dict[str, str]

    def options(self, *, mutual: bool = False) -> dict[str, str]:
        """`mutual`: with a certificate of the client's own."""
        own = {
            "ssl.certificate.location": str(self.folder / "own.crt"),
            "ssl.key.location": str(self.folder / "own.key"),
            "ssl.key.password": "key pencil",
        }
        return {
            "ssl.ca.location": str(self.folder / "root.crt"),
            "basic.auth.user.info": LOGIN,
            **(own if mutual else {}),
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


@contextmanager
def private_registry(upstream: str, folder: Path) -> Iterator[Front]:
    """`upstream`: the registry; `folder`: an empty one."""
    root = authority()
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
                _proxy(upstream, certificate, folder, folder / "root.crt", mutual=name == "mutual")
            )
            urls[name] = f"https://{LOOPBACK}:{port}"
        yield Front(folder, urls)
