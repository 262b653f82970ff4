"""A table as of one place in the stream.

Columns and their order come from the stream; what the stream does not say
(nullability, type text, defaults, unique indexes) from a catalog reading.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Self

from schemas.quoting import identifier


class Missing(Enum):
    """A value the source did not send, as opposed to a NULL, which it did."""

    UNCHANGED_TOAST = "unchanged toast"


UNCHANGED: Final = Missing.UNCHANGED_TOAST
_PART: Final = r'("(?:[^"]|"")+"|[^".]+)'
_TEXT: Final = re.compile(rf"(?:{_PART}\.)?{_PART}")
_BARE: Final = re.compile(r"[\w@%+=:,./-]+")  # means itself to a shell


class TableId(NamedTuple):
    """A table's raw catalog names, unquoted.

    Its text names one table: a schema or name that holds a dot or a double quote is in quotes, as
    in SQL.  Records, marks and messages name tables by it; names of topics have their own escapes.

    >>> str(TableId("public", "account")), str(TableId("a", "b.c")), str(TableId("a.b", "c"))
    ('public.account', 'a."b.c"', '"a.b".c')
    """

    schema: str
    name: str

    def __str__(self) -> str:
        text = f"{self.schema}.{self.name}"
        if text.count(".") == 1 and '"' not in text:
            return text
        return f"{_part(self.schema)}.{_part(self.name)}"

    @classmethod
    def parse(cls, text: str, schema: str = "") -> Self:
        """Read what somebody typed, names of his own `schema` without it; raise ValueError.

        >>> TableId.parse('a."b.c"'), TableId.parse("t", "public")
        (TableId(schema='a', name='b.c'), TableId(schema='public', name='t'))
        """
        if (found := _read(text, schema)) is not None:
            return cls(*found)
        if text and "." not in text and '"' not in text:
            raise ValueError(f"{text} has no schema: write it as schema.table, as public.{text}")
        raise ValueError(
            f"{text} can be read as several tables, or none: write a schema or a name that holds a"
            ' dot or a double quote in double quotes, as "a.b".c or a."b.c"; in a shell with single'
            " quotes around it"
        )

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a text of a record: an earlier build wrote no quotes, and the first dot divides.

        >>> TableId.of("a.b.c")
        TableId(schema='a', name='b.c')
        """
        return cls(*(_read(text) or text.partition(".")[::2]))

    @classmethod
    def rewritten(cls, text: str) -> str:
        """Write the text of a record as it is written now; what names no table stays.

        >>> TableId.rewritten("a.b.c"), TableId.rewritten("*")
        ('a."b.c"', '*')
        """
        if text.count(".") == 1 and '"' not in text:
            return text
        table = cls.of(text)
        return str(table) if table.name else text


def argument(table: TableId | str) -> str:
    """Write a table, or its text, as somebody types it in a shell.

    >>> print(argument("public.account"), argument(TableId("app.v2", "t")))
    public.account '"app.v2".t'
    """
    text = str(table)
    return text if _BARE.fullmatch(text) else shlex.quote(text)


def _read(text: str, schema: str = "") -> tuple[str, str] | None:
    """Read a text of which there is one reading; without a schema, where one is given."""
    if (match := _TEXT.fullmatch(text)) is None:
        return None
    first, name = (
        part[1:-1].replace('""', '"') if part and part[0] == '"' else part or ""
        for part in match.groups()
    )
    return (first or schema, name) if first or schema else None


def _part(name: str) -> str:
    return identifier(name) if "." in name or '"' in name else name


class ReplicaIdentity(StrEnum):
    """What an old row carries; the letters of `pg_class.relreplident`."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class UserType:
    """What a type is made of whose oid says nothing, since each database gives its own.

    From pg_type, which a stream of oids does not carry.  `kind` is typtype: b base
    (of an extension), c composite, d domain, e enum, m multirange, r range; and "a"
    for an array, which the catalog calls a base type.
    """

    kind: str
    name: str  # typname, without its schema: `hstore` wherever the extension was put
    made_of: str = ""  # format_type() of a domain's base or an array's element
    type_oid: int = 0  # the same by oid; 0 = made of nothing
    type_mod: int = -1  # typtypmod of a domain
    delimiter: str = ","  # between elements of an array
    # Of an enum, in order; of a composite its attributes, as `number:type oid:modifier`, followed
    # by those of the composites in it, and `=label` of enums in it.
    labels: tuple[str, ...] = ()
    of: UserType | None = None  # where `type_oid` is such a type again


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type_oid: int
    type_mod: int = -1
    type_name: str = ""  # format_type(): `numeric(10,2)`, `timestamp with time zone`; "" = unknown
    nullable: bool = True
    generated: str = ""  # pg_attribute.attgenerated: "s" stored, "" not
    identity: str = ""  # pg_attribute.attidentity: "a" always, "d" by default, "" not
    missing: str | None = None  # value of rows older than ADD COLUMN … DEFAULT (attmissingval)
    has_default: bool = False  # some default, whose value for older rows may not be known
    user_type: UserType | None = None  # what `type_oid` is, where it is not a built-in type
    number: int = field(default=0, compare=False)  # attnum, which a rename keeps; 0 = not known
    default: str | None = field(default=None, compare=False)  # pg_get_expr(), where it is known

    @property
    def is_null_before(self) -> bool:
        """Whether rows that are older than the column have NULL in it, for certain."""
        is_computed = self.has_default or self.generated or self.identity
        return self.missing is None and not is_computed


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index over plain columns, other than the primary key."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's shape, in force from one place in the stream on."""

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()  # primary key, in key order; () = keyless
    unique: tuple[Unique, ...] = ()
    replica_identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    identity_columns: tuple[str, ...] = ()  # what old rows carry (pgoutput's key flags)
    oid: int = field(default=0, compare=False)  # of pg_class, which a rename keeps; 0 = not known

    def names(self) -> tuple[str, ...]:
        """Column names in stream order."""
        return tuple(column.name for column in self.columns)
