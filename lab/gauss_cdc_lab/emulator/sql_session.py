"""Ordinary SQL of one client, handed on to PostgreSQL and back, rewritten on the way.

An ordinary session runs both ways at once, so COPY and the extended protocol work
as they are; a walsender's SQL is one statement after the other.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from psycopg2.extensions import encodings

from gauss_cdc_lab.emulator.compat import (
    RESULT,
    ChangesCall,
    changes_asked,
    rewrite,
    slot_change,
)
from gauss_cdc_lab.emulator.frames import ErrorResponse, message
from gauss_cdc_lab.emulator.product import Client, EmulatedSlot, System
from gauss_cdc_lab.emulator.quoting import literal
from gauss_cdc_lab.emulator.upstream import Upstream, fields
from schemas.positions import Lsn, lsn_text


class OwnSlots(Protocol):
    """Slots that are not PostgreSQL's.  Errors are `ErrorResponse`."""

    async def slots(self) -> list[EmulatedSlot]:
        """All of them."""

    def is_active(self, name: str) -> bool:
        """Whether a client streams from one."""

    async def drop(self, name: str) -> None:
        """Forget one."""

    async def advance(self, name: str, confirmed: Lsn) -> None:
        """Move one forward; 0: to the end."""

    async def system(self) -> System:
        """Where the log ends."""


class Changes(Protocol):
    """What this session asks of the facade."""

    settings: Mapping[str, str]
    own_slots: OwnSlots | None

    async def changes(
        self, asked: ChangesCall, database: str, settings: Mapping[str, str]
    ) -> list[tuple[str, str, bytes]]:
        """Answer peek or get."""


_NAMES: Final = (
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "bytea_output",
)
_SLOTS: Final = "gauss_compat.slots"
_POSITION: Final = "gauss_compat.position"


