"""Files of what a server sent: captures of one stream, and transcripts of sessions.

JSON lines, plain or gzipped; the first is a header.  A capture's lines are backend
messages (`type`, `hex` = the body); a transcript's are whole messages of both sides
(`conn`, `dir`, `hex`), of which a connection's START_REPLICATION determines the format of
its stream.  Damage raises DecodeError with the line, after all before it.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from producer.errors import DecodeError, Unsupported
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.formats import PLUGIN_STYLES
from producer.sources.gauss.decoders.names import SQL_ASCII, codec
from schemas.positions import Lsn

_START: Final = re.compile(
    r'\s*START_REPLICATION\s+SLOT\s+"?([^"\s]+)"?\s+LOGICAL\s+\S+\s*(?:\((.*)\))?\s*',
    re.IGNORECASE | re.DOTALL,
)
_CREATE: Final = re.compile(
    r'\s*CREATE_REPLICATION_SLOT\s+"?([^"\s]+)"?\s+(?:TEMPORARY\s+)?LOGICAL\s+"?([^"\s;]+)"?.*',
    re.IGNORECASE | re.DOTALL,
)
_OPTION: Final = re.compile(r"""\s*("?)([^"',\s]+)\1\s*(?:'((?:[^']|'')*)')?\s*(?:,|$)""")
# Settings as PostgreSQL knows them, whose statements they stand before.
_STYLES: Final = {
    "DateStyle": re.compile(r"(?:ISO|SQL|Postgres|German), ?(?:DMY|MDY|YMD)", re.IGNORECASE),
    "IntervalStyle": re.compile(r"postgres(?:_verbose)?|sql_standard|iso_8601"),
}
_WRAP: Final = 25  # bytes of XLogData before its payload
_KEEPALIVE, _PG_KEEPALIVE = 33, 18  # bytes of GaussDB's and of PostgreSQL's
_LONGEST: Final = (2 << 30) + (1 << 16)  # of a line: a message has less than 1 GiB, in hex
_LONGEST_HEADER: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Began:
    """A stream begins; `stream` numbers those of one file."""

    stream: int
    line: int
    written: Format
    styles: tuple[tuple[str, str], ...] = ()  # how the session printed times: settings by name


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One XLogData message."""

    stream: int
    line: int
    start: Lsn
    payload: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """A stream was closed by one of the sides, wherever it stood."""

    stream: int
    line: int
    error: str = ""  # the server's message, if it was an error


Event: TypeAlias = Began | SentMessage | Closed


def read(path: Path) -> Iterator[Event]:
    """Read a file from its beginning."""
    lines = numbered(path)
    _, header = next(lines, (1, {}))
    if header.get("kind") != "header":
        raise DecodeError("not a recording: it does not begin with a header", file=path, line=1)
    first = next(lines, None)
    if first is None:
        return
    events = _transcript if "conn" in first[1] else _capture
    yield from events(path, header, _with(first, lines))


def numbered(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the lines of a file, parsed, with their numbers from 1."""
    number = 0
    with _opened(path) as file:
        while True:
            number += 1
            longest = _LONGEST if number > 1 else _LONGEST_HEADER
            try:
                line = file.readline(longest + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise DecodeError(
                    "the compressed file is damaged or truncated", file=path, line=number
                ) from None
            if not line:
                return
            if len(line) > longest:
                raise DecodeError(
                    "the line is longer than any message", file=path, line=number, size=len(line)
                )
            try:
                parsed = json.loads(line)
            except (ValueError, RecursionError):
                raise DecodeError("the line is not JSON", file=path, line=number) from None
            if not isinstance(parsed, dict):
                raise DecodeError("the line is not a JSON object", file=path, line=number)
            yield number, parsed


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    file = path.open("rb")
    if file.read(2) == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")
    file.seek(0)
    return file


def _with(
    first: tuple[int, dict[str, Any]], lines: Iterator[tuple[int, dict[str, Any]]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    yield first
    yield from lines


# ---- captures


def _capture(
    path: Path, header: dict[str, Any], lines: Iterator[tuple[int, dict[str, Any]]]
) -> Iterator[Event]:
    how = written(_word(header, "plugin", path), _given(header, path), _encoding(header))
    styles = _styles(header.get("settings"))
    stream, starts = 0, 0
    yield Began(stream, 1, how, styles)
    counter: int | None = None
    for number, line in lines:
        counter = _counted(path, number, line, counter)
        match line.get("type"):
            case "d":
                body = _bytes(path, number, line)
                if line.get("sub", found := body[:1].decode("latin-1")) != found:
                    raise DecodeError(
                        "the line contradicts its bytes", file=path, line=number, byte=found
                    )
                if (sent := _copied(path, stream, number, body, how)) is not None:
                    yield sent
            case "E":
                yield Closed(stream, number, _said(_bytes(path, number, line)))
            case "EOF" | "c" | "C":
                yield Closed(stream, number)
            case "W":
                if starts:  # the reader reconnected
                    yield Closed(stream, number)
                    stream += 1
                    yield Began(stream, number, how, styles)
                starts += 1
            case "N" | "S" | "Z" | "k":
                pass
            case _:
                raise DecodeError("a line of an unknown type", file=path, line=number)


def _counted(path: Path, number: int, line: dict[str, Any], before: int | None) -> int | None:
    """Check the counter `n`, which shows that a line is missing."""
    counter = line.get("n")
    if isinstance(counter, int) and before is not None and counter != before + 1:
        raise DecodeError(
            "lines are missing or in disorder", file=path, line=number, n=counter, before=before
        )
    return counter if isinstance(counter, int) else None


# ---- transcripts


def _transcript(
    path: Path, header: dict[str, Any], lines: Iterator[tuple[int, dict[str, Any]]]
) -> Iterator[Event]:
    plugins: dict[str, str] = {}  # of slots made in this file
    encodings: dict[int, str] = {}  # reported at login, by connection
    settings: dict[int, dict[str, str]] = {}
    asked: dict[int, Format | None] = {}  # None: the slot's plugin is unknown
    open_streams: set[int] = set()
    for number, line in lines:
        conn = line.get("conn")
        if not isinstance(conn, int):
            raise DecodeError("a line without its connection", file=path, line=number)
        if "hex" not in line:
            note = line.get("note")
            if isinstance(note, str) and "close" in note and conn in open_streams:
                open_streams.discard(conn)
                yield Closed(conn, number)
            continue
        raw = _bytes(path, number, line)
        tag, body = raw[:1], raw[5:]
        if line.get("dir") == "C":
            if tag == b"Q":
                query = body.rstrip(b"\0").decode("utf-8", "replace")
                if (made := _CREATE.fullmatch(query)) is not None:
                    plugins[made[1]] = made[2]
                if (start := _START.fullmatch(query)) is not None:
                    plugin = plugins.get(start[1]) or header.get("plugin")
                    encoding = encodings.get(conn) or _encoding(header)
                    options = parse_options(start[2] or "")
                    asked[conn] = written(plugin, options, encoding) if plugin else None
            continue
        if not raw or len(raw) != 1 + int.from_bytes(raw[1:5], "big"):
            raise DecodeError("a message with a wrong length", file=path, line=number)
        if tag == b"S":
            name, _, value = body.rstrip(b"\0").decode("ascii", "replace").partition("\0")
            settings.setdefault(conn, {})[name] = value
            if name == "server_encoding":
                encodings[conn] = value
        elif tag == b"W" and conn in asked:
            open_streams.add(conn)
            if (found := asked[conn]) is not None:
                yield Began(conn, number, found, _styles(settings.get(conn)))
        elif tag == b"d" and conn in open_streams:
            if (how := asked[conn]) is None:
                raise DecodeError("data of a slot whose plugin is unknown", file=path, line=number)
            if (sent := _copied(path, conn, number, body, how)) is not None:
                yield sent
        elif tag == b"E" and conn in open_streams:
            open_streams.discard(conn)
            yield Closed(conn, number, _said(body))


# ---- headers


def written(plugin: str, options: Mapping[str, str], encoding: str) -> Format:
    """Say how a stream of these options is written.  Options as at START_REPLICATION."""
    try:
        decoders = int(options.get("parallel-decode-num", "1"), 10)
    except ValueError:
        decoders = 1
    try:
        name = codec(encoding)
    except Unsupported:
        name = SQL_ASCII  # nothing is lost: what is not ASCII is shown as bytes
    own = PLUGIN_STYLES.get(plugin)
    if decoders < 2 and own is None:
        return Format(plugin, encoding=name)
    style = options.get("decode-style", own or "b")[:1]
    return Format(plugin, style, options.get("sending-batch", "0").strip() == "1", name)


def parse_options(text: str) -> dict[str, str]:
    """Read the options of a START_REPLICATION command."""
    found: dict[str, str] = {}
    pos = 0
    while pos < len(text) and (match := _OPTION.match(text, pos)) is not None:
        found[match[2]] = (match[3] or "").replace("''", "'")
        pos = match.end()
    return found


def _given(header: dict[str, Any], path: Path) -> dict[str, str]:
    options = header.get("options", [])
    pairs = list(options.items()) if isinstance(options, dict) else options
    try:
        return {str(name): str(value) for name, value in pairs}
    except (TypeError, ValueError):
        raise DecodeError("options that are not pairs", file=path, line=1) from None


def _encoding(header: dict[str, Any]) -> str:
    settings = header.get("settings")
    inner = settings.get("server_encoding") if isinstance(settings, dict) else None
    return str(header.get("database_encoding") or inner or "UTF8")


def _styles(settings: object) -> tuple[tuple[str, str], ...]:
    """Pick the settings that decide how times are printed."""
    if not isinstance(settings, dict):
        return ()
    found = ((name, settings.get(name), pattern) for name, pattern in _STYLES.items())
    return tuple(
        (name, value)
        for name, value, pattern in found
        if isinstance(value, str) and pattern.fullmatch(value)
    )


def _word(header: dict[str, Any], name: str, path: Path) -> str:
    value = header.get(name)
    if not isinstance(value, str):
        raise DecodeError(f"the header does not contain the {name}", file=path, line=1)
    return value


def _bytes(path: Path, number: int, line: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(line["hex"])
    except (KeyError, TypeError, ValueError):
        raise DecodeError("the line has no bytes in hex", file=path, line=number) from None


def _copied(path: Path, stream: int, number: int, body: bytes, how: Format) -> SentMessage | None:
    """Read CopyData: data, or (None) a keepalive.  What is too short is refused."""
    match body[:1]:
        case b"w":
            if len(body) < _WRAP:
                raise DecodeError("data without its header", file=path, line=number, size=len(body))
            return SentMessage(stream, number, Lsn(int.from_bytes(body[1:9], "big")), body[_WRAP:])
        case b"k":
            if len(body) not in _keepalives(how.plugin):
                raise DecodeError(
                    "a keepalive with a wrong length", file=path, line=number, size=len(body)
                )
            return None
        case _:
            raise DecodeError("CopyData that is neither data nor keepalive", file=path, line=number)


def _keepalives(plugin: str) -> tuple[int, ...]:
    """Say how long keepalives are where a plugin is found."""
    return {
        "pgoutput": (_PG_KEEPALIVE,),
        "test_decoding": (_KEEPALIVE, _PG_KEEPALIVE),  # openGauss' or PostgreSQL's
    }.get(plugin, (_KEEPALIVE,))


def _said(body: bytes) -> str:
    """Read an error's severity, code and text."""
    parts = {part[:1]: part[1:] for part in body.split(b"\0") if part}
    words = [parts.get(name, b"").decode("utf-8", "replace") for name in (b"S", b"C", b"M")]
    return " ".join(word for word in words if word)[:300] or "an error"
