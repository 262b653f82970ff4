"""Schema changes in Spark SQL, for tables that can be altered (Delta, Iceberg).

Types come from the one table of Spark's types (`spark_types.py`): what Spark has no type for
is a STRING of the source's own text.  Spark SQL has no keys and unique indexes: a sink merges
by the key that the change names.

Spark converts no values while a column's type changes and knows no expression of
the source: a change whose values would have to be computed is refused.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from schemas.control import Moved, Origin, SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import Column, TableId, TableSchema
from schemas.types import NotRepresentable, SqlType, UnknownType, type_of
from schemas.types.arrays import elements, join
from spark_consumers.dialects.spark_types import MAX_PRECISION, SparkType, spark_type
from spark_consumers.errors import NotExpressible

# A column of each table: of another one -> the source's text, where its type cannot hold that.
EXACT: Final = "_exact"

_INT2, _INT4, _INT8, _FLOAT4, _FLOAT8 = 21, 23, 20, 700, 701
_TEXT, _VARCHAR, _BPCHAR, _NUMERIC = 25, 1043, 1042, 1700
_TIMES: Final = frozenset({1083, 1114, 1184, 1266})
# Types whose values are the same under the other one.
_WIDER: Final = {
    _INT2: {_INT4, _INT8},
    _INT4: {_INT8},
    _FLOAT4: {_FLOAT8},
    _VARCHAR: {_TEXT},
    _TEXT: {_VARCHAR},
}
_TEXTS: Final = frozenset({_TEXT, _VARCHAR, _BPCHAR, 19, 3969, 90})
# A constant of a statement that Spark casts as the source does, though no server prints it so.
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")


def statements(change: SchemaChange) -> list[str]:
    """Return what brings a copy from `change.before` to `change.after`, in order.

    Raises NotExpressible before anything is returned.
    """
    before, after = change.before, change.after
    if after is None:
        return [] if before is None else [f"DROP TABLE IF EXISTS {_table(before.id)}"]
    _check_names(after)
    if before is None or change.origin is Origin.SNAPSHOT:
        return [*_create(after), *_move(after, change.moved)]
    return [*_alter(before, after, change), *_move(after, change.moved)]


def quote(name: str) -> str:
    """Quote an identifier as Spark does.

    Raises NotExpressible for a zero byte.

    >>> quote("a`b")
    '`a``b`'
    """
    if "\0" in name:
        raise NotExpressible("an identifier cannot hold a zero byte")
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    r"""Quote a string constant; a backslash escapes in Spark.

    >>> print(literal("it's a \\"))
    'it\'s a \\'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def type_name(table: TableSchema, column: Column) -> str:
    """Return Spark's type of a column; raise NotExpressible for an unknown type.

    >>> type_name(TableSchema(TableId("s", "t"), ()), Column("c", 1700, 655366))
    'DECIMAL(10,2)'
    """
    try:
        return spark_type(type_of(column).avro(column)).name
    except UnknownType:
        raise NotExpressible(
            "the type of a column is not in the table of types",
            table=table.id,
            column=column.name,
            type=column.type_name,
        ) from None


def _create(table: TableSchema) -> Iterator[str]:
    columns = ", ".join(
        f"{quote(c.name)} {type_name(table, c)}" + " NOT NULL" * (c.name in table.key)
        for c in table.columns
    )
    yield f"CREATE SCHEMA IF NOT EXISTS {quote(table.id.schema)}"
    yield f"CREATE TABLE IF NOT EXISTS {_table(table.id)} ({columns})"


def _alter(before: TableSchema, after: TableSchema, change: SchemaChange) -> Iterator[str]:
    if before.id.schema != after.id.schema:
        yield f"CREATE SCHEMA IF NOT EXISTS {quote(after.id.schema)}"
    if before.id != after.id:
        yield f"ALTER TABLE {_table(before.id)} RENAME TO {_table(after.id)}"
    head = f"ALTER TABLE {_table(after.id)}"
    again = {name for name, how in change.values.items() if how == "new"}
    # Read late, the catalog may call a column nullable that was in the key: the target's is not.
    old = {
        change.renamed.get(c.name, c.name): replace(
            c, nullable=c.nullable and c.name not in before.key
        )
        for c in before.columns
    }
    gone = [name for name in old if name not in after.names() or name in again]
    come = [c for c in after.columns if c.name not in old or c.name in again]
    for was, name in change.renamed.items():
        yield f"{head} RENAME COLUMN {quote(was)} TO {quote(name)}"
    for name in gone:
        yield f"{head} DROP COLUMN {quote(name)}"
    for column in after.columns:
        if column in come:
            yield from _add(after, column, change)
        else:
            yield from _change(after, old[column.name], column, change)


def _add(table: TableSchema, column: Column, change: SchemaChange) -> Iterator[str]:
    spark = type_name(table, column)
    yield f"ALTER TABLE {_table(table.id)} ADD COLUMNS ({quote(column.name)} {spark})"
    if column.missing is not None:  # rows that were there before have this value
        value, exact = older_value(table, column, change)
        text = f", {EXACT} = {with_texts(EXACT, {column.name: exact})}" if exact else ""
        yield f"UPDATE {_table(table.id)} SET {quote(column.name)} = {value}{text}"


class Older(NamedTuple):
    """What rows have that are older than a column: what they had if they came behind it."""

    value: str  # an expression
    exact: str = ""  # the source's text, where the value does not say all of it


def older_value(table: TableSchema, column: Column, change: SchemaChange) -> Older:
    """Write what rows have that are older than a column.

    Raises NotExpressible where Spark has no safe form of it.
    """
    name = type_name(table, column)
    if column.missing is None:
        return Older("NULL")
    try:
        return _held(column.missing, column, is_printed=change.origin is not Origin.DEPARSED)
    except NotRepresentable:
        raise NotExpressible(
            "the value of an added column in older rows has no safe form in Spark",
            table=table.id,
            column=column.name,
            type=column.type_name or name,
            hint=LOAD_AGAIN,
        ) from None


