"""A server that says what a real one said, when it hears what the real one heard.

It answers connections in order, one recorded conversation each.  Of what the
client says only the kind is compared (its settings and times are its own); all
of it is kept for the test to look at.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from producer.sources.dial import ConnectionArguments
from tests.producer.wire.transcripts import Conversation

PASSWORD = "Cdc_Test@123"
_LIMIT = 120.0  # seconds for a client to say what is expected of it


@dataclass
class RecordedServer:
    port: int
    heard: list[list[bytes]] = field(default_factory=list)  # by connection
    problems: list[str] = field(default_factory=list)

    def arguments(self, **more: object) -> ConnectionArguments:
        settings = {
            "host": "127.0.0.1",
            "port": self.port,
            "dbname": "shop",
            "user": "cdc_user",
            "password": PASSWORD,
            "sslmode": "disable",
            **more,
        }
        return ConnectionArguments(**settings)

    def statements(self, connection: int = 0) -> list[str]:
        return [m[5:-1].decode() for m in self.heard[connection] if m[:1] == b"Q"]


@contextlib.contextmanager
def recorded_server(talks: Sequence[Conversation], *, port: int = 0) -> Iterator[RecordedServer]:
    listening = socket.create_server(("127.0.0.1", port))
    listening.settimeout(_LIMIT)
    server = RecordedServer(listening.getsockname()[1])
    stop = threading.Event()

    def serve() -> None:
        try:
            for talk in talks:
                if stop.is_set():
                    return
                peer, _ = listening.accept()
                peer.settimeout(_LIMIT)
                with peer:
                    _play(peer, talk, server)
        except OSError as error:
            if not stop.is_set():
                server.problems.append(f"{type(error).__name__}: {error}")
        finally:
            listening.close()  # whoever comes later is told that nobody is here

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        with contextlib.suppress(OSError):  # wake up accept
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        thread.join()
        listening.close()
    assert server.problems == []


def _play(peer: socket.socket, talk: Conversation, server: RecordedServer) -> None:
    heard: list[bytes] = []
    server.heard.append(heard)
    for who, message in talk.said:
        if who == "S":
            try:
                peer.sendall(message)
            except (BrokenPipeError, ConnectionResetError):
                return  # the client has left: it need not hear the rest
            continue
        said = _read(peer, tagged=bool(heard))
        if not said:
            return  # the client has left: it need not hear the rest
        heard.append(said)
        if len(heard) > 1 and said[:1] != message[:1]:
            server.problems.append(f"expected {message[:40]!r}, heard {said[:40]!r}")
            return


def _read(peer: socket.socket, *, tagged: bool) -> bytes:
    head = _exactly(peer, 5 if tagged else 4)
    return head and head + _exactly(peer, int.from_bytes(head[-4:], "big") - 4)


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        if not (part := peer.recv(size - len(parts))):
            return b""
        parts += part
    return parts
