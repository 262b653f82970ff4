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
from schemas.sql_text import NotRead
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
