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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from gauss_cdc import wiring
from gauss_cdc.config import load
from gauss_cdc_lab.recordings import gauss, postgres
from gauss_cdc_lab.recordings.files import written
from gauss_cdc_lab.recordings.heard import Overheard, OverheardSession, Wished
from gauss_cdc_lab.recordings.redaction import Redaction
from producer.errors import DecodeError, Unsupported
from producer.options import Options
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.messages import TxBegin, TxCommit
from producer.wire import commands
from producer.wire.protocol import Frame, Frames, frame
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.version import VERSION

_WRAP: Final = 25  # bytes of XLogData before its payload
_STATUS_SECONDS: Final = 5.0  # well below every server's timeout
_GRACE: Final = 10.0  # seconds more for a transaction that is being sent when the time is over
_UNDONE: Final = (b"ABORT", b"PREPARE")  # how the other transactions of a range end
_FROM_SLOT: Final = "0/0 (= slot confirmed position)"
# Options whose values are names of tables, users or publications.
_NAMING_OPTIONS: Final = frozenset(
    {"publication_names", "white-table-list", "exclude-users", "exclude-userids"}
)
# [source] kind -> how its stream is listened to
_OVERHEARD: Final[Mapping[str, Callable[[Options, Wished], AbstractContextManager[Overheard]]]] = {
    "postgres": postgres.overheard,
    "opengauss": gauss.overheard,
    "gaussdb": gauss.overheard,
}


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


def source(config: Path, *, slot: str | None, plugin: str | None) -> Options:
    """Return the arguments of the source that a file names, with another slot or plugin."""
    options = wiring.producer_options(load(config), load=False)
    return replace(options, slot=slot or options.slot, plugin=plugin or options.plugin)


def record(options: Options, plan: RecordingPlan, stop: Callable[[], bool]) -> Recorded:
    """Record from the slot of `options`; raises what its connection raises, the file closed.

    Raises FileExistsError rather than write over a recording.
    """
    begin = _OVERHEARD.get(options.kind)
    if begin is None:
        raise Unsupported(f"a source of kind {options.kind} cannot be recorded")
    with (
        begin(options, Wished(plan.more, plan.create, plan.between)) as heard,
        _created(plan.out) as opened,
    ):
        form = written(heard.plugin, heard.sent, heard.encoding)
        file = _File(opened, _header(options, plan, heard, form), form, plan)
        if heard.wire is None:
            return _part(heard.changes, file, stop)
        return _run(heard.wire, plan, file, stop)


def _part(
    changes: Iterable[tuple[int, int, bytes]], file: _File, stop: Callable[[], bool]
) -> Recorded:
    """Record a part of the log, which also has what was rolled back."""
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
    wire: OverheardSession, plan: RecordingPlan, file: _File, stop: Callable[[], bool]
) -> Recorded:
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
            start, payload = Lsn(int.from_bytes(body[1:9], "big")), body[_WRAP:]
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

    def _count(self, start: Lsn, payload: bytes) -> None:
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


def _header(
    options: Options, plan: RecordingPlan, heard: Overheard, form: Format
) -> dict[str, Any]:
    """Make the first line: all that a reader needs, and nothing secret."""
    sent, database = dict(heard.sent), heard.database
    if plan.redact_names:
        database = "database"
        sent = {name: "names" if name in _NAMING_OPTIONS else v for name, v in sent.items()}
    if plan.between is None:
        command, start = commands.start(options.slot, sent, NOWHERE), _FROM_SLOT
    else:
        low, high = plan.between
        command, start = "pg_logical_get_area_changes", f"{lsn_text(low)} to {lsn_text(high)}"
    return {
        "kind": "header",
        "format": 1,
        "server": heard.server,
        "server_version": heard.settings.get("server_version", ""),
        "plugin": heard.plugin,
        "mode": "parallel" if form.style else "serial",
        "options": [[name, value or ""] for name, value in sent.items()],
        "command": command,
        "slot": options.slot,
        **({} if heard.confirmed is None else {"slot_consistent_point": lsn_text(heard.confirmed)}),
        "start": start,
        "database": database,
        "database_encoding": heard.settings.get("server_encoding", "UTF8"),
        "settings": dict(heard.settings),
        "recorded_by": f"gauss-cdc {VERSION}",
        "redacted": "names" if plan.redact_names else "values" if plan.redact else "nothing",
    }
