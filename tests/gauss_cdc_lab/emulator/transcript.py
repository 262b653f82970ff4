"""Plays the client's half of a recorded session against the emulator, message by message.

The server's half must be equal to what was recorded, except for

* keepalives (`k`): when they are sent follows the clock and the other work of the
  recorded server, and what walEnd they carry its background writes; dropped,
* sendTime of `w` and the recorded server's random parts, which are injected where the
  client's answer depends on them (salt, token) and masked by `masks` where not.
"""

import gzip
import json
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.services.process import poll

GOLDEN = Path(__file__).parents[2] / "golden" / "opengauss"
USER, PASSWORD = "cdc_user", "Cdc_Test@123"
UNKNOWN = "nobody_here"

Mask = Callable[[bytes], bytes]


def read(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt") as file:
        header, *events = (json.loads(line) for line in file)
    return header, events


def gate_of(events: Iterable[dict[str, Any]]) -> Gate:
    """Salt, iterations and tokens as recorded, so that the recorded proofs are right."""
    salt, tokens, by_conn = b"", [], set()
    for event in events:
        raw = bytes.fromhex(event.get("hex", ""))
        if event.get("dir") == "C" and UNKNOWN.encode() in raw:
            by_conn.add(event["conn"])
        if event.get("dir") == "S" and raw[:1] == b"R" and raw[5:9] == b"\0\0\0\x0a":
            tokens.append(bytes.fromhex(raw[77:85].decode()))
            if event["conn"] not in by_conn:
                salt = bytes.fromhex(raw[13:77].decode())
    left = iter(tokens)
    return Gate([Account(USER, PASSWORD, salt=salt)], random=lambda _: next(left))


class Player:
    """One recorded session's connections, opened where they were."""

    def __init__(
        self,
        ports: Callable[[dict[str, Any]], int],
        sessions: Callable[[], int],
        masks: Iterable[Mask] = (),
    ) -> None:
        self._ports, self._sessions, self._masks = ports, sessions, list(masks)
        self._open: dict[int, socket.socket] = {}
        self.compared = 0

    def play(self, events: list[dict[str, Any]]) -> None:
        for number, event in enumerate(events):
            conn = event["conn"]
            if "note" in event:
                self._note(conn, event["note"], events[number + 1 :])
            elif event["dir"] == "C":
                self._open[conn].sendall(bytes.fromhex(event["hex"]))
            elif not is_keepalive(recorded := bytes.fromhex(event["hex"])):
                found = self._next(conn)
                assert self._masked(found) == self._masked(recorded), (number, event)
                self.compared += 1

    def connection(self, conn: int) -> socket.socket:
        return self._open[conn]

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()

    def _note(self, conn: int, note: str, following: list[dict[str, Any]]) -> None:
        if note == "TCP connected":
            startup = next(e for e in following if e["conn"] == conn and e.get("dir") == "C")
            self._open[conn] = socket.create_connection(("127.0.0.1", self._ports(startup)), 30)
        elif note in {"connection reset by server", "server closed the TCP connection"}:
            try:
                assert self._next(conn) == b""
            except ConnectionResetError:
                assert note == "connection reset by server"
        elif note == "client closes the TCP connection":
            leave(self._open.pop(conn))
            assert poll(lambda: self._sessions() <= len(self._open), 30)

    def _next(self, conn: int) -> bytes:
        while is_keepalive(found := receive(self._open[conn])):
            pass
        return found

    def _masked(self, raw: bytes) -> bytes:
        if raw[:1] == b"d" and raw[5:6] == b"w":
            raw = raw[:22] + bytes(8) + raw[30:]  # sendTime
        for mask in self._masks:
            raw = mask(raw)
        return raw


def leave(connection: socket.socket) -> None:
    """Close without unread bytes: those would reset the connection, and lose what was sent."""
    with connection, suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


def is_keepalive(raw: bytes) -> bool:
    return raw[:1] == b"d" and raw[5:6] == b"k"


def receive(connection: socket.socket) -> bytes:
    """One message, b"" at the end."""
    head = _exactly(connection, 5)
    if not head:
        return b""
    return head + _exactly(connection, int.from_bytes(head[1:], "big") - 4)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            assert not found, "the connection ended inside of a message"
            return b""
        found += more
    return found


def ghost_salt(raw: bytes) -> bytes:
    """A salt for a user that does not exist comes from a secret of the server."""
    if raw[:1] == b"R" and raw[5:9] == b"\0\0\0\x0a":
        return raw[:13] + b"?" * 64 + raw[77:]
    return raw


def snapshot_name(raw: bytes) -> bytes:
    """Exported snapshots are numbered by the server's own counters."""
    return re.sub(rb"[0-9A-F]{8}-[0-9A-F]{8}-\d+", lambda m: b"?" * len(m[0]), raw)
