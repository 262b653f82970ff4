"""Recorded streams, cut into transactions as far as a restart needs it.

Reads `capture_*` (streams, one after the other) and `session_*`, `restart_*` (whole
transcripts), plain or gzipped.  Only framing and the words of BEGIN and COMMIT are
understood: rows stay bytes.  What a mode does not send (the start of a commit record
in serial mode and in batches) is estimated from the record's smallest size, see
`_COMMIT_BYTES`.

A file may hold several streams of a slot, because the server broke one off or the
client began again: the first counts as it is, of later ones what was not sent before.
Bytes that cannot be cut, as after a crash of the server's machine, are kept and
served where they stood.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from gauss_cdc_lab.emulator.model import PROFILES, Mode, Op, Profile, Row, Sent, Transaction
from gauss_cdc_lab.emulator.options import StreamOptions, parallel_decode_num, read
from schemas.positions import Lsn, parse_lsn

# A commit record without subtransactions and invalidations, as openGauss 7 writes it.
_COMMIT_BYTES: Final = 0x60
_WRAP: Final = 25  # bytes of `w` before the payload
_BEGIN: Final = re.compile(rb"BEGIN CSN: (\d+) (?:first|commit)_lsn: ([0-9A-F]+/[0-9A-F]+)")


class DamagedRecording(Exception):
    """A file that is not what the recorder wrote."""


class Message(NamedTuple):
    """One recorded XLogData."""

    ms: int  # since START_REPLICATION
    sent: Sent


class StreamPart(NamedTuple):
    """One stream of a file."""

    messages: Sequence[Message]
    transactions: int  # that were sent by its end, in this stream or before
    # How the server ended it: an ErrorResponse's body, b"" without a word, None not at all.
    end: bytes | None
    ended_ms: int  # since START_REPLICATION


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream, as recorded and as transactions."""

    header: Mapping[str, Any]
    asked: StreamOptions
    parts: Sequence[StreamPart]
    transactions: Sequence[Transaction]
    begins: Sequence[bytes]  # records of BEGIN, by transaction
    commits: Sequence[bytes]
    headers: Sequence[Sequence[Sent]]  # serial mode: its messages, by transaction
    # What is in no transaction (heartbeats, bytes that cannot be read), by the next one.
    strays: Mapping[int, Sequence[Sent]]

    @property
    def messages(self) -> Sequence[Message]:
        """Of the first stream."""
        return self.parts[0].messages

    @property
    def mode(self) -> Mode:
        return self.asked.mode

    @property
    def database(self) -> str:
        return str(self.header.get("database", "postgres"))

    @property
    def plugin(self) -> str:
        return str(self.header["plugin"])

    @property
    def consistent_point(self) -> Lsn:
        """Where the slot was made, or where the first transaction begins."""
        if (found := self.header.get("slot_consistent_point")) is not None:
            return parse_lsn(found)
        return min((t.first_lsn or t.commit_lsn for t in self.transactions), default=Lsn(1))

    @property
    def end(self) -> Lsn:
        """Behind the last commit."""
        return max((t.end_lsn for t in self.transactions), default=self.consistent_point)

    @property
    def profile(self) -> Profile:
        """The product that was recorded."""
        return profile_of(self.header)


