"""Changes by SQL functions, for a server that does not permit streaming.

The same slot, the same rows and the same guarantee as a stream, from an ordinary
session: `peek` reads without moving the slot, and `pg_replication_slot_advance`
moves it when what was read is durable.  `get` moves the slot while it reads, so
crash loses changes: it is refused unless it is requested by name.

A call decodes up to 32 K rows, and always whole transactions (the server tests the
limit at a transaction's end); more gains nothing, fewer cost much (manual, overview,
"Performance").  The server keeps them in a cursor; we fetch a few MB at a time.
The next call follows when everything is confirmed and the slot was moved, or after a
timeout: then rows up to the last returned position are skipped.

There is no keepalive with the position of an idle server, and no function returns
the flushed end of its log, which a position must not exceed: an idle slot moves by
the ends of other transactions.  So leave `skip-empty-xacts` off.  Only who has flushed the
log up to some place himself says so (`flushed`): the next call that comes to the log's end
has given everything before it.

Two sessions may peek at one slot: the caller must exclude a second producer.
"""

from __future__ import annotations

import binascii
import logging
import select
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from producer.errors import DecodeError, HistoryDiffers
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.slots import SlotReading
from producer.sources.session import Asks
from producer.wire.replication import Received, WalMessage
from schemas.positions import NOWHERE, Lsn, parse_lsn
from schemas.quoting import constant

_log = logging.getLogger(__name__)

ROWS_A_CALL: Final = 32_768
# Of one FETCH, which is held in memory: few at first, then by the size of the last ones.
_FIRST_ROWS, _FETCH_ROWS, _FETCH_BYTES = 16, 256, 4 << 20
_CURSOR: Final = "gauss_cdc_changes"
# A text function would convert to the session's encoding, which breaks what is escaped byte by
# byte (JSON in GBK); in these databases it converts nothing.
_UNCONVERTED: Final = ("UTF8", "SQL_ASCII")

Options = Sequence[tuple[str, str]]


class PollingSession(Asks, Protocol):
    """An ordinary session, such as GaussConnection, with client_encoding UTF8."""

    def query_bytes(self, sql: str) -> list[list[bytes | None]]:
        """Run SQL; rows of the last statement as the server sent them."""

    def fileno(self) -> int:
        """The socket's descriptor."""

    def close(self) -> None:
        """Close the connection; never fails."""


class _Row(NamedTuple):
    """A row of a function; location and transaction identify the rows that end one."""

    location: Lsn
    xid: bytes
    payload: bytes

    def is_same(self, other: _Row) -> bool:
        return (self.location, self.xid) == (other.location, other.xid)


