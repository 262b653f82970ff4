r"""SQL that prints a value alike on two servers, and hashes rows of such texts.

A cell is the output of its type, as a stream carries it.  Where the target's column has another
type, the source's text is read by that type first, as `apply` does; but not by one of text, whose
length may count bytes there.  What depends on the server's version, product or encoding is written
so that it does not: `Spelling`.

    cell    text of a value; NULL for NULL
    part    the cell, or its md5 where the text may hold anything
    row     md5 of all parts, separated: no two rows that differ have the same text before it
    bucket  the first 32 bits of a key's md5: the same rows at both servers, whatever collations are

Pure: names and types are quoted here, values by `schemas.quoting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from schemas import type_names
from schemas.quoting import constant, identifier
from schemas.sql_text import NotRead
from schemas.type_names import TypeName

BUCKET_BITS: Final = 32
_FLOATS: Final = {"real": "float4send", "double precision": "float8send"}
_NUMBERS: Final = frozenset({"smallint", "integer", "bigint", "numeric", "oid"})
# Types whose cast to text is their output; of others (boolean, character, inet) it is not.
_CAST: Final = frozenset({*_NUMBERS, "text", "character varying", "uuid"})
# Types whose output holds neither a comma nor a tilde.
_PLAIN: Final = frozenset({*_NUMBERS, *_FLOATS, "uuid", "date", "timestamp", "boolean"})
_TEXTS: Final = frozenset({"text", "character varying", "clob", "nvarchar2"})
_PADDED: Final = frozenset({"character", "bpchar"})
_HEX: Final = frozenset({"raw", "blob"})  # of openGauss and GaussDB: bytea's text without its \x
# Types whose values have one order on all servers, and whose output is read back exactly.
_ORDERED: Final = frozenset({"smallint", "integer", "bigint", "oid", "uuid", "date", "timestamp"})


@dataclass(frozen=True, slots=True)
class Spelling:
    """How values are printed, for a pair of servers."""

    converts: bool = False  # this server's texts are not UTF-8: their md5 is of UTF-8
    has_num_nulls: bool = True
    floats_as_bits: bool = False  # one of the two prints floats by other rules (before 12)
    has_gauss: bool = False  # one of the two prints 0.1 as .1, and pads characters by bytes


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of a table, by its types at both servers (format_type)."""

    name: str
    source_type: str
    target_type: str

    @property
    def is_cast(self) -> bool:
        """Say whether the source's text must be read by the target's type, to print alike."""
        source, target = _parsed(self.source_type), _parsed(self.target_type)
        if source is None or target is None or source == target:
            return False
        if not (source.is_built_in and target.is_built_in):
            return False
        return target.name not in _TEXTS or bool(target.modifiers)

    @property
    def is_padded(self) -> bool:
        """Say whether blanks at the end of the text are none of the value, at both servers."""
        found = (_parsed(self.source_type), _parsed(self.target_type))
        return all(one and one.name in _PADDED and not one.depth for one in found)

    @property
    def is_plain(self) -> bool:
        """Say whether the cell can stand in a row's text as it is."""
        target = _parsed(self.target_type)
        is_one_type = self.source_type == self.target_type or self.is_cast
        return is_one_type and target is not None and not target.depth and target.name in _PLAIN

    @property
    def is_ordered(self) -> bool:
        """Say whether ranges of its values hold the same rows at both servers."""
        found = _parsed(self.source_type)
        return (
            self.source_type == self.target_type
            and found is not None
            and not found.depth
            and found.name in _ORDERED
        )


