"""Connecting to a PostgreSQL server: address, socket, TLS.

`sslmode` means what it means to libpq, except that `prefer` does not try again
without TLS after a login failed under it:

| sslmode     | TLS                | certificate                                  |
|-------------|--------------------|----------------------------------------------|
| disable     | never              |                                              |
| prefer      | if the server does | not verified (the default on this machine)   |
| require     | or nothing         | chain checked if `sslrootcert` is given      |
| verify-ca   | or nothing         | chain checked                                |
| verify-full | or nothing         | chain and host name checked (the default)    |

`sslrootcert` is a file, or `system` for the machine's own authorities; without
it ~/.postgresql/root.crt is used, as libpq does, else the machine's.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

from producer.errors import ConnectionLost, LoginRefused
from producer.sources.dsn import CHOOSE_LESS, SYSTEM, ConnectionArguments, parse_dsn
from producer.wire import protocol
from producer.wire.auth import Credentials

__all__ = ["ConnectionArguments", "Link", "dial", "parse_dsn"]

# What a server at some distance may send before it is answered.
RECEIVE_BUFFER_BYTES: Final = 1 << 20
# Of one that is near: see `streaming`, which wants it to be full when it reads.
NEAR_BUFFER_BYTES: Final = 256 << 10
_HERE: Final = frozenset({"127.0.0.1", "::1"})
_NEAR: Final = 0.002  # seconds for the handshake of TCP, one round trip


class Link:
    """A connected socket, with or without TLS, read and written under time limits.

    Every failure is a ConnectionLost.  Times are seconds of time.monotonic.
    """

    __slots__ = ("_readable", "_tls_buffer", "_writable", "is_local", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_local = sock.family == socket.AF_UNIX
        sock.setblocking(False)  # noqa: FBT003  the standard library's own signature
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._tls_buffer = memoryview(b"")  # made by the first read

    @property
    def is_encrypted(self) -> bool:
        """By TLS; a local socket (`is_local`) is safe without it."""
        return isinstance(self.sock, ssl.SSLSocket)

    @property
    def certificate(self) -> bytes:
        """The server's certificate as DER; b"" without TLS."""
        if isinstance(self.sock, ssl.SSLSocket):
            return self.sock.getpeercert(binary_form=True) or b""
        return b""

    def credentials(self, arguments: ConnectionArguments) -> Credentials:
        """The credentials for a login over this link."""
        return Credentials(
            user=arguments.user,
            password=arguments.current_password(),
            encrypted=self.is_encrypted or self.is_local,
            certificate=self.certificate,
            methods=arguments.methods,
            channel_binding=arguments.channel_binding,
        )

    def protection(self, arguments: ConnectionArguments, method: str) -> str:
        """Say how what is sent is protected: `TLSv1.3, verified, scram-sha-256`."""
        version = self.sock.version() if isinstance(self.sock, ssl.SSLSocket) else None
        return described(arguments, version, method)

    @property
    def has_pending(self) -> bool:
        """Are there bytes that TLS has decrypted, which poll cannot see?"""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def read(self, size: int) -> bytes:
        """Read what is there, at most about `size` bytes; b"" when there is nothing yet.

        Raises ConnectionLost, and LoginRefused where the server refuses our certificate.
        """
        try:
            if not isinstance(self.sock, ssl.SSLSocket):
                chunk = self.sock.recv(size)
                if not chunk:
                    raise ConnectionLost("the server closed the connection")
                return chunk
            return self._read_tls(self.sock, size)
        except (BlockingIOError, InterruptedError):
            return b""
        except ssl.SSLError as error:
            # With TLS 1.3 the server verifies our certificate after we have accepted its own.
            if "_ALERT_" in (error.reason or "") and _ABOUT_US.search(error.reason):
                raise LoginRefused(
                    "the server refuses our certificate",
                    hint="check sslcert and sslkey: valid, and of an authority that it trusts",
                    reason=error.reason,
                ) from error
            raise ConnectionLost("the connection broke", reason=error.reason or error) from error
        except OSError as error:
            raise ConnectionLost("the connection broke", reason=error.strerror or error) from error

    def _read_tls(self, sock: ssl.SSLSocket, size: int) -> bytes:
        # One recv gives one record (a walsender makes one of each row), and what
        # OpenSSL has decrypted does not show in poll: read until it wants the socket
        # again, but with a limit, since a fast server always has more.  `recv` would
        # allocate for each record as much as it may become.
        if not self._tls_buffer:
            self._tls_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        buffer, got = self._tls_buffer[:size], 0
        try:
            while got < len(buffer):
                if not (more := sock.recv_into(buffer[got:])):
                    if not got:
                        raise ConnectionLost("the server closed the connection")
                    break
                got += more
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (ssl.SSLEOFError, ConnectionResetError):
            if not got:  # return what came before the end; the next read ends
                raise
        return bytes(buffer[:got])

    def interrupt(self) -> None:
        """End both directions; safe while another thread reads or writes."""
        with contextlib.suppress(OSError):  # it is closed
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

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
                if isinstance(self.sock, ssl.SSLSocket):
                    # The server may have sent the reason before: our certificate is refused.
                    with contextlib.suppress(ConnectionLost):
                        self.read(1)
                reason = error.strerror or error
                raise ConnectionLost("the connection broke", reason=reason) from error

    def close(self) -> None:
        """Close the socket; never fails."""
        with contextlib.suppress(OSError):
            self.sock.close()


