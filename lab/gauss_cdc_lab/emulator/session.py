"""One connection: startup, login, then a walsender's commands or ordinary SQL.

On a replication connection every error is FATAL: `E`, then `Z`, then the end.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from ssl import SSLContext
from typing import Final, Protocol

from gauss_cdc_lab.emulator import slots, startup
from gauss_cdc_lab.emulator.commands import (
    Advance,
    CreateSlot,
    DropSlot,
    Identify,
    SqlCommand,
    StartCommand,
    parse,
)
from gauss_cdc_lab.emulator.frames import (
    INT4,
    TEXT,
    ErrorResponse,
    complete,
    copy_both,
    described,
    message,
    ready,
    row,
)
from gauss_cdc_lab.emulator.login import Gate, denied, granted
from gauss_cdc_lab.emulator.options import in_callback, parallel_decode_num
from gauss_cdc_lab.emulator.options import read as read_options
from gauss_cdc_lab.emulator.product import Backend, Closing, EmulatedProduct, EmulatedSlot, Peer
from gauss_cdc_lab.emulator.product import OrdinarySql as SqlSession
from gauss_cdc_lab.emulator.walsender import ClientGone, Walsender
from schemas.positions import lsn_text

_SSL_REQUEST: Final = 80_877_103
_CANCEL: Final = 80_877_102
_PROTOCOLS: Final = {(3, 0), (3, 50), (3, 51)}  # 2.0 has another framing, which is not used
_LONGEST_STARTUP: Final = 10_000
_LONGEST: Final = 1 << 28
_CLOSE_SECONDS: Final = 2.0  # for a client to close the connection after our last message


class EmulatedServer(Protocol):
    """What all sessions share."""

    product: EmulatedProduct
    backend: Backend
    gate: Gate
    activity: slots.Activity
    tls: SSLContext | None


class _Rude(Exception):
    """The client broke the framing: nothing is answered."""


class ClientSession:
    """One client's connection, from its first byte to its last."""

    def __init__(
        self,
        server: EmulatedServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_ha: bool,
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._is_ha = is_ha
        self._held: Closing | None = None  # an exported snapshot, until the next command
        self._sql: SqlSession | None = None

    async def run(self) -> None:
        """Serve until the connection ends; an error of the client is not ours."""
        try:
            await self._serve()
        except (_Rude, ClientGone, asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            await self._let_go()
            if self._sql is not None:
                await self._sql.close()
            self._writer.close()
            with suppress(ConnectionError, TimeoutError):
                await self._writer.wait_closed()

    async def receive(self) -> tuple[bytes, bytes]:
        """Next message: letter and body."""
        head = await self._reader.readexactly(5)
        length = struct.unpack_from("!i", head, 1)[0]
        if not 4 <= length <= _LONGEST:
            raise _Rude
        return head[:1], await self._reader.readexactly(length - 4)

    async def send(self, frames: bytes) -> None:
        """Messages, whole."""
        self._writer.write(frames)
        await self._writer.drain()

    # ------------------------------------------------------------ startup
    async def _serve(self) -> None:
        found = await self._startup()
        if found is None:
            return
        minor, words = found
        try:
            is_replication = startup.is_replication(words, self._server.product, is_ha=self._is_ha)
        except ErrorResponse as refused:
            is_wrong_port = not self._is_ha and refused.message.startswith("replication")
            severity = "ERROR" if is_wrong_port else "FATAL"
            await self.send(refused.frame(severity) + (ready() if is_wrong_port else b""))
            return
        try:
            peer = await self._login(minor, words)
            self._sql = await self._server.backend.sql(peer)
            hello = await self._hello(peer, words, is_replication=is_replication)
        except ErrorResponse as refused:
            await self.send(refused.frame("FATAL") + ready())
            return
        await self.send(hello)
        if is_replication:
            await self._commands(peer)
        else:
            await self._sql.serve(self)

    async def _startup(self) -> tuple[int, dict[str, str]] | None:
        """Protocol's minor number and the words of the startup message."""
        while True:
            length, code = struct.unpack("!ii", await self._reader.readexactly(8))
            if not 8 <= length <= _LONGEST_STARTUP:
                raise _Rude
            body = await self._reader.readexactly(length - 8)
            if code == _SSL_REQUEST:
                await self._answer_ssl()
                continue
            if code == _CANCEL:
                await self._server.backend.cancel(body)
                return None
            major, minor = code >> 16, code & 0xFFFF
            if (major, minor) not in _PROTOCOLS:
                text = f"unsupported frontend protocol {major}.{minor}."
                await self.send(ErrorResponse(text, "0A000").frame("FATAL"))
                return None
            parts = body.split(b"\0")
            words = [part.decode("utf-8", "replace") for part in parts[:-2]]
            return minor, dict(zip(words[::2], words[1::2], strict=False))

    async def _answer_ssl(self) -> None:
        if self._server.tls is None:
            await self.send(b"N")
            return
        await self.send(b"S")
        await self._writer.start_tls(self._server.tls)

    async def _login(self, minor: int, words: dict[str, str]) -> Peer:
        user = words.get("user", "")
        if not user:
            raise ErrorResponse("no user name specified in startup packet", "28000")
        account = self._server.gate.account(user)
        if account is not None and account.line == "reject":
            host = self._writer.get_extra_info("peername")[0]
            is_tls = self._writer.get_extra_info("ssl_object") is not None
            raise startup.no_line(words, host, is_tls=is_tls)
        challenge = self._server.gate.challenge(user, minor)
        if challenge.judge is not None:
            await self.send(challenge.frame)
            letter, answer = await self.receive()
            if letter != b"p":
                raise _Rude
            if not challenge.judge(answer.removesuffix(b"\0")):
                raise denied()
        await self.send(granted())
        database = words.get("database") or user
        return Peer(user, database, words, is_admin=account is not None and account.is_admin)

    async def _hello(self, peer: Peer, words: dict[str, str], *, is_replication: bool) -> bytes:
        assert self._sql is not None
        greeting = startup.parameters(words, await self._sql.settings(), is_admin=peer.is_admin)
        return greeting + (b"" if is_replication else message(b"K", self._sql.key())) + ready()

    # ------------------------------------------------------------ a walsender's commands
    async def _commands(self, peer: Peer) -> None:
        idle = self._server.product.idle_command_ms / 1000 or None
        while True:
            letter, body = await asyncio.wait_for(self.receive(), idle)
            await self._let_go()
            match letter:
                case b"Q":
                    try:
                        if not await self._query(peer, body.removesuffix(b"\0")):
                            return
                    except ErrorResponse as refused:
                        await self.send(refused.frame("FATAL") + ready())
                        await self._be_heard()
                        return
                case b"P" | b"V":
                    continue
                case b"X" | b"c":
                    return
                case _:
                    text = f"invalid standby handshake message type {letter[0]}"
                    await self.send(ErrorResponse(text, "08P01").frame("FATAL") + ready())
                    return

    async def _query(self, peer: Peer, text: bytes) -> bool:
        """Run one command; False if it ended the connection."""
        backend, activity = self._server.backend, self._server.activity
        match parse(text.decode("latin-1")):
            case SqlCommand():
                await self._run_sql(text)
            case Identify(what=what):
                await self.send(await self._identify(peer, what) + ready())
            case CreateSlot() as asked:
                await self.send(await self._create(peer, asked) + ready())
            case DropSlot(slot=name):
                if await backend.slot(name) is None:
                    raise slots.missing(name)
                activity.check_free(name)
                await backend.drop(name)
                await self.send(complete("DROP_REPLICATION_SLOT") + complete("SELECT") + ready())
            case Advance(slot=name, confirmed=confirmed):
                await backend.advance(name, confirmed)
                columns = [_text("slot_name"), _text("confirmed_flush")]
                values = row([name, lsn_text(confirmed)])
                await self.send(described(columns) + values + complete("SELECT") + ready())
            case StartCommand() as asked:
                await self._start(peer, asked)
                return False
        return True

    async def _run_sql(self, text: bytes) -> None:
        assert self._sql is not None
        await self.send(b"".join(await self._sql.execute(text)) + ready())

    async def _identify(self, peer: Peer, what: str) -> bytes:
        if what == "MODE":
            frames = described([("smode", INT4, 4, 0)]) + row([str(self._server.product.role)])
        elif what == "VERSION":
            columns = [("sversion", INT4, 4, 0), _text("pversion"), ("term", INT4, 4, 0)]
            frames = described(columns) + row(["90204", "MPPDB", "1"])
        else:
            system = await self._server.backend.system()
            columns = [
                _text("systemid"),
                ("timeline", INT4, 4, 0),
                _text("xlogpos"),
                _text("dbname"),
            ]
            position = lsn_text(system.position)
            values = [system.identifier, str(system.timeline), position, peer.database]
            frames = described(columns) + row(values)
        return frames + complete("SELECT")

    async def _create(self, peer: Peer, asked: CreateSlot) -> bytes:
        backend = self._server.backend
        slots.check_name(asked.slot)
        if await backend.slot(asked.slot) is not None:
            raise slots.exists(asked.slot)
        slots.check_plugin(asked.plugin, is_gaussdb=self._server.product.is_gaussdb)
        if len(await backend.slots()) >= slots.MOST:
            raise slots.none_free()
        if asked.use_snapshot:
            # Needs the walsender's own transaction, which is not implemented.
            text = "CREATE_REPLICATION_SLOT ... USE_SNAPSHOT must be called inside a transaction"
            raise ErrorResponse(text, "42809")
        point, snapshot, self._held = await backend.create(peer, asked.slot, asked.plugin)
        columns = [
            _text("slot_name"),
            _text("consistent_point"),
            _text("snapshot_name"),
            _text("output_plugin"),
        ]
        values = [asked.slot, lsn_text(point), snapshot, asked.plugin]
        return described(columns) + row(values) + complete("SELECT")

    # ------------------------------------------------------------ streaming
    async def _start(self, peer: Peer, asked: StartCommand) -> None:
        """Check in the server's order, then stream."""
        server = self._server
        number = parallel_decode_num(asked.options)
        slot = await server.backend.slot_to_read(asked.slot)
        if number == 1:
            if slot is None:
                raise slots.missing(asked.slot)
            server.activity.acquire(slot)
            try:
                await self.send(copy_both())
                await self._stream(peer, slot, asked, number)
            except BaseException:
                self._vanished(slot)
                raise
        else:
            if slot is None:
                raise slots.missing_in_parallel(asked.slot)
            server.activity.acquire_decoders(server.product.decoders)
            try:
                server.activity.acquire(slot)
                try:
                    await self._stream(peer, slot, asked, number)
                except BaseException:
                    self._vanished(slot)
                    raise
            finally:
                server.activity.release_decoders()
        server.activity.release(slot)

    def _vanished(self, slot: EmulatedSlot) -> None:
        self._server.activity.release(slot, after=self._server.product.busy_seconds)

    async def _stream(
        self, peer: Peer, slot: EmulatedSlot, asked: StartCommand, number: int
    ) -> None:
        server, product = self._server, self._server.product
        if slot.database != peer.database:
            raise slots.elsewhere(slot.name)
        try:
            wanted = read_options(
                asked.options,
                plugin=slot.plugin,
                product=product.profile.name,
                number=number,
                is_coordinator=product.shards > 0,
            )
        except ErrorResponse as refused:
            raise (
                refused if number > 1 else in_callback(refused, slot.name, slot.plugin)
            ) from None
        if wanted.standby_only:
            raise ErrorResponse(
                "walsender closed because of role is primary.", "42809", number=18739
            )
        order = wanted.output_order or 0
        is_wrong = order != (1 if slot.confirmed_csn else 0)
        # The manual knows a coordinator's stream in the order of CSNs alone.
        if product.is_gaussdb and (is_wrong or (product.shards and not order)):
            raise ErrorResponse(
                f'could not parse value "{order}" for parameter "output-order"',
                "22023",
                module="LOGICAL_DECODE",
                detail="N/A",
            )
        assert self._sql is not None
        start = max(asked.lsn, slot.confirmed)
        stream = await server.backend.stream(slot, start, wanted, self._sql)
        try:
            if number > 1:
                await self.send(copy_both())
            sender = Walsender(
                product,
                stream,
                slot,
                wanted,
                receive=lambda: asyncio.ensure_future(self.receive()),
                writer=self._writer,
            )
            await sender.run()
        finally:
            await stream.close()
        self._reset()

    async def _be_heard(self) -> None:
        """Say that nothing follows, and wait for the client to hang up.

        What the kernel has not sent yet (the first packets wait for the client's delayed
        acknowledgement) is thrown away when a status update meets a closed socket.
        """
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self._writer.can_write_eof():  # not with TLS
                    self._writer.write_eof()
                while await self._reader.read(_LONGEST_STARTUP):
                    pass

    def _reset(self) -> None:
        """A walsender that ends does not say so: the client sees its connection reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await held.close()


def _text(name: str) -> tuple[str, int, int, int]:
    # Rows that the walsender makes itself carry modifier 0, not -1.
    return name, TEXT, -1, 0
