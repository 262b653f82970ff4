"""PostgreSQL's changes as transactions of the emulated database.

The CSN of a commit is where its record begins, divided by 8 (records are aligned
to 8 bytes): it grows in commit order, and a restart gives every commit the same.
pgoutput leaves out most transactions without changes; those with a logical message
or with changes of the facade's own tables are empty ones to the client.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gauss_cdc_lab.emulator import pgoutput
from gauss_cdc_lab.emulator.compat import DDL_PREFIX, SCHEMA
from gauss_cdc_lab.emulator.deparse import deparsed
from gauss_cdc_lab.emulator.frames import EPOCH_2000, copy_data
from gauss_cdc_lab.emulator.model import (
    Ddl,
    Encoder,
    Field,
    Heartbeat,
    Item,
    Op,
    Row,
    Sent,
    Transaction,
    Truncate,
)
from gauss_cdc_lab.emulator.product import Closing
from gauss_cdc_lab.emulator.upstream import Upstream
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableId

_OPS: Final = {"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE}
_AHEAD: Final = 64  # transactions that wait for the client
_STATUS_SECONDS: Final = 5.0
_HEARTBEAT_SECONDS: Final = 1.0
_WAL: Final = struct.Struct("!xQQq")
_ALIVE: Final = struct.Struct("!xQqB")
_REPLY: Final = struct.Struct("!cQQQqB")


def csn_of(commit_lsn: int) -> int:
    """The commit's number."""
    return commit_lsn >> 3


def id_at_node(xid: int, shards: int) -> int:
    """A transaction's id at the data node that prints it; 0 shards: no node has ids of its own.

    Nodes are ahead of their coordinator, and two of them give one id to two transactions.

    >>> id_at_node(7, 0), id_at_node(6, 2), id_at_node(7, 2)
    (7, 1048579, 1048579)
    """
    return (1 << 20) + xid // shards if shards else xid


def behind_csn(csn: int) -> Lsn:
    """A position that excludes the commit of that number and none after it."""
    return Lsn((csn << 3) + 1)


@dataclass(frozen=True, slots=True)
class LiveShape:
    """What the stream does not say of a table."""

    types: Mapping[int, str]  # format_type() without modifier, by OID
    identity: frozenset[str] | None  # columns of the old row; None: there is no old row