class SqlSession:
    """A `Sql` at PostgreSQL."""

    def __init__(self, facade: Changes, upstream: Upstream, database: str) -> None:
        self._facade, self._upstream, self._database = facade, upstream, database
        # What is answered next: True is the client's, False a statement of ours.
        self._theirs: deque[bool] = deque()

    def key(self) -> bytes:
        """PostgreSQL's, so that a cancel request may be handed on."""
        return self._upstream.key

    async def settings(self) -> Mapping[str, str]:
        """What shapes values, as this session has set it by now."""
        listed = ", ".join(f"'{name.lower()}'" for name in _NAMES)
        rows = await self._upstream.rows(
            "SELECT lower(name), setting FROM pg_catalog.pg_settings"  # noqa: S608  constants
            f" WHERE lower(name) IN ({listed})"
        )
        reported = {str(name): str(setting) for name, setting in rows}
        shown = self._facade.settings  # a replay's database may have another encoding
        return {name: shown.get(name, reported[name.lower()]) for name in _NAMES}

    async def execute(self, text: bytes) -> list[bytes]:
        """Run a walsender's statement; PostgreSQL's errors as Refused."""
        statement = text.decode("latin-1")
        for ours in await self._before(statement):
            await self._upstream.rows(ours)
        found = []
        rewritten = rewrite(statement, self._facade.settings).encode("latin-1")
        for letter, body in await self._upstream.query(rewritten):
            if letter == b"E":
                raise _refused(body)
            if letter in {b"G", b"W"}:
                raise ErrorResponse("COPY FROM STDIN is not possible on a walsender", "0A000")
            if letter != b"S" or not body.startswith(b"server_version\0"):
                found.append(_told(letter, body))
        return found

    async def serve(self, client: Client) -> None:
        """Hand messages on both ways until either side ends."""
        ways = {
            asyncio.ensure_future(self._up(client)),
            asyncio.ensure_future(self._down(client)),
        }
        done, pending = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in pending:
            way.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for way in done:
            way.result()

    async def close(self) -> None:
        """End the session at PostgreSQL."""
        await self._upstream.close()

    # ------------------------------------------------------------ both ways
    async def _up(self, client: Client) -> None:
        while True:
            letter, body = await client.receive()
            match letter:
                case b"X":
                    return
                case b"Q":
                    await self._query(body.removesuffix(b"\0").decode("latin-1"))
                    continue
                case b"P":
                    name, text, rest = body.split(b"\0", 2)
                    shown = rewrite(text.decode("latin-1"), self._facade.settings)
                    body = b"\0".join([name, shown.encode("latin-1"), rest])
                case b"S" | b"F":
                    self._theirs.append(True)
                case _:
                    pass
            await self._upstream.send(message(letter, body))

    async def _query(self, text: str) -> None:
        try:
            for ours in await self._before(text):
                await self._ask(ours, is_theirs=False)
        except ErrorResponse as refused:
            # PostgreSQL itself says it, so that a transaction fails as it should.
            await self._ask(_raised(refused), is_theirs=True)
            return
        await self._ask(rewrite(text, self._facade.settings), is_theirs=True)

    async def _ask(self, text: str, *, is_theirs: bool) -> None:
        self._theirs.append(is_theirs)
        await self._upstream.send(message(b"Q", text.encode("latin-1") + b"\0"))

    async def _down(self, client: Client) -> None:
        while True:
            letter, body = await self._upstream.receive()
            is_theirs = not self._theirs or self._theirs[0]
            if letter == b"Z" and self._theirs:
                self._theirs.popleft()
            elif letter == b"S":
                name, value, _ = body.decode("utf-8", "replace").split("\0")
                self._upstream.parameters[name] = value
            if is_theirs and not (letter == b"S" and body.startswith(b"server_version\0")):
                await client.send(_told(letter, body))

    # ------------------------------------------------------------ what must be there before
    async def _before(self, text: str) -> list[str]:
        """Statements of ours that a client's statement needs."""
        needed = []
        slots = self._facade.own_slots
        if slots is not None and "replication_slot" in text.lower():
            if (change := slot_change(text)) is not None:
                if change.upto is None:
                    await slots.drop(change.slot)
                else:
                    await slots.advance(change.slot, change.upto)
            rows = [
                {
                    "slot_name": slot.name,
                    "plugin": slot.plugin,
                    "active": slots.is_active(slot.name),
                    "confirmed_flush": lsn_text(slot.confirmed),
                }
                for slot in await slots.slots()
            ]
            needed.append(_set(_SLOTS, rows))
        if slots is not None and "xlog_" in text.lower():
            position = lsn_text((await slots.system()).position)
            needed.append(f"SELECT set_config('{_POSITION}', '{position}', false)")
        asked = changes_asked(text)
        if asked is not None:
            settings = self._told_settings()
            found = await self._facade.changes(asked, self._database, settings)
            codec = "latin-1" if asked.is_binary else python_codec(settings)
            rows_of_changes = [
                [
                    place,
                    xid,
                    f"\\x{payload.hex()}" if asked.is_binary else payload.decode(codec, "replace"),
                ]
                for place, xid, payload in found
            ]
            needed.append(_set(RESULT, rows_of_changes))
        return needed

    def _told_settings(self) -> Mapping[str, str]:
        """Settings without a word to PostgreSQL: a serving session reads its own answers."""
        reported = self._upstream.parameters
        return {
            "server_encoding": reported["server_encoding"],
            "client_encoding": reported["client_encoding"],
            "DateStyle": reported["DateStyle"],
            "IntervalStyle": reported["IntervalStyle"],
            "TimeZone": reported["TimeZone"],
            "bytea_output": "hex",
        }


def python_codec(settings: Mapping[str, str]) -> str:
    """Python's name of the database's encoding."""
    return encodings.get(settings["server_encoding"], "utf-8").replace("ascii", "utf-8")


def _told(letter: bytes, body: bytes) -> bytes:
    """A message of PostgreSQL as openGauss sends it: errors have other fields."""
    if letter not in {b"E", b"N"}:
        return message(letter, body)
    reported = fields(body)
    return letter + _refused(body).frame(reported.get("S", "ERROR"))[1:]


def _refused(body: bytes) -> ErrorResponse:
    reported = fields(body)
    return ErrorResponse(
        reported.get("M", ""),
        reported.get("C", "XX000"),
        detail=reported.get("D", ""),
        hint=reported.get("H", ""),
        context=reported.get("W", ""),
    )


def _set(name: str, value: object) -> str:
    return f"SELECT set_config('{name}', {literal(json.dumps(value))}, false)"


def _raised(refused: ErrorResponse) -> str:
    words = {
        "MESSAGE": refused.message,
        "ERRCODE": refused.state,
        "DETAIL": refused.detail,
        "HINT": refused.hint,
    }
    using = ", ".join(
        f"{name} = '{text.replace(chr(39), chr(39) * 2)}'" for name, text in words.items() if text
    )
    return f"DO $gauss_compat$ BEGIN RAISE EXCEPTION USING {using}; END $gauss_compat$"
