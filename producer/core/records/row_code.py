"""Python source of row encoders: one straight-line function per table version.

A generated function takes a row's cells and returns their Avro binary.  It
handles the common texts of the common types; for any other (NULL where none
is allowed, NaN, infinity, an unsent value) it raises one of `FALLBACK_ERRORS`,
and the caller uses the reference, which handles all.  Where it does not raise,
the bytes are the same: tests/producer/core/records/test_encode.py.

Avro 1.11 specification, "Binary Encoding".
"""

from __future__ import annotations

import math
import struct
from binascii import unhexlify
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from schemas.encodings import exact_bytes
from schemas.tables import UNCHANGED, Column
from schemas.types import AvroType, NotRepresentable, SqlType
from schemas.types.numeric import DECIMAL, VARIABLE
from schemas.types.temporal import MICROS, days, micros

FALLBACK_ERRORS: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)

# Zigzag numbers below 2**14 as finished bytes, and the same with Avro's "more follows" bits.
_TABLE: Final = 1 << 14
SHORT: Final = [bytes((z,)) if z < 128 else bytes((z & 127 | 128, z >> 7)) for z in range(_TABLE)]
_HIGH: Final = [bytes((z & 127 | 128, z >> 7 | 128)) for z in range(_TABLE)]
_SHORT_PRESENT: Final = [b"\x02" + text for text in SHORT]  # in the union ["null", T]
_MASK: Final = _TABLE - 1


def varint(z: int) -> bytes:
    """Avro's variable length bytes of a zigzag number below 2**64.

    >>> varint(300).hex()
    'ac02'
    """
    if z < _TABLE:
        return SHORT[z]
    if z < 1 << 28:
        return _HIGH[z & _MASK] + SHORT[z >> 14]
    if z < 1 << 42:
        return _HIGH[z & _MASK] + _HIGH[z >> 14 & _MASK] + SHORT[z >> 28]
    return _HIGH[z & _MASK] + _HIGH[z >> 14 & _MASK] + varint(z >> 28)


