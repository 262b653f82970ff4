"""The content of a deparsed DDL statement, independent of its form.

Names are unquoted; expressions are SQL text as the server prints it.  An action
that a copy follows has its own type here; one that concerns only the source
(`OWNER TO`, storage, triggers) is `Aside`; one that we cannot read is `Unread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from producer.sources.gauss.ddl.quoting import quote_identifier


class Name(NamedTuple):
    """A name, with its schema where the statement contains it."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        parts = (self.schema, self.name) if self.schema is not None else (self.name,)
        return ".".join(map(quote_identifier, parts))


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A column's type as written: `pg_catalog."varchar"(20)`, `TIMESTAMP(3) without time zone`."""

    schema: str | None
    name: str  # one word, or as SQL says it: "double precision", "timestamp with time zone"
    modifiers: tuple[int, ...] | None = ()  # None: one that we cannot read
    is_array: bool = False
    fields: str = ""  # of an interval: "day to second"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column as a statement defines it."""

    name: str
    type: TypeSpec
    not_null: bool = False
    default: str | None = None
    generated: str | None = None  # expression of a stored generated column
    is_identity: bool = False
    collation: str | None = None
    place: str | None = None  # the column before it; "" = it comes first, None = last
    rest: str = ""  # what we cannot read of it


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint; `columns` None: over something else than plain columns."""

    kind: str  # "primary key", "unique", "check", "foreign key", "exclude", ""
    name: str | None
    columns: tuple[str, ...] | None
    text: str
    index: str | None = None  # that it takes over: USING INDEX


class Partition(NamedTuple):
    """A partition and the condition of its rows, as SQL text."""

    name: str
    bounds: str


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How rows are divided; `partitions` are those of the first level."""

    by: str  # "RANGE", "LIST", "HASH", "INTERVAL", ...
    key: str  # text within the brackets
    partitions: tuple[Partition, ...]
    text: str


# ---- what an ALTER TABLE does


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column."""

    column: ColumnSpec
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column is dropped."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterType:
    """A new type; `using` None: by assignment."""

    name: str
    type: TypeSpec
    using: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """MODIFY, or CHANGE which also renames: a whole new definition."""

    name: str
    column: ColumnSpec


@dataclass(frozen=True, slots=True)
class SetDefault:
    """A default for rows to come; None: dropped."""

    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class SetNotNull:
    """NULL is refused from here on, or allowed."""

    name: str
    not_null: bool


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A new name for a column."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A new name, or a new schema, for a table."""

    old: Name
    new: Name


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """A constraint over rows that are there and rows to come."""

    constraint: Constraint


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """`name` None: the primary key (B compatibility)."""

    name: str | None


@dataclass(frozen=True, slots=True)
class SetIdentity:
    """REPLICA IDENTITY, by its letter; `index` for "i"."""

    letter: str
    index: str | None = None


@dataclass(frozen=True, slots=True)
class OnPartition:
    """An action on partitions: "add", "drop", "truncate", "exchange", "split" and so on."""

    does: str
    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Aside:
    """An action that a copy does not follow."""

    text: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that we cannot read: its effect on the table is not known."""

    text: str


Action: TypeAlias = (
    AddColumn
    | DropColumn
    | AlterType
    | ChangeColumn
    | SetDefault
    | SetNotNull
    | RenameColumn
    | Rename
    | AddConstraint
    | DropConstraint
    | SetIdentity
    | OnPartition
    | Aside
    | Unread
)

ROWS_MOVE: Final = frozenset({"drop", "truncate", "exchange"})  # partition actions that lose rows


@dataclass(frozen=True, slots=True)
class Index:
    """Of CREATE INDEX: its table and, if it covers all rows by plain columns, these columns."""

    table: Name
    is_unique: bool
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Statement:
    """One DDL statement."""

    tag: str  # "CREATE TABLE"; "" = a statement of a kind that we do not know
    kind: str  # of the object: "table", "materialized view", "schema", …
    names: tuple[Name, ...]  # of the object; several where one statement drops several
    sql: str  # canonical
    columns: tuple[ColumnSpec, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    partitioning: Partitioning | None = None
    actions: tuple[Action, ...] = ()
    index: Index | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # WITH (…)
    persistence: str = "p"  # "u" unlogged, "t" temporary
    conditional: bool = False  # IF EXISTS, IF NOT EXISTS
    cascade: bool = False
    column: str | None = None  # of COMMENT ON COLUMN
    unread: tuple[str, ...] = ()  # parts that we cannot read
