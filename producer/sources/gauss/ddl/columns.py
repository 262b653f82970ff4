"""Columns, types and constraints in the text of a CREATE TABLE or ALTER TABLE.

GaussDB manual, "CREATE TABLE".  The parser reads what deparsing prints of it; an
unreadable part is kept as text, never dropped.
"""

from __future__ import annotations

from typing import Final

from producer.core.statements.sql_words import Words
from producer.sources.gauss.ddl.model import (
    ColumnSpec,
    Constraint,
    Partition,
    Partitioning,
    TypeSpec,
)

_KINDS: Final = {
    ("PRIMARY", "KEY"): "primary key",
    ("UNIQUE",): "unique",
    ("CHECK",): "check",
    ("FOREIGN", "KEY"): "foreign key",
    ("EXCLUDE",): "exclude",
    ("PARTIAL", "CLUSTER", "KEY"): "cluster",
    ("TRIGGER",): "trigger",
}
# Where the expression of a DEFAULT or ON UPDATE ends.
_CLAUSES: Final = (
    *("COLLATE", "DEFAULT", "NOT", "NULL", "GENERATED", "PRIMARY", "UNIQUE", "CHECK"),
    *("REFERENCES", "CONSTRAINT", "ON", "AUTO_INCREMENT", "COMMENT", "FIRST", "AFTER"),
    *("CHARACTER", "CHARSET", "ENCRYPTED", "CASCADE", "RESTRICT", "INVISIBLE", "VISIBLE"),
)
_TWO_WORDS: Final = {
    "DOUBLE": ("PRECISION",),
    "CHARACTER": ("VARYING",),
    "CHAR": ("VARYING",),
    "BIT": ("VARYING",),
    "NATIONAL": ("CHARACTER", "CHAR"),
    "LONG": ("RAW",),
}
_FIELDS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def type_spec(text: str) -> TypeSpec | None:
    """Read the text of a type; None if it cannot be read.

    >>> type_spec('pg_catalog."numeric"(10,2)')
    TypeSpec(schema='pg_catalog', name='numeric', modifiers=(10, 2), is_array=False, fields='')
    >>> type_spec("TIMESTAMP(3) without time zone[]").name
    'timestamp without time zone'
    """
    words = Words(text)
    found = take_type(words)
    return None if words else found


def take_type(words: Words) -> TypeSpec | None:
    """Take a type; None if none comes next."""
    is_quoted = words.look().kind == "quoted"
    parts = words.dotted()
    if not parts:
        return None
    schema, name = (parts[-2], parts[-1]) if len(parts) > 1 else (None, parts[-1])
    if schema is None and is_quoted and name in {"char", "bit"}:
        schema = "pg_catalog"  # quoted, they are the catalog's own names, and not SQL words
    fields = ""
    if schema is None and not is_quoted:
        second = words.take_any(*_TWO_WORDS.get(name.upper(), ()))
        if second:
            name = f"{name} {second.lower()}"
            if words.take("VARYING"):
                name += " varying"
        if name == "interval":
            fields = _interval_fields(words)
    modifiers = _modifiers(words)
    for zone in ("WITH", "WITHOUT"):
        if words.take(zone, "TIME", "ZONE"):
            name += f" {zone.lower()} time zone"
    if name == "interval" and not fields:
        fields = _interval_fields(words)
        modifiers = modifiers or _modifiers(words)
    is_array = words.take("ARRAY")
    while words.take("["):
        is_array = True
        if words.look().kind == "number":
            words.step()
        if not words.take("]"):
            return None
    return TypeSpec(schema, name, modifiers, is_array, fields)


def _interval_fields(words: Words) -> str:
    first = words.take_any(*_FIELDS)
    if first and words.take("TO"):
        return f"{first} TO {words.take_any(*_FIELDS)}".lower()
    return first.lower()


def _modifiers(words: Words) -> tuple[int, ...] | None:
    inside = words.brackets()
    if inside is None:
        return ()
    found: list[int] = []
    for part in inside.parts():
        text = part.rest().replace(" ", "")
        if not text.lstrip("-").isdecimal() or not text.isascii():
            return None
        found.append(int(text))
    return tuple(found)


# ---- columns


