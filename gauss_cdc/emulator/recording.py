"""Recorded streams, cut into transactions as far as a restart needs it.

Reads `capture_*` (one stream) and `session_*`, `restart_*` (whole transcripts, of
which the first stream counts), plain or gzipped.  Only framing and the words of
BEGIN and COMMIT are understood: rows stay bytes.  What a mode does not tell (the
start of a commit record in serial mode and in batches) is estimated from the
record's smallest size, see `_COMMIT_BYTES`.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from gauss_cdc.emulator.frames import read_lsn
from gauss_cdc.emulator.model import PROFILES, Mode, Op, Profile, Row, Sent, Transaction
from gauss_cdc.emulator.options import Asked, parallel_decode_num, read
from producer.errors import DecodeError
from schemas.positions import Lsn

# A commit record without subtransactions and invalidations, as openGauss 7 writes it.
_COMMIT_BYTES: Final = 0x60
_WRAP: Final = 25  # bytes of `w` before the payload
_BEGIN: Final = re.compile(rb"BEGIN CSN: (\d+) (?:first|commit)_lsn: ([0-9A-F]+/[0-9A-F]+)")


class Message(NamedTuple):
    """One recorded XLogData."""

    ms: int  # since START_REPLICATION
    sent: Sent


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream, as recorded and as transactions."""

    header: Mapping[str, Any]
    asked: Asked
    messages: Sequence[Message]
    transactions: Sequence[Transaction]
    begins: Sequence[bytes]  # records of BEGIN, by transaction
    commits: Sequence[bytes]
    headers: Sequence[Sequence[Sent]]  # serial mode: its messages, by transaction

    @property
    def mode(self) -> Mode:
        return self.asked.mode

    @property
    def database(self) -> str:
        return str(self.header["database"])

    @property
    def plugin(self) -> str:
        return str(self.header["plugin"])

    @property
    def consistent_point(self) -> int:
        """Where the slot was made, or where the first transaction begins."""
        if (told := self.header.get("slot_consistent_point")) is not None:
            return read_lsn(told)
        return min((int(t.first_lsn or t.commit_lsn) for t in self.transactions), default=1)

    @property
    def end(self) -> int:
        """Behind the last commit."""
        return max((int(t.end_lsn) for t in self.transactions), default=self.consistent_point)

    @property
    def profile(self) -> Profile:
        """The product that was recorded."""
        name = str(self.header.get("server", ""))
        if "GaussDB" in name:
            return PROFILES["gaussdb"]
        found = re.search(r"openGauss (\d+)", name)
        major = min(max(int(found[1]) if found else 7, 3), 7)
        return PROFILES["og3" if major < 5 else f"og{major}"]


def load(path: Path) -> Recording:
    """Read a file; DecodeError names the line that is damaged."""
    opened = gzip.open if path.suffix == ".gz" else open
    lines: list[dict[str, Any]] = []
    with opened(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                lines.append(json.loads(line))
            except ValueError as exc:
                raise DecodeError(f"{path}, line {number}, is not JSON") from exc
    if not lines or lines[0].get("kind") != "header":
        raise DecodeError(f"{path} does not begin with a header")
    header, *rest = lines
    messages = list(_streamed(rest) if any("conn" in e for e in rest) else _captured(rest))
    profile = Recording(header, Asked(Mode()), [], [], [], [], []).profile
    given = [(name, value) for name, value in header.get("options", [])]
    number = parallel_decode_num(given)
    asked = read(given, plugin=header["plugin"], product=profile.name, number=number)
    cut = _Cutter(asked.mode)
    for message in messages:
        cut.take(message.sent)
    return Recording(
        header, asked, messages, cut.transactions, cut.begins, cut.commits, cut.headers
    )


def _captured(lines: Sequence[dict[str, Any]]) -> Iterator[Message]:
    for line in lines:
        if line.get("type") == "d" and line.get("sub") == "w":
            yield Message(line["ms"], _sent(bytes.fromhex(line["hex"])))


def _streamed(lines: Sequence[dict[str, Any]]) -> Iterator[Message]:
    stream, began = None, 0
    for line in lines:
        raw = bytes.fromhex(line.get("hex", ""))
        if stream is None and line.get("dir") == "S" and raw[:1] == b"W":
            stream, began = line["conn"], line["ms"]
        elif line.get("conn") == stream and line.get("dir") == "S" and raw[5:6] == b"w":
            yield Message(line["ms"] - began, _sent(raw[5:]))


def _sent(body: bytes) -> Sent:
    return Sent(int.from_bytes(body[1:9], "big"), body[_WRAP:])


class _Record(NamedTuple):
    raw: bytes  # with what precedes it in a batch, without what separates
    text: bytes  # from the letter or the first character on
    lsn: int  # as far as it is told; else the message's header


class _Cutter:
    """Puts records together to transactions."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self.transactions: list[Transaction] = []
        self.begins: list[bytes] = []
        self.commits: list[bytes] = []
        self.headers: list[list[Sent]] = []
        self._begin = b""
        self._first = 0
        self._rows: list[Row] = []
        self._serial: list[Sent] = []

    def take(self, sent: Sent) -> None:
        """Read one message."""
        for record in self._records(sent):
            if self._is_begin(record):
                self._begin, self._rows, self._serial = record.raw, [], [sent]
                self._first = self._first_lsn(record) or (0 if self._mode.parallel else sent.start)
            elif self._is_commit(record):
                self._end(record, sent)
            else:
                # The first row's own position is told by BEGIN; a header may be larger.
                lsn = self._first if not self._rows and self._first else record.lsn
                self._rows.append(Row(Lsn(lsn), Op.INSERT, "", record.raw.hex(), None, None))
                self._serial.append(sent)

    def _end(self, record: _Record, sent: Sent) -> None:
        self._serial.append(sent)
        mode = self._mode
        if mode.parallel and not mode.sending_batch and mode.style != "b":
            start = sent.start
            end = start + 1  # not told; one byte behind the start excludes it as well
        elif mode.parallel:
            end = record.lsn
            start = sent.start if not mode.sending_batch else end - _COMMIT_BYTES
        else:
            end = sent.start
            start = end - _COMMIT_BYTES
        number = len(self.transactions)
        self.transactions.append(
            Transaction(
                xid=number,
                csn=number,
                first_lsn=Lsn(self._first) if self._first else None,
                commit_lsn=Lsn(start),
                end_lsn=Lsn(end),
                committed_at="",
                items=tuple(self._rows),
            )
        )
        self.begins.append(self._begin)
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
                raise DecodeError("a recorded message ends inside a record")
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
        told = _BEGIN.match(record.text)
        return read_lsn(told[2].decode()) if told is not None else 0
