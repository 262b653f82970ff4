"""Recorded captures and what they must say: ledgers written from the database, not from us.

`expected` follows the README beside the captures: what a mode cannot show is left
out, and nothing else.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from producer.sources.decoders import NAMING, Format, Naming
from producer.sources.gauss.decoders.messages import (
    DecodedMessage,
    NamedChange,
    NamedRow,
    NamedTruncate,
    TxBegin,
    TxCommit,
)
from producer.sources.gauss.decoders.names import codec

GOLDEN = Path(__file__).parents[4] / "golden" / "opengauss"
CAPTURES = sorted(path.name.removesuffix(".jsonl.gz") for path in GOLDEN.glob("capture_*"))
ROWS = ("INSERT", "UPDATE", "DELETE")

Bytes = bytes | None
Row = tuple[tuple[str, Bytes], ...]  # in the order of the table


def documents(name: str) -> list[Any]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def document(name: str) -> Any:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as file:
        return json.load(file)


@dataclass(frozen=True)
class Capture:
    name: str
    workload: str
    header: dict[str, Any]
    written: Format
    payloads: list[tuple[int, bytes]]
    rename: Callable[[str], str] = str

    @property
    def is_parallel(self) -> bool:
        return bool(self.written.style)

    @property
    def is_sql(self) -> bool:
        return self.written.plugin == "sql_decoding" and not self.is_parallel

    @cached_property
    def float_digits(self) -> dict[str, int]:
        """Digits of the columns that sql_decoding prints shorter than they are."""
        tables = document(self.header["tables"] + ".gz")["tables"] if self.is_sql else []
        kinds = {"real": 6, "double precision": 15}
        return {
            self.rename(column["name"]): kinds[column["type"]]
            for table in tables
            for column in table["columns"]
            if column["type"] in kinds
        }

    def decoder(self) -> Naming:
        return NAMING[self.written.plugin, self.written.style](self.written)


def capture(name: str) -> Capture:
    header, *messages = documents(f"{name}.jsonl.gz")
    options = dict(header["options"])
    written = Format(
        header["plugin"],
        options.get("decode-style", "b") if header["mode"] == "parallel" else "",
        options.get("sending-batch") == "1",
        codec(header["database_encoding"]),
    )
    frames = [bytes.fromhex(line["hex"]) for line in messages if line.get("sub") == "w"]
    payloads = [(int.from_bytes(frame[1:9], "big"), frame[25:]) for frame in frames]
    workload = header["ledger"].removeprefix("ledger_").removesuffix(".jsonl")
    return Capture(name, workload, header, written, payloads)


# ---- what must come out


def cell(value: Any, encoding: str) -> Bytes:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes_hex"])
    return None if value is None else value.encode(encoding)


def row(values: dict[str, Any] | None, encoding: str) -> Row | None:
    if not values:  # {} = no old part
        return None
    return tuple((name, cell(value, encoding)) for name, value in values.items())


@dataclass(frozen=True)
class Wanted:
    op: str
    schema: str
    table: str
    after: Row | None
    before: Row | None
    unordered: str | None = None  # changes of one statement, whose order is not asserted


def expected(read: Capture) -> list[tuple[int, list[Wanted]]]:
    """Give (xid, changes) of each transaction with changes that the mode shows."""
    found = []
    for txn in documents(read.header["ledger"] + ".gz"):
        if txn["outcome"] == "committed":
            changes = [
                wanted for change in txn["changes"] for wanted in expected_changes(read, change)
            ]
            if changes:
                found.append((txn["xid"], changes))
    return found


def expected_changes(read: Capture, change: dict[str, Any]) -> list[Wanted]:
    if change["op"] == "DDL" or (read.is_parallel and change.get("after_ddl_in_txn")):
        return []
    if change["op"] == "TRUNCATE":
        names = [] if read.is_parallel else change["tables"]
        return [Wanted("TRUNCATE", *name, None, None) for name in names]
    encoding = read.written.encoding
    where = change["schema"], change["table"]
    after = row(change.get("after"), encoding)
    before = row(change.get("before_key"), encoding)
    unordered = change.get("order")
    if read.is_sql and change["op"] == "UPDATE":
        return [
            Wanted("DELETE", *where, None, before, unordered),
            Wanted("INSERT", *where, after, None, unordered),
        ]
    return [Wanted(change["op"], *where, after, before, unordered)]


# ---- what came out


def reported(read: Capture, decoder: Naming | None = None) -> list[DecodedMessage]:
    decoder = decoder or read.decoder()
    return [
        decoder.decode(position, record)
        for start, payload in read.payloads
        for position, record in decoder.split(start, payload)
    ]


def transactions(messages: list[DecodedMessage]) -> list[tuple[int | None, list[Wanted]]]:
    """Fold messages; an empty transaction is left out, as one without row changes."""
    found = []
    open_xid: int | None = None
    is_open, changes = False, []
    for message in messages:
        match message:
            case TxBegin():
                assert not is_open
                is_open, open_xid, changes = True, message.xid, []
            case TxCommit():
                assert is_open
                is_open = False
                if changes:
                    found.append((message.xid or open_xid, changes))
            case NamedChange():
                assert is_open
                op = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[message.op]
                changes.append(
                    Wanted(
                        op, message.schema, message.table, named(message.new), named(message.old)
                    )
                )
            case NamedTruncate():
                changes += [Wanted("TRUNCATE", *table, None, None) for table in message.tables]
            case _:
                raise AssertionError(message)
    assert not is_open
    return found


def named(found: NamedRow | None) -> Row | None:
    if found is None:
        return None
    names = found.shape.names or [""] * len(found.cells)
    return tuple(zip(names, found.cells, strict=True))


# ---- comparing them


def same(read: Capture, got: Wanted, want: Wanted) -> bool:
    # Style t has a blank between two unquoted names, which may hold blanks.
    names = [f"{change.schema} {change.table}" for change in (got, want)]
    if read.written.style != "t":
        names = [f"{change.schema}\0{change.table}" for change in (got, want)]
    return (
        got.op == want.op
        and names[0] == names[1]
        and same_row(read, got.after, want.after)
        and same_row(read, got.before, want.before)
    )


def same_row(read: Capture, got: Row | None, want: Row | None) -> bool:
    if got is None or want is None:
        return got is want
    return len(got) == len(want) and all(
        name in ("", wanted_name)
        and (value == wanted or same_float(value, wanted, read.float_digits.get(wanted_name, 0)))
        for (name, value), (wanted_name, wanted) in zip(got, want, strict=True)
    )


def same_float(value: Bytes, wanted: Bytes, digits: int) -> bool:
    """Say whether sql_decoding, which has extra_float_digits = 0, may print `wanted` so."""
    if value is None or wanted is None or digits == 0:
        return value is wanted
    number = float(wanted)
    return Decimal(value.decode()) == Decimal(f"{number:.{digits - 1}e}")


def matches(read: Capture, got: list[Wanted], want: list[Wanted]) -> bool:
    """Compare in order; changes marked unordered match each other in any."""
    if len(got) != len(want):
        return False
    loose = [change for change in want if change.unordered]
    for change, wanted in zip(got, want, strict=True):
        if not wanted.unordered:
            if not same(read, change, wanted):
                return False
            continue
        twin = next((other for other in loose if same(read, change, other)), None)
        if twin is None:
            return False
        loose.remove(twin)
    return True
