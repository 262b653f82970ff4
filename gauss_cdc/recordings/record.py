"""`gauss-cdc record`: what a source sends, into a file that `decode` and the emulator read.

Nothing is confirmed: the server keeps everything that was recorded, and `run`
reads it from the slot as before.  The file is a capture (see
`recordings`): a header, then each backend message as it came, keepalives too.
"""

from __future__ import annotations

import gzip
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Protocol

from gauss_cdc.recordings.files import written
from gauss_cdc.recordings.redaction import Redaction
from producer.errors import DecodeError, SlotMissing, Unsupported
from producer.options import Options
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.decoders.messages import TxBegin, TxCommit
from producer.sources.gauss.functions import area_changes
from producer.sources.gauss.options import effective
from producer.sources.gauss.point import open_replication
from producer.sources.gauss.source import open_session
from producer.sources.postgres import catalog
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.connection import ReplicationConnection
from producer.wire import commands
from producer.wire.commands import Snapshot
from producer.wire.protocol import Frame, Frames, frame
from producer.wire.replication import NOWHERE, Received
from schemas.positions import Lsn
from schemas.version import VERSION

_WRAP: Final = 25  # bytes of XLogData before its payload
_STATUS_SECONDS: Final = 5.0  # well below every server's timeout
_GRACE: Final = 10.0  # seconds more for a transaction that is being sent when the time is over
_UNDONE: Final = (b"ABORT", b"PREPARE")  # how the other transactions of a range end
_RELEASE: Final = 60.0  # seconds for a walsender to let go of a slot that we made
_SETTINGS: Final = (
    *("server_version", "server_encoding", "TimeZone", "DateStyle", "IntervalStyle"),
    "sql_compatibility",
)


# Options whose values are names of tables, users or publications.
_NAMING_OPTIONS: Final = frozenset(
    {"publication_names", "white-table-list", "exclude-users", "exclude-userids"}
)


