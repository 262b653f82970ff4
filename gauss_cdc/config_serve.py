"""[serve]: where programs answer probes and Prometheus, and who may ask them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gauss_cdc.errors import ConfigError
from producer.settings import Duration, Section
from schemas.plaintext import is_loopback
from schemas.secret_file import exposed

_SHORTEST_TOKEN: Final = 16  # characters


def address(listen: str) -> tuple[str, int]:
    """Read `host:port`; raise ValueError for anything else.

    >>> address("127.0.0.1:9187"), address("[::1]:0")
    (('127.0.0.1', 9187), ('::1', 0))
    """
    try:
        parts = urlsplit(f"//{listen}")
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or half an IPv6 address
        host = port = None
    if not host or port is None or parts.netloc != listen or parts.username is not None:
        raise ValueError(f"{listen!r} is not an address: write 127.0.0.1:9187, or [::1]:9187")
    return host, port


def listening(listen: str) -> str:
    """Take an address, or none; raise ValueError."""
    if listen:
        address(listen)
    return listen


class ServeSection(Section):
    """[serve]: probes and metrics of `run`, `apply` and `status --serve`."""

    listen: Annotated[str, AfterValidator(listening)] = ""
    """`host:port` on which `run` and `apply` answer probes and metrics; else nowhere. On one
    machine each needs its own port: `--listen` wins."""

    token: SecretStr = SecretStr("")
    """Who sends it as `Authorization: Bearer` may read `/metrics`. Read from
    GAUSS_CDC_SERVE_TOKEN; never printed."""

    token_file: Path | None = None
    """File that holds the token; used where the variable is not set."""

    certificate: Path | None = None
    """The server's certificate with its chain, as PEM: then only TLS is answered. An address that
    is not loopback requires it, and a token or `client-ca`."""

    key: Path | None = None
    """Its private key, as PEM without a password, in a file that only its user reads."""

    client_ca: Path | None = None
    """Authorities of clients, as PEM: whoever has a certificate of theirs may read `/metrics`."""

    ready_lag: Duration = timedelta(minutes=5)
    """`/readyz` is 503 while `run` or `apply` is further behind."""

    stuck_after: Duration = timedelta(hours=4)
    """`/healthz` is 503 when the program's loop has not turned for so long. Keep it above the
    longest statement at source and target."""

    tables: Annotated[int, Field(ge=0)] = 200
    """Tables that have metrics of their own; the others are summed as table `other`."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be served so: the key, and why with the way out."""
        token = self.token.get_secret_value()
        if (token or self.token_file is not None) and len(token) < _SHORTEST_TOKEN:
            yield "token-file", f"a token has at least {_SHORTEST_TOKEN} characters: make a new one"
        if self.certificate is None and (self.key or self.client_ca):
            yield "certificate", "key and client-ca are of no use without it: name it"
        if self.certificate is not None and self.key is None:
            yield "key", "required with certificate"
        if not self.listen or is_loopback(address(self.listen)[0]):
            return
        if self.certificate is None:
            yield "listen", f"{self.listen} is reached from outside: set certificate and key"
        if not token and self.client_ca is None:
            yield "listen", f"{self.listen} is reached from outside: set token-file, or client-ca"

    def tls(self) -> ssl.SSLContext | None:
        """Read certificate, key and authorities; None: without TLS.  Raises ConfigError."""
        certificate, key, authorities = self.certificate, self.key, self.client_ca
        if certificate is None or key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _read("key", key, lambda: _closed_to_others(key))
        # A password that nobody gives: else OpenSSL asks for it at the terminal.
        _read("certificate", certificate, lambda: context.load_cert_chain(certificate, key, str))
        if authorities is not None:
            _read("client-ca", authorities, lambda: context.load_verify_locations(authorities))
            context.verify_mode = ssl.CERT_OPTIONAL  # probes have none
        return context


def _closed_to_others(key: Path) -> None:
    if why := exposed(key):
        raise ConfigError(f"serve.key: {why}")


def _read(name: str, path: Path, read: Callable[[], None]) -> None:
    try:
        read()
    except OSError as error:  # of OpenSSL, too
        raise ConfigError(f"serve.{name}: {path}: {error.strerror or error}") from None
