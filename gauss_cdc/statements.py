"""Transactions as statements for PostgreSQL.

A row is found by its key where one is known (from a file about the tables, or from
pgoutput); else one row that equals the old one is taken, so that one of two equal
rows is changed, not both.  What the stream does not say cannot be executed, and
is printed as a comment: an UPDATE or DELETE without its row, DDL of another product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from producer.core.transactions import Columns, Known, RowChange, Transaction
from producer.decoders.messages import Cell, Ddl, Emptied, Logical
from schemas.tables import UNCHANGED, Missing, TableId

# Types that have no equality, or (geometry) one that compares sizes.
_BY_TEXT: Final = frozenset(
    {"json", "xml", "point", "lseg", "path", "box", "polygon", "line", "circle"}
)


def statements(transaction: Transaction, known: Known, encoding: str) -> Iterator[str]:
    """Print a transaction, a statement at a time, BEGIN and COMMIT included."""
    yield "BEGIN;"
    for change in transaction.changes:
        match change:
            case RowChange():
                yield _row(change, known, encoding)
            case Emptied():
                tables = ", ".join(_table(TableId(*table)) for table in change.tables)
                restart = " RESTART IDENTITY" if change.restart_identity else ""
                yield f"TRUNCATE {tables}{restart}{' CASCADE' if change.cascade else ''};"
            case Ddl():
                yield _comment(f"DDL: {change.sql or change.content}")
            case Logical():
                yield _comment(f"message {change.prefix}, {len(change.content)} bytes")
            case _:
                assert_never(change)
    yield "COMMIT;"


def _row(change: RowChange, known: Known, encoding: str) -> str:
    table = _table(change.table)
    types = _types(change.table, known)
    if change.op == "INSERT":
        if change.after is None:
            return _comment(f"INSERT, {table}: its values were not sent")
        names = "" if _is_unnamed(change.after) else f" ({_names(change.after)})"
        values = ", ".join(_literal(cell, encoding) for _, cell in change.after)
        return f"INSERT INTO {table}{names} VALUES ({values});"  # noqa: S608  printed, not run
    where = _where(change, types, encoding)
    if where is None:
        return _comment(f"{change.op}, {table}: the stream does not say of which row")
    if change.op == "DELETE":
        return f"DELETE FROM {table} WHERE {where};"  # noqa: S608
    values = ", ".join(
        f"{_quoted(name)} = {_literal(cell, encoding)}"
        for name, cell in change.after or ()
        if cell is not UNCHANGED
    )
    if not values:
        return _comment(f"UPDATE, {table}: its values were not sent")
    return f"UPDATE {table} SET {values} WHERE {where};"  # noqa: S608


def _where(change: RowChange, types: dict[str, str], encoding: str) -> str | None:
    """Name the row; None if it cannot be named."""
    row = change.before
    if row is None:
        # PostgreSQL sends no old row where the key did not change.
        row = change.after if change.key else None
    if row is None:
        return None
    told = dict(row)
    if change.key and all(name in told for name in change.key):
        key = tuple((name, told[name]) for name in change.key)
        return _equal(key, types, encoding)
    if change.before is None:
        return None
    # Of several equal rows one was meant, and it does not matter which.
    rows = f"{_table(change.table)} WHERE {_equal(change.before, types, encoding)}"
    return f"(tableoid, ctid) = (SELECT tableoid, ctid FROM {rows} LIMIT 1)"  # noqa: S608


def _equal(columns: Columns, types: dict[str, str], encoding: str) -> str:
    tests = []
    for name, cell in columns:
        column = _quoted(name)
        if cell is None:
            tests.append(f"{column} IS NULL")
        elif cell is not UNCHANGED:
            by_text = "::text" if types.get(name) in _BY_TEXT else ""
            tests.append(f"{column}{by_text} = {_literal(cell, encoding)}")
    return " AND ".join(tests) or "true"


def _types(table: TableId, known: Known) -> dict[str, str]:
    found = known.get(table)
    return {} if found is None else dict(zip(found.names, found.types, strict=True))


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
    return "'" + text.replace("'", "''") + "'"


def _names(columns: Columns) -> str:
    return ", ".join(_quoted(name) for name, _ in columns)


def _table(table: TableId) -> str:
    return f"{_quoted(table.schema)}.{_quoted(table.name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _comment(text: str) -> str:
    return "\n".join(f"-- {line}" for line in text.splitlines())