class FunctionStream:
    """Polls a slot by functions, as if it streamed: `receive` and `send_status`.

    A poll waits for the server, which may decode for seconds: `receive` may take
    longer than its timeout, and no status is due meanwhile.
    """

    def __init__(
        self,
        session: PollingSession,
        slot: str,
        options: Options = (),
        *,
        binary: bool | None = None,
        rows_a_call: int = ROWS_A_CALL,
        poll_seconds: float = 1.0,
        patience_seconds: float = 5.0,
    ) -> None:
        """Only the slot is read yet.

        `binary` uses the functions that give bytea; None does so where a text would be
        converted.  `patience_seconds` is the time for returned changes to be confirmed, before
        the next call.  Raises SlotMissing, SlotInvalid, SlotOrphaned.
        """
        self._session, self._slot = session, slot
        if binary is None:
            rows = session.query("SELECT current_setting('server_encoding')")
            binary = rows[0][0] not in _UNCONVERTED
        self._binary = binary
        self._call = _call(slot, options, rows=rows_a_call, binary=binary)
        self._poll_seconds, self._patience_seconds = poll_seconds, patience_seconds
        self._fetch_rows = _FIRST_ROWS
        self._rows_a_call = rows_a_call
        self._is_open = False  # a cursor, and with it a transaction
        self._rows = 0  # of the call
        self._flushed = self._flushed_before = NOWHERE  # `flushed`, now and when the call began
        self._told = self._reached = NOWHERE  # everything before it was given
        self._had_rows = False  # the last call, or the one that is open
        self._asked_at = 0.0
        self._last: _Row | None = None  # given to the caller
        self._given_until: _Row | None = None  # rows up to this one were given by an earlier call
        self._moved = self._look().confirmed or NOWHERE  # what the server may forget
        self._flush = NOWHERE

    @property
    def received_end(self) -> Lsn:
        """The place of the last row; 0 before."""
        return self._last.location if self._last else NOWHERE

    def fileno(self) -> int:
        """The session's descriptor: nothing arrives unrequested, so it is never readable."""
        return self._session.fileno()

    def flushed(self, position: Lsn) -> None:
        """Know that the server's log is flushed up to a position, of records that have ended."""
        self._flushed = max(self._flushed, position)

    def has_input(self) -> bool:
        """Say whether more can be read without a call: never."""
        return False

    def receive(self, timeout: float, wake_fds: Sequence[int] = ()) -> Received:
        """Give the next rows, or wait up to `timeout` seconds for some.

        Returns without messages when the time is over or when one of `wake_fds` is
        readable.  A message is (location, location, payload).  Raises SourceError and
        its subclasses, after which the session cannot be used any more.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._is_open:
                messages = self._fetch()
                if self._reached > self._told:
                    self._told = self._reached
                    return Received(messages, self._told)
                if messages:
                    return Received(messages)
                continue
            due = self._due_at()
            now = time.monotonic()
            if now >= due:
                self._ask()
            elif now >= deadline or _wait(min(due, deadline) - now, wake_fds):
                return Received()

    def send_status(self, flush: Lsn, *, reply: bool = False) -> None:  # noqa: ARG002  as a stream's
        """Confirm everything before `flush`; moves the slot as soon as no call is open."""
        self._flush = max(self._flush, flush)
        if not self._is_open:
            self._advance()

    def close(self) -> None:
        """End the session, and with it an open call; never fails."""
        self._session.close()

    # ---- calls

    def _due_at(self) -> float:
        """When to call again."""
        if self._last and self._moved < self._last.location:
            return self._asked_at + self._patience_seconds
        return self._asked_at if self._had_rows else self._asked_at + self._poll_seconds

    def _ask(self) -> None:
        """Begin a call; its rows stay with the server."""
        gauss_slots.check_not_moved(self._look(), self._moved)
        is_ahead = self._last is not None and self._last.location > self._moved
        self._given_until = self._last if is_ahead else None
        self._session.query("BEGIN")
        self._session.query(f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR {self._call}")
        self._is_open, self._had_rows, self._asked_at = True, False, time.monotonic()
        self._rows, self._flushed_before = 0, self._flushed

    def _fetch(self) -> list[WalMessage]:
        """Give rows of the open call; none at its end, or where all were given before."""
        asked = self._fetch_rows
        cells = self._session.query_bytes(f"FETCH FORWARD {asked} FROM {_CURSOR}")
        rows = [_row(row, binary=self._binary) for row in cells]
        self._rows += len(cells)
        if len(cells) < asked:
            self._end_call()
        largest = max((len(row.payload) for row in rows), default=1)  # BEGINs hide it in a mean
        self._fetch_rows = max(1, min(_FETCH_ROWS, 4 * asked, _FETCH_BYTES // max(1, largest)))
        fresh = self._not_given(rows)
        if not self._is_open and self._given_until is not None:
            raise HistoryDiffers("the slot does not repeat its earlier changes", slot=self._slot)
        if fresh:
            self._last, self._had_rows = fresh[-1], True
        return [(row.location, row.location, row.payload) for row in fresh]

    def _not_given(self, rows: list[_Row]) -> list[_Row]:
        if (last := self._given_until) is None:
            return rows
        for place, row in enumerate(rows, 1):
            if row.is_same(last):
                self._given_until = None
                return rows[place:]
        return []

    def _end_call(self) -> None:
        self._session.query("COMMIT")
        self._is_open, self._asked_at = False, time.monotonic()
        if self._rows < self._rows_a_call:  # it ended with what was flushed when it began
            self._reached = max(self._reached, self._flushed_before)
        self._advance()

    def _advance(self) -> None:
        """Let the server forget what is confirmed."""
        if self._flush <= self._moved:
            return
        self._moved = gauss_slots.advance(self._session, self._slot, self._flush)
        _log.debug("slot moved slot=%s to=%s", self._slot, self._moved)

    def _look(self) -> SlotReading:
        found = gauss_slots.find(self._session, self._slot)
        plugin, database = (found.plugin, found.database) if found else ("", "")
        return gauss_slots.check_usable(found, name=self._slot, plugin=plugin, database=database)


def _call(slot: str, options: Options, *, rows: int, binary: bool) -> str:
    """SQL of one call; columns have other names on PostgreSQL, so they are named here."""
    kind = "_binary" if binary else ""
    arguments = ", ".join([constant(slot), "NULL", f"{rows:d}", *_written(options)])
    return (
        "SELECT location, xid, data FROM"  # noqa: S608  quoted
        f" pg_catalog.pg_logical_slot_peek{kind}_changes({arguments})"
        " AS changes (location, xid, data)"
    )


def _written(options: Options) -> Iterator[str]:
    """Write name and value after name and value: the functions are variadic."""
    for pair in options:
        yield from map(constant, pair)


def _row(cells: Sequence[bytes | None], *, binary: bool) -> _Row:
    strange = DecodeError("a function returned an unexpected row", cells=len(cells))
    if len(cells) != 3:
        raise strange
    location, xid, payload = cells
    if location is None or payload is None or (binary and payload[:2] != b"\\x"):
        raise strange
    try:
        place = parse_lsn(location.decode("ascii"))
        return _Row(place, xid or b"", binascii.unhexlify(payload[2:]) if binary else payload)
    except ValueError:  # no LSN, or no hex
        raise strange from None


def _wait(seconds: float, wake_fds: Sequence[int]) -> bool:
    """Wait until one of them is readable (True), or the time is over."""
    poll = select.poll()
    for fd in wake_fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
