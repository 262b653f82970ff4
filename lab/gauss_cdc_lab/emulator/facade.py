"""A real PostgreSQL that looks like openGauss or GaussDB.

Ordinary SQL goes through, with the names of `compat` answered by a schema of
ours; slots are pgoutput slots of the same name; streams are its changes, encoded
anew.  Nothing is kept here: positions are PostgreSQL's, and the plugin of a slot
stands in the slot's database, so that the facade may be killed at any time.

Not as GaussDB: few of its empty transactions are there, the user of a transaction is the
configured one, DDL is deparsed by `deparse`, USE_SNAPSHOT is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from gauss_cdc_lab.emulator import compat, pgoutput
from gauss_cdc_lab.emulator.compat import PUBLICATION
from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.frames import ErrorResponse, message
from gauss_cdc_lab.emulator.live import Live, LiveShape, WalReader, behind_csn, csn_of, zone_of
from gauss_cdc_lab.emulator.model import DdlOutput, Transaction
from gauss_cdc_lab.emulator.options import StreamOptions, read_of_function
from gauss_cdc_lab.emulator.product import (
    Closing,
    EmulatedProduct,
    EmulatedSlot,
    OrdinarySql,
    Peer,
    System,
)
from gauss_cdc_lab.emulator.quoting import literal
from gauss_cdc_lab.emulator.shapes import is_sql, shape_of_table, words_of
from gauss_cdc_lab.emulator.slots import exists, missing
from gauss_cdc_lab.emulator.sql_session import OwnSlots, SqlSession, python_codec
from gauss_cdc_lab.emulator.upstream import Address, Failed, Upstream, fields
from gauss_cdc_lab.emulator.upstream import cancel as cancel_at
from schemas.positions import NOWHERE, Lsn, lsn_text, parse_lsn

_PASSED_OVER: Final = {
    *("user", "database", "replication", "backend_version", "connection_info"),
    *("connect_timeout", "enable_full_encryption"),
}
_BUSY: Final = "55006"
_BUSY_SECONDS: Final = 20.0
_NO_DATABASE: Final = "3D000"


class Facade:
    """A `Backend` over the PostgreSQL at `address`; its user must be a superuser."""

    def __init__(
        self,
        address: Address,
        product: EmulatedProduct,
        *,
        databases: Mapping[str, str] | None = None,
    ) -> None:
        self._address, self._product = address, product
        self._databases = dict(databases or {})  # other names, for clients
        self._admins: dict[str, Upstream] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        settings = {**compat.SETTINGS, **product.settings}
        settings["enable_thread_pool"] = "on" if product.has_thread_pool else "off"
        settings["logical_sender_timeout"] = str(product.sender_timeout_ms)
        if product.shards:
            settings |= {"gauss_compat.shards": str(product.shards), "pgxc_node_name": "cn_5001"}
        self.settings: Mapping[str, str] = settings
        # Of a replay: shown in place of PostgreSQL's.
        self.own_slots: OwnSlots | None = None

    # ------------------------------------------------------------ sessions
    async def sql(self, peer: Peer) -> SqlSession:
        """An ordinary session in the peer's database."""
        words = {
            name: value
            for name, value in peer.parameters.items()
            if name not in _PASSED_OVER and name.lower() not in self.settings
        }
        words.setdefault("TimeZone", self._product.time_zone)
        if seconds := int(peer.parameters.get("session_timeout", 0)):
            words["idle_session_timeout"] = f"{seconds}s"
        database = self.real(peer.database)
        await self._rows(database, "SELECT 1")
        try:
            upstream = await Upstream.open(self._address, database, words)
        except Failed as failed:
            raise failed.as_refused() from None
        return SqlSession(self, upstream, database)

    async def prepare(self, database: str) -> None:
        """Create the schema `gauss_compat` there, before the first login."""
        await self._rows(self.real(database), "SELECT 1")

    def real(self, database: str) -> str:
        """The name at PostgreSQL."""
        return self._databases.get(database, database)

    async def system(self) -> System:
        """Who PostgreSQL is, and where its log is flushed to."""
        ((identifier, timeline, position),) = await self._rows(
            self._address.database,
            "SELECT s.system_identifier, c.timeline_id, pg_current_wal_flush_lsn()"
            " FROM pg_control_system() s, pg_control_checkpoint() c",
        )
        return System(str(identifier), int(timeline or 1), parse_lsn(str(position)))

    async def cancel(self, key: bytes) -> None:
        """Hand the request on."""
        await cancel_at(self._address, key)

    async def close(self) -> None:
        """Close our own sessions."""
        for admin in self._admins.values():
            await admin.close()

    # ------------------------------------------------------------ slots
    async def slot(self, name: str) -> EmulatedSlot | None:
        """A pgoutput slot of that name."""
        rows = await self._rows(
            self._address.database,
            "SELECT database, confirmed_flush_lsn FROM pg_replication_slots"  # noqa: S608  quoted
            f" WHERE plugin = 'pgoutput' AND slot_name = {literal(name)}",
        )
        if not rows:
            return None
        ((database, confirmed),) = rows
        found = await self._rows(
            str(database),
            "SELECT plugin, output_order FROM gauss_compat.plugins"  # noqa: S608  quoted
            f" WHERE slot_name = {literal(name)}",
        )
        plugin, order = found[0] if found else ("mppdb_decoding", "0")
        position = parse_lsn(str(confirmed))
        csn = csn_of(position) if order == "1" else 0
        shown = {real: name for name, real in self._databases.items()}
        return EmulatedSlot(
            name, str(plugin), shown.get(str(database), str(database)), Lsn(csn) or position, csn
        )

    async def slot_to_read(self, name: str) -> EmulatedSlot | None:
        """As `slot`."""
        return await self.slot(name)

    async def slots(self) -> list[EmulatedSlot]:
        """All pgoutput slots."""
        names = await self._rows(
            self._address.database,
            "SELECT slot_name FROM pg_replication_slots WHERE plugin = 'pgoutput'",
        )
        found = [await self.slot(str(name)) for (name,) in names]
        return [slot for slot in found if slot is not None]

    async def create(self, peer: Peer, name: str, plugin: str) -> tuple[Lsn, str, Closing]:
        """A slot with PostgreSQL's own exported snapshot, which lives with the connection."""
        database = self.real(peer.database)
        upstream = await Upstream.open(self._address, database, {"replication": "database"})
        try:
            ((_, point, snapshot, _),) = await upstream.rows(
                f'CREATE_REPLICATION_SLOT "{name}" LOGICAL pgoutput EXPORT_SNAPSHOT'
            )
            await self._rows(
                database,
                "INSERT INTO gauss_compat.plugins VALUES"  # noqa: S608  quoted
                f" ({literal(name)}, {literal(plugin)}) ON CONFLICT (slot_name)"
                " DO UPDATE SET plugin = excluded.plugin, output_order = 0",
            )
        except Failed as failed:
            await upstream.close()
            raise (exists(name) if failed.state == "42710" else failed.as_refused()) from None
        except BaseException:
            await upstream.close()
            raise
        return parse_lsn(str(point)), str(snapshot), upstream

    async def drop(self, name: str) -> None:
        """Drop it; PostgreSQL's own sender may need a moment to let go of it."""
        slot = await self.slot(name)
        if slot is None:
            raise missing(name)
        text = f"SELECT gauss_compat.pg_drop_replication_slot({literal(name)})"
        await self._patiently(self.real(slot.database), text)

    async def advance(self, name: str, confirmed: Lsn) -> None:
        """Move it forward."""
        slot = await self.slot(name)
        if slot is None:
            raise missing(name)
        goal = literal(lsn_text(confirmed))
        text = f"SELECT pg_catalog.pg_replication_slot_advance({literal(name)}, {goal})"
        await self._patiently(self.real(slot.database), text)

    # ------------------------------------------------------------ changes
    async def stream(
        self, slot: EmulatedSlot, start: Lsn, asked: StreamOptions, sql: OrdinarySql
    ) -> Live:
        """PostgreSQL's changes from `start` on, in the format that was asked for."""
        settings = dict(await sql.settings())
        if asked.timezone_is_utc:
            settings["TimeZone"] = "UTC"
        database = self.real(slot.database)
        by_csn = asked.mode.output_order == 1
        begin = behind_csn(start) if by_csn else start
        output = encoder(asked.mode, self._product.profile, python_codec(settings))
        catalog = await Upstream.open(self._address, database)
        try:
            upstream = await self._started(slot.name, begin, asked, settings, database)
        except BaseException:
            await catalog.close()
            raise
        on_close: list[Closing] = [catalog]
        if self._product.background_seconds:
            commit = partial(self._commit_empty, database)
            on_close.append(_Background(commit, self._product.background_seconds))
        return Live(
            upstream,
            self._reader(catalog, settings),
            output,
            start=begin,
            is_parallel=asked.mode.parallel,
            by_csn=by_csn,
            has_heartbeat=asked.mode.enable_heartbeat and self._product.profile.heartbeat,
            on_close=on_close,
        )

    async def _commit_empty(self, database: str) -> None:
        await self._rows(
            database,
            "SELECT pg_logical_emit_message(true, 'gauss_compat.background', '')",
        )

    async def changes(
        self, asked: compat.ChangesCall, database: str, settings: Mapping[str, str]
    ) -> list[tuple[str, str, bytes]]:
        """What peek or get answers: rows of (location, xid, data); get also moves the slot."""
        slot = await self.slot(asked.slot)
        if slot is None:
            raise missing(asked.slot)
        product = self._product
        wanted = read_of_function(asked.options, plugin=slot.plugin, product=product.profile.name)
        if wanted.force_binary and not asked.is_binary:
            raise ErrorResponse("output plugin cannot produce binary output", "0A000")
        codec = python_codec(settings)
        session = await Upstream.open(
            self._address, database, words_of(settings, is_sql_decoding=is_sql(slot.plugin))
        )
        try:
            # PostgreSQL counts its own messages, of which there may be more or fewer than ours.
            limit = 2 * asked.upto_changes if asked.upto_changes else 0
            while True:
                rows = await _peeked(session, asked, limit)
                output = encoder(wanted.mode, product.profile, codec)
                found: list[tuple[str, str, bytes]] = []
                end = NOWHERE
                async for transaction in _read(rows, self._reader(session, settings)):
                    for position, payload in output.feed(transaction):
                        found.append((lsn_text(position), str(transaction.xid), payload))
                    end = transaction.end_lsn
                    if asked.upto_changes and len(found) >= asked.upto_changes:
                        break
                else:
                    if limit and len(rows) >= limit:
                        limit *= 8
                        continue
                break
            if asked.is_get and end:
                await self.advance(asked.slot, end)
        except Failed as failed:
            raise failed.as_refused() from None
        finally:
            await session.close()
        return found

    def _reader(self, catalog: Upstream, settings: Mapping[str, str]) -> WalReader:
        async def shape_of(relation: pgoutput.Relation) -> LiveShape:
            return await shape_of_table(catalog, relation)

        tells_ddl = self._product.profile.ddl is DdlOutput.TAGGED
        zone = zone_of(settings["TimeZone"])
        return WalReader(
            shape_of, zone, self._address.user, tells_ddl=tells_ddl, shards=self._product.shards
        )

    async def _started(
        self,
        name: str,
        start: Lsn,
        asked: StreamOptions,
        settings: Mapping[str, str],
        database: str,
    ) -> Upstream:
        has_fewer_digits = is_sql(asked.mode.plugin) and not asked.mode.parallel
        words = {**words_of(settings, is_sql_decoding=has_fewer_digits), "replication": "database"}
        command = (
            f"START_REPLICATION SLOT \"{name}\" LOGICAL {lsn_text(start)} (proto_version '1',"
            f" publication_names '{PUBLICATION}', messages 'true')"
        )
        limit = time.monotonic() + _BUSY_SECONDS
        while True:
            upstream = await Upstream.open(self._address, database, words)
            await upstream.send(message(b"Q", command.encode() + b"\0"))
            while (found := await upstream.receive())[0] == b"N":
                pass
            if found[0] == b"W":
                return upstream
            await upstream.close()
            failed = Failed(fields(found[1]))
            # PostgreSQL's sender of the last stream may not have noticed that it is over.
            if failed.state != _BUSY or time.monotonic() > limit:
                raise failed.as_refused()
            await asyncio.sleep(0.05)

    # ------------------------------------------------------------ our own sessions
    async def _patiently(self, database: str, text: str) -> None:
        limit = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                await self._rows(database, text)
            except ErrorResponse as refused:
                if refused.state != _BUSY or time.monotonic() > limit:
                    raise
            else:
                return
            await asyncio.sleep(0.05)

    async def _rows(self, database: str, text: str) -> list[tuple[str | None, ...]]:
        async with self._locks.setdefault(database, asyncio.Lock()):
            try:
                admin = self._admins.get(database)
                if admin is None:
                    admin = await self._prepared(database)
                    self._admins[database] = admin
                return await admin.rows(text)
            except Failed as failed:
                if failed.state == _NO_DATABASE:
                    text = f'database "{database}" does not exist'
                    raise ErrorResponse(text, _NO_DATABASE, number=11898) from None
                raise failed.as_refused() from None
            except (ConnectionError, asyncio.IncompleteReadError):
                self._admins.pop(database, None)
                raise

    async def _prepared(self, database: str) -> Upstream:
        admin = await Upstream.open(self._address, database)
        settings = {**self.settings, "gauss_compat.version": self._product.version}
        names = (name for name, real in self._databases.items() if real == database)
        settings["gauss_compat.database"] = next(names, database)
        await admin.rows("SET client_min_messages = warning")
        await admin.rows(compat.install(settings, is_gaussdb=self._product.is_gaussdb))
        return admin


async def _peeked(
    session: Upstream, asked: compat.ChangesCall, limit: int
) -> list[tuple[int, bytes]]:
    """Messages of pgoutput with their positions, whole transactions; limit 0: all."""
    upto = "NULL" if asked.upto_lsn is None else literal(lsn_text(asked.upto_lsn))
    rows = await session.raw_rows(
        "SELECT lsn, data FROM pg_catalog.pg_logical_slot_peek_binary_changes("  # noqa: S608
        f"{literal(asked.slot)}, {upto}, {limit or 'NULL'}, 'proto_version', '1',"
        f" 'publication_names', '{PUBLICATION}', 'messages', 'true')"
    )
    return [
        (parse_lsn(lsn.decode()), bytes.fromhex(data[2:].decode()))
        for lsn, data in rows
        if lsn is not None and data is not None
    ]


async def _read(rows: list[tuple[int, bytes]], reader: WalReader) -> AsyncIterator[Transaction]:
    for lsn, payload in rows:
        transaction = await reader.take(lsn, payload)
        if transaction is not None:
            yield transaction


class _Background:
    """Does something again and again until it is closed."""

    def __init__(self, act: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._act, self._seconds = act, seconds
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._act()
