"""Python source of row decoders: one straight-line function per writer's schema.

It reads the two rows into texts and takes out of the rest what a change needs.
The parts of `source` that repeat from row to row are compared with those of
the row before, and only parsed when they differ.  Whatever it does not expect
ends in an exception; the caller then asks fastavro, which decides.

Avro 1.11 specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from schemas.envelope import envelope_schema, without_null
from schemas.tables import TableId, TableSchema
from schemas.types import AvroType, dumper
from schemas.types.base import same
from schemas.types.numeric import DECIMAL
from spark_consumers.model import Cell

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (data, at) -> (value, after)
Texts: TypeAlias = list[Cell]  # no UNCHANGED yet

_SINGLE: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
FALLBACK_ERRORS: Final = (ValueError, LookupError, OverflowError, struct.error)
_EMPTY: Final = TableSchema(TableId("", ""), ())


class Parts(NamedTuple):
    """What a change is made of; the rows not yet corrected by the four optional fields."""

    before: Texts | None
    after: Texts | None
    op: str
    seq: int
    ordinal: int
    exact: Mapping[str, str] | None
    unsent: Sequence[str] | None
    before_exact: Mapping[str, str] | None
    before_columns: Sequence[str] | None


def is_ours(envelope: dict[str, Any]) -> bool:
    """Say whether everything but the row is as this release writes it."""
    return bool(envelope["fields"][2:] == envelope_schema("", _EMPTY)["fields"][2:])


def more(data: bytes, at: int, z: int) -> tuple[int, int]:
    """Read the rest of a variable length number, whose first seven bits are `z`."""
    shift = 7
    while (byte := data[at]) > 127:
        z |= (byte & 127) << shift
        shift += 7
        at += 1
    return z | byte << shift, at + 1


def number(data: bytes, at: int) -> tuple[int, int]:
    r"""Read an Avro int or long.

    >>> number(b"\xac\x02", 0)
    (150, 2)
    """
    z, at = more(data, at + 1, data[at] & 127) if data[at] > 127 else (data[at], at + 1)
    return (z >> 1) ^ -(z & 1), at


def blob(data: bytes, at: int) -> tuple[bytes, int]:
    """Read Avro bytes; raise ValueError where they end early."""
    size, at = number(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("bytes end early")
    return data[at:end], end


def string(data: bytes, at: int) -> tuple[str, int]:
    """Read an Avro string."""
    value, at = blob(data, at)
    return value.decode(), at


def reader(avro: Any, named: dict[str, Read] | None = None) -> Read:
    """Return a reader of any Avro type that a column, or our part of `source`, can have."""
    named = {} if named is None else named
    if isinstance(avro, list):
        return _optional(reader(avro[1], named))
    if isinstance(avro, str):
        return named[avro] if avro in named else _PRIMITIVES[avro]
    kind = avro["type"]
    if kind == "record":
        fields = [(f["name"], reader(f["type"], named)) for f in avro["fields"]]
        named[f"{avro['namespace']}.{avro['name']}"] = _record(fields)
        return _record(fields)
    if kind == "array":
        item = reader(avro["items"], named)
        return lambda data, at: _items(data, at, item)
    if kind == "map":
        value = reader(avro["values"], named)
        return lambda data, at: _map(data, at, value)
    return _PRIMITIVES[kind]


def _optional(read: Read) -> Read:
    def read_optional(data: bytes, at: int) -> tuple[Any, int]:
        if data[at] == 2:
            return read(data, at + 1)
        if data[at]:
            raise ValueError("union has two branches")
        return None, at + 1

    return read_optional


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read_record(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        out = {}
        for name, read in fields:
            out[name], at = read(data, at)
        return out, at

    return read_record


def _items(data: bytes, at: int, item: Read) -> tuple[list[Any], int]:
    out = []
    count, at = number(data, at)
    while count:
        if count < 0:
            raise ValueError("blocks with a size are left to fastavro")
        for _ in range(count):
            value, at = item(data, at)
            out.append(value)
        count, at = number(data, at)
    return out, at


def _map(data: bytes, at: int, value: Read) -> tuple[dict[str, Any], int]:
    def entry(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = string(data, at)
        found, at = value(data, at)
        return (key, found), at

    entries, at = _items(data, at, entry)
    return dict(entries), at


_PRIMITIVES: Final[dict[str, Read]] = {
    "int": number,
    "long": number,
    "bytes": blob,
    "string": string,
    "boolean": lambda data, at: (data[at] == 1, at + 1),
    "float": lambda data, at: (_SINGLE.unpack_from(data, at)[0], at + 4),
    "double": lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8),
}


def row_function(fields: Sequence[dict[str, Any]]) -> Callable[[bytes, int], tuple[Texts, int]]:
    """Compile `(data, at) -> (texts, after)` for the fields of a Value record."""
    scope: dict[str, Any] = {"more": more}
    named: dict[str, Read] = {}
    code = ["def row(data, at):"]
    for place, field in enumerate(fields):
        avro = without_null(field["type"])
        lines = _column(place, avro, scope, named)
        if isinstance(field["type"], list):
            lines = [
                "b = data[at]; at += 1",
                "if b == 2:",
                *(f"    {line}" for line in lines),
                "elif b == 0:",
                f"    c{place} = None",
                "else:",
                "    raise ValueError",
            ]
        code += [f"    {line}" for line in lines]
    code.append(f"    return [{', '.join(f'c{at}' for at in range(len(fields)))}], at")
    exec(compile("\n".join(code), f"<row of {len(fields)} fields>", "exec"), scope)  # noqa: S102  our own text
    function: Callable[[bytes, int], tuple[Texts, int]] = scope["row"]
    return function


def _column(place: int, avro: AvroType, scope: dict[str, Any], named: dict[str, Read]) -> list[str]:
    """Lines that read the field at `at` into the text `c<place>`."""
    kind = avro["type"] if isinstance(avro, dict) else avro
    name = avro.get("connect.name", "") if isinstance(avro, dict) else ""
    dump = dumper(avro)
    c = f"c{place}"
    varint = ["b = data[at]; at += 1", "if b > 127:", "    b, at = more(data, at, b & 127)"]
    taken = [*varint, "end = at + (b >> 1)", "x = data[at:end]; at = end"]
    if kind in ("int", "long"):
        if dump is str:
            return [*varint, f"{c} = str((b >> 1) ^ -(b & 1))"]
        scope[f"dump{place}"] = dump
        return [*varint, f"{c} = dump{place}((b >> 1) ^ -(b & 1))"]
    if kind == "string":
        if dump is same:
            return [*taken, f"{c} = x.decode()"]
        scope[f"dump{place}"] = dump
        return [*taken, f"{c} = dump{place}(x.decode())"]
    if kind == "bytes":
        scope[f"dump{place}"] = dump
        if name == DECIMAL and isinstance(avro, dict) and 0 < int(avro.get("scale", 0)) < 30:
            scale = int(avro["scale"])
            return [
                *taken,
                "n = int.from_bytes(x, 'big', signed=True)",
                f"if n >= {10**scale}:",
                "    t = str(n)",
                f"    {c} = t[:-{scale}] + '.' + t[-{scale}:]",
                "else:",
                f"    {c} = dump{place}(x)",
            ]
        return [*taken, f"{c} = dump{place}(x)"]
    scope[f"dump{place}"] = dump
    scope[f"read{place}"] = reader(avro, named)
    return [f"x, at = read{place}(data, at)", f"{c} = dump{place}(x)"]


def parts_function(fields: Sequence[dict[str, Any]]) -> Callable[[bytes], Parts]:
    """Return `payload -> Parts` for an envelope that `is_ours`, whose row has these fields.

    Raises one of `FALLBACK_ERRORS` for all that it does not expect.
    """
    row = row_function(fields)
    envelope = envelope_schema("", _EMPTY)
    source = {
        f["name"]: _snapshot if f["name"] == "snapshot" else reader(f["type"])
        for f in envelope["fields"][2]["type"]["fields"]
    }
    first = ("version", "connector", "name", "ts_ms", "snapshot", "db")
    second = ("ts_us", "ts_ns", "schema", "table", "txId")
    third = ("xmin", "csn", "epoch")
    optional = ("exact", "unsent", "before_exact", "before_columns")
    some_long = source["ts_us"]
    head = middle = place = tail = b"\xff" * 11  # of the row before; no number is so long
    seq = 0

    def skip(names: Sequence[str], data: bytes, at: int) -> int:
        for name in names:
            _, at = source[name](data, at)
        return at

    def parts(data: bytes) -> Parts:
        nonlocal head, middle, place, tail, seq
        before: Texts | None = None
        after: Texts | None = None
        exact = unsent = before_exact = before_columns = None
        at = 1
        if data[0] == 2:
            before, at = row(data, 1)
        elif data[0]:
            raise ValueError("union has two branches")
        if data[at] == 2:
            after, at = row(data, at + 1)
        elif data[at]:
            raise ValueError("union has two branches")
        else:
            at += 1
        if data.startswith(head, at):
            at += len(head)
        else:
            start, at = at, skip(first, data, at)
            head = data[start:at]
        if data[at] == 2 and data[at + 1] < 128:  # sequence
            at += 2 + (data[at + 1] >> 1)
        else:
            _, at = source["sequence"](data, at)
        if data.startswith(middle, at):
            at += len(middle)
        else:
            start, at = at, skip(second, data, at)
            middle = data[start:at]
        _, at = some_long(data, at)  # lsn
        if data.startswith(place, at):
            at += len(place)
        else:
            start, at = at, skip(third, data, at)
            seq, at = _present(data, at)
            place = data[start:at]
        ordinal, at = _present(data, at)
        if data.startswith(b"\x00\x00\x00\x00", at):
            at += 4
        else:
            values: list[Any] = []
            for name in optional:
                value, at = source[name](data, at)
                values.append(value)
            exact, unsent, before_exact, before_columns = values
        if data[at] == 2:  # the transaction's id, and two places in it
            _, at = string(data, at + 1)
            _, at = number(data, at)
            _, at = number(data, at)
        elif data[at] == 0:
            at += 1
        else:
            raise ValueError("union has two branches")
        if data[at] != 2:
            raise ValueError("an operation of another length")
        op = chr(data[at + 1])
        at += 2
        if data[at:] != tail:
            start = at
            for _ in range(3):
                _, at = some_long(data, at)
            if at != len(data):
                raise ValueError("value does not fill its record")
            tail = data[start:]
        return Parts(before, after, op, seq, ordinal, exact, unsent, before_exact, before_columns)

    return parts


def _snapshot(data: bytes, at: int) -> tuple[str, int]:
    """Read the one union whose null is last, and which is never null."""
    if data[at]:
        raise ValueError("snapshot is null")
    return string(data, at + 1)


def _present(data: bytes, at: int) -> tuple[int, int]:
    """Read an optional long that must be there."""
    if data[at] != 2:
        raise ValueError("no position")
    return number(data, at + 1)
