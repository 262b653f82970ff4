"""The one HTTP server: probes for everybody, metrics for who may read them.

    /healthz, /readyz   one word each: no login, nothing else in it
    /metrics, /log      Prometheus, and the newest lines of the log
    /, …                the page (gauss_cdc/page)

With [serve] token or client-ca the last two are only for who has one.  A browser sends a token as
the password of any user, and must name this machine where there is no TLS: else a page of others
could read ours by a name of theirs (DNS rebinding).

Each client has a thread, few at a time, and some seconds to ask: TLS's first messages are counted.
Where all threads are taken, who has not asked for longest makes room.
"""

from __future__ import annotations

import base64
import hmac
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gauss_cdc import logs
from gauss_cdc.config_serve import ServeSection, address
from gauss_cdc.errors import ConfigError
from gauss_cdc.secrets import masked
from schemas.plaintext import is_loopback

_log = logging.getLogger("gauss_cdc.metrics")

_CLIENTS: Final = 8  # each has a thread
_SILENT: Final = 5.0  # seconds until a client that has not asked is left
_LOOK: Final = 0.05  # seconds until one of them makes room for who comes
_CERTIFIED: Final = "gauss_cdc.certified"  # in the environment of a request
_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")


_WELL: Final = frozenset({"alive", "ready", "standby"})  # words that are 200; others are 503

Probe: TypeAlias = Callable[[], str]
_Start: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]
Application: TypeAlias = Callable[[dict[str, Any], Any], Iterable[bytes]]


def serve(
    section: ServeSection,
    metrics: Collector | None,
    probes: Mapping[str, Probe],
    pages: Mapping[str, Application],
) -> str:
    """Serve in the background; return the URL, with the port that 0 lets the system choose.

    `probes` and `pages`: by path.  Raises ConfigError for what [serve] may not be, and OSError.
    """
    if problems := [f"serve.{key}: {why}" for key, why in section.problems()]:
        raise ConfigError("\n".join(problems))
    registry = CollectorRegistry(auto_describe=False)
    if metrics is not None:
        registry.register(metrics)
    try:
        server = _Server(address(section.listen), section.tls())
    except OSError as error:
        raise OSError(error.errno, error.strerror, section.listen) from None
    protected = {"/metrics": make_wsgi_app(registry), "/log": _newest_lines, **pages}
    server.set_app(_application(section, protected, probes))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    host = section.listen.rpartition(":")[0]
    return f"http{'s' * (section.certificate is not None)}://{host}:{server.server_port}"


def is_well(word: str) -> bool:
    """Say whether a probe's word is one of a program that does what it should."""
    return word in _WELL


def _application(
    section: ServeSection, protected: Mapping[str, Application], probes: Mapping[str, Probe]
) -> Application:
    """Route a request."""
    token = section.token.get_secret_value().encode()
    is_open = not token and section.client_ca is None

    def may_read(environ: Mapping[str, Any]) -> bool:
        given = _token(str(environ.get("HTTP_AUTHORIZATION", "")))
        has_token = hmac.compare_digest(given, token)
        return is_open or bool(environ[_CERTIFIED]) or (bool(token) and has_token)

    def answer(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if (probe := probes.get(path)) is not None:
            word = probe()
            return _plain(start, "200 OK" if is_well(word) else "503 Service Unavailable", word)
        if (found := protected.get(path)) is None:
            return _plain(start, "404 Not Found", "not found")
        if section.certificate is None and not _names_this_machine(environ):
            return _plain(start, "403 Forbidden", "ask by localhost or by an address")
        if not may_read(environ):
            # A browser asks its user by Basic; not where the page has sent another token.
            has_asked = str(environ.get("HTTP_AUTHORIZATION", "")).startswith("Bearer")
            ask = "Bearer" if has_asked else 'Basic realm="gauss-cdc"'
            return _plain(start, "401 Unauthorized", "unauthorized", ("WWW-Authenticate", ask))
        return found(environ, start)

    return answer


def _token(given: str) -> bytes:
    """Read the token of `Authorization`; b"": there is none."""
    kind, _, value = given.partition(" ")
    if kind == "Bearer":
        return value.encode("latin-1")
    if kind != "Basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _names_this_machine(environ: Mapping[str, Any]) -> bool:
    host = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname
    return not host or is_loopback(host)


def _newest_lines(_: Mapping[str, Any], start: _Start) -> Iterable[bytes]:
    return _plain(start, "200 OK", "\n".join(map(masked, logs.newest())))


def _plain(start: _Start, status: str, word: str, *more: tuple[str, str]) -> Iterable[bytes]:
    start(status, [_TEXT, ("Cache-Control", "no-store"), *more])
    return [f"{word}\n".encode()]


class _Request(WSGIRequestHandler):
    server: _Server
    timeout = _SILENT  # of one call: who sends a byte now and then needs the other one
    server_version, sys_version = "gauss-cdc", ""

    def setup(self) -> None:
        super().setup()
        self.server.silent[self.client_address] = self.leave
        self._patience = threading.Timer(_SILENT, self.leave)
        self._patience.daemon = True
        self._patience.start()

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        finally:
            self._has_asked()

    def get_environ(self) -> dict[str, Any]:
        """Say whether the client has shown a certificate of `client-ca`."""
        environ = super().get_environ()
        line = self.connection
        environ[_CERTIFIED] = isinstance(line, ssl.SSLSocket) and bool(line.getpeercert())
        return environ

    def finish(self) -> None:
        self._has_asked()
        super().finish()

    def _has_asked(self) -> None:
        self._patience.cancel()
        self.server.silent.pop(self.client_address, None)

    def leave(self) -> None:
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
        self.silent: dict[Any, Callable[[], None]] = {}  # who has not asked yet, by address
        super().__init__(at, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=_LOOK):
            for leave in list(self.silent.values())[:1]:
                leave()
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