def with_texts(texts: str, more: Mapping[str, str]) -> str:
    """Add entries to an expression of the type of EXACT.

    >>> print(with_texts("t", {"c": "infinity"}))
    map_concat(coalesce(t, CAST(map() AS MAP<STRING, STRING>)), map('c', 'infinity'))
    """
    pairs = ", ".join(f"{literal(name)}, {literal(text)}" for name, text in more.items())
    return f"map_concat(coalesce({texts}, CAST(map() AS MAP<STRING, STRING>)), map({pairs}))"


def _held(text: str, column: Column, *, is_printed: bool) -> Older:
    """Return what Spark holds of a value; raise NotRepresentable where that is not known.

    Not `is_printed`: a statement's constant, not yet what the type's output function makes of it.
    """
    of = type_of(column)
    spark = spark_type(of.avro(column))
    if column.type_oid in _TEXTS:
        is_padded = column.type_oid == _BPCHAR and column.type_mod > 4
        return Older(literal(text.ljust(column.type_mod - 4) if is_padded else text))
    if not is_printed and not _is_plain(text, of, spark):
        raise NotRepresentable
    try:
        value = of.load(text, column)
    except (ValueError, LookupError, OverflowError) as error:
        is_read = isinstance(error, NotRepresentable) and error.nearest is not None
        if not is_printed and spark.name in {"DATE", "TIMESTAMP_NTZ"} and _DAY.fullmatch(text):
            return Older(_constant(text, spark.name))
        if not is_printed and not is_read and text != "NaN":
            raise NotRepresentable from None
        if spark.of_text is None or spark.of_text.value(text) is None:
            return Older("NULL", text)
        return Older(_constant(text, spark.name), "" if spark.holds(text) else text)
    if of.element is None:
        return Older(_constant(of.dump(value, column), spark.name))
    item, kind = of.element, spark.name.removeprefix("ARRAY<").removesuffix(">")
    items = ", ".join("NULL" if v is None else _constant(item.dump(v, column), kind) for v in value)
    return Older(f"CAST(array({items}) AS {spark.name})")


def _is_plain(text: str, of: SqlType, spark: SparkType) -> bool:
    """Say whether a statement's constant is what the type's input function would read of it."""
    if of.element is not None:
        is_text = not _TEXTS.isdisjoint(of.element.oids) and _BPCHAR not in of.element.oids
        return join(elements(text)) == text and (is_text or spark.name != "ARRAY<STRING>")
    return spark.name != "STRING"


def _constant(text: str, kind: str) -> str:
    """Write what a type's `dump` made of a value; raise NotRepresentable."""
    if kind == "STRING":
        return literal(text)
    if kind == "BINARY":
        return "X" + literal(text.removeprefix("\\x"))
    if kind.startswith(("ARRAY", "STRUCT")):
        raise NotRepresentable
    return f"CAST({literal(text)} AS {kind})"


def _change(table: TableSchema, old: Column, new: Column, change: SchemaChange) -> Iterator[str]:
    head = f"ALTER TABLE {_table(table.id)} ALTER COLUMN {quote(new.name)}"
    if (old.type_oid, old.type_mod) != (new.type_oid, new.type_mod):
        was, now = type_name(table, old), type_name(table, new)
        is_plain = not change.values.get(new.name)
        if not is_plain or not keeps_values(old, new):
            raise NotExpressible(
                "a column's type changed, and its values with it",
                table=table.id,
                column=new.name,
                type=new.type_name,
                hint=LOAD_AGAIN,
            )
        if was != now:
            yield f"{head} TYPE {now}"
    if new.name not in table.key and not old.nullable and new.nullable:
        yield f"{head} DROP NOT NULL"


def keeps_values(old: Column, new: Column) -> bool:
    """Say whether every value reads the same after, and Spark's own type allows it."""
    if old.type_oid != new.type_oid:
        is_wider = new.type_oid in _WIDER.get(old.type_oid, ())
        return is_wider and (new.type_oid != _VARCHAR or new.type_mod == -1)
    if old.type_oid == _NUMERIC:
        if min(old.type_mod, new.type_mod) < 4:
            return False
        (precision, scale), (wider, same) = _digits(old), _digits(new)
        return scale == same and precision <= wider <= MAX_PRECISION
    if old.type_oid in {_VARCHAR, *_TIMES}:
        return new.type_mod == -1 or -1 < old.type_mod <= new.type_mod
    return False


def _digits(column: Column) -> tuple[int, int]:
    packed = column.type_mod - 4
    return packed >> 16, packed & 0x7FF


def _move(after: TableSchema, moved: Moved | None) -> Iterator[str]:
    """Rows that the source moved between tables; its conditions are SQL of its own."""
    if moved is None:
        return
    if moved.where is not None:
        raise NotExpressible(
            "rows moved or went by a condition of the source",
            table=after.id,
            hint=LOAD_AGAIN,
        )
    if moved.op == "move":
        names = ", ".join(map(quote, after.names()))
        yield f"INSERT INTO {_table(after.id)} ({names}) SELECT {names} FROM {_table(moved.table)}"
    yield f"DELETE FROM {_table(moved.table)}"


def _check_names(table: TableSchema) -> None:
    """Spark compares names of columns without their case."""
    seen: dict[str, str] = {}
    for name in table.names():
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise NotExpressible(
                "two columns differ by case only, which Spark does not see",
                table=table.id,
                columns=f"{other},{name}",
            )


def _table(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"