class OverheardSession(Protocol):
    """A session that turned to streaming."""

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Hand on every byte."""

    def receive(self, timeout: float) -> Received:
        """Read what has arrived."""

    def send_status(self, flush: Lsn) -> None:
        """Say that we live."""


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """What to record, and until when: the first bound that is reached, or `stop`."""

    out: Path
    seconds: float | None = None
    transactions: int | None = None
    redact: bool = False
    redact_names: bool = False
    create: bool = False  # the slot, if there is none; it is dropped at the end
    more: Mapping[str, str] = field(default_factory=dict)  # options of the plugin
    between: tuple[Lsn, Lsn] | None = None  # decode this part of the log again; no slot is used


@dataclass(slots=True)
class Recorded:
    """What is in the file."""

    messages: int = 0
    transactions: int = 0
    blanked: int = 0  # messages without structure that we know, emptied by a redaction
    unread: int = 0  # messages that our decoders refuse
    undone: int = 0  # transactions left out, since they were rolled back, or only prepared


@dataclass(frozen=True, slots=True)
class _BegunStream:
    """A stream that has begun."""

    wire: OverheardSession
    header: dict[str, Any]
    written: Format


def record(options: Options, plan: RecordingPlan, stop: Callable[[], bool]) -> Recorded:
    """Record from the slot of `options`; raises what its connection raises, the file closed.

    Raises FileExistsError rather than write over a recording.
    """
    if plan.between is not None:
        return _again(options, plan, *plan.between, stop)
    streams = _postgres if options.kind == "postgres" else _gauss
    with streams(options, plan) as stream, _created(plan.out) as file:
        return _run(stream, plan, _File(file, stream.header, stream.written, plan), stop)


def _again(
    options: Options, plan: RecordingPlan, low: Lsn, high: Lsn, stop: Callable[[], bool]
) -> Recorded:
    """Record a range by pg_logical_get_area_changes, which also returns what was rolled back."""
    if options.kind == "postgres":
        raise Unsupported(
            "PostgreSQL cannot decode a part of its log again",
            hint="record from a slot, without --from and --to",
        )
    with closing(open_session(options)) as asking:
        decided = effective(options.plugin_options, replace(options.terms, interface="sql"))
        sent = {**dict(decided.options), **plan.more}
        header, form = _described(options, plan, asking, sent, plugin=options.plugin)
        header |= {"command": "pg_logical_get_area_changes", "start": f"{low} to {high}"}
        changes = area_changes(
            asking, low, high, plugin=options.plugin, options=tuple(sent.items())
        )
        with _created(plan.out) as opened:
            file = _File(opened, header, form, plan)
            held: list[bytes] = []
            try:
                for start, end, payload in changes:
                    if stop() or file.is_full:
                        break
                    held.append(frame(b"d", b"w" + struct.pack(">3Q", start, end, 0) + payload))
                    if payload.startswith(_UNDONE):
                        file.recorded.undone += 1
                        held = []
                    elif payload.startswith(b"COMMIT"):
                        file.take(b"".join(held))
                        held = []
            finally:
                file.end()
            return file.recorded


def _run(
    stream: _BegunStream, plan: RecordingPlan, file: _File, stop: Callable[[], bool]
) -> Recorded:
    wire = stream.wire
    wire.tap(file.take)
    began = sent = time.monotonic()
    wire.send_status(NOWHERE)
    try:
        while not stop() and not file.is_full:
            now = time.monotonic()
            if plan.seconds is not None and now - began >= plan.seconds:
                late = now - began - plan.seconds
                if not file.is_open or late >= _GRACE:
                    break
            received = wire.receive(0.2)
            if received.reply_requested or now - sent >= _STATUS_SECONDS:
                wire.send_status(NOWHERE)
                sent = now
    finally:
        file.end()
    return file.recorded


@contextmanager
def _created(path: Path) -> Iterator[IO[bytes]]:
    with path.open("xb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
            yield file  # type: ignore[misc]  # a file of bytes in all but its type


class _File:
    """Writes a capture; knows where transactions end, as far as our decoders do."""

    def __init__(
        self, file: IO[bytes], header: Mapping[str, Any], form: Format, plan: RecordingPlan
    ) -> None:
        self.recorded = Recorded()
        self.is_open = False  # within a transaction
        self._file, self._plan, self._written = file, plan, form
        self._frames = Frames()
        self._began = time.monotonic()
        self._number = 0
        self._redaction = (
            Redaction(form, names=plan.redact_names) if plan.redact or plan.redact_names else None
        )
        make = NAMING.get((form.plugin, form.style))
        self._decoder = None if make is None else make(form)
        self._line(header)
        self._message("W", b"\0\0\0")

    @property
    def is_full(self) -> bool:
        """Say whether there are as many transactions as were asked for."""
        most = self._plan.transactions
        return most is not None and self.recorded.transactions >= most

    def take(self, data: bytes) -> None:
        """Write the frames that are whole by now."""
        for got in self._frames.feed(data):
            if self.is_full:
                break
            self._frame(got)
        self._file.flush()  # what was received is in the file, even after a crash

    def end(self) -> None:
        """Say that the recording ends here on purpose."""
        self._message("EOF", b"")

    def _frame(self, got: Frame) -> None:
        body = got.body
        if got.tag == "d" and body[:1] == b"w" and len(body) >= _WRAP:
            start, payload = int.from_bytes(body[1:9], "big"), body[_WRAP:]
            self._count(start, payload)
            if self._redaction is not None:
                before = self._redaction.blanked
                body = body[:_WRAP] + self._redaction.payload(start, payload)
                self.recorded.blanked += self._redaction.blanked - before
            self.recorded.messages += 1
        elif self._redaction is None:
            pass
        elif got.tag in "ENS":
            body = b""  # an error's text may quote anything
        elif got.tag == "d" and body[:1] != b"k":
            body = body[:1] + bytes(len(body) - 1)  # CopyData of an unknown kind
            self.recorded.blanked += 1
        self._message(got.tag, body)

    def _count(self, start: int, payload: bytes) -> None:
        """Count the ends of transactions; an undecodable message is recorded as well."""
        if self._written.plugin == "pgoutput":
            self.is_open = payload[:1] == b"B" or (self.is_open and payload[:1] != b"C")
            self.recorded.transactions += payload[:1] == b"C"
            return
        if self._decoder is None:
            self.recorded.unread += 1
            return
        try:
            for position, record_ in self._decoder.walk(start, payload):
                if self._decoder.is_row(record_):
                    continue
                message = self._decoder.decode(position, record_)
                if isinstance(message, TxBegin):
                    self.is_open = True
                elif isinstance(message, TxCommit):
                    self.is_open = False
                    self.recorded.transactions += 1
        except DecodeError:
            self.recorded.unread += 1
            self.is_open = False

    def _message(self, kind: str, body: bytes) -> None:
        self._number += 1
        line: dict[str, Any] = {
            "n": self._number,
            "ms": int((time.monotonic() - self._began) * 1000),
            "type": kind,
        }
        if kind == "d":
            line["sub"] = body[:1].decode("latin-1")
        self._line({**line, "hex": body.hex()})

    def _line(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


# ---- where it comes from


@contextmanager
def _postgres(options: Options, plan: RecordingPlan) -> Iterator[_BegunStream]:
    with ExitStack() as stack:
        connection = catalog.connect(options.source)
        stack.callback(connection.close)
        wire = ReplicationConnection.open(options.source)
        stack.callback(wire.close)
        state = catalog.slot_state(connection, options.slot)
        if state is None:
            _may_create(options, plan)
            # A slot of the session's own: it cannot be forgotten.
            wire.create_slot(options.slot, options.plugin, temporary=True, snapshot=Snapshot.NONE)
            state = catalog.slot_state(connection, options.slot)
        plugin = options.plugin if state is None else state.plugin or options.plugin
        sent = dict(plan.more)
        if plugin == "pgoutput":
            decided = pgoutput_options.effective(
                options.plugin_options,
                publication=options.publication,
                version=connection.server_version,
            )
            sent = {**decided, **sent}
        with catalog.asking(connection) as cursor:
            cursor.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(_SETTINGS)]
            )
            settings = dict(cursor.fetchall())
        encoding = settings.get("server_encoding", "UTF8")
        wire.start(options.slot, sent)
        header = _header(
            options,
            plan,
            sent,
            server=f"PostgreSQL {settings.get('server_version', '')}".strip(),
            plugin=plugin,
            database=options.source.dbname,
            confirmed=None if state is None else state.confirmed_flush,
            settings=settings,
        )
        yield _BegunStream(wire, header, written(plugin, {}, encoding))


@contextmanager
def _gauss(options: Options, plan: RecordingPlan) -> Iterator[_BegunStream]:
    with ExitStack() as stack:
        asking = open_session(options)
        stack.callback(asking.close)
        found = gauss_slots.find(asking, options.slot)
        if found is None:
            _may_create(options, plan)
            with open_replication(options) as maker:
                maker.create_slot(options.slot, options.plugin)
            stack.callback(_drop, asking, options.slot)
            found = gauss_slots.find(asking, options.slot)
        plugin = options.plugin if found is None else found.plugin or options.plugin
        # What [source.options] says is judged as in `run`; what was asked for here is not, since
        # a recording may be of a mode that we do not read.
        decided = effective(options.plugin_options, replace(options.terms, plugin=plugin))
        sent = {**dict(decided.options), **plan.more}
        confirmed = None if found is None else found.confirmed
        header, form = _described(options, plan, asking, sent, plugin=plugin, confirmed=confirmed)
        wire = stack.enter_context(open_replication(options))
        wire.start(options.slot, sent)
        yield _BegunStream(wire, header, form)


def _described(
    options: Options,
    plan: RecordingPlan,
    asking: GaussConnection,
    sent: Mapping[str, str],
    *,
    plugin: str,
    confirmed: Lsn | None = None,
) -> tuple[dict[str, Any], Format]:
    """Return the header of a recording of this server, and how it writes."""
    server = asking.server()
    settings = {
        name: value
        for name, value in gauss_catalog.settings(asking, _SETTINGS).items()
        if value is not None
    }
    form = written(plugin, sent, server.encoding)
    header = _header(
        options,
        plan,
        sent,
        server=f"{'GaussDB' if server.product == 'gaussdb' else 'openGauss'} {server.version}",
        plugin=plugin,
        database=server.database,
        confirmed=confirmed,
        settings={**settings, "server_encoding": server.encoding},
        is_parallel=bool(form.style),
    )
    return header, form


def _drop(asking: GaussConnection, slot: str) -> None:
    asking.wait_released(slot, _RELEASE)
    gauss_slots.drop(asking, slot)


def _may_create(options: Options, plan: RecordingPlan) -> None:
    if not plan.create:
        raise SlotMissing(
            "there is no slot to record from",
            hint="record --create makes one for as long as it records",
            slot=options.slot,
        )


def _header(
    options: Options,
    plan: RecordingPlan,
    sent: Mapping[str, str | None],
    *,
    server: str,
    plugin: str,
    database: str,
    confirmed: Lsn | None,
    settings: Mapping[str, str],
    is_parallel: bool = False,
) -> dict[str, Any]:
    """Make the first line: all that a reader needs, and nothing secret."""
    if plan.redact_names:
        database = "database"
        sent = {name: "names" if name in _NAMING_OPTIONS else v for name, v in sent.items()}
    return {
        "kind": "header",
        "format": 1,
        "server": server,
        "server_version": settings.get("server_version", ""),
        "plugin": plugin,
        "mode": "parallel" if is_parallel else "serial",
        "options": [[name, value or ""] for name, value in sent.items()],
        "command": commands.start(options.slot, sent, NOWHERE),
        "slot": options.slot,
        **({} if confirmed is None else {"slot_consistent_point": str(confirmed)}),
        "start": "0/0 (= slot confirmed position)",
        "database": database,
        "database_encoding": settings.get("server_encoding", "UTF8"),
        "settings": dict(settings),
        "recorded_by": f"gauss-cdc {VERSION}",
        "redacted": "names" if plan.redact_names else "values" if plan.redact else "nothing",
    }
