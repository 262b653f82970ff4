"""Encodes a row change as the bytes of its Kafka value: Confluent framing and Avro.

One encoder per table version.  `reference` defines the bytes; the native module writes the usual
rows by a plan of what is constant in a table version.

Confluent's wire format: 0x00, the schema's registry id in four big-endian
bytes, Avro binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

from producer.core.changes import Cell, Cells
from producer.core.records.avro import long, names, text
from producer.core.records.reference import (
    CompileNative,
    Encode,
    NullInRequired,
    RowEncoder,
    TransactionConstants,
    identity,
    plans_of,
    reference,
)
from producer.core.records.row_plan import (
    FieldPlan,
    KeyColumn,
    RowPlan,
    column_plans,
    key_column,
    writer,
)
from producer.errors import Unsupported
from schemas.encodings import of_cells
from schemas.envelope import EnvelopeOptions
from schemas.positions import Lsn
from schemas.tables import Column, TableSchema
from schemas.types import NotRepresentable, type_of

__all__ = [
    "NullInRequired",
    "RowEncoder",
    "TransactionConstants",
    "compile_encoder",
    "compile_key_encoder",
    "compile_key_texts",
    "frame_of_read",
    "is_one_key",
    "key_columns",
    "reference",
]

_PLAIN: Final = b"\x00\x00\x00\x00"  # exact, unsent, before_exact, before_columns
_READ: Final = b"\x00" + text(b"r")  # transaction: null; op


def compile_encoder(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    database: str,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
    native: CompileNative | None = None,
) -> RowEncoder:
    """Return the encoder of a table version; raise Unsupported for an unknown type.

    `native` compiles what writes the usual rows; None: the reference writes all.
    """
    options = options or EnvelopeOptions()
    encoding = of_cells(encoding)

    def slow(encoding: str) -> RowEncoder:
        return reference(
            table,
            prefix=prefix,
            schema_id=schema_id,
            database=database,
            options=options,
            encoding=encoding,
        )

    every = slow(encoding)
    if native is None and encoding != "utf-8":
        return every
    plan = _row_plan(table, prefix, schema_id, database, options)
    if encoding == "utf-8":
        usual = native(plan, every.encode) if native else every.encode
        return replace(every, encode=usual, plan=plan)
    assert native is not None
    usual = native(plan, slow("utf-8").encode)
    return replace(every, encode=_in_utf8(usual, every.encode, encoding))


def _row_plan(
    table: TableSchema, prefix: str, schema_id: int, database: str, options: EnvelopeOptions
) -> RowPlan:
    old_key = identity(table)
    sent = [name for name in table.names() if name in old_key]
    origin = (options.version, options.connector, prefix)
    return RowPlan(
        b"\x00" + schema_id.to_bytes(4, "big"),
        b"".join(text(part.encode()) for part in origin),
        text(database.encode()) + b"\x02",
        text(table.id.schema.encode()) + text(table.id.name.encode()),
        b"\x02" + names(sent) if sent else b"",
        column_plans(plans_of(table, options), old_key),
        str(table.id),
    )


def _in_utf8(encode: Encode, slow: Encode, encoding: str) -> Encode:
    """Encode rows of another encoding by an encoder of UTF-8; `slow` has those that are no text."""

    def recoded(cells: Cells | None) -> Cells | None:
        if cells is None:
            return None
        return [
            cell.decode(encoding).encode() if isinstance(cell, bytes) else cell for cell in cells
        ]

    def encode_recoded(  # noqa: PLR0917  called once per row: keywords cost
        op: str,
        old_kind: str,
        before: Cells | None,
        after: Cells | None,
        tx: TransactionConstants,
        lsn: Lsn,
        ordinal: int,
    ) -> bytes:
        try:
            old, new = recoded(before), recoded(after)
        except UnicodeDecodeError:
            return slow(op, old_kind, before, after, tx, lsn, ordinal)
        return encode(op, old_kind, old, new, tx, lsn, ordinal)

    return encode_recoded


def frame_of_read(plan: RowPlan, constants: TransactionConstants) -> tuple[bytes, bytes, bytes]:
    """Return what stands before a row of a load, between it and its ordinal, and behind.

    All rows of a load have the position of the slot's consistent point.
    """
    lsn = constants.commit_lsn
    middle = (
        plan.origin,
        constants.head,
        plan.database,
        text(b'%s%d"]' % (constants.sequence, lsn)),
        constants.times,
        plan.table,
        constants.txid,
        long(lsn),
        constants.place,
    )
    return plan.head + b"\x00\x02", b"".join(middle), _PLAIN + _READ + constants.tail


def compile_key_encoder(
    table: TableSchema,
    *,
    prefix: str,
    schema_id: int,
    options: EnvelopeOptions | None = None,
    encoding: str = "utf-8",
) -> Callable[[Cells], bytes]:
    """Return `row's cells -> framed Avro key`, for `key = "primary-key"`.

    The row is the new one, or the old one of a delete.  A key has no exact text
    next to its value, so a value whose Avro form another value has, too, is
    refused (Unsupported).
    """
    del prefix  # names are in the schema, not in the bytes
    pick = compile_key_texts(table)
    by_name = {plan.column.name: plan for plan in plans_of(table, options or EnvelopeOptions())}
    plans = [_required(by_name[name]) for name in table.key]
    writers = [(plan, writer(plan.avro)) for plan in plans]
    encoding = of_cells(encoding)
    header = b"\x00" + schema_id.to_bytes(4, "big")

    def encode(cells: Cells) -> bytes:
        key = pick(cells)
        parts = [
            _key_value(plan, write, cell, encoding, table)
            for (plan, write), cell in zip(writers, key, strict=True)
        ]
        return header + b"".join(parts)

    return encode


def compile_key_texts(table: TableSchema) -> Callable[[Cells], Sequence[Cell]]:
    """Return `row's cells -> the primary key's cells, in key order`.

    Texts of one value are one text: 1.50 and 1.5, which are one key to the source.
    """
    pick = _pick(table)
    columns = {column.name: column for column in table.columns}
    spellings = [
        (at, _SPELLINGS[spelling])
        for at, name in enumerate(table.key)
        if (spelling := _spelling(columns[name]))
    ]
    if not spellings:
        return pick

    def texts(cells: Cells) -> Sequence[Cell]:
        key = list(pick(cells))
        for at, spelling in spellings:
            cell = key[at]
            if isinstance(cell, bytes):
                key[at] = spelling(cell)
        return key

    return texts


def key_columns(
    table: TableSchema, options: EnvelopeOptions | None = None
) -> tuple[KeyColumn, ...]:
    """Plan the primary key for a native part: as the functions of both compilers write it."""
    plans = {plan.column.name: plan for plan in plans_of(table, options or EnvelopeOptions())}
    names = table.names()
    return tuple(
        key_column(names.index(name), _required(plans[name]), _spelling(plans[name].column))
        for name in table.key
    )


def is_one_key(column: Column, was: Cell, now: Cell) -> bool:
    """Say whether two different texts are one key to the source: 1.0 and 1.00."""
    spelling = _SPELLINGS.get(type_of(column).name)  # of a domain: what it is made of
    return (
        spelling is not None
        and isinstance(was, bytes)
        and isinstance(now, bytes)
        and spelling(was) == spelling(now)
    )


def _without_zeros(cell: bytes) -> bytes:
    """Write a numeric without zeros at the end of its fraction.

    >>> _without_zeros(b"1.50"), _without_zeros(b"100.00"), _without_zeros(b"100")
    (b'1.5', b'100', b'100')
    """
    if b"." not in cell:
        return cell
    text = cell.rstrip(b"0").rstrip(b".")
    return text if text[-1:].isdigit() else b"0"  # openGauss writes `.0`


def _spelling(column: Column) -> str:
    """Name the type of a column whose values have several spellings; "" for another one."""
    name = type_of(column).name
    return name if name in _SPELLINGS and _is_free(column) else ""


def _is_free(column: Column) -> bool:
    """Say whether the type leaves the spelling to the value: numeric(5,2) and char(3) do not."""
    said = column.user_type
    return (column.type_mod if said is None else said.type_mod) == -1


# Types by name -> the one spelling of a value that has several.
_SPELLINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "numeric": _without_zeros,
    "character": lambda cell: cell.rstrip(b" "),
}


def _pick(table: TableSchema) -> Callable[[Cells], Sequence[Cell]]:
    if not table.key:
        raise Unsupported("table has no primary key", table=table.id, hint='use key = "table"')
    at = [table.names().index(name) for name in table.key]
    if len(at) == 1:
        only = at[0]
        return lambda cells: (cells[only],)
    return itemgetter(*at)


def _key_value(
    plan: FieldPlan,
    write: Callable[[Any], bytes],
    cell: Cell,
    encoding: str,
    table: TableSchema,
) -> bytes:
    if not isinstance(cell, bytes):
        raise NullInRequired(plan.column.name, str(table.id))
    try:
        return write(_alone(plan, cell.decode(encoding)))
    except (ValueError, LookupError, OverflowError):
        raise Unsupported(
            "key value has no Avro form",
            table=table.id,
            column=plan.column.name,
            hint='use key = "table" for this table',
        ) from None


def _alone(plan: FieldPlan, text: str) -> Any:
    """Return the Avro value of a key, or one that only this key has: infinity, years BC."""
    try:
        return plan.type.load(text, plan.column)
    except NotRepresentable as problem:
        if not problem.is_alone:
            raise
        return problem.nearest


def _required(plan: FieldPlan) -> FieldPlan:
    return FieldPlan(plan.column, plan.field, plan.type, plan.avro, False, None, None)  # noqa: FBT003