def load(path: Path) -> Recording:
    """Read a file; DamagedRecording names the line that is damaged."""
    header, *lines = list(_lines(path)) or [{}]
    if header.get("kind") != "header":
        raise DamagedRecording(f"{path} does not begin with a header")
    if not isinstance(header.get("plugin"), str):
        raise DamagedRecording(f"{path}: the header does not contain the plugin")
    is_transcript = any("conn" in line for line in lines)
    streams = list((_transcript if is_transcript else _capture)(lines))
    profile = profile_of(header)
    options = header.get("options") or []
    given = [(str(name), value) for name, value in dict(options).items()]
    number = parallel_decode_num(given)
    asked = read(given, plugin=header["plugin"], product=profile.name, number=number)
    cut, parts = _Cutter(asked.mode), []
    for position, stream in enumerate(streams):
        for message in stream.messages:
            cut.take(message.sent)
        cut.end_stream()
        # One that was left by its client ends where a later one has more.
        end = stream.end
        if end == b"" and position == len(streams) - 1:
            end = None  # the end of the recording, not of the stream
        parts.append(StreamPart(stream.messages, len(cut.transactions), end, stream.ended_ms))
    has_more = [part.transactions < len(cut.transactions) for part in parts]
    parts = [
        part._replace(end=b"") if more and part.end is None else part
        for part, more in zip(parts, has_more, strict=True)
    ]
    return Recording(
        header, asked, parts, cut.transactions, cut.begins, cut.commits, cut.headers, cut.strays
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, plain or gzipped."""
    with path.open("rb") as raw:
        is_compressed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path, "rb") if is_compressed else path.open("rb") as file:
        number = 1
        try:
            for number, line in enumerate(file, 1):
                parsed = json.loads(line)
                if not isinstance(parsed, dict):
                    raise DamagedRecording(f"{path}, line {number}: not a JSON object")
                yield parsed
        except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
            raise DamagedRecording(f"{path}: damaged or cut short behind line {number}") from exc
        except (ValueError, RecursionError) as exc:
            raise DamagedRecording(f"{path}, line {number}: not JSON") from exc


class _RecordedStream:
    """A stream while it is read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.end: bytes | None = None
        self.ended_ms = 0


def _capture(lines: Iterable[Mapping[str, Any]]) -> Iterator[_RecordedStream]:
    """Streams of a capture: a CopyBothResponse behind an end begins another one."""
    stream, is_over, began = _RecordedStream(), False, 0
    for line in lines:
        kind, ms = line.get("type"), int(line.get("ms", 0)) - began
        if kind in {"W", "d"} and is_over:
            yield stream
            stream, is_over, began = _RecordedStream(), False, int(line.get("ms", 0))
        elif kind in {"E", "EOF"}:
            if not is_over:
                stream.end, stream.ended_ms = bytes.fromhex(line.get("hex", "")), ms
            is_over = True
        body = bytes.fromhex(line.get("hex", "")) if kind == "d" else b""
        if body[:1] == b"w":
            stream.messages.append(Message(max(0, ms), _sent(body)))
    yield stream


def _transcript(lines: Iterable[Mapping[str, Any]]) -> Iterator[_RecordedStream]:
    """Streams of whole sessions, in the order in which they began."""
    open_streams: dict[int, tuple[_RecordedStream, int]] = {}
    found: list[_RecordedStream] = []
    for line in lines:
        if line.get("dir") != "S":
            continue
        conn, ms, raw = line["conn"], int(line.get("ms", 0)), bytes.fromhex(line.get("hex", ""))
        if raw[:1] == b"W":
            open_streams[conn] = _RecordedStream(), ms
            found.append(open_streams[conn][0])
        elif conn in open_streams:
            stream, began = open_streams[conn]
            if raw[:1] == b"d" and raw[5:6] == b"w":
                stream.messages.append(Message(ms - began, _sent(raw[5:])))
            elif raw[:1] == b"E":
                stream.end, stream.ended_ms = raw[5:], ms - began
                del open_streams[conn]
    yield from found or [_RecordedStream()]


def _sent(body: bytes) -> Sent:
    if len(body) < _WRAP:
        raise DamagedRecording("recorded data without its header")
    return Sent(Lsn(int.from_bytes(body[1:9], "big")), body[_WRAP:])


def profile_of(header: Mapping[str, Any]) -> Profile:
    """The product that was recorded."""
    name = str(header.get("server", ""))
    if "GaussDB" in name:
        return PROFILES["gaussdb"]
    found = re.search(r"openGauss (\d+)", name)
    major = min(max(int(found[1]) if found else 7, 3), 7)
    return PROFILES["og3" if major < 5 else f"og{major}"]


class _Record(NamedTuple):
    raw: bytes  # with what precedes it in a batch, without what separates
    text: bytes  # from the letter or the first character on
    lsn: int  # if it was sent; else the message's header


class _Cutter:
    """Puts records together to transactions."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self.transactions: list[Transaction] = []
        self.begins: list[bytes] = []
        self.commits: list[bytes] = []
        self.headers: list[list[Sent]] = []
        self.strays: dict[int, list[Sent]] = {}
        self._begin: bytes | None = None  # of the open transaction
        self._first = 0
        self._rows: list[Row] = []
        self._serial: list[Sent] = []
        self._sent_before = 0  # the last end of the streams before

    def take(self, sent: Sent) -> None:
        """Read one message."""
        try:
            records = list(self._records(sent))
        except (DamagedRecording, struct.error):
            self._stray(sent)
            return
        for record in records:
            if self._is_begin(record):
                self._begin, self._rows, self._serial = record.raw, [], [sent]
                self._first = self._first_lsn(record) or (0 if self._mode.parallel else sent.start)
            elif self._begin is None:
                self._stray(Sent(Lsn(record.lsn), self._alone(record)))
            elif self._is_commit(record):
                self._end(record, sent)
            else:
                # BEGIN has the first row's own position; a header may be larger.
                lsn = self._first if not self._rows and self._first else record.lsn
                self._rows.append(Row(Lsn(lsn), Op.INSERT, "", record.raw.hex(), None, None))
                self._serial.append(sent)

    def end_stream(self) -> None:
        """Forget what was not whole: the next stream has it again."""
        self._begin = None
        self._sent_before = int(self.transactions[-1].end_lsn) if self.transactions else 0

    def _stray(self, sent: Sent) -> None:
        if sent.start >= self._sent_before:
            self.strays.setdefault(len(self.transactions), []).append(sent)

    def _alone(self, record: _Record) -> bytes:
        """A record as a message of its own."""
        if self._mode.parallel and self._mode.style == "b":
            return record.raw + b"F"
        return record.raw + (b"\0\0\0\0" if self._mode.sending_batch else b"")

    def _end(self, record: _Record, sent: Sent) -> None:
        self._serial.append(sent)
        mode = self._mode
        if mode.parallel and not mode.sending_batch and mode.style != "b":
            start = sent.start
            end = start + 1  # not sent; one byte after the start excludes it as well
        elif mode.parallel:
            end = record.lsn
            start = sent.start if not mode.sending_batch else Lsn(end - _COMMIT_BYTES)
        else:
            end = sent.start
            start = Lsn(end - _COMMIT_BYTES)
        begin, self._begin = self._begin, None
        if begin is None or end <= self._sent_before:
            return
        number = len(self.transactions)
        self.transactions.append(
            Transaction(
                xid=number,
                csn=number,
                first_lsn=Lsn(self._first) if self._first else None,
                commit_lsn=start,
                end_lsn=Lsn(end),
                committed_at="",
                items=tuple(self._rows),
            )
        )
        self.begins.append(begin)
        self.commits.append(record.raw)
        self.headers.append(self._serial)

    def _records(self, sent: Sent) -> Iterator[_Record]:
        mode, payload = self._mode, sent.payload
        if not mode.parallel or (mode.style != "b" and not mode.sending_batch):
            yield _Record(payload, payload, sent.start)
            return
        at = 0
        while at < len(payload):
            (length,) = struct.unpack_from(">I", payload, at)
            if not length:
                return
            (lsn,) = struct.unpack_from(">Q", payload, at + 4)
            end = at + 4 + length
            if end > len(payload):
                raise DamagedRecording("a recorded message ends inside a record")
            yield _Record(payload[at:end], payload[at + 12 : end], lsn)
            at = end + (mode.style == "b")  # P or F

    def _is_begin(self, record: _Record) -> bool:
        return record.text.startswith(b"B" if self._mode.style == "b" else b"BEGIN")

    def _is_commit(self, record: _Record) -> bool:
        if self._mode.style == "b":
            return record.text.startswith(b"C")
        return record.text[:6].lower() == b"commit"

    def _first_lsn(self, record: _Record) -> int:
        if self._mode.style == "b":
            return int.from_bytes(record.text[9:17], "big")
        found = _BEGIN.match(record.text)
        return parse_lsn(found[2].decode()) if found is not None else 0
