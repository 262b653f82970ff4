"""What a look at the source's catalog shows, and what the stream said meanwhile.

A look is one snapshot of the catalog, and a position of the log behind it.  It is compared with
what the stream has described (`core/catalog/catalog_differences`) and with the look before, since a
statement and its opposite leave the catalog as it was, and may have hidden rows in between.  What
they cannot put back is the id of the transaction that wrote a row of the catalog.  These ids are
the `CatalogVersion` of a table.  They stand in START and STATE, so that a restart compares, too.

    entries   what of the publication has the table: removed and added again is another entry
    name      of a table that is published with its schema: it was moved out and back
    labels    of its types: a label was renamed, or an attribute added, and that was undone
    parts     its partitions: one was detached, and attached again
    files     where its rows are: they were written anew, by a statement that sends no rows
    generated its columns whose values are not sent: one may be made an ordinary one
    key       what rows are told apart by: without it, there may have been equal ones
    last      its newest column: the catalog keeps what a later one has in older rows, until these
              are written anew; and of two later ones that had one name, it shows the second

What the look before does not have came since, a table or a type of a new column; it is compared
with what made it, which has a transaction's id, too.

Files change for VACUUM FULL, CLUSTER and others, too, which lose nothing: they keep in each row
the id of its transaction.  A statement that computes rows anew, or takes them out of the log for a
while, writes all of them under its own id.  So a row from before the look before clears a file.
So is one cleared whose table has no row, where the stream had none since a TRUNCATE.

A described statement explains its own change only, and nothing where the event triggers were
altered since; a TRUNCATE of the stream explains the file.  The rest is a gap from the look before.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, Self

from producer.core.shape_change import ShapeChange, StatementChanges
from schemas.control import Looked
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId, TableSchema

_FILES: Final = "files:"  # begins the version of what is no publication


class CatalogVersion(NamedTuple):
    """What of a table changes with each statement that may hide changes; texts, "" mostly."""

    entries: str = ""  # `oid:xid` each; "": the publication has all tables
    name: str = ""
    labels: str = ""  # `type:count:digest` of each enum and composite type
    parts: str = ""  # `horizon:count:digest`, and `:oid` of each that joined later
    files: str = ""  # "": the file that the table was made with
    generated: str = ""  # numbers of columns
    key: str = ""  # `oid:oid` of the primary key and of what identifies rows instead; 0: none
    last: str = ""  # number of the newest column; GaussDB: `number:count:digest:sizes:types`

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `str(version)`; of a later release, as far as it is known."""
        return cls(*text.split(";")[: len(cls._fields)])

    def __str__(self) -> str:
        """Write the texts, without the empty ones at the end.

        >>> str(CatalogVersion(entries="16385:742", parts="700:2:9f"))
        '16385:742;;;700:2:9f'
        >>> CatalogVersion.parse("16385:742").files
        ''
        """
        return ";".join(self).rstrip(";")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A storage file in which no row is found from before the look before."""

    leaf: int  # oid
    file: int
    xid: int = 0  # wrote the leaf's row of pg_class; 0: not known
    is_emptied: bool = False  # and each row is younger than that, if of the same transaction
    is_void: bool = False  # it has no row
    is_gone: bool = False  # another file took its place while it was looked at


class Cause(Enum):
    """What a doubt is about, as a sentence about the table; see the module."""

    ENTRIES = "left publication {publication} and was added again: changes in between are lost"
    NAME = "had another name or schema for a while: changes in between may be lost"
    LABELS = "has a type whose labels or attributes were altered: values may be others"
    PARTS = "has other partitions: rows that they took along or brought are not sent"
    GENERATED = "has an ordinary column that was generated: its older values were not sent"
    KEY = "had another key, or none, for a while: rows that were equal in it may be lost"
    LATE_KEY = "got its key after it was made: rows that were equal in it before may be lost"
    AGAIN = "has a new column, and one that came before it went: perhaps of the same name"
    ADDED = "has a new column, and another storage file: its value for older rows is not known"
    FILES = "has another storage file, and no row from before: what wrote it is not sent"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Changes of a table may be hidden, since the look before."""

    cause: Cause
    is_certain: bool = False
    rewritten: tuple[Rewritten, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One table of the catalog."""

    id: TableId
    oid: int
    is_partitioned: bool
    is_logged: bool
    is_published: bool  # whole: all its rows and columns, every kind of change
    shape: TableSchema | None = None  # as the stream would describe it; None: it would not
    partly: str = ""  # why it is not published whole, though it is published
    # The tables as whose its rows are sent: its root, or its partitions; None: there are none.
    sent_as: tuple[TableId, ...] | None = None
    version: CatalogVersion | None = None  # None: it is not compared
    files: Mapping[int, int] = field(default_factory=dict)  # leaf -> its file
    doubts: tuple[Doubt, ...] = ()  # beside the look before


@dataclass(frozen=True, slots=True)
class Look:
    """The catalog at a position of the log: it shows all that was committed before."""

    lsn: Lsn
    tables: Mapping[int, Seen]  # by oid
    missing: tuple[TableId, ...] = ()  # they match [tables] and are not published
    signature: str = ""  # of all that was read; the same one: nothing changed since
    arrived: tuple[TableId, ...] = ()  # they are published, and were not known
    all_tables: bool = False  # the publication has, so none can be added to it
    is_ours: bool = False  # the publication is, so a table of `missing` can be put into it
    is_of_files: bool = False  # only for what follows: the stream does not tell it
    emptied: tuple[TableId, ...] = ()  # these may have been truncated
    suspected: Mapping[TableId, str] = field(default_factory=dict)  # these, for a reason of its own
    there: frozenset[TableId] = frozenset()  # with `is_of_files`: what is captured
    dropped: tuple[TableId, ...] = ()  # with `is_of_files`: no table has these names
    behind: tuple[TableId, ...] = ()  # rows of these may stand behind a statement, and are not sent
    horizon: int = 0  # each transaction with a lower id had ended
    first_unseen: int = 0  # and none had this id yet
    # Partitioned tables, by oid, and all partitions below them, where the publication sends roots.
    below: Mapping[int, frozenset[int]] = field(default_factory=dict)
    of_files: Before | None = None  # with `is_of_files`: what the next look is compared with
    publication: str = ""  # its version: `oid:xid`
    triggers: str = ""  # the version of what describes statements; "": nothing does


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The catalog is as it was at the look before."""

    horizon: int  # as of now


@dataclass(frozen=True, slots=True)
class Before:
    """The look before, as far as the next one is compared with it."""

    horizon: int
    publication: str
    versions: Mapping[int, CatalogVersion]  # by oid
    files: Mapping[int, int] = field(default_factory=dict)  # leaf -> its file, as far as known
    triggers: str = ""
    judged: frozenset[int] = frozenset()  # transactions behind the horizon that were, too
    parts: str = ""  # a digest of all partitions
    since: Lsn = NOWHERE  # what was committed before it was seen; 0: not known

    @property
    def has_tables(self) -> bool:
        """Say whether it compared tables."""
        return not self.publication.startswith(_FILES)

    @classmethod
    def of_files(
        cls,
        horizon: int,
        judged: Iterable[int] = (),
        versions: Mapping[int, CatalogVersion] | None = None,
        *,
        parts: str = "",
        since: Lsn = NOWHERE,
    ) -> Self:
        """Make one of a look that compares no publication.

        >>> before = Before.of_files(700, [720, 710], parts="9f", since=Lsn(16))
        >>> Before.of(before.looked()) == before
        True
        >>> before.publication
        'files:700:710,720:9f:16'
        """
        xids = sorted(judged)
        said = [str(horizon), ",".join(map(str, xids)), parts, str(since or "")]
        text = _FILES + ":".join(said).rstrip(":")
        return cls(horizon, text, versions or {}, judged=frozenset(xids), parts=parts, since=since)

    @classmethod
    def of(cls, looked: Looked) -> Self:
        """Take what a record of cuts says of it."""
        versions = {int(oid): CatalogVersion.parse(text) for oid, text in looked.tables.items()}
        if looked.publication.startswith(_FILES):
            said = looked.publication.removeprefix(_FILES).split(":")
            _, judged, parts, since = [*said, "", "", ""][:4]
            return cls.of_files(
                looked.horizon,
                map(int, filter(None, judged.split(","))),
                versions,
                parts=parts,
                since=Lsn(int(since or 0)),
            )
        return cls(looked.horizon, looked.publication, versions, triggers=looked.triggers)

    @classmethod
    def at(cls, horizon: int, publication: str, tables: Iterable[Seen], triggers: str = "") -> Self:
        """Take the published tables of a look."""
        published = [seen for seen in tables if seen.is_published and seen.version is not None]
        return cls(
            horizon,
            publication,
            {seen.oid: seen.version for seen in published if seen.version is not None},
            {leaf: file for seen in published for leaf, file in seen.files.items()},
            triggers,
        )

    def looked(self) -> Looked:
        """Return it for a record of cuts."""
        tables = {str(oid): str(version) for oid, version in self.versions.items()}
        return Looked(self.horizon, self.publication, tables, self.triggers)

    def with_tables(self, at: Before) -> Self:
        """Take tables as they were at a place of their own, behind this look."""
        versions, files = {**self.versions, **at.versions}, {**self.files, **at.files}
        return replace(self, versions=versions, files=files)


# ---------------------------------------------------------------- what the stream said
@dataclass(slots=True)
class Told:
    """What the stream said of tables since a look: it explains what the next one shows."""

    emptied: dict[TableId, set[int]] = field(default_factory=dict)  # by which transactions
    # Relations that were emptied, and had no row since; those that had rows, from wherever.
    vacant: set[int] = field(default_factory=set)
    filled: set[int] = field(default_factory=set)
    # Those whose rows may have been changed and deleted without a key.
    whole: set[int] = field(default_factory=set)
    # What described statements did to tables.  One explains that only: another may be hidden.
    stated: dict[Cause, set[TableId]] = field(default_factory=dict)
    renamed: list[tuple[TableId, TableId]] = field(default_factory=list)  # before, after
    described: set[TableId] = field(default_factory=set)  # of which there was any statement
    files: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # leaf -> before, after

    def empty(self, table: TableId, xid: int, relation: int) -> None:
        """Take a TRUNCATE."""
        self.emptied.setdefault(table, set()).add(xid)
        self.vacant.add(relation)

    def fill(self, relation: int) -> None:
        """Take it that a relation may have a row at targets."""
        self.vacant.discard(relation)
        self.filled.add(relation)

    def describe(self, relation: int) -> None:
        """Take it that all columns of a relation tell its rows apart."""
        self.whole.add(relation)

    def state(self, statement: StatementChanges) -> None:
        """Take a described statement."""
        for change in statement.changes:
            tables = {table.id for table in (change.before, change.after) if table}
            if change.moved is not None:  # of a partition: its root, too
                tables.add(change.moved.table)
            self.described |= tables
            if change.before and change.after and change.before.id != change.after.id:
                self.rename(change.before.id, change.after.id)
            for cause in _stated(change, has_files=bool(statement.files)):
                self.stated.setdefault(cause, set()).update(tables)
        for leaf, before, after in statement.files:
            self.files.setdefault(leaf, []).append((before, after))

    def rename(self, before: TableId, after: TableId) -> None:
        """Let what explains a table explain it under its next name."""
        self.renamed.append((before, after))
        for tables in self.stated.values():
            if before in tables:
                tables.add(after)

    def with_later(self, later: Told) -> Told:
        """Return both."""
        both = deepcopy(self)
        both.vacant = (both.vacant - later.filled) | later.vacant
        both.filled |= later.filled
        both.whole |= later.whole
        both.described |= later.described
        for before, after in later.renamed:
            both.rename(before, after)
        for cause, tables in later.stated.items():
            both.stated.setdefault(cause, set()).update(tables)
        for table, xids in later.emptied.items():
            both.emptied.setdefault(table, set()).update(xids)
        for leaf, steps in later.files.items():
            both.files.setdefault(leaf, []).extend(steps)
        return both

    def explains(
        self,
        table: TableId,
        doubt: Doubt,
        files: Mapping[int, int],
        *,
        oid: int = 0,
        is_first: bool = False,
        reports_ddl: bool = False,
    ) -> bool:
        """Say whether a doubt is no more than what was said; `files`: of the look before.

        A table that was emptied, had no row since, and has none, is as targets have it: whatever
        wrote its files had no row to compute.  One that had rows since, and has none in a file, may
        have lost them out of the log, in the transaction of the TRUNCATE: unless all statements are
        described (`reports_ddl`), and none wrote that file.

        `is_first`: an earlier run took that, and what it was told since is not known here: any
        statement of the table is taken for what it was told, but for its files.
        """
        match doubt.cause:
            case Cause.ENTRIES:
                return False  # no statement about a table describes its publication
            case Cause.FILES:
                emptied = self.emptied.get(table, set())
                if oid in self.vacant and all(each.is_void for each in doubt.rewritten):
                    return True
                return all(
                    (
                        each.is_emptied
                        and each.xid in emptied
                        and (not each.is_void or (reports_ddl and each.leaf not in self.files))
                    )
                    or (
                        table in self.stated.get(Cause.FILES, ())
                        and self._leads(each, files.get(each.leaf))
                    )
                    for each in doubt.rewritten
                )
            case Cause.KEY:
                return table in self.described
            case Cause.LATE_KEY:  # with another identity, rows without a key only come
                return table in self.described or not (is_first or oid in self.whole)
            case cause:
                return table in self.stated.get(cause, ()) or (is_first and table in self.described)

    def _leads(self, now: Rewritten, before: int | None) -> bool:
        """Say whether described statements alone led from one file to another."""
        for was, is_now in self.files.get(now.leaf, ()):
            if before is None or was in {0, before}:
                before = is_now
        return before == now.file and bool(self.files.get(now.leaf))


def _stated(change: ShapeChange, *, has_files: bool) -> Iterator[Cause]:
    """Name the causes of doubts that a described change is."""
    before, after = change.before, change.after
    if has_files:
        yield Cause.FILES
    if change.moved is not None or change.holes:
        yield Cause.PARTS
    if after is None:
        return
    if before is None or before.id != after.id:
        yield Cause.NAME
    was = {} if before is None else {column.number: column for column in before.columns}
    if before is None or any(
        column.user_type != (was[column.number].user_type if column.number in was else None)
        for column in after.columns
    ):
        yield Cause.LABELS
    if any(column.number not in was for column in after.columns):  # it is sent from here on
        # Who described it may not have known that it was generated, and then marked nothing.
        if before is None or change.holes:
            yield Cause.GENERATED
        yield Cause.ADDED
        yield Cause.AGAIN


def since(
    before: Before | None,
    look: Look,
    known: Mapping[TableId, TableSchema] | None = None,
    inexact: Container[str] = (),
) -> Iterator[str]:
    """Name tables of which `run` has not judged yet what happened since its last look.

    `known`: with their names in the stream, if not as they are now.
    """
    if before is None:
        return
    if before.publication != look.publication:
        yield "the publication was altered"
        return
    names = {table.oid: table.id for table in (known or {}).values()}
    for seen in look.tables.values():
        table = seen.id if known is None else names.get(seen.oid)
        if table is not None and seen.doubts and str(table) not in inexact:
            yield f"{table} has changed in the catalog"
