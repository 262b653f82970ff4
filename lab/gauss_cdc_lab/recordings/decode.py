"""`gauss-cdc decode`: a recording in, its transactions out, as JSON or as SQL.

Needs no server.  A damaged file gives the transactions before the damage, then
DecodeError with the line.  A transaction that a server sent again (a transcript
has several streams) is printed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from gauss_cdc_lab.recordings.files import Began, Closed, SentMessage, read
from gauss_cdc_lab.recordings.statements import statements
from gauss_cdc_lab.recordings.transactions import (
    Columns,
    Known,
    RecordedStream,
    RecordedTransaction,
    RowChange,
)
from producer.core.changes import Cell, Logical
from producer.errors import DecodeError, Unsupported
from producer.sources.gauss.decoders.messages import Ddl, NamedTruncate
from schemas.positions import lsn_text
from schemas.tables import Missing


@dataclass(frozen=True, slots=True)
class Decoded:
    """A transaction, the encoding of its values (Python's name), and the style of its times."""

    transaction: RecordedTransaction
    encoding: str
    styles: tuple[tuple[str, str], ...] = ()  # settings of the session that printed them


@dataclass(slots=True)
class _Stream:
    recorded: RecordedStream
    encoding: str
    styles: tuple[tuple[str, str], ...]


def transactions(
    path: Path, known: Known, errors: Callable[[int, str], None] | None = None
) -> Iterator[Decoded]:
    """Give the transactions of a file in the order of their ends, empty ones too.

    `errors` is called with each error of the server that ended a stream: line and text.
    """
    streams: dict[int, _Stream] = {}
    seen: set[tuple[object, ...]] = set()
    line = 1
    for event in read(path):
        line = event.line
        match event:
            case Began():
                # pgoutput's session asks for UTF-8; the others send the database's bytes.
                encoding = "utf-8" if event.written.plugin == "pgoutput" else event.written.encoding
                try:
                    streams[event.stream] = _Stream(
                        RecordedStream(event.written, known), encoding, event.styles
                    )
                except (
                    Unsupported
                ) as error:  # damaged or not: the rest of this file cannot be decoded
                    raise DecodeError(str(error), file=path, line=line) from None
            case Closed():
                if streams.pop(event.stream, None) is not None and event.error and errors:
                    errors(line, event.error)
            case SentMessage():
                stream = streams.get(event.stream)
                if stream is None:
                    raise DecodeError("data after the end of its stream", file=path, line=line)
                try:
                    for found in stream.recorded.feed(event.start, event.payload):
                        name = (found.xid, found.csn, found.position, found.committed_at)
                        if name not in seen:
                            seen.add(name)
                            yield Decoded(found, stream.encoding, stream.styles)
                except DecodeError as error:
                    error.where.update(file=path, line=line)
                    raise
            case _:
                assert_never(event)
    if any(stream.recorded.is_open for stream in streams.values()):
        raise DecodeError("the file ends within a transaction", file=path, line=line)


def as_json(decoded: Decoded) -> str:
    """Print a transaction as one line of JSON."""
    txn, encoding = decoded.transaction, decoded.encoding
    document = {
        "xid": txn.xid,
        "csn": txn.csn,
        "commit_lsn": None if txn.position is None else lsn_text(txn.position),
        "committed_at": txn.committed_at,
        "changes": [shown for change in txn.changes for shown in _change(change, encoding)],
    }
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a name of a SQL_ASCII database that is not UTF-8
        return json.dumps(document)
    return text


def _change(
    change: RowChange | NamedTruncate | Ddl | Logical, encoding: str
) -> Iterator[dict[str, Any]]:
    match change:
        case RowChange():
            yield {
                "op": change.op,
                "schema": change.table.schema,
                "table": change.table.name,
                "after": _columns(change.after, encoding),
                "before": _columns(change.before, encoding),
            }
        case NamedTruncate():
            flags = {"cascade": change.cascade, "restart_identity": change.restart_identity}
            for schema, table in change.tables:
                yield {**_about("TRUNCATE", schema, table), **{k: v for k, v in flags.items() if v}}
        case Ddl():
            about = {
                "form": change.form,
                "command": change.command,
                "sql": change.content if change.form == "TDDL" else change.sql,
                "content": None if change.form == "TDDL" else change.content,
                "owner": change.owner,
            }
            yield {**_about("DDL"), **{k: v for k, v in about.items() if v is not None}}
        case Logical():
            yield {
                **_about("MESSAGE"),
                "prefix": change.prefix,
                "content": _cell(change.content, encoding),
            }
        case _:
            assert_never(change)


def _about(op: str, schema: str | None = None, table: str | None = None) -> dict[str, Any]:
    return {"op": op, "schema": schema, "table": table, "after": None, "before": None}


def _columns(columns: Columns | None, encoding: str) -> dict[str, Any] | None:
    return None if columns is None else {name: _cell(cell, encoding) for name, cell in columns}


def _cell(cell: Cell, encoding: str) -> object:
    if cell is None:
        return None
    if isinstance(cell, Missing):
        return {"unchanged_toast": True}
    try:
        return cell.decode(encoding)
    except UnicodeDecodeError:
        return {"bytes_hex": cell.hex()}


@dataclass(slots=True)
class Printed:
    """What was omitted, or was ambiguous, while printing."""

    without_rows: int = 0
    ambiguous: set[str] = field(default_factory=set)  # names of decode-style t
    errors: list[tuple[int, str]] = field(default_factory=list)  # of the server: line and text


def print_all(
    path: Path,
    known: Known,
    write: Callable[[str], None],
    *,
    sql: bool = False,
    empty: bool = False,
) -> Printed:
    """Write every transaction, a line or some at a time.

    Without `empty` those that change no row are left out; as SQL those that
    change nothing.  Raises DecodeError at damage, what was before it written.
    """
    printed = Printed()
    styles: tuple[tuple[str, str], ...] = ()
    if sql:
        write("SET client_encoding = 'UTF8';")
        write("SET standard_conforming_strings = on;")  # a backslash in a value is only that
    for decoded in transactions(path, known, lambda *error: printed.errors.append(error)):
        txn = decoded.transaction
        for change in txn.changes:
            if isinstance(change, RowChange) and not change.is_sure:
                printed.ambiguous.add(f"{change.table.schema} {change.table.name}")
        if not (empty or txn.has_rows or (sql and txn.changes)):
            printed.without_rows += 1
            continue
        if sql:
            if decoded.styles != styles:
                styles = decoded.styles
                for name, value in styles:
                    write(f"SET {name} = '{value}';")
            write("\n".join(statements(txn, known, decoded.encoding)))
        else:
            write(as_json(decoded))
    return printed
