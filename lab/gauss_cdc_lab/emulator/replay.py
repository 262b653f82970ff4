"""A recording served again: to any slot, from any position, as the real server would.

From its beginning a recording goes out byte by byte as it was received; from a
later position the transactions that the server's restart rule selects are
packed again.  Only what was recorded can be served: other options are refused.

Where the recorded server broke its stream off, so do we, once and with its own
error; a client that reconnects is served what followed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from gauss_cdc_lab.emulator.formats.binary import BinaryRecords
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.formats.parallel import Parallel, TextRecords
from gauss_cdc_lab.emulator.formats.rows import TextRowWriter
from gauss_cdc_lab.emulator.frames import ErrorResponse, message
from gauss_cdc_lab.emulator.model import Mode, Row, Sent, Transaction
from gauss_cdc_lab.emulator.options import StreamOptions
from gauss_cdc_lab.emulator.product import (
    Client,
    Closing,
    EmulatedSlot,
    OrdinarySql,
    Peer,
    System,
)
from gauss_cdc_lab.emulator.recording import Recording
from gauss_cdc_lab.emulator.slots import Activity, missing
from gauss_cdc_lab.emulator.sql_session import OwnSlots
from schemas.positions import NOWHERE, Lsn, lsn_text

SYSTEM: Final = "215046882207031935"  # of the server that was recorded


class Replay:
    """A `Backend` that has one recording and the SQL of another backend, if one is given."""

    def __init__(
        self,
        recording: Recording,
        *,
        paced: bool = False,
        any_slot: bool = True,
        other_databases: Iterable[str] = ("postgres",),
        catalog: SqlSource | None = None,
        system: System | None = None,
        activity: Activity | None = None,
    ) -> None:
        self._recording, self._paced, self._any_slot = recording, paced, any_slot
        self._activity = activity or Activity()  # the emulator's
        self._catalog = catalog
        self._system = system or System(SYSTEM, 1, recording.end)
        self._databases = {recording.database, *other_databases}
        self._slots: dict[str, EmulatedSlot] = {}
        self._part = 0  # the recorded stream that is served
        self._is_over = False  # was the end of the last one sent?

    async def sql(self, peer: Peer) -> OrdinarySql:
        """A session in the recorded database."""
        if peer.database not in self._databases:
            raise no_database(peer.database)
        if self._catalog is not None:
            self._catalog.show(self)
            return await self._catalog.sql(peer)
        return _NoSql(self._recording)

    async def system(self) -> System:
        """The recorded server's, at the recording's end."""
        return self._system

    async def slot(self, name: str) -> EmulatedSlot | None:
        """A slot that was made."""
        return self._slots.get(name)

    async def slot_to_read(self, name: str) -> EmulatedSlot | None:
        """A slot that was made, or any name if any will do."""
        if name not in self._slots and self._any_slot:
            self.add(name)
        return self._slots.get(name)

    async def slots(self) -> list[EmulatedSlot]:
        """All that were made."""
        return list(self._slots.values())

    async def create(self, peer: Peer, name: str, plugin: str) -> tuple[Lsn, str, Closing]:
        """At the recorded slot's consistent point; the snapshot is a name only."""
        point = self._recording.consistent_point
        self._slots[name] = EmulatedSlot(name, plugin, peer.database, point)
        if self._catalog is not None:
            snapshot, closing = await self._catalog.snapshot()
            return point, snapshot, closing
        return point, "00000000-00000000-1", _Nothing()

    def is_active(self, name: str) -> bool:
        """Whether a client streams from a slot."""
        return name in self._activity

    async def drop(self, name: str) -> None:
        """Forget a slot."""
        if name not in self._slots:
            raise missing(name)
        self._activity.check_free(name)
        del self._slots[name]

    async def advance(self, name: str, confirmed: Lsn) -> None:
        """Move a slot forward, at most to the recording's end; 0: there."""
        if (slot := self._slots.get(name)) is None:
            raise missing(name)
        self._activity.check_free(name)
        if confirmed and confirmed < slot.confirmed:
            known = (
                f"cannot move slot to {lsn_text(confirmed)}, minimum is {lsn_text(slot.confirmed)}"
            )
            raise ErrorResponse(known, "55000")
        slot.confirmed = min(confirmed or self._recording.end, self._recording.end)

    async def stream(
        self, slot: EmulatedSlot, start: Lsn, asked: StreamOptions, sql: OrdinarySql
    ) -> Pages:
        """The recording from `start` on; Refused if it was made with other options."""
        del sql
        self._check(slot, asked)
        part = self._part
        end = None if self._is_over else self._recording.parts[part].end

        def ended() -> None:
            self._part = min(part + 1, len(self._recording.parts) - 1)
            self._is_over = self._part == part

        return Pages(
            self._recording,
            start,
            asked.mode,
            paced=self._paced,
            part=part,
            end=None if end is None else EndOfReplay(end, ended),
        )

    async def cancel(self, key: bytes) -> None:
        """Nothing runs for long."""

    async def close(self) -> None:
        """Close what the catalog holds."""
        if self._catalog is not None:
            await self._catalog.close()

    def add(self, name: str) -> None:
        """Make a slot as the recorded one was."""
        recording = self._recording
        self._slots[name] = EmulatedSlot(
            name, recording.plugin, recording.database, recording.consistent_point
        )

    def _check(self, slot: EmulatedSlot, asked: StreamOptions) -> None:
        had, wants = self._recording.mode, asked.mode
        pairs: list[tuple[str, object, object]] = [
            ("parallel decoding", had.parallel, wants.parallel),
            ("decode-style", had.style, wants.style),
            ("sending-batch", had.sending_batch, wants.sending_batch),
            ("white-table-list", had.white_table_list, wants.white_table_list),
        ]
        if not had.parallel:
            pairs.append(("plugin", had.plugin, slot.plugin))
        if had.parallel or had.plugin != "sql_decoding":
            pairs.append(("include-xids", had.include_xids, wants.include_xids))
            pairs.append(("include-timestamp", had.include_timestamp, wants.include_timestamp))
        # Empty transactions that were not recorded may be asked for: they change nothing.
        for name, recorded, wanted in pairs:
            if recorded != wanted:
                raise ErrorResponse(
                    f"the recording was made with {name} = {recorded}, not {wanted}",
                    "0A000",
                    module="LOGICAL_DECODE",
                )


