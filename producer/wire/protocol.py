"""PostgreSQL's frontend/backend protocol, version 3: frames in, frames out.

Format: PostgreSQL manual, chapter "Message Formats".  A frame is one tag byte,
a big-endian length that counts itself but not the tag, and a body.  Only what a
replication client needs is here; the stream itself is in `replication`.

>>> list(Frames().feed(query("SELECT 1")))
[Frame(tag='Q', 9 bytes: 53454c4543542031..)]
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from producer.errors import DecodeError
from producer.wire.cursor import Cursor, text

# PostgreSQL refuses to build anything larger than 1 GB (MaxAllocSize); so do we.
MAX_FRAME_BYTES: Final = 0x4000_0000
# Before login the peer is not authenticated; libpq has the same limit.
MAX_LOGIN_BYTES: Final = 30_000

# Major and minor number, 16 bits each.  openGauss and GaussDB count from 3.50 on; what the
# minor number changes is the login (`gauss_auth`).
V3_0: Final = 0x0003_0000
V3_50: Final = 0x0003_0032
V3_51: Final = 0x0003_0033

_SSL_REQUEST: Final = 80877103
_REPR_BYTES: Final = 8


class Frame(NamedTuple):
    """One message of the protocol, not yet decoded."""

    tag: str
    body: bytes

    def __repr__(self) -> str:
        shown = self.body[:_REPR_BYTES].hex() + (".." if len(self.body) > _REPR_BYTES else "")
        return f"Frame(tag={self.tag!r}, {len(self.body)} bytes: {shown})"


class Frames:
    """Splits a byte stream into frames."""

    __slots__ = ("_buffer", "max_bytes")

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self.max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes in; the iterator yields the frames that are whole by now.

        Raises DecodeError as soon as a length is out of bounds, before waiting
        for (or allocating) that many bytes.
        """
        self._buffer += data
        return iter(self.next, None)

    def next(self) -> Frame | None:
        """Return the next frame, or None while it is incomplete."""
        buffer = self._buffer
        if len(buffer) < 5:  # tag and length
            return None
        length = int.from_bytes(buffer[1:5], "big")
        check_length(length, self.max_bytes)
        if len(buffer) <= length:
            return None
        got = Frame(chr(buffer[0]), bytes(buffer[5 : length + 1]))
        del buffer[: length + 1]
        return got

    def lines(self) -> list[bytes]:
        """Return what the whole frames of a text COPY at the front hold: lines, without their ends.

        A server sends one frame for each row.  Another frame, or a part of one, stays.

        Raises DecodeError for a frame that is not a whole row, or too long.
        """
        # Once for each row of a load: hence one loop, over bytes that are not moved.
        data, at, out = bytes(self._buffer), 0, list[bytes]()
        while data[at : at + 1] == b"d" and len(data) - at >= 5:
            length = int.from_bytes(data[at + 1 : at + 5], "big")
            behind = at + 1 + length
            if behind > len(data):
                check_length(length, self.max_bytes)
                break
            if data[behind - 1 : behind] != b"\n":
                raise DecodeError("COPY sent a part of a row")
            out.append(data[at + 5 : behind - 1])
            at = behind
        del self._buffer[:at]
        return out

    def rest(self) -> bytes:
        """Return the bytes that are not part of a frame yet: they belong to the stream."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


def check_length(length: int, max_bytes: int) -> None:
    """Refuse an impossible frame length."""
    if not 4 <= length <= max_bytes:  # it counts itself
        raise DecodeError("frame length out of bounds", length=length, most=max_bytes)


# ---- what we say


def frame(tag: bytes, body: bytes = b"") -> bytes:
    """Build one frame."""
    return tag + struct.pack(">I", len(body) + 4) + body


def startup(parameters: Mapping[str, str], *, version: int = V3_0) -> bytes:
    """Build the first message; it has no tag.  `user` is required by the server."""
    body = b"".join(_cstr(name) + _cstr(value) for name, value in parameters.items())
    return struct.pack(">II", len(body) + 9, version) + body + b"\0"


def ssl_request() -> bytes:
    """Ask for TLS; the answer is one bare byte, `S` or `N`."""
    return struct.pack(">II", 8, _SSL_REQUEST)


def query(sql: str) -> bytes:
    """Build a simple query."""
    return frame(b"Q", _cstr(sql))


def password(answer: bytes) -> bytes:
    """Build the answer to an authentication request, as an auth machine made it."""
    return frame(b"p", answer)


def copy_data(payload: bytes) -> bytes:
    """Build a piece of a copy stream; status updates travel like this."""
    return frame(b"d", payload)


def copy_done() -> bytes:
    """End our half of a copy stream."""
    return frame(b"c")


def copy_fail(reason: str) -> bytes:
    """Take back the copy we are sending; the server answers with an error."""
    return frame(b"f", _cstr(reason))


def terminate() -> bytes:
    """Say goodbye."""
    return frame(b"X")


def _cstr(value: str) -> bytes:
    raw = value.encode()
    if b"\0" in raw:
        raise ValueError("a zero byte cannot be sent in a string")
    return raw + b"\0"


# ---- what the server says


@dataclass(frozen=True, slots=True)
class ServerError:
    """An ErrorResponse or NoticeResponse."""

    severity: str = "ERROR"
    sqlstate: str = "XX000"
    message: str = ""
    detail: str = ""  # may hold cell values: for debugging, never for a log
    hint: str = ""
    number: str = ""  # openGauss only: its own number of the error, decimal; often 0
    module: str = ""  # openGauss only: the part of the server, such as LOGICAL_DECODE
    routine: str = ""  # the function of the server that says it

    @classmethod
    def parse(cls, body: bytes) -> ServerError:
        """Read the fields; letters we do not know are skipped, as the manual demands."""
        cur, fields = Cursor(body), dict[str, str]()
        while tag := cur.u8():
            # A server that is not logged in yet may answer in its own encoding.
            raw = cur.cstr_bytes()
            fields[chr(tag)] = raw.decode(errors="replace")
        cur.finish()
        return cls(
            # V is the severity without translation, from 9.6 on.
            severity=fields.get("V") or fields.get("S", "ERROR"),
            sqlstate=fields.get("C", "XX000"),
            message=fields.get("M") or fields.get("m", ""),  # m: the message alone (openGauss)
            detail=fields.get("D", ""),
            hint=fields.get("H", ""),
            number=fields.get("c", ""),
            module=fields.get("d", ""),
            routine=fields.get("R", ""),
        )


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a query's result."""

    name: str
    type_oid: int


