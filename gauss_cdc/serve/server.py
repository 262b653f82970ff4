"""The one HTTP server: probes for everybody, metrics for who may read them.

    /healthz, /readyz   one word each: no login, nothing else in it
    /metrics            Prometheus; with [serve] token or client-ca only for who has one

Each client has a thread, few at a time, and some seconds to ask: TLS's first messages are counted.
"""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gauss_cdc.config_serve import ServeSection, address
from gauss_cdc.errors import ConfigError

_log = logging.getLogger("gauss_cdc.metrics")

_CLIENTS: Final = 8  # each has a thread
_SILENT: Final = 5.0  # seconds until a client that has not asked is left
_BEARER: Final = "Bearer "
_CERTIFIED: Final = "gauss_cdc.certified"  # in the environment of a request
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")


_WELL: Final = frozenset({"alive", "ready", "standby"})  # words that are 200; others are 503

Probe: TypeAlias = Callable[[], str]
_Start: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]


def serve(section: ServeSection, metrics: Collector, probes: Mapping[str, Probe]) -> str:
    """Serve in the background; return the URL, with the port that 0 lets the system choose.

    `probes`: by path.  Raises ConfigError for what [serve] may not be, and OSError.
    """
    if problems := [f"serve.{key}: {why}" for key, why in section.problems()]:
        raise ConfigError("\n".join(problems))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server = _Server(address(section.listen), section.tls())
    except OSError as error:
        raise OSError(error.errno, error.strerror, section.listen) from None
    server.set_app(_application(section, make_wsgi_app(registry), probes))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    host = section.listen.rpartition(":")[0]
    return f"http{'s' * (section.certificate is not None)}://{host}:{server.server_port}"


def is_well(word: str) -> bool:
    """Say whether a probe's word is one of a program that does what it should."""
    return word in _WELL


def _application(section: ServeSection, metrics: Any, probes: Mapping[str, Probe]) -> Any:
    """Route a request."""
    token = section.token.get_secret_value().encode()
    is_open = not token and section.client_ca is None

    def may_read(environ: Mapping[str, Any]) -> bool:
        given = str(environ.get("HTTP_AUTHORIZATION", ""))
        has_token = given.startswith(_BEARER) and hmac.compare_digest(
            given.removeprefix(_BEARER).encode("latin-1"), token
        )
        return is_open or bool(environ[_CERTIFIED]) or (bool(token) and has_token)

    def answer(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if (probe := probes.get(path)) is not None:
            word = probe()
            return _plain(start, "200 OK" if is_well(word) else "503 Service Unavailable", word)
        if path != "/metrics":
            return _plain(start, "404 Not Found", "not found")
        if not may_read(environ):
            return _plain(start, "401 Unauthorized", "unauthorized", ("WWW-Authenticate", "Bearer"))
        found: Iterable[bytes] = metrics(environ, start)
        return found

    return answer


def _plain(start: _Start, status: str, word: str, *more: tuple[str, str]) -> Iterable[bytes]:
    start(status, [_TEXT, ("Cache-Control", "no-store"), *more])
    return [f"{word}\n".encode()]


class _Request(WSGIRequestHandler):
    timeout = _SILENT  # of one call: who sends a byte now and then needs the other one
    server_version, sys_version = "gauss-cdc", ""

    def setup(self) -> None:
        super().setup()
        self._patience = threading.Timer(_SILENT, self._leave)
        self._patience.daemon = True
        self._patience.start()

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        finally:
            self._patience.cancel()

    def get_environ(self) -> dict[str, Any]:
        """Say whether the client has shown a certificate of `client-ca`."""
        environ = super().get_environ()
        line = self.connection
        environ[_CERTIFIED] = isinstance(line, ssl.SSLSocket) and bool(line.getpeercert())
        return environ

    def finish(self) -> None:
        self._patience.cancel()
        super().finish()

    def _leave(self) -> None:
        with suppress(OSError):  # it has left
            # Of the socket below TLS: another thread is in a call of the one above.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape comes every few seconds."""


class _Server(ThreadingWSGIServer):
    """Serves so many clients at a time; the others wait in the system's queue."""

    request_queue_size = 128

    def __init__(self, at: tuple[str, int], secured: ssl.SSLContext | None) -> None:
        self.address_family = socket.getaddrinfo(*at, type=socket.SOCK_STREAM)[0][0]
        self._free = threading.Semaphore(_CLIENTS)
        self._secured = secured
        super().__init__(at, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()  # no thread could be started
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self._secured is not None:  # the handshake is a part of the first read
                request = self._secured.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
            super().process_request_thread(request, client_address)
        except OSError:
            self.handle_error(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Keep quiet about a client that was silent or left."""
        _log.debug("a scrape ended early", exc_info=True)