class SqlSource(Protocol):
    """What answers SQL for a recording."""

    async def sql(self, peer: Peer) -> OrdinarySql:
        """A session."""

    async def snapshot(self) -> tuple[str, Closing]:
        """A snapshot that its sessions can adopt."""

    def show(self, slots: OwnSlots) -> None:
        """Show these slots to queries."""

    async def close(self) -> None: ...


class EndOfReplay(NamedTuple):
    """What is said at the end of a stream, and who wants to know that it was."""

    error: bytes  # an ErrorResponse's body; b"": nothing is said
    notify: Callable[[], None]


class Repeated(ErrorResponse):
    """An error as it was recorded."""

    def __init__(self, body: bytes) -> None:
        super().__init__("recorded", "")
        self._body = body

    def frame(self, severity: str) -> bytes:
        """The recorded message."""
        del severity
        return message(b"E", self._body)


class Pages:
    """A `Stream` of what was recorded."""

    def __init__(
        self,
        recording: Recording,
        start: Lsn,
        mode: Mode,
        *,
        paced: bool,
        part: int = 0,
        end: EndOfReplay | None = None,
    ) -> None:
        self._recording, self._end = recording, end
        stream = recording.parts[part]
        # Nothing is behind `start`: the rule looks at where commit records begin.
        kept = [
            number
            for number, transaction in enumerate(recording.transactions[: stream.transactions])
            if transaction.commit_lsn >= start
            and not (mode.skip_empty_xacts and not transaction.items)
        ]
        is_whole = part == 0 and len(kept) == stream.transactions
        is_lazy = mode.skip_empty_xacts and not recording.mode.skip_empty_xacts
        self._began = time.monotonic()
        self._ends_at = self._began + (stream.ended_ms / 1000 if paced and is_whole else 0)
        self._batches: Iterator[tuple[int, list[Sent]]]
        self._rest: Parallel | None = None
        if is_whole and not is_lazy:
            self._batches = (
                (recorded.ms if paced else 0, [recorded.sent]) for recorded in stream.messages
            )
        elif recording.mode.parallel:
            self._batches = self._packed(kept, mode, stream.transactions)
        else:
            self._batches = self._serial(kept, stream.transactions, is_lazy=is_lazy)
        self._next = next(self._batches, None)
        self._read_to = start

    async def more(self) -> Iterable[Sent]:
        """What comes next, when its time has come."""
        if self._next is None:
            await self._rest_of_time()
        assert self._next is not None
        ms, messages = self._next
        delay = self._began + ms / 1000 - time.monotonic()
        if delay > 0:
            await asyncio.sleep(delay)
        self._next = next(self._batches, None)
        if self._next is None:
            self._read_to = max(self._read_to, self._recording.end)
        else:
            # Not beyond what IDENTIFY_SYSTEM says: an open transaction's rows may be.
            newest = max((sent.start for sent in messages), default=NOWHERE)
            self._read_to = max(self._read_to, min(newest, self._recording.end))
        return messages

    def idle(self) -> Iterable[Sent]:
        """What a batch of ours still holds."""
        return list(self._rest.idle()) if self._rest is not None and self._next is None else []

    def read_to(self) -> int:
        """Behind what was served."""
        return self._read_to

    def is_behind(self) -> bool:
        """Whether pages are left, in a stream without pauses."""
        return self._next is not None

    async def confirm(self, flushed: int) -> None:
        """Only slots store it."""

    async def close(self) -> None:
        """Nothing is held."""

    async def _rest_of_time(self) -> None:
        """Nothing more comes: wait, or end as the recorded stream did."""
        if self._end is None:
            await asyncio.Event().wait()
            return
        await asyncio.sleep(max(0.0, self._ends_at - time.monotonic()))
        self._end.notify()
        if not self._end.error:
            raise ConnectionAbortedError
        raise Repeated(self._end.error)

    def _serial(
        self, kept: list[int], all_of_it: int, *, is_lazy: bool
    ) -> Iterator[tuple[int, list[Sent]]]:
        strays, headers = self._recording.strays, self._recording.headers
        for number in kept:
            yield 0, [*strays.get(number, ()), *_serial(headers[number], is_lazy=is_lazy)]
        if trailing := strays.get(all_of_it):
            yield 0, list(trailing)

    def _packed(
        self, kept: list[int], mode: Mode, all_of_it: int
    ) -> Iterator[tuple[int, list[Sent]]]:
        recording = self._recording
        # Rows are filtered already; what the options say about records is in the bytes.
        packing = Mode(
            plugin=mode.plugin,
            parallel_decode_num=2,
            decode_style=recording.mode.style,
            sending_batch=mode.sending_batch,
            skip_empty_xacts=mode.skip_empty_xacts,
        )
        known: BinaryRecords | TextRecords = (
            _Binary(recording, packing)
            if recording.mode.style == "b"
            else _RecordedText(recording, packing)
        )
        self._rest = Parallel(packing, recording.profile, known)
        for number in kept:
            messages = []
            if strays := recording.strays.get(number):
                messages += [*self._rest.idle(), *strays]
            messages += self._rest.feed(recording.transactions[number])
            if messages:
                yield 0, messages
        trailing = recording.strays.get(all_of_it, ())
        if (trailing or self._end is not None) and (messages := [*self._rest.idle(), *trailing]):
            yield 0, messages