def parse_row_description(body: bytes) -> tuple[ResultColumn, ...]:
    """Read `T`: names and types of the rows to come."""
    cur = Cursor(body)
    columns = []
    for _ in range(cur.u16()):
        name = cur.cstr()
        cur.take(6)  # table, attribute number
        columns.append(ResultColumn(name, cur.u32()))
        cur.take(8)  # size, modifier, format
    cur.finish()
    return tuple(columns)


def parse_cells(body: bytes) -> list[bytes | None]:
    """Read `D`: one row as the server sent it, None for NULL."""
    cur = Cursor(body)
    row: list[bytes | None] = []
    for _ in range(cur.u16()):
        size = cur.i32()
        row.append(None if size == -1 else cur.take(size))
    cur.finish()
    return row


def parse_parameter(body: bytes) -> tuple[str, str]:
    """Read `S`: a setting the server reports, such as server_version."""
    cur = Cursor(body)
    pair = cur.cstr(), cur.cstr()
    cur.finish()
    return pair


def parse_backend_key(body: bytes) -> int:
    """Read `K`: the process id of our server process; the cancel key is not kept."""
    return Cursor(body).u32()


def parse_negotiated(body: bytes) -> int:
    """Read `v`: the newest minor protocol version the server speaks.

    PostgreSQL before 18 sends the whole number where the manual speaks of the
    minor one.  openGauss never sends it: it refuses what it does not know.
    """
    cur = Cursor(body)
    minor = cur.u32() & 0xFFFF
    for _ in range(cur.u32()):
        cur.cstr()
    cur.finish()
    return minor


class Copying(Enum):
    """What a connection has turned to, by the tag that says so."""

    IN = "G"  # we send
    OUT = "H"  # the server sends
    BOTH = "W"  # a replication stream


class Answer:
    """Collects what the server answers to one simple query.

    `take` every frame until it says True; then `error`, or `rows` of the last
    statement (`cells`: the same before they are decoded).  With `copying` the
    server has turned to a copy stream instead.  Two commands completed by one
    answer are not an error: openGauss' DROP_REPLICATION_SLOT does that.
    """

    __slots__ = ("cells", "columns", "command", "copying", "error", "notices", "status")

    def __init__(self) -> None:
        self.columns: tuple[ResultColumn, ...] = ()
        self.cells: list[list[bytes | None]] = []
        self.command = ""
        self.error: ServerError | None = None
        self.notices: list[ServerError] = []
        self.copying: Copying | None = None
        self.status = ""  # of the transaction: I none, T open, E failed

    @property
    def rows(self) -> list[list[str | None]]:
        """Rows of the last statement as text, None for NULL."""
        return [[None if cell is None else text(cell) for cell in row] for row in self.cells]

    def take(self, got: Frame) -> bool:
        """Take one frame; True when the answer is whole.

        Raises DecodeError for a frame that is no part of one.
        """
        match got.tag:
            case "T":
                self.columns, self.cells = parse_row_description(got.body), []
            case "D":
                self.cells.append(parse_cells(got.body))
            case "C":
                self.command = Cursor(got.body).cstr()
            case "E":
                self.error = self.error or ServerError.parse(got.body)
            case "N":
                self.notices.append(ServerError.parse(got.body))
            case "W" | "G" | "H":
                self.copying = Copying(got.tag)
                return True
            case "Z":
                self.status = chr(Cursor(got.body).u8())
                return True
            case "S" | "I" | "A":  # a setting changed; an empty query; a notification
                pass
            case tag:
                raise DecodeError("unexpected frame in the answer to a query", tag=tag)
        return False