def long(number: int) -> bytes:
    """Return the bytes of an Avro int or long; raise OverflowError beyond 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return varint(number + number if number >= 0 else -number - number - 1)


def text(data: bytes) -> bytes:
    """Return the bytes of an Avro string or bytes value."""
    return varint(2 * len(data)) + data


def counted(count: int, items: bytes) -> bytes:
    """Return the bytes of an Avro array or map in the union ["null", T]; null when empty."""
    return b"\x02" + long(count) + items + b"\x00" if count else b"\x00"


def names(columns: Sequence[str]) -> bytes:
    """Return the bytes of an Avro array of strings."""
    items = b"".join(text(name.encode()) for name in columns)
    return long(len(columns)) + items + b"\x00" if columns else b"\x00"


def writer(avro: Any, named: dict[str, Any] | None = None) -> Callable[[Any], bytes]:
    """Return a writer of any Avro type that a column can have."""
    named = {} if named is None else named
    if isinstance(avro, list):  # always ["null", T]
        inner = writer(avro[1], named)
        return lambda v: b"\x00" if v is None else b"\x02" + inner(v)
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind == "record":
        fields = [(f["name"], writer(f["type"], named)) for f in avro["fields"]]
        return lambda v: b"".join(write(v[name]) for name, write in fields)
    if kind == "array":
        item = writer(avro["items"], named)
        return lambda v: long(len(v)) + b"".join(map(item, v)) + b"\x00" if v else b"\x00"
    if kind == "map":
        entry = writer(avro["values"], named)
        return lambda v: (
            long(len(v)) + b"".join(text(k.encode()) + entry(x) for k, x in v.items()) + b"\x00"
            if v
            else b"\x00"
        )
    return _PRIMITIVES[kind]


_PRIMITIVES: Final[dict[str, Callable[[Any], bytes]]] = {
    "int": long,
    "long": long,
    "string": lambda v: text(v.encode()),
    "bytes": text,
    "boolean": lambda v: b"\x01" if v else b"\x00",
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
}


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """All that encoding needs of one column."""

    column: Column
    field: str  # its Avro name
    type: SqlType
    avro: AvroType
    nullable: bool  # of the Avro field
    placeholder: Any  # Avro value of an unsent value
    absent: Any  # Avro value of a column that is not part of the old key

    def write(self, value: Any) -> bytes:
        """Return the bytes of an Avro value of this column."""
        return writer(["null", self.avro] if self.nullable else self.avro)(value)


def _range_checked(bits: int, lead: bytes) -> Callable[[int], bytes]:
    limit = 1 << bits

    def long_path(z: int) -> bytes:
        if z >= limit:
            raise OverflowError
        return lead + varint(z)

    return long_path


@lru_cache(maxsize=8192)
def _date(cell: bytes) -> bytes:
    return long(days(cell.decode()))


@lru_cache(maxsize=2048)
def _midnight(cell: bytes) -> int:
    return days(cell.decode()) * 86_400_000_000


def _micros(cell: bytes) -> bytes:
    """`YYYY-MM-DD HH:MM:SS[.ffffff]`, as MicroTimestamp."""
    size = len(cell)
    if size < 19 or cell[10] != 32 or not cell[-1:].isdigit():
        raise NotRepresentable
    fraction = int(cell[20:]) * 10 ** (26 - size) if size > 19 else 0
    seconds = int(cell[11:13]) * 3600 + int(cell[14:16]) * 60 + int(cell[17:19])
    return long(_midnight(cell[:10]) + seconds * 1_000_000 + fraction)


def _millis(cell: bytes) -> bytes:
    value, rest = divmod(micros(cell.decode()), 1000)
    if rest:
        raise NotRepresentable
    return long(value)


_GLOBALS: Final[dict[str, Any]] = {
    "UNCHANGED": UNCHANGED,
    "SHORT": SHORT,
    "PRESENT": _SHORT_PRESENT,
    "varint": varint,
    "date": _date,
    "micros": _micros,
    "millis": _millis,
    "unhexlify": unhexlify,
    "pack_double": struct.Struct("<d").pack,
    "infinities": (math.inf, -math.inf),
    "BOOL": {b"t": b"\x01", b"f": b"\x00"},
    "BOOL_OR_NULL": {None: b"\x00", b"t": b"\x02\x01", b"f": b"\x02\x00"},
    "int2": _range_checked(16, b""),
    "int4": _range_checked(32, b""),
    "int8": _range_checked(64, b""),
    "int2_or_null": _range_checked(16, b"\x02"),
    "int4_or_null": _range_checked(32, b"\x02"),
    "int8_or_null": _range_checked(64, b"\x02"),
}


def row_function(
    plans: Sequence[FieldPlan],
    *,
    encoding: str = "utf-8",
    only: frozenset[str] | None = None,
) -> Callable[[Sequence[Any]], bytes]:
    """Compile `cells -> bytes`; columns outside `only` are not read and get their `absent`."""
    scope: dict[str, Any] = dict(_GLOBALS)
    body: list[str] = []
    parts: list[str] = []
    for at, plan in enumerate(plans):
        if only is not None and plan.column.name not in only:
            scope[f"A{at}"] = plan.write(plan.absent)
            parts.append(f"A{at}")
            continue
        parts.append(f"p{at}")
        body += _column(at, plan, scope, encoding)
    return _compiled(len(plans), body, f"b''.join(({''.join(f'{p},' for p in parts)}))", scope)


def slow_row_function(
    plans: Sequence[FieldPlan], *, encoding: str = "utf-8"
) -> Callable[[Sequence[Any]], tuple[bytes, int, bytes, int, bytes]]:
    """Compile a slower `cells -> (bytes, unsent, their names, exact, their entries)`.

    Unsent values get their placeholder, values that their Avro type cannot hold
    their nearest; both are counted and returned as the items of an Avro array
    of strings, and of an Avro map of strings.
    """
    scope: dict[str, Any] = {**_GLOBALS, "FALLBACK_ERRORS": FALLBACK_ERRORS}
    body = ["unsent = exact = 0; names = entries = b''"]
    for at, plan in enumerate(plans):
        scope[f"U{at}"] = plan.write(plan.placeholder)
        scope[f"N{at}"] = text(plan.column.name.encode())
        scope[f"slow{at}"] = _slow_path(plan, encoding)
        body += [
            f"if c{at} is UNCHANGED:",
            f"    p{at} = U{at}; names += N{at}; unsent += 1",
            "else:",
            "    try:",
            *(f"        {line}" for line in _column(at, plan, scope, encoding)),
            "    except FALLBACK_ERRORS:",
            f"        p{at}, entry = slow{at}(c{at})",
            "        entries += entry; exact += entry != b''",
        ]
    parts = "".join(f"p{at}," for at in range(len(plans)))
    return _compiled(len(plans), body, f"b''.join(({parts})), unsent, names, exact, entries", scope)


def _slow_path(plan: FieldPlan, encoding: str) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Return `cell -> (bytes, its entry in the map of exact texts)`."""
    name = text(plan.column.name.encode())
    load = plan.type.loader(plan.column)

    def slow_path(cell: bytes) -> tuple[bytes, bytes]:
        source, exact = in_text(cell, encoding)
        try:
            value = load(source)
        except NotRepresentable as exc:
            value, exact = plan.absent if exc.nearest is None else exc.nearest, exact or source
        except (ValueError, LookupError, OverflowError):
            value, exact = plan.absent, exact or source
        return plan.write(value), b"" if exact is None else name + text(exact.encode())

    return slow_path


def in_text(cell: bytes, encoding: str) -> tuple[str, str | None]:
    """Return a cell's text, and its exact form if its bytes are not text."""
    try:
        return cell.decode(encoding), None
    except UnicodeDecodeError:
        return cell.decode(encoding, "replace"), exact_bytes(cell)


