"""Whether a column of the target can hold the source's values as they are.

A wider type is as good, and text holds everything.  A narrower one would refuse rows or,
worse, round and truncate values silently.  Types of users and extensions are not compared:
a copy may have its own of the same labels.

>>> fits("bigint", "integer"), fits("text", "point[]"), fits("integer", "text")
(True, True, False)
>>> fits("numeric(12,2)", "numeric(10,2)"), fits("numeric(10,1)", "numeric(10,2)")
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas import type_names
from schemas.control import SchemaChange
from schemas.sql_text import NotRead
from schemas.tables import Column
from schemas.type_names import TypeName

# Widenings that print every value as before.
_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "smallint": ("integer", "bigint", "numeric", "real", "double precision"),
    "integer": ("bigint", "numeric", "double precision"),
    "bigint": ("numeric",),
    "oid": ("bigint", "numeric"),
    "real": ("double precision",),
    "jsonb": ("json",),
}
_TEXTS: Final = ("text", "character varying", "clob")
_SIZED: Final = ("character varying", "bit varying")  # without a number: of any size
_PRECISE: Final = ("time", "timestamp", "interval")
# Types of which each prints what another of them holds as that one does.
_PRINTED_ALIKE: Final = {*("smallint", "integer", "bigint", "numeric"), *_TEXTS}
_MICROSECONDS: Final = 6
_EXACT: Final = ("character", "bit")  # their size is part of the value


def fits(there: str, needed: str) -> bool:
    """Say whether a column of type `there` holds every value of type `needed`."""
    try:
        target, source = type_names.parse(there), type_names.parse(needed)
    except NotRead:  # a user's own type
        return True
    if target == source or _is_text(target):
        return True
    if target.depth and source.depth and _is_text(target.element):
        return True
    if not _is_built_in(source):
        return True
    if not _is_built_in(target):  # of a domain, whose array may round; labels come as text
        return not source.depth
    if bool(target.depth) != bool(source.depth):
        return False
    if target.name != source.name:
        if source.name == "character" and target.name == "character varying":
            return _number(target, 0) >= _number(source, 1)
        return target.name in _WIDER.get(source.name, ()) and not target.modifiers
    return target.behind == source.behind and _has_room(target, source)


def keeps(was: str, now: str) -> bool:
    """Say whether each value reads as before in a column that got another type.

    >>> keeps("integer", "bigint"), keeps("real", "double precision"), keeps("numeric", "text")
    (True, False, True)
    >>> keeps("numeric(10,2)", "numeric(12,2)"), keeps("numeric(10,2)", "numeric(12,4)")
    (True, False)
    """
    try:
        old, new = type_names.parse(was), type_names.parse(now)
    except NotRead:
        return was == now
    if old == new:
        return True
    if not (_is_built_in(old) and _is_built_in(new)) or old.depth != new.depth:
        return False
    if old.name != new.name:
        return {old.name, new.name} <= _PRINTED_ALIKE and fits(now, was)
    if new.name == "numeric" and new.modifiers and old.modifiers:
        return fits(now, was) and _digits(old)[1] == _digits(new)[1]
    return fits(now, was)


def computes(change: SchemaChange) -> bool:
    """Say whether a schema change gave rows that were there other values."""
    if change.before is None or change.after is None:
        return False
    if {*change.values.values()} & {"lost", "new"}:
        return True
    was = {change.renamed.get(c.name, c.name): c for c in change.before.columns}
    return any(
        column.missing is not None if old is None else _is_other(old, column)
        for column in change.after.columns
        for old in (was.get(column.name),)
    )


def _is_other(old: Column, new: Column) -> bool:
    before, after = _labels(old), _labels(new)
    if before != after and len(before) == len(after):  # else labels came: no row has one
        return True
    is_same = (old.type_oid, old.type_mod) == (new.type_oid, new.type_mod)
    return not is_same and not keeps(old.type_name, new.type_name)


def _labels(column: Column) -> tuple[str, ...]:
    said = column.user_type
    while said is not None and said.kind in {"a", "d"}:
        said = said.of
    return said.labels if said is not None and said.kind == "e" else ()


def _has_room(target: TypeName, source: TypeName) -> bool:
    """Compare the modifiers of one type."""
    name = target.name
    if target.modifiers == source.modifiers:
        return True
    if name in _EXACT:
        return _number(target, 1) == _number(source, 1)
    if name in _PRECISE:
        return _number(target, _MICROSECONDS) >= _number(source, _MICROSECONDS)
    if not target.modifiers:
        return True
    if not source.modifiers:
        return False
    if name in _SIZED:
        return _number(target, 0) >= _number(source, 0)
    if name == "numeric":
        (precision, scale), (digits, decimals) = _digits(target), _digits(source)
        return scale >= decimals and precision - scale >= digits - decimals
    return False


def _is_text(found: TypeName) -> bool:
    return found.name in _TEXTS and not found.modifiers and not found.depth and _is_built_in(found)


def _is_built_in(found: TypeName) -> bool:
    return found.is_built_in


def _number(found: TypeName, default: int) -> int:
    """The first modifier; `default` where there is none."""
    return int(found.modifiers[0]) if found.modifiers else default


def _digits(found: TypeName) -> tuple[int, int]:
    precision, *scale = (int(number) for number in found.modifiers)
    return precision, scale[0] if scale else 0