def _serial(messages: Iterable[Sent], *, is_lazy: bool) -> list[Sent]:
    first, *rest = messages
    # A BEGIN that waited for its first row has no position.
    return [Sent(NOWHERE, first.payload) if is_lazy else first, *rest]


class _Binary(BinaryRecords):
    """Records that are there already."""

    def __init__(self, recording: Recording, mode: Mode) -> None:
        super().__init__(mode, recording.profile, Names(recording.profile, "utf-8"))
        self._recording = recording

    def begin(self, transaction: Transaction, first_lsn: int) -> bytes:
        del first_lsn
        return self._recording.begins[transaction.xid]

    def commit(self, transaction: Transaction) -> bytes:
        return self._recording.commits[transaction.xid]

    def row(self, row: Row) -> bytes:
        return bytes.fromhex(row.table)


class _RecordedText(TextRecords):
    """Records that are there already."""

    def __init__(self, recording: Recording, mode: Mode) -> None:
        names = Names(recording.profile, "utf-8")
        super().__init__(mode, recording.profile, TextRowWriter(names, parallel=True))
        self._recording = recording

    def begin(self, transaction: Transaction, first_lsn: int) -> bytes:
        del first_lsn
        return self._recording.begins[transaction.xid]

    def commit(self, transaction: Transaction) -> bytes:
        return self._recording.commits[transaction.xid]

    def row(self, row: Row) -> bytes:
        return bytes.fromhex(row.table)


def no_database(name: str) -> ErrorResponse:
    """The database of the startup message is not there."""
    return ErrorResponse(f'database "{name}" does not exist', "3D000", number=11898)


class _Nothing:
    async def close(self) -> None:
        """Nothing."""


class _NoSql:
    """SQL without a database: refuses every query."""

    def __init__(self, recording: Recording) -> None:
        self._settings = dict(recording.header.get("settings", {}))
        encoding = str(recording.header.get("database_encoding", "UTF8"))
        self._settings.setdefault("server_encoding", encoding)

    def key(self) -> bytes:
        return bytes(8)

    async def serve(self, client: Client) -> None:
        await client.send(_unanswered().frame("FATAL"))

    async def execute(self, text: bytes) -> list[bytes]:
        del text
        raise _unanswered()

    async def settings(self) -> Mapping[str, str]:
        known = self._settings
        return {
            "server_encoding": known["server_encoding"],
            "client_encoding": known["server_encoding"],
            "DateStyle": known.get("DateStyle", "ISO, MDY"),
            "IntervalStyle": known.get("IntervalStyle", "postgres"),
            "TimeZone": known.get("TimeZone", "<+08>-08"),
        }

    async def close(self) -> None:
        """Nothing is held."""


def _unanswered() -> ErrorResponse:
    return ErrorResponse(
        "SQL is not answered: this replay has no catalog",
        "0A000",
        hint="Start it with --catalog and the DSN of a PostgreSQL.",
    )