def column(words: Words) -> tuple[ColumnSpec | None, list[Constraint]]:
    """Read a column's definition up to its end, with the constraints in it."""
    name = words.identifier()
    spec = take_type(words) if name is not None else None
    if name is None or spec is None:
        return None, []
    constraints: list[Constraint] = []
    default = generated = collation = place = constraint_name = None
    not_null = is_identity = False
    rest: list[str] = []
    while words:
        if words.take("NOT", "NULL"):
            not_null = True
        elif words.take("NULL"):
            pass
        elif words.take("COLLATE"):
            collation = ".".join(words.dotted())
        elif words.take("DEFAULT"):
            default = words.until(*_CLAUSES).rest()
        elif words.take("GENERATED"):
            words.take_any("ALWAYS")
            words.take("BY", "DEFAULT")
            words.take("AS")
            if words.take("IDENTITY"):
                is_identity = True
                words.brackets()
            elif (inside := words.brackets()) is not None:
                generated = inside.rest()
                words.take_any("STORED", "VIRTUAL")
        elif words.take("AUTO_INCREMENT"):
            is_identity = True
        elif words.take("CONSTRAINT"):
            constraint_name = words.identifier()
        elif words.take("FIRST"):
            place = ""
        elif words.take("AFTER"):
            place = words.identifier()
        elif words.take_any("COMMENT", "CHARSET", "STORAGE", "COMPRESSION"):
            words.step()
        elif words.take("CHARACTER", "SET"):
            words.take("=")
            words.step()
        elif words.take_any("VISIBLE", "INVISIBLE", "CASCADE", "RESTRICT"):
            pass
        elif words.take("ON", "UPDATE"):
            words.until(*_CLAUSES)
        elif words.is_next("REFERENCES"):
            constraints.append(
                Constraint("foreign key", constraint_name, (name,), words.until("NOT").rest())
            )
        elif (kind := _take_kind(words)) in {"primary key", "unique", "check"}:
            inside = words.brackets()
            columns = None if kind == "check" else (name,)
            text = inside.rest() if inside is not None else ""
            constraints.append(Constraint(kind, constraint_name, columns, text))
            not_null = not_null or kind == "primary key"
        else:
            rest.append(words.step().text)
    spec_ = ColumnSpec(
        *(name, spec, not_null, default, generated, is_identity, collation, place),
        " ".join(rest),
    )
    return spec_, constraints


# ---- constraints


def constraint(words: Words) -> Constraint | None:
    """Read a table's constraint; None if none comes next."""
    text, name = words.left, None
    if words.take("CONSTRAINT"):
        name = words.identifier()
    kind = _take_kind(words)
    if not kind:
        return None
    if words.take("USING", "INDEX"):
        index = words.identifier()
        words.rest()
        return Constraint(kind, name, None, text, index)
    if words.take("USING"):
        words.identifier()
    if kind == "unique" and words.look().identifier is not None:  # B compatibility: its index
        words.take_any("KEY", "INDEX")
        name = name or words.identifier()
        if words.take("USING"):
            words.identifier()
    inside = words.brackets()
    columns = plain_columns(inside) if inside is not None and kind != "check" else None
    words.rest()
    return Constraint(kind, name, columns, text)


def _take_kind(words: Words) -> str:
    return next((kind for keywords, kind in _KINDS.items() if words.take(*keywords)), "")


def plain_columns(words: Words) -> tuple[str, ...] | None:
    """Read a list of columns; None if it contains an expression.

    Collation, operator class and order do not affect uniqueness.
    """
    found: list[str] = []
    for part in words.parts():
        name = part.identifier()
        if name is None or part.look().text in {"(", "."}:
            return None
        while part:
            if part.take("COLLATE"):
                part.dotted()
            elif not part.dotted():
                return None
        found.append(name)
    return tuple(found)


# ---- partitions


def partitioning(words: Words) -> Partitioning | None:
    """Read `PARTITION BY …` up to its end; None if it does not come next."""
    text = words.left
    if not words.take("PARTITION", "BY"):
        return None
    by = words.step().text.upper()
    if words.take("COLUMNS"):
        by += " COLUMNS"
    key = words.brackets()
    inside = None
    while words and inside is None:
        if words.look().text == "(":
            inside = words.brackets()
            if inside is not None and not inside.is_next("PARTITION"):
                inside = None  # INTERVAL ('1 day')
        else:
            words.step()
    found = [
        Partition(name, part.rest())
        for part in (inside.parts() if inside is not None else ())
        if part.take("PARTITION") and (name := part.identifier()) is not None
    ]
    words.rest()
    return Partitioning(by, key.rest() if key is not None else "", tuple(found), text)
