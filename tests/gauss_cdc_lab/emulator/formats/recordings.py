"""Recordings of a real server, read as far as the tests of encoders need it.

No decoder takes part: only headers, and the lines that begin and end transactions.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gauss_cdc_lab.emulator.model import Mode, Sent
from schemas.positions import Lsn, parse_lsn

GOLDEN = Path(__file__).parents[3] / "golden" / "opengauss"
WORKLOADS = (
    *("types_pg", "types_a", "names", "identity", "txns", "toast", "bulk", "gbk", "sqlascii"),
)
MODES = (
    *("ser_mppdb", "ser_mppdb_skip", "ser_sql", "ser_test"),
    *(f"par_{style}_batch{batch}" for style in "bjt" for batch in (0, 1)),
)
ENCODINGS = {"UTF8": "utf-8", "GBK": "gbk", "SQL_ASCII": "utf-8"}


SESSIONS = (
    *("session_serial", "session_sql", "session_parallel_t_batch0", "session_parallel_b_batch1"),
    *("restart_serial_mppdb", "restart_serial_sql"),
    *(f"restart_par_{style}_batch{batch}" for style in "bjt" for batch in (0, 1)),
)


@dataclass(frozen=True)
class Recording:
    """What one stream carried: how it was asked for, and each message's position and payload."""

    plugin: str
    options: list[list[str]]
    encoding: str
    sent: tuple[Sent, ...]

    @property
    def mode(self) -> Mode:
        return mode_of(self.plugin, self.options)


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


@cache
def recording(workload: str, mode: str) -> Recording:
    header, *messages = lines(f"capture_{workload}_{mode}.jsonl.gz")
    rows = [bytes.fromhex(message["hex"]) for message in messages if message.get("sub") == "w"]
    encoding = ENCODINGS[header["database_encoding"]]
    return Recording(header["plugin"], header["options"], encoding, _sent(rows))


@cache
def session_recordings(name: str) -> tuple[Recording, ...]:
    """The streams of a recorded session, one for each connection that had any rows."""
    header, *events = lines(f"{name}.jsonl.gz")
    rows: dict[int, list[bytes]] = {}
    for event in events:
        if event.get("dir") == "S":
            message = bytes.fromhex(event["hex"])
            if message[:1] == b"d" and message[5:6] == b"w":
                rows.setdefault(event["conn"], []).append(message[5:])
    return tuple(
        Recording(header["plugin"], header["options"], "utf-8", _sent(bodies))
        for bodies in rows.values()
    )


def _sent(bodies: list[bytes]) -> tuple[Sent, ...]:
    assert all(body[1:9] == body[9:17] for body in bodies)  # walEnd repeats dataStart
    return tuple(Sent(int.from_bytes(body[1:9], "big"), body[25:]) for body in bodies)


def mode_of(plugin: str, options: list[list[str]]) -> Mode:
    """The mode that options of START_REPLICATION ask openGauss for."""
    named = dict(options)
    flags = {
        name.replace("-", "_"): named[name] == "true"
        for name in ("include-xids", "include-timestamp", "skip-empty-xacts")
        if name in named
    }
    if "parallel-decode-num" in named:
        flags = {"include_timestamp": False} | flags
    return replace(
        Mode(plugin=plugin, parallel_decode_num=int(named.get("parallel-decode-num", "1"))),
        decode_style=named.get("decode-style", ""),
        sending_batch=named.get("sending-batch") == "1",
        **flags,
    )


@dataclass
class Place:
    """Where a transaction stands, as its own recordings tell it."""

    xid: int
    csn: int
    committed_at: str
    commit_lsn: Lsn
    end_lsn: Lsn
    first_change_lsn: Lsn
    first_lsn: Lsn | None = None
    items: list[Lsn] = field(default_factory=list)


_BEGIN = re.compile(
    rb"BEGIN CSN: (\d+) first_lsn: ([0-9A-F]+/[0-9A-F]+) xid: (\d+) commit_time: (.+)"
)


@cache
def places(workload: str) -> tuple[Place, ...]:
    """All transactions in commit order, from a serial and an unbatched parallel stream."""
    found: dict[int, Place] = {}
    for start, payload in recording(workload, "par_t_batch0").sent:
        if begin := _BEGIN.fullmatch(payload):
            csn, first, xid, at = begin.groups()
            place = Place(
                xid=int(xid),
                csn=int(csn),
                committed_at=at.decode(),
                commit_lsn=Lsn(0),
                end_lsn=Lsn(0),
                first_change_lsn=parse_lsn(first.decode()),
            )
            found[place.xid] = place
        elif payload.startswith(b"commit xid: "):
            place.commit_lsn = Lsn(start)
    for start, payload in recording(workload, "ser_mppdb").sent:
        if payload.startswith(b"BEGIN "):
            place = found[int(payload.split()[1])]
            place.first_lsn = Lsn(start)
        elif payload.startswith(b"COMMIT "):
            place.end_lsn = Lsn(start)
        else:
            place.items.append(Lsn(start))
    ends = {
        int.from_bytes(body[14:22], "big"): Lsn(int.from_bytes(body[4:12], "big"))
        for _, body in recording(workload, "par_b_batch0").sent
        if body[12:14] == b"CX"
    }
    for place in found.values():
        assert place.end_lsn in {0, ends[place.xid]}
        place.end_lsn = ends[place.xid]
    return tuple(found.values())
