"""Encodes a row change as the bytes of its Kafka value: Confluent framing and Avro.

One encoder per table version.  What is constant in a table version, and what
is constant in a transaction, is made once; a row costs one generated function
(`row_code`) and one join, a row with unsent or exact values a slower one.
`reference` defines the bytes, and encodes, or refuses, all other rows.

Confluent's wire format: 0x00, the schema's registry id in four big-endian
bytes, Avro binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from producer.core.changes import Cell, Cells
from producer.core.records.reference import (
    CompileNative,
    NullInRequired,
    RowEncoder,
    TransactionConstants,
    filled,
    plans_of,
    reference,
)
from producer.core.records.reference import identity as old_key
from producer.core.records.row_code import (
    FALLBACK_ERRORS,
    SHORT,
    FieldPlan,
    counted,
    long,
    names,
    row_function,
    slow_row_function,
    text,
    varint,
)
from producer.core.records.row_plan import KeyColumn, RowPlan, column_plans, key_column
from producer.errors import DecodeError, Unsupported
from schemas.encodings import of_cells
from schemas.envelope import EnvelopeOptions
from schemas.tables import UNCHANGED, Column, TableSchema
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
_OPS: Final = {op: b"\x00" + text(op.encode()) for op in "crudt"}  # transaction: null; op


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
    """Return the fast encoder of a table version; raise Unsupported for an unknown type.

    `native` replaces the generated code, where texts are UTF-8.
    """
    options = options or EnvelopeOptions()
    encoding = of_cells(encoding)
    plans = plans_of(table, options)
    slow = reference(
        table,
        prefix=prefix,
        schema_id=schema_id,
        database=database,
        options=options,
        encoding=encoding,
    ).encode
    identity = old_key(table)
    row = row_function(plans, encoding=encoding)
    slow_rows = slow_row_function(plans, encoding=encoding)
    row_key = row_function(plans, encoding=encoding, only=identity)
    sent = [name for name in table.names() if name in identity]
    key_columns = b"\x02" + names(sent)
    key_only = b"\x00\x00\x00" + key_columns
    header = b"\x00" + schema_id.to_bytes(4, "big")
    nothing, only_after = header + b"\x00\x00", header + b"\x00\x02"
    some_before = header + b"\x02"
    origin = b"".join(text(part.encode()) for part in (options.version, options.connector, prefix))
    db = text(database.encode()) + b"\x02"
    table_name = text(table.id.schema.encode()) + text(table.id.name.encode())
    width = len(plans)
    own_name = str(table.id)

    def slow_path(
        old_kind: str, before: Cells | None, after: Cells | None
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """Head, old row, new row and optional fields of a change with unsent or exact values."""
        head, old, new = nothing[:5], b"\x00", b"\x00"
        exact = unsent = before_exact = before_columns = b"\x00"
        if before is not None:
            if old_kind == "K":
                if not sent:
                    raise ValueError
                old, before_columns = b"\x02" + row_key(before), key_columns
            else:
                old, count, _, number, entries = slow_rows(before)
                if count:
                    raise ValueError  # the reference encodes an old row with missing cells
                old, before_exact = b"\x02" + old, counted(number, entries)
                if after is not None:
                    after = filled(before, after)
        if after is not None:
            new, count, items, number, entries = slow_rows(after)
            new = b"\x02" + new
            exact, unsent = counted(number, entries), counted(count, items)
        return head, old, new, exact + unsent + before_exact + before_columns

    known: TransactionConstants | None = None
    before_lsn = sequence = after_sequence = place = tail = b""
    sequence_size = 0

    def encode(  # noqa: PLR0917  called once per row: keywords cost
        op: str,
        old_kind: str,
        before: Cells | None,
        after: Cells | None,
        tx: TransactionConstants,
        lsn: int,
        ordinal: int,
    ) -> bytes:
        nonlocal known, before_lsn, sequence, after_sequence, place, tail, sequence_size
        if tx is not known:
            before_lsn = origin + tx.head + db
            sequence = tx.sequence
            sequence_size = 2 * (len(sequence) + 2)
            after_sequence = b'"]' + tx.times + table_name + tx.txid
            place = tx.place
            tail = tx.tail
            known = tx
        optional = _PLAIN
        try:
            if op == "u" and after is not None and UNCHANGED in after:
                head, old, new, optional = slow_path(old_kind, before, after)
            elif before is None:
                old = b""
                if after is None:
                    head, new = nothing, b""
                else:
                    head, new = only_after, row(after)
            else:
                head = some_before
                if old_kind != "K":
                    old = row(before)
                elif sent:
                    old, optional = row_key(before), key_only
                else:
                    raise ValueError  # the reference looks at the cells
                new = b"\x00" if after is None else b"\x02" + row(after)
        except FALLBACK_ERRORS:
            try:
                head, old, new, optional = slow_path(old_kind, before, after)
            except FALLBACK_ERRORS:
                if _length(before, width) and _length(after, width):
                    return slow(op, old_kind, before, after, tx, lsn, ordinal)
                raise DecodeError(
                    "row has another number of cells than its table", table=table.id, want=width
                ) from None
        own = b"%d" % lsn
        return b"".join(
            (
                head,
                old,
                new,
                before_lsn,
                SHORT[sequence_size + 2 * len(own)],
                sequence,
                own,
                after_sequence,
                varint(lsn + lsn),
                place,
                varint(ordinal + ordinal),
                optional,
                _OPS[op] if tx.counted is None else tx.counted.block(own_name) + _OPS[op][1:],
                tail,
            )
        )

    plan = RowPlan(
        header, origin, db, table_name, key_only if sent else b"", column_plans(plans, identity)
    )
    if encoding != "utf-8":
        return RowEncoder(table, schema_id, encode)
    return RowEncoder(table, schema_id, native(plan, encode) if native else encode, plan)


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
    return plan.head + b"\x00\x02", b"".join(middle), _PLAIN + _OPS["r"] + constants.tail


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
    encoding = of_cells(encoding)
    row = row_function(plans, encoding=encoding)
    header = b"\x00" + schema_id.to_bytes(4, "big")

    def encode(cells: Cells) -> bytes:
        key = pick(cells)
        for name, cell in zip(table.key, key, strict=True):
            if cell is None or cell is UNCHANGED:
                raise NullInRequired(name, str(table.id))
        try:
            data: bytes = row(key)
        except FALLBACK_ERRORS:
            data = b"".join(
                _key_value(plan, cell, encoding, table)
                for plan, cell in zip(plans, key, strict=True)
            )
        return header + data

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
    return (column.type_mod if said is None else said.type_mod) < 0


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


def _key_value(plan: FieldPlan, cell: Cell, encoding: str, table: TableSchema) -> bytes:
    if not isinstance(cell, bytes):
        raise NullInRequired(plan.column.name, str(table.id))
    try:
        return plan.write(_alone(plan, cell.decode(encoding)))
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


def _length(cells: Cells | None, width: int) -> bool:
    return cells is None or len(cells) == width
