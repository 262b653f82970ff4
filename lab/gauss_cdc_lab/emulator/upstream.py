"""A connection to the real PostgreSQL behind the facade: messages, as they are.

Ordinary drivers hide messages, and the facade hands them on.  Logs in by trust,
password, MD5 and SCRAM-SHA-256 over TCP or a Unix socket, without TLS: the two
stand side by side.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from psycopg2.extensions import parse_dsn

from gauss_cdc_lab.emulator.frames import ErrorResponse, message

_PROTOCOL: Final = 196_608
_CANCEL: Final = 80_877_102
_READ_AHEAD: Final = 1 << 22
_OWN: Final = {"search_path": "pg_catalog, pg_temp"}  # of sessions that are no client's


@dataclass(frozen=True, slots=True)
class Address:
    """Where PostgreSQL answers, and who we are there."""

    host: str = "127.0.0.1"
    port: int = 5432
    user: str = "postgres"
    password: str = field(default="", repr=False)
    database: str = "postgres"

    @classmethod
    def parse(cls, dsn: str, password: str = "") -> Self:
        """From a DSN in one of libpq's two forms; the password may stand in it."""
        words = parse_dsn(dsn)
        return cls(
            host=words.get("host", "127.0.0.1"),
            port=int(words.get("port", 5432)),
            user=words.get("user", "postgres"),
            password=password or words.get("password", ""),
            database=words.get("dbname") or words.get("user", "postgres"),
        )


class Failed(Exception):
    """An ErrorResponse of PostgreSQL."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(fields.get("M", ""))
        self.fields = fields
        self.state = fields.get("C", "XX000")

    def as_refused(self) -> ErrorResponse:
        """The same, as the emulated server says it."""
        found = self.fields
        return ErrorResponse(
            found.get("M", ""),
            self.state,
            detail=found.get("D", ""),
            hint=found.get("H", ""),
        )


class Upstream:
    """One session at PostgreSQL."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._address, self._reader, self._writer = address, reader, writer
        self.key = bytes(8)
        self.parameters: dict[str, str] = {}

    @classmethod
    async def open(
        cls, address: Address, database: str, words: Mapping[str, str] | None = None
    ) -> Self:
        """Connect and log in; Failed if PostgreSQL refuses."""
        if address.host.startswith("/"):
            path = f"{address.host}/.s.PGSQL.{address.port}"
            reader, writer = await asyncio.open_unix_connection(path, limit=_READ_AHEAD)
        else:
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=_READ_AHEAD
            )
        self = cls(address, reader, writer)
        try:
            own = _OWN if words is None else words
            await self._log_in({"user": address.user, "database": database, **own})
        except BaseException:
            await self.close()
            raise
        return self

    async def receive(self) -> tuple[bytes, bytes]:
        """Next message."""
        head = await self._reader.readexactly(5)
        (length,) = struct.unpack_from("!i", head, 1)
        return head[:1], await self._reader.readexactly(length - 4)

    async def send(self, frames: bytes) -> None:
        """Messages, whole."""
        self._writer.write(frames)
        await self._writer.drain()

    async def query(self, text: str | bytes) -> list[tuple[bytes, bytes]]:
        """Run a simple query; its messages without ReadyForQuery, errors among them."""
        raw = text.encode() if isinstance(text, str) else text
        await self.send(message(b"Q", raw + b"\0"))
        return [found async for found in self._until_ready()]

    async def rows(self, text: str | bytes) -> list[tuple[str | None, ...]]:
        """Run a simple query; its rows as text, or Failed."""
        found = []
        for letter, body in await self.query(text):
            if letter == b"D":
                found.append(tuple(_cells(body)))
            elif letter == b"E":
                raise Failed(fields(body))
        return found

    async def raw_rows(self, text: str | bytes) -> list[list[bytes | None]]:
        """As `rows`, with the cells' bytes."""
        found = []
        for letter, body in await self.query(text):
            if letter == b"D":
                found.append(list(_raw_cells(body)))
            elif letter == b"E":
                raise Failed(fields(body))
        return found

    async def close(self) -> None:
        """End the session."""
        self._writer.close()

    async def _until_ready(self) -> AsyncIterator[tuple[bytes, bytes]]:
        while True:
            letter, body = await self.receive()
            if letter == b"Z":
                return
            yield letter, body

    # ------------------------------------------------------------ login
    async def _log_in(self, words: Mapping[str, str]) -> None:
        body = b"".join(f"{name}\0{value}\0".encode() for name, value in words.items()) + b"\0"
        await self.send(struct.pack("!ii", len(body) + 8, _PROTOCOL) + body)
        scram: _Scram | None = None
        while True:
            letter, body = await self.receive()
            match letter:
                case b"E":
                    raise Failed(fields(body))
                case b"R":
                    (code,) = struct.unpack_from("!i", body)
                    if code == 10:
                        scram = _Scram(self._address.password)
                        await self._answer(scram.first())
                    elif code == 11:
                        assert scram is not None
                        await self._answer(scram.last(body[4:]))
                    elif code == 3:
                        await self._answer(self._address.password.encode() + b"\0")
                    elif code == 5:
                        await self._answer(self._md5(body[4:8]))
                    elif code not in {0, 12}:
                        raise Failed({"M": f"PostgreSQL asks for login method {code}"})
                case b"K":
                    self.key = body
                case b"S":
                    name, value, _ = body.decode("utf-8", "replace").split("\0")
                    self.parameters[name] = value
                case b"Z":
                    return

    async def _answer(self, body: bytes) -> None:
        await self.send(message(b"p", body))

    def _md5(self, salt: bytes) -> bytes:
        address = self._address
        inner = hashlib.md5(address.password.encode() + address.user.encode())  # noqa: S324
        outer = hashlib.md5(inner.hexdigest().encode() + salt)  # noqa: S324
        return b"md5" + outer.hexdigest().encode() + b"\0"


async def cancel(address: Address, key: bytes) -> None:
    """Hand on a CancelRequest."""
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(struct.pack("!ii", len(key) + 8, _CANCEL) + key)
    await writer.drain()
    writer.close()


def fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse, by letter."""
    parts = body.rstrip(b"\0").split(b"\0")
    return {part[:1].decode(): part[1:].decode("utf-8", "replace") for part in parts if part}


def _cells(body: bytes) -> list[str | None]:
    return [None if raw is None else raw.decode("utf-8", "replace") for raw in _raw_cells(body)]


def _raw_cells(body: bytes) -> list[bytes | None]:
    (count,) = struct.unpack_from("!h", body)
    at = 2
    found: list[bytes | None] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        if length < 0:
            found.append(None)
        else:
            found.append(body[at : at + length])
            at += length
    return found


class _Scram:
    """SCRAM-SHA-256 without channel binding (RFC 5802, RFC 7677)."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._bare = f"n=,r={base64.b64encode(os.urandom(18)).decode()}"

    def first(self) -> bytes:
        """SASLInitialResponse."""
        text = f"n,,{self._bare}".encode()
        return b"SCRAM-SHA-256\0" + struct.pack("!i", len(text)) + text

    def last(self, found: bytes) -> bytes:
        """SASLResponse to the server's first message."""
        words = dict(part.split("=", 1) for part in found.decode().split(","))
        salt, rounds = base64.b64decode(words["s"]), int(words["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self._password, salt, rounds)
        client = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c=biws,r={words['r']}"
        signed = f"{self._bare},{found.decode()},{without}".encode()
        mask = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client, mask, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()