class WalReader:
    """Puts pgoutput's messages together to transactions."""

    def __init__(
        self,
        shape_of: Callable[[pgoutput.Relation], Awaitable[LiveShape]],
        zone: tzinfo,
        user: str | None,
        *,
        tells_ddl: bool = False,
        shards: int = 0,
    ) -> None:
        """`tells_ddl`: statements are deparsed (GaussDB); otherwise only their place is known.

        `shards`: each gives out transaction ids of its own.
        """
        self._shape_of, self._zone, self._user = shape_of, zone, user
        self._tells_ddl, self._shards = tells_ddl, shards
        self._tables: dict[int, tuple[pgoutput.Relation, LiveShape]] = {}
        self._begin: pgoutput.Begin | None = None
        self._items: list[Item] = []

    async def take(self, lsn: int, payload: bytes) -> Transaction | None:
        """Read one message, which stood at `lsn`; a transaction when it is complete."""
        match pgoutput.read(payload):
            case pgoutput.Begin() as begin:
                self._begin, self._items = begin, []
            case pgoutput.Commit() as commit:
                return self._ended(commit)
            case pgoutput.Relation() as relation:
                if relation.schema != SCHEMA:
                    shape = await self._shape_of(relation)
                    self._tables[relation.oid] = relation, shape
                else:
                    self._tables.pop(relation.oid, None)
            case pgoutput.RowMessage() as change:
                if change.relation in self._tables:
                    self._items.append(self._row(Lsn(lsn), change))
            case pgoutput.TruncateMessage() as truncate:
                found = [self._tables[oid][0] for oid in truncate.relations if oid in self._tables]
                if found:
                    tables = tuple(TableId(table.schema, table.table) for table in found)
                    self._items.append(
                        Truncate(Lsn(lsn), tables, truncate.cascade, truncate.restart)
                    )
            case pgoutput.Logical(prefix=prefix, content=content):
                if prefix == DDL_PREFIX:
                    self._state(Lsn(lsn), content)
            case None:
                pass
        return None

    def _ended(self, commit: pgoutput.Commit) -> Transaction | None:
        begin, items = self._begin, self._items
        self._begin, self._items = None, []
        if begin is None:
            return None
        return Transaction(
            xid=id_at_node(begin.xid, self._shards),
            csn=csn_of(commit.commit_lsn),
            first_lsn=items[0].lsn if items else None,
            commit_lsn=Lsn(commit.commit_lsn),
            end_lsn=Lsn(commit.end_lsn),
            committed_at=printed(begin.at, self._zone),
            items=items,
            user=self._user,
        )

    def _state(self, lsn: Lsn, content: bytes) -> None:
        statement = deparsed(content)
        if statement is None:
            return
        # PostgreSQL logs rows of CREATE TABLE AS before its triggers run; here they stand behind.
        filled = [item for item in self._items if _is_of(item, statement.filled)]
        self._items = [item for item in self._items if not _is_of(item, statement.filled)]
        told = Ddl(lsn, lsn)
        if self._tells_ddl:
            told = Ddl(lsn, lsn, content=statement.content, sql=statement.sql)
        self._items += [told, *filled]

    def _row(self, lsn: Lsn, change: pgoutput.RowMessage) -> Row:
        relation, shape = self._tables[change.relation]
        new, old = change.new, change.old
        if new is not None and old is not None:
            new = [b if a is UNCHANGED else a for a, b in zip(new, old, strict=True)]
        kept = shape.identity
        return Row(
            lsn,
            _OPS[change.letter],
            relation.schema,
            relation.table,
            new=self._fields(relation, shape, new) if new is not None else None,
            old=self._fields(relation, shape, old or new or [], kept)
            if kept is not None and change.letter != "I"
            else None,
        )

    @staticmethod
    def _fields(
        relation: pgoutput.Relation,
        shape: LiveShape,
        values: pgoutput.Tuple,
        kept: frozenset[str] | None = None,
    ) -> list[Field]:
        return [
            Field(name, shape.types[oid], oid, value)
            for (name, oid), value in zip(relation.columns, values, strict=True)
            if kept is None or name in kept
        ]


def _is_of(item: object, table: tuple[str, str] | None) -> bool:
    return isinstance(item, Row) and (item.schema, item.table) == table