# Names of OpenSSL's alerts that are about a certificate.
_ABOUT_US: Final = re.compile("CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED")


def described(arguments: ConnectionArguments, version: str | None, method: str = "") -> str:
    """Say how a connection of either client is protected; `version` is TLS'."""
    if version is None:
        how = "Unix socket" if arguments.host.startswith("/") else "not encrypted"
        return f"{how}, {_SAID.get(method, method)}" if method else how
    names = {"verify-full": "verified", "verify-ca": "authority verified, name not"}
    verified = names.get(arguments.mode, names["verify-ca"] if arguments.is_verified else "")
    said = [version, verified or "not verified", _SAID.get(method, method)]
    return ", ".join(part for part in said if part)


_SAID: Final = {"none": "no password asked"}


def _milliseconds(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000


def dial(arguments: ConnectionArguments, deadline: float) -> Link:
    """Connect, and turn to TLS as `sslmode` says.

    Raises ConnectionLost if there is no answer, LoginRefused if TLS is not as requested.

    `deadline`: by time.monotonic.
    """
    sock = _connect(arguments, deadline)
    try:
        if sock.family != socket.AF_UNIX and arguments.mode != "disable":
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
        try:
            if family == socket.AF_UNIX or str(address[0]) in _HERE:
                return _connected(family, address, arguments, deadline, NEAR_BUFFER_BYTES)[0]
            sock, took = _connected(family, address, arguments, deadline, RECEIVE_BUFFER_BYTES)
            if took >= _NEAR:
                return sock
            # To shrink a buffer drops what was sent for the larger one, acknowledgements with it.
            sock.close()
            return _connected(family, address, arguments, deadline, NEAR_BUFFER_BYTES)[0]
        except OSError as error:
            last = error
    reason = (last.strerror or last) if last else "no address"
    raise ConnectionLost("cannot connect", hint=hint, reason=reason, **where) from last


def _connected(
    family: int, address: Any, arguments: ConnectionArguments, deadline: float, size: int
) -> tuple[socket.socket, float]:
    """Connect with a receive buffer of `size` bytes; return the socket and how long it took."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        # Before connect: the window scale is agreed in the first packet.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _watch_for_silence(sock, arguments)
        began = time.monotonic()
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock, time.monotonic() - began


def _watch_for_silence(sock: socket.socket, arguments: ConnectionArguments) -> None:
    """Let the kernel detect a dead peer, as the dsn says."""
    times = {"TCP_USER_TIMEOUT": arguments.tcp_user_timeout}
    if arguments.keepalives:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        times |= {
            "TCP_KEEPIDLE": arguments.keepalives_idle,
            "TCP_KEEPINTVL": arguments.keepalives_interval,
            "TCP_KEEPCNT": arguments.keepalives_count,
        }
    for name, value in times.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


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
    where = {"host": arguments.host, "sslmode": arguments.mode}
    try:
        sock.sendall(protocol.ssl_request())
        # One byte and no more: clear text after it
        # must not become part of the encrypted session (CVE-2021-23222).
        answer = sock.recv(1)
    except OSError as error:
        raise ConnectionLost("the server does not answer", **where) from error
    if answer == b"N" and arguments.mode == "prefer":
        return sock
    if answer == b"N":
        raise LoginRefused(
            "the server does not support TLS",
            hint="set ssl = on in postgresql.conf; or write sslmode=disable into the dsn: then "
            "the network can read and change what is sent",
            **where,
        )
    if answer != b"S":
        raise ConnectionLost("the server refused the connection, probably overloaded", **where)
    context = _tls_context(arguments)
    try:
        return context.wrap_socket(sock, server_hostname=arguments.host)
    except ssl.SSLCertVerificationError as error:
        raise LoginRefused(
            "the server's certificate is not trusted",
            hint=CHOOSE_LESS,
            reason=error.verify_message,
            **where,
        ) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # it stops, or was killed
        raise ConnectionLost("the server closed the connection during TLS", **where) from error
    except ssl.SSLError as error:
        raise LoginRefused("TLS failed", reason=error.reason, **where) from error
    except OSError as error:
        raise ConnectionLost("the connection broke during TLS", **where) from error


def _tls_context(arguments: ConnectionArguments) -> ssl.SSLContext:
    """Build the context for a mode other than disable."""
    arguments.check_files()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    roots = arguments.roots
    context.check_hostname = arguments.mode == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if arguments.is_verified else ssl.CERT_NONE
    context.minimum_version = _VERSIONS[arguments.ssl_min_protocol_version]
    if newest := arguments.ssl_max_protocol_version:
        context.maximum_version = _VERSIONS[newest]
    try:
        if roots == SYSTEM:
            context.load_default_certs()
        elif roots:
            context.load_verify_locations(roots)
        if arguments.is_verified and (arguments.sslcrl or arguments.sslcrldir):
            context.load_verify_locations(arguments.sslcrl or None, arguments.sslcrldir or None)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        if arguments.sslcert:
            # A function: without a password OpenSSL would prompt on the terminal.
            context.load_cert_chain(
                arguments.sslcert, arguments.sslkey or None, lambda: arguments.sslpassword
            )
    except (OSError, ssl.SSLError) as error:
        raise LoginRefused(
            "a certificate file cannot be read",
            hint="check sslrootcert (a file, or `system`), sslcert, sslkey, its password, sslcrl",
            sslrootcert=roots,
            sslcert=arguments.sslcert,
            reason=error.strerror or error,
        ) from error
    return context


_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
