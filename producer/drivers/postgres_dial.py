"""Getting through to a PostgreSQL server: address, socket, TLS.

`sslmode` means what it means to libpq, except that `prefer` does not try again
without TLS after a login failed under it:

| sslmode     | TLS                | certificate                                  |
|-------------|--------------------|----------------------------------------------|
| disable     | never              |                                              |
| prefer      | if the server does | not looked at (the default: local servers)   |
| require     | or nothing         | chain checked if `sslrootcert` is given      |
| verify-ca   | or nothing         | chain checked                                |
| verify-full | or nothing         | chain and host name checked: use this one    |

`sslrootcert` is a file, or `system` for the machine's own authorities; without
it ~/.postgresql/root.crt is used, as libpq does.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg2
from psycopg2.extensions import parse_dsn as libpq_parse_dsn

from producer.errors import ConnectionLost, LoginRefused, SourceError
from producer.wire import protocol

SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")

# A walsender sends each change by its own send(): the larger the buffer, the more
# of them one recv brings, and the cheaper both ends get (measured: 4.0 to 1.9
# CPU-seconds of the walsender per million rows).
RECEIVE_BUFFER_BYTES: Final = 1 << 20

# Silent peers are found within a minute, whatever the kernel's defaults are.
_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 60_000),
)

# Settings of libpq which change nothing for a replication stream.
_IGNORED: Final = re.compile(
    "application_name|fallback_application_name|client_encoding|gssencmode|passfile"
    "|keepalives|keepalives_idle|keepalives_interval|keepalives_count|tcp_user_timeout"
)
_KNOWN: Final = re.compile(
    "host|hostaddr|port|dbname|user|password|sslmode|sslrootcert|sslcert|sslkey|sslpassword"
    "|connect_timeout"
)


@dataclass(frozen=True, slots=True)
class ConnectionArguments:
    """Where to log in and as whom; never prints the password."""

    host: str = "localhost"  # a name, an address, or a path: the folder of a Unix socket
    port: int = 5432
    dbname: str = ""
    user: str = ""
    password: str | None = field(default=None, repr=False)
    hostaddr: str = ""  # connect here, but check the certificate against `host`
    sslmode: str = "prefer"
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    sslpassword: str = field(default="", repr=False)
    connect_timeout: float = 10.0  # seconds, from the first packet to the end of the login
    application_name: str = "gauss-cdc"

    def libpq(self) -> dict[str, Any]:
        """The same as keyword arguments of psycopg2.connect."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.dbname,
            "user": self.user,
            "sslmode": self.sslmode,
            "connect_timeout": max(2, round(self.connect_timeout)),
            "application_name": self.application_name,
        }
        for name in ("password", "hostaddr", "sslrootcert", "sslcert", "sslkey", "sslpassword"):
            if value := getattr(self, name):
                settings[name] = value
        return settings


def parse_dsn(dsn: str, password: str | None = None) -> ConnectionArguments:
    """Read a postgresql:// URI or a key=value string; `password` wins over the one in it.

    Raises SourceError for a setting we would have to ignore.
    """
    try:
        given: Mapping[str, str] = libpq_parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # The text of the error repeats the dsn, which may hold a password.
        raise SourceError(
            "the dsn cannot be read", hint="write postgresql://user@host:port/database"
        ) from None
    settings = {name: value for name, value in given.items() if _KNOWN.fullmatch(name) and value}
    unknown = [name for name in given if not (_KNOWN.fullmatch(name) or _IGNORED.fullmatch(name))]
    if unknown:
        raise SourceError("the dsn has settings we do not know", names=",".join(unknown))
    host, port = settings.get("host", "localhost"), settings.get("port", "5432")
    if "," in host or "," in port:
        raise SourceError("the dsn names several hosts", hint="name the primary only", host=host)
    if not (user := settings.get("user", "")):
        raise SourceError("the dsn names no user", hint="write postgresql://user@host/database")
    mode = settings.get("sslmode", "prefer")
    if mode not in SSL_MODES:
        raise SourceError("unknown sslmode", sslmode=mode, hint=f"one of {', '.join(SSL_MODES)}")
    timeout = settings.get("connect_timeout", "10")
    if not (port.isdigit() and timeout.isdigit()):
        raise SourceError("port and connect_timeout must be numbers", host=host)
    return ConnectionArguments(
        host=host,
        port=int(port),
        dbname=settings.get("dbname", user),
        user=user,
        password=password if password is not None else settings.get("password"),
        hostaddr=settings.get("hostaddr", ""),
        sslmode=mode,
        sslrootcert=settings.get("sslrootcert", ""),
        sslcert=settings.get("sslcert", ""),
        sslkey=settings.get("sslkey", ""),
        sslpassword=settings.get("sslpassword", ""),
        connect_timeout=float(timeout) or 10.0,
        application_name=given.get("application_name", "gauss-cdc"),
    )