class Live:
    """A `Stream` of what happens at PostgreSQL."""

    def __init__(
        self,
        upstream: Upstream,
        reader: WalReader,
        encoder: Encoder,
        *,
        start: int,
        is_parallel: bool = False,
        by_csn: bool = False,
        has_heartbeat: bool = False,
        on_close: Sequence[Closing] = (),
    ) -> None:
        self._upstream, self._reader, self._encoder = upstream, reader, encoder
        # A parallel stream sends the reader's position, which may be ahead of what was sent.
        self._is_ahead = is_parallel
        self._by_csn, self._has_heartbeat = by_csn, has_heartbeat
        self._on_close = on_close
        self._ready: deque[Transaction | int] = deque()  # an int: nothing before that position
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._read_to = self._confirmed = start
        self._flushed = 0
        self._failure: BaseException | None = None
        self._in_parallel_to = start
        self._beat_at = time.monotonic()
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._keep())]

    async def more(self) -> Iterable[Sent]:
        """What the next transaction makes due; nothing where only the position moved."""
        while not self._ready:
            if self._failure is not None:
                raise ConnectionResetError from self._failure
            self._changed.clear()
            if await self._is_heartbeat_due():
                return self._heartbeat()
        item = self._ready.popleft()
        if len(self._ready) < _AHEAD:
            self._room.set()
        if isinstance(item, int):
            self._read_to = max(self._read_to, item)
            return ()
        return self._encoded(item)

    def idle(self) -> Iterable[Sent]:
        """What a batch holds."""
        return self._encoder.idle()

    def read_to(self) -> int:
        """The position of a keepalive."""
        position = self._in_parallel_to if self._is_ahead else self._read_to
        return csn_of(position) if self._by_csn else position

    def is_behind(self) -> bool:
        """Whether a transaction waits."""
        return bool(self._ready)

    async def confirm(self, flushed: int) -> None:
        """Hand the position on to PostgreSQL's slot, not clamped."""
        self._flushed = behind_csn(flushed) if self._by_csn else flushed
        await self._reply()

    async def close(self) -> None:
        """End the stream at PostgreSQL and wait until its slot is free."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(ConnectionError):
            await self._upstream.send(b"c\0\0\0\x04X\0\0\0\x04")
        await self._upstream.close()
        for other in self._on_close:
            await other.close()

    # ------------------------------------------------------------ sending
    def _encoded(self, transaction: Transaction) -> Iterator[Sent]:
        yield from self._encoder.feed(transaction)
        self._read_to = max(self._read_to, transaction.end_lsn)

    async def _is_heartbeat_due(self) -> bool:
        if not self._has_heartbeat:
            await self._changed.wait()
            return False
        delay = self._beat_at + _HEARTBEAT_SECONDS - time.monotonic()
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.0, delay))
        except TimeoutError:
            return True
        return False

    def _heartbeat(self) -> Iterable[Sent]:
        self._beat_at = time.monotonic()
        read, flushed = self._read_to, self._in_parallel_to
        if self._by_csn:
            read, flushed = csn_of(read), csn_of(flushed) + 1
        return self._encoder.feed(Heartbeat(read, flushed, time.time_ns() // 1000))

    # ------------------------------------------------------------ PostgreSQL
    async def _read(self) -> None:
        try:
            while True:
                letter, body = await self._upstream.receive()
                if letter == b"d":
                    await self._take(body)
                elif letter in {b"E", b"c"}:
                    raise ConnectionResetError(body)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as exc:
            self._failure = exc
            self._changed.set()

    async def _take(self, body: bytes) -> None:
        if body[:1] == b"k":
            end, _, asked = _ALIVE.unpack_from(body)
            self._put(end)
            if asked:
                await self._reply()
            return
        lsn, _, _ = _WAL.unpack_from(body)
        transaction = await self._reader.take(lsn, body[25:])
        if transaction is not None:
            await self._room.wait()
            self._put(transaction)

    def _put(self, item: Transaction | int) -> None:
        position = item if isinstance(item, int) else item.end_lsn
        self._in_parallel_to = max(self._in_parallel_to, position)
        if isinstance(item, int) and self._ready and isinstance(self._ready[-1], int):
            self._ready[-1] = item
        else:
            self._ready.append(item)
        if len(self._ready) >= _AHEAD:
            self._room.clear()
        self._changed.set()

    async def _keep(self) -> None:
        """Stay alive while the client is slow and nothing is read."""
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(_STATUS_SECONDS)
                await self._reply()

    async def _reply(self) -> None:
        flushed = self._flushed
        now = (time.time_ns() - EPOCH_2000 * 1_000_000_000) // 1000
        await self._upstream.send(copy_data(_REPLY.pack(b"r", flushed, flushed, flushed, now, 0)))


def zone_of(name: str) -> tzinfo:
    """The zone of a TimeZone setting: a name, or POSIX' `<+08>-08`, whose sign is inverted."""
    if name.startswith("<"):
        west = name.partition(">")[2]
        sign, digits = (-1, west[1:]) if west[:1] == "-" else (1, west.lstrip("+"))
        hours, _, minutes = digits.partition(":")
        return timezone(-sign * timedelta(hours=int(hours or 0), minutes=int(minutes or 0)))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def printed(at: int, zone: tzinfo) -> str:
    """µs since 2000 as the output of timestamptz with DateStyle ISO."""
    seconds, rest = divmod(at, 1_000_000)
    moment = datetime.fromtimestamp(EPOCH_2000 + seconds, zone)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    offset = moment.utcoffset() or timedelta()
    total = int(offset.total_seconds())
    sign, total = ("-", -total) if total < 0 else ("+", total)
    text = f"{sign}{total // 3600:02d}"
    if total % 3600:
        text += f":{total % 3600 // 60:02d}"
    if total % 60:
        text += f":{total % 60:02d}"
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}{text}"
