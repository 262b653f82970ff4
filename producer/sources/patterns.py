r"""Which tables: the grammar of `[tables] include` and `exclude`.

A pattern is `schema.table`; either part may be `*`, which stands for all names.
Names are taken as the catalog holds them, without folding to lower case.  A
name with a dot, a star, a space or a double quote in it is put in double
quotes, a double quote inside is doubled, as in SQL.  There is no other
wildcard: `t*` is refused rather than misread.

>>> [str(parse(text)) for text in ("public.*", '*."dotted.name"')]
['public.*', '*."dotted.name"']
>>> parse("public.t").matches(TableId("public", "t"))
True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from producer.errors import SourceError
from schemas.quoting import identifier
from schemas.system_schemas import is_system
from schemas.tables import TableId

_PART: Final = r'(\*|"(?:[^"]|"")+"|[^\s".*]+)'
_PATTERN: Final = re.compile(rf"\s*{_PART}\.{_PART}\s*")
ABSENT: Final = "no table, or a view, temporary, unlogged, foreign or system table"
_PLAIN: Final = re.compile(r'[^\s".*]+')


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of the lists; None stands for every name."""

    schema: str | None
    name: str | None

    @property
    def exact(self) -> TableId | None:
        """The one table it names, or None if it has a star."""
        if self.schema is None or self.name is None:
            return None
        return TableId(self.schema, self.name)

    def matches(self, table: TableId) -> bool:
        """Say whether the pattern names a table; case counts, as in the catalog.

        >>> [parse(text).matches(TableId("shop", "t")) for text in ("shop.*", "*.T")]
        [True, False]
        """
        return self.schema in (None, table.schema) and self.name in (None, table.name)

    def __str__(self) -> str:
        return f"{_show(self.schema)}.{_show(self.name)}"


def parse(text: str) -> Pattern:
    """Read one pattern, or raise SourceError."""
    if (match := _PATTERN.fullmatch(text)) is None:
        raise SourceError(
            "not a table pattern",
            hint='write schema.table, schema.*, *.table, or quote: "dotted.schema"."spaced name"',
            pattern=text,
        )
    return Pattern(_read(match[1]), _read(match[2]))


def selects(include: Iterable[str], exclude: Iterable[str], table: TableId) -> bool:
    """Say whether a table is included and not excluded."""
    return any(parse(text).matches(table) for text in include) and not any(
        parse(text).matches(table) for text in exclude
    )


def chooser(include: Iterable[str], exclude: Iterable[str]) -> Callable[[TableId], bool]:
    """Return a function that says whether [tables] includes a table, existing or not."""
    included = [parse(text) for text in include]
    excluded = [parse(text) for text in exclude]

    def wanted(table: TableId) -> bool:
        return (
            not is_system(table.schema)
            and any(p.matches(table) for p in included)
            and not any(p.matches(table) for p in excluded)
        )

    return wanted


def take_all(include: Iterable[str], exclude: Collection[str]) -> bool:
    """Say whether [tables] includes each table, whatever its name is, but for the system's.

    >>> take_all(["public.t", "*.*"], []), take_all(["*.*"], ["hidden.*"])
    (True, False)
    """
    return Pattern(None, None) in map(parse, include) and not exclude


def choose(
    tables: Iterable[TableId], include: Iterable[str], exclude: Iterable[str] = ()
) -> list[TableId]:
    """Return those of the tables that are included and not excluded, sorted."""
    wanted = [parse(text) for text in include]
    unwanted = [parse(text) for text in exclude]
    return sorted(
        table
        for table in set(tables)
        if any(p.matches(table) for p in wanted) and not any(p.matches(table) for p in unwanted)
    )


def absent(
    chosen: Iterable[TableId], include: Iterable[str], exclude: Iterable[str]
) -> list[TableId]:
    """Return the tables that are named without a star, and are none of those chosen."""
    named = [pattern.exact for pattern in map(parse, include)]
    there = set(chosen)
    return [t for t in named if t and t not in there and selects(["*.*"], exclude, t)]


def texts(tables: Iterable[TableId]) -> list[str]:
    """Write tables as patterns.

    >>> texts([TableId("a, b", "c"), TableId("public", "t")])
    ['"a, b".c', 'public.t']
    """
    return [str(Pattern(*table)) for table in tables]


def refuse(missing: Sequence[TableId]) -> None:
    """Raise SourceError where tables are named, and cannot be captured."""
    if missing:
        raise SourceError(
            "tables that cannot be captured are included",
            tables=texts(missing),
            hint=f"each is {ABSENT}: correct [tables]",
        )


def _read(part: str) -> str | None:
    if part == "*":
        return None
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _show(name: str | None) -> str:
    if name is None:
        return "*"
    return name if _PLAIN.fullmatch(name) else identifier(name)