class Link:
    """A connected socket, with or without TLS, read and written under time limits.

    Every failure is a ConnectionLost.  Times are seconds of time.monotonic.
    """

    __slots__ = ("_readable", "_writable", "is_local", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_local = sock.family == socket.AF_UNIX
        sock.setblocking(False)  # noqa: FBT003  the standard library's own signature
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)

    @property
    def is_encrypted(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket)

    @property
    def certificate(self) -> bytes:
        """The server's certificate as DER; b"" without TLS."""
        if isinstance(self.sock, ssl.SSLSocket):
            return self.sock.getpeercert(binary_form=True) or b""
        return b""

    @property
    def has_pending(self) -> bool:
        """Are there bytes that TLS has decrypted, which poll cannot see?"""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def read(self, size: int) -> bytes:
        """Read what is there, at most about `size` bytes; b"" when there is nothing yet."""
        try:
            if not isinstance(self.sock, ssl.SSLSocket):
                chunk = self.sock.recv(size)
                if not chunk:
                    raise ConnectionLost("the server closed the connection")
                return chunk
            return self._read_tls(self.sock, size)
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError as error:
            raise ConnectionLost("the connection broke", reason=error.strerror or error) from error

    @staticmethod
    def _read_tls(sock: ssl.SSLSocket, size: int) -> bytes:
        # One recv gives one record (a walsender makes one of each row), and what
        # OpenSSL has decrypted does not show in poll: read until it wants the socket
        # again, but not for ever, since a fast server never lets it want.
        parts, got, size = [], 0, min(size, RECEIVE_BUFFER_BYTES)
        try:
            while got < size:
                if not (part := sock.recv(size - got)):
                    if not got:
                        raise ConnectionLost("the server closed the connection")
                    break
                parts.append(part)
                got += len(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (ssl.SSLEOFError, ConnectionResetError):
            if not got:  # hand out what came before the end; the end comes again
                raise
        return b"".join(parts)

    def wait_readable(self, deadline: float | None) -> None:
        """Wait for bytes; raise at the deadline."""
        if self.has_pending:
            return
        if not self._readable.poll(_milliseconds(deadline)):
            raise ConnectionLost("the server does not answer")

    def write(self, frames: bytes, deadline: float | None) -> None:
        """Write everything, or raise at the deadline (None: never)."""
        view = memoryview(frames)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
                if not self._writable.poll(_milliseconds(deadline)):
                    raise ConnectionLost("the server does not read what we send") from None
            except ssl.SSLWantReadError:
                self.wait_readable(deadline)
            except OSError as error:
                reason = error.strerror or error
                raise ConnectionLost("the connection broke", reason=reason) from error

    def close(self) -> None:
        """Close the socket; never fails."""
        with contextlib.suppress(OSError):
            self.sock.close()


def _milliseconds(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000


def dial(arguments: ConnectionArguments, deadline: float) -> Link:
    """Connect, and turn to TLS as `sslmode` says.

    Raises ConnectionLost if nobody answers, LoginRefused if TLS is not as asked.
    """
    sock = _connect(arguments, deadline)
    try:
        if sock.family != socket.AF_UNIX and arguments.sslmode != "disable":
            sock = _to_tls(sock, arguments)
        return Link(sock)
    except BaseException:
        sock.close()
        raise


def _connect(arguments: ConnectionArguments, deadline: float) -> socket.socket:
    where = {"host": arguments.host, "port": arguments.port}
    hint = "is the server running, and does listen_addresses include this address?"
    try:
        targets = _targets(arguments)
    except OSError as error:
        raise ConnectionLost("the host is unknown", hint="check the dsn", **where) from error
    last: OSError | None = None
    for family, address in targets:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(0.1, deadline - time.monotonic()))
            # Before connect: the window scale is agreed in the first packet.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _KEEPALIVE:
                    if (option := getattr(socket, name, None)) is not None:
                        sock.setsockopt(socket.IPPROTO_TCP, option, value)
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    reason = (last.strerror or last) if last else "no address"
    raise ConnectionLost("cannot connect", hint=hint, reason=reason, **where) from last


def _targets(arguments: ConnectionArguments) -> list[tuple[int, Any]]:
    host = arguments.host
    if host.startswith("/") and not arguments.hostaddr:
        path = Path(host)
        return [
            (socket.AF_UNIX, str(path if path.is_socket() else path / f".s.PGSQL.{arguments.port}"))
        ]
    found = socket.getaddrinfo(arguments.hostaddr or host, arguments.port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def _to_tls(sock: socket.socket, arguments: ConnectionArguments) -> socket.socket:
    where = {"host": arguments.host, "sslmode": arguments.sslmode}
    try:
        sock.sendall(protocol.ssl_request())
        # One byte and no more: whatever a stranger sends in clear text behind it
        # must not be taken for part of the encrypted session (CVE-2021-23222).
        answer = sock.recv(1)
    except OSError as error:
        raise ConnectionLost("the server does not answer", **where) from error
    if answer == b"N" and arguments.sslmode == "prefer":
        return sock
    if answer == b"N":
        raise LoginRefused(
            "the server does not speak TLS", hint="set ssl = on in postgresql.conf", **where
        )
    if answer != b"S":
        raise ConnectionLost("the server refused to talk, probably overloaded", **where)
    context = _tls_context(arguments)
    try:
        return context.wrap_socket(sock, server_hostname=arguments.host)
    except ssl.SSLCertVerificationError as error:
        raise LoginRefused(
            "the server's certificate is not trusted",
            hint="give its authority as sslrootcert, and connect by a name the certificate holds",
            reason=error.verify_message,
            **where,
        ) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # it stops, or was killed
        raise ConnectionLost("the server hung up during TLS", **where) from error
    except ssl.SSLError as error:
        raise LoginRefused("TLS failed", reason=error.reason, **where) from error
    except OSError as error:
        raise ConnectionLost("the connection broke during TLS", **where) from error


def _tls_context(arguments: ConnectionArguments) -> ssl.SSLContext:
    """Build the context for a mode other than disable (TLS 1.2 or newer)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    mode, roots = arguments.sslmode, arguments.sslrootcert
    if mode in ("verify-ca", "verify-full") and not roots:
        roots = str(Path("~/.postgresql/root.crt").expanduser())
    verify = mode.startswith("verify") or (mode == "require" and bool(roots))
    context.check_hostname = mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    try:
        if verify and roots == "system":
            context.load_default_certs()
        elif verify:
            context.load_verify_locations(roots)
        if arguments.sslcert:
            context.load_cert_chain(
                arguments.sslcert, arguments.sslkey or None, arguments.sslpassword or None
            )
    except (OSError, ssl.SSLError) as error:
        raise LoginRefused(
            "a certificate file cannot be read",
            hint="check sslrootcert (a file, or `system`), sslcert and sslkey",
            sslrootcert=roots,
            sslcert=arguments.sslcert,
            reason=error.strerror or error,
        ) from error
    return context