@dataclass(frozen=True, slots=True)
class RowText:
    """The expressions of one table at one server."""

    columns: tuple[ComparedColumn, ...]
    key: tuple[ComparedColumn, ...]  # (): rows are known by all their columns
    spelling: Spelling
    is_source: bool

    def type_of(self, column: ComparedColumn) -> str:
        """Name the column's type here."""
        return _written(column.source_type if self.is_source else column.target_type)

    def cell(self, column: ComparedColumn, value: str) -> str:
        """Print `value`, an expression of the column's type here."""
        if self.spelling.has_gauss and column.is_padded:
            # One blank at least: in A compatibility an empty text is NULL.
            return (
                f"CASE WHEN {value} IS NOT NULL THEN concat(rtrim(concat({value}), ' '), ' ') END"
            )
        if not self.is_source:
            return _printed(value, column.target_type, self.spelling)
        if not column.is_cast:
            return _printed(value, column.source_type, self.spelling)
        source, target = _parsed(column.source_type), _parsed(column.target_type)
        text = _output(value, column.source_type, self.spelling)
        if source is not None and source.name in _HEX:
            text = rf"(E'\\x' || {text})"
        if target is None or target.name not in _TEXTS:  # its size may be of bytes there
            text = f"({text})::{_written(column.target_type)}"
        return _printed(text, column.target_type, self.spelling)

    def cells(self, columns: Sequence[ComparedColumn], alias: str = "t") -> str:
        """Print columns of a row, for a list of a SELECT."""
        return ", ".join(self.cell(c, f"{alias}.{identifier(c.name)}") for c in columns)

    def row(self, alias: str = "t") -> str:
        """Hash a row."""
        return self._hash(self.columns, alias)

    def key_hash(self, alias: str = "t") -> str:
        """Hash a row's key; without a key, the row."""
        return self._hash(self.key or self.columns, alias)

    def _hash(self, columns: Sequence[ComparedColumn], alias: str) -> str:
        parts = []
        for column in columns:
            cell = self.cell(column, f"{alias}.{identifier(column.name)}")
            if not column.is_plain:
                cell = f"md5(convert_to({cell}, 'UTF8'))" if self.spelling.converts else (
                    f"md5({cell})"
                )  # fmt: skip
            parts.append(cell)
        return f"md5(array_to_string(ARRAY[{', '.join(parts)}]::text[], ',', '~'))"


def bucket(key_hash: str, bits: int = BUCKET_BITS) -> str:
    """Take the first bits of an md5, as a number from 0."""
    number = f"('x' || substr({key_hash}, 1, 8))::bit(32)::bigint"
    return f"({number})" if bits == BUCKET_BITS else f"({number} >> {BUCKET_BITS - bits})"


def bucket_of(key_hash: str) -> int:
    """Compute `bucket` of a hash that is known.

    >>> bucket_of("00000001" + 24 * "0"), bucket_of("ffffffff" + 24 * "0") == 2**32 - 1
    (1, True)
    """
    return int(key_hash[:8], 16)


def digest(row_hash: str) -> str:
    """Sum a group's row hashes; rows that stand twice count twice."""
    return f"coalesce(sum(('x' || substr({row_hash}, 1, 16))::bit(64)::bigint), 0)::text"


def beyond(columns: Sequence[str], key: Sequence[str | None], types: Sequence[str],
           sign: str) -> str:  # fmt: skip
    """Compare a row's key with another one, as `(a, b) > (…)`."""
    left = ", ".join(f"t.{identifier(name)}" for name in columns)
    right = ", ".join(f"{constant(k)}::{t}" for k, t in zip(key, types, strict=True))
    return f"({left}) {sign} ({right})"


def _printed(value: str, type_name: str, spelling: Spelling) -> str:
    found = _parsed(type_name)
    if found is not None and spelling.floats_as_bits and found.name in _FLOATS and not found.depth:
        bits = f"encode({_FLOATS[found.name]}({value}), 'hex')"
        return f"CASE WHEN {value} = 'NaN' THEN 'NaN' ELSE {bits} END"
    text = _output(value, type_name, spelling)
    if found is not None and spelling.has_gauss and found.name == "numeric" and not found.depth:
        return rf"regexp_replace({text}, E'^(-?)\\.', E'\\1' || '0.')"
    return text


def _output(value: str, type_name: str, spelling: Spelling) -> str:
    """Print a value by its type's output function."""
    found = _parsed(type_name)
    if found is not None and not found.depth and found.name in _CAST and found.is_built_in:
        return f"{value}::text"
    given = f"{value} IS NOT NULL"
    if found is None or not found.is_built_in:  # of a row IS NOT NULL means each of its attributes
        is_text = f"{given} OR length(concat({value})) > 0"
        given = f"num_nulls({value}) = 0" if spelling.has_num_nulls else is_text
    return f"CASE WHEN {given} THEN concat({value}) END"


def _parsed(type_name: str) -> TypeName | None:
    try:
        return type_names.parse(type_name)
    except NotRead:  # a user's own type
        return None


def _written(type_name: str) -> str:
    found = _parsed(type_name)
    return type_name if found is None else str(found)