def _compiled(
    width: int, body: list[str], result: str, scope: dict[str, Any]
) -> Callable[..., Any]:
    cells = "".join(f"c{at}," for at in range(width))
    lines = [f"{cells} = cells"] if width else []
    code = "\n    ".join(["def row(cells):", *lines, *body, f"return {result}"])
    exec(compile(code, f"<row of {width} columns>", "exec"), scope)  # noqa: S102  our own text
    function: Callable[..., Any] = scope["row"]
    return function


def _column(at: int, plan: FieldPlan, scope: dict[str, Any], encoding: str) -> list[str]:
    """Lines that turn cell `c<at>` into bytes `p<at>`."""
    c, p = f"c{at}", f"p{at}"
    null = plan.nullable
    opcode = plan.type.opcode
    if opcode == "bool":
        return [f"{p} = {'BOOL_OR_NULL' if null else 'BOOL'}[{c}]"]
    lines = _value(at, plan, scope, encoding)
    if not null:
        return lines
    return [f"if {c} is None:", f"    {p} = b'\\x00'", "else:", *(f"    {x}" for x in lines)]


def _value(at: int, plan: FieldPlan, scope: dict[str, Any], encoding: str) -> list[str]:
    c, p = f"c{at}", f"p{at}"
    table, lead = ("PRESENT", "b'\\x02' + ") if plan.nullable else ("SHORT", "")
    sized = f"({table}[2 * len(x)] if len(x) < 8192 else {lead}varint(2 * len(x)))"
    minimal = "n.to_bytes(((n if n >= 0 else ~n).bit_length() >> 3) + 1, 'big', signed=True)"
    opcode = plan.type.opcode
    shape = plan.type.shape.key
    if opcode in ("int2", "int4", "int8"):
        far = f"{opcode}_or_null" if plan.nullable else opcode
        return [
            f"n = int({c})",
            "z = n + n if n >= 0 else -n - n - 1",
            f"{p} = {table}[z] if z < {_TABLE} else {far}(z)",
        ]
    if opcode == "text":
        if encoding != "utf-8":
            return [f"x = {c}.decode({encoding!r}).encode()", f"{p} = {sized} + x"]
        return [
            f"x = {c}",
            "if not x.isascii():",
            "    x.decode()",  # raises: bytes that are not text are also sent as bytes
            f"{p} = {sized} + x",
        ]
    if shape == DECIMAL and plan.type.name == "numeric":
        assert isinstance(plan.avro, dict)  # a domain's modifier is here, not at its column
        precision, scale = plan.avro["precision"], plan.avro["scale"]
        limit = f"L{at}"
        scope[limit] = 10**precision
        if scale:
            lines = [
                f"if {c}[-{scale + 1}] != 46:",
                "    raise ValueError",
                f"n = int({c}[:-{scale + 1}] + {c}[-{scale}:])",
            ]
        else:
            lines = [f"n = int({c})"]
        return [
            *lines,
            f"if not -{limit} < n < {limit}:",
            "    raise ValueError",
            f"x = {minimal}",
            f"{p} = {sized} + x",
        ]
    if shape == VARIABLE:
        return [
            f"h, _, f = {c}.partition(b'.')",
            "n = int(h + f)",
            f"x = {minimal}",
            f"{p} = {table}[2 * len(f)] + varint(2 * len(x)) + x",
        ]
    if opcode == "timestamptz":
        # As many digits as the type has, which is not the column's own where that is a domain.
        size = len(plan.type.load("2000-01-01 00:00:00+00", plan.column))
        digits = max(0, size - 21)
        start, ends = f"S{at}", f"E{at}"
        scope[start] = (b"\x02" if plan.nullable else b"") + varint(2 * size)
        # The server's text ends where zeros would follow, so its length gives their number.
        scope[ends] = {22: (b"." + b"0" * digits if digits else b"") + b"Z"}
        scope[ends] |= {23 + n: b"0" * (digits - n) + b"Z" for n in range(1, digits + 1)}
        return [
            f"if {c}[-3:] != b'+00' or {c}[10] != 32:",
            "    raise ValueError",
            f"{p} = {start} + {c}[:10] + b'T' + {c}[11:-3] + {ends}[len({c})]",
        ]
    if opcode == "timestamp":
        function = "micros" if shape == MICROS.key else "millis"
        return [f"{p} = {lead}{function}({c})"]
    if opcode == "date":
        return [f"{p} = {lead}date({c})"]
    if opcode == "float8":
        return [
            f"x = float({c})",
            "if x in infinities:",  # or a number that was printed with too few digits
            "    raise ValueError",
            f"{p} = {lead}pack_double(x)",
        ]
    if opcode == "bytea":
        return [
            f"if {c}[:2] != b'\\\\x':",
            "    raise ValueError",
            f"x = unhexlify({c}[2:])",
            f"{p} = {sized} + x",
        ]
    scope[f"load{at}"] = plan.type.loader(plan.column)
    scope[f"write{at}"] = writer(plan.avro)
    return [f"{p} = {lead}write{at}(load{at}({c}.decode({encoding!r})))"]
