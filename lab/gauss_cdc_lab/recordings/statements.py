"""Transactions as statements for PostgreSQL.

A row is found by its key where one is known (from a file about the tables, or from
pgoutput); else one row that equals the old one is taken, so that one of two equal
rows is changed, not both.  What the stream does not say cannot be executed, and
is printed as a comment: an UPDATE or DELETE without its row, DDL of another product.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, assert_never

from gauss_cdc_lab.recordings.transactions import Columns, Known, RecordedTransaction, RowChange
from producer.core.changes import Cell, Logical
from producer.sources.gauss.decoders.messages import Ddl, NamedTruncate
from schemas.quoting import identifier, literal, qualified
from schemas.tables import UNCHANGED, Missing, TableId

# Types that have no equality, or (geometry) one that compares sizes: OIDs of each and its array.
_BY_TEXT: Final = {
    "json": (114, 199),
    "xml": (142, 143),
    "point": (600, 1017),
    "lseg": (601, 1018),
    "path": (602, 1019),
    "box": (603, 1020),
    "polygon": (604, 1027),
    "line": (628, 629),
    "circle": (718, 719),
}
_OIDS_BY_TEXT: Final = frozenset(oid for oids in _BY_TEXT.values() for oid in oids)


def statements(transaction: RecordedTransaction, known: Known, encoding: str) -> Iterator[str]:
    """Print a transaction, a statement at a time, BEGIN and COMMIT included."""
    yield "BEGIN;"
    for change in transaction.changes:
        match change:
            case RowChange():
                yield _row(_with_nulls(transaction, change, known), known, encoding)
            case NamedTruncate():
                tables = ", ".join(qualified(TableId(*table)) for table in change.tables)
                restart = " RESTART IDENTITY" if change.restart_identity else ""
                yield f"TRUNCATE {tables}{restart}{' CASCADE' if change.cascade else ''};"
            case Ddl():
                yield _comment(f"DDL: {change.sql or change.content}")
            case Logical():
                yield _comment(f"message {change.prefix}, {len(change.content)} bytes")
            case _:
                assert_never(change)
    yield "COMMIT;"


def _with_nulls(transaction: RecordedTransaction, change: RowChange, known: Known) -> RowChange:
    """Add the NULLs that PostgreSQL's test_decoding leaves out of old rows.

    Of a key none is NULL, so only whole old rows (REPLICA IDENTITY FULL) have any.
    """
    table = known.get(change.table)
    is_postgres = transaction.csn is None
    if not is_postgres or change.before is None or table is None:
        return change
    values = dict(change.before)
    if not set(values) <= set(table.names) == set(table.identity):
        return change
    before = tuple((name, values.get(name)) for name in table.names)
    return replace(change, before=before)


def _row(change: RowChange, known: Known, encoding: str) -> str:
    table = qualified(change.table)
    if change.op == "INSERT":
        if not change.after:
            return _comment(f"INSERT, {table}: its values were not sent")
        names = "" if _is_unnamed(change.after) else f" ({_names(change.after)})"
        values = ", ".join(_literal(cell, encoding) for _, cell in change.after)
        return f"INSERT INTO {table}{names} VALUES ({values});"  # noqa: S608  printed, not run
    where = _where(change, known, encoding)
    if where is None:
        return _comment(f"{change.op}, {table}: the stream does not say of which row")
    if change.op == "DELETE":
        return f"DELETE FROM {table} WHERE {where};"  # noqa: S608
    values = ", ".join(
        f"{identifier(name)} = {_literal(cell, encoding)}"
        for name, cell in change.after or ()
        if cell is not UNCHANGED
    )
    if not values:
        return _comment(f"UPDATE, {table}: its values were not sent")
    return f"UPDATE {table} SET {values} WHERE {where};"  # noqa: S608


def _where(change: RowChange, known: Known, encoding: str) -> str | None:
    """Name the row; None if it cannot be named."""
    row = change.before
    if row is None:
        # PostgreSQL sends no old row where the key did not change.
        row = change.after if change.key else None
    if not row:
        return None
    by_text = _by_text(change, known)
    values = dict(row)
    if change.key and all(name in values for name in change.key):
        key = tuple((name, values[name]) for name in change.key)
        return _equal(key, by_text, encoding)
    if not change.before:
        return None
    # Of several equal rows one was meant, and it does not matter which.
    rows = f"{qualified(change.table)} WHERE {_equal(change.before, by_text, encoding)}"
    return f"(tableoid, ctid) = (SELECT tableoid, ctid FROM {rows} LIMIT 1)"  # noqa: S608


def _equal(columns: Columns, by_text: AbstractSet[str], encoding: str) -> str:
    tests = []
    for name, cell in columns:
        column = identifier(name)
        if cell is None:
            tests.append(f"{column} IS NULL")
        elif cell is not UNCHANGED:
            cast = "::text" if name in by_text else ""
            tests.append(f"{column}{cast} = {_literal(cell, encoding)}")
    return " AND ".join(tests) or "true"


def _by_text(change: RowChange, known: Known) -> AbstractSet[str]:
    """Name the columns to be compared as text: by the stream's types, or by the file's."""
    found: set[str] = set()
    if (table := known.get(change.table)) is not None:
        found.update(n for n, kind in zip(table.names, table.types, strict=True) if _odd(kind))
    if (shape := change.types) is not None:
        for name, oid, kind in zip(shape.names, shape.oids, shape.types, strict=True):
            if oid in _OIDS_BY_TEXT or _odd(kind):
                found.add(name)
    return found


def _odd(kind: str) -> bool:
    return kind.removesuffix("[]") in _BY_TEXT


def _is_unnamed(columns: Columns) -> bool:
    return bool(columns) and all(name == f"${n}" for n, (name, _) in enumerate(columns, 1))


def _literal(cell: Cell, encoding: str) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, Missing):
        return "DEFAULT"  # of an INSERT, which always has all values
    try:
        text = cell.decode(encoding)
    except UnicodeDecodeError:
        # Only a database without an encoding takes these bytes.
        return "E'" + "".join(f"\\x{byte:02x}" for byte in cell) + "'"
    return literal(text)


def _names(columns: Columns) -> str:
    return ", ".join(identifier(name) for name, _ in columns)


def _comment(text: str) -> str:
    return "\n".join(f"-- {line}" for line in text.splitlines())
