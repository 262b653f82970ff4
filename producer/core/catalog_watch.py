"""Finds changes that the catalog shows and the stream did not report.

Without event triggers the stream describes a table with its next row only.  It does not report
dropped tables, renamed labels, or changes of a publication.  So the catalog is read every few
seconds.  Each look is judged once the stream has passed the position at which it was taken: by
then the stream has reported all that it reports of it.  A table of which the stream reported
more since the look is left to the next look.

A change that can still be followed becomes the same message as the stream's own (`Described`,
`Dropped`); one that cannot is a gap (`Altered`, `Unseen`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from producer.core.changes import Relation, RelationColumn
from schemas.control import Hole
from schemas.quoting import identifier, qualified
from schemas.tables import Column, TableId, TableSchema, UserType


@dataclass(frozen=True, slots=True)
class Part:
    """A partition below a root that is published as one table."""

    filenode: int  # another one: it was rewritten, or emptied
    is_empty: bool
    is_born: bool  # made as a partition, so empty then; False: attached


@dataclass(frozen=True, slots=True)
class Seen:
    """One table of the catalog."""

    id: TableId
    oid: int
    is_partitioned: bool
    is_logged: bool
    is_published: bool
    shape: TableSchema | None = None  # as the stream would describe it; None: it would not
    parts: Mapping[int, Part] = field(default_factory=dict)  # by oid; of a root that is published
    membership: int = (
        0  # oid of its entry in the publication; 0 = published with its schema, or all
    )


@dataclass(frozen=True, slots=True)
class Look:
    """The catalog at a position of the log: it shows all that was committed before."""

    lsn: int
    tables: Mapping[int, Seen]  # by oid
    missing: tuple[TableId, ...] = ()  # they match [tables] and are not published
    signature: str = ""  # of all that was read; the same one: nothing changed since
    arrived: tuple[TableId, ...] = ()  # they are published, and were not known
    is_ours: bool = False  # the publication is, so a table of `missing` can be put into it
    is_of_files: bool = False  # only for what follows: the stream does not tell it
    emptied: tuple[TableId, ...] = ()  # these may have been truncated


@dataclass(frozen=True, slots=True)
class Described:
    """The stream would describe a table differently if a row of it came now."""

    table: TableId
    relation: Relation

    def __str__(self) -> str:
        now = TableId(self.relation.schema, self.relation.table)
        return f"{self.table} " + ("has another shape" if now == self.table else f"is {now} now")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table is gone."""

    table: TableId
    known: TableSchema

    def __str__(self) -> str:
        return f"{self.table} was dropped"


@dataclass(frozen=True, slots=True)
class Altered:
    """Values of older rows are printed differently than they were sent."""

    table: TableId
    before: TableSchema
    after: TableSchema
    why: str

    def __str__(self) -> str:
        return f"{self.table}: {self.why}"


@dataclass(frozen=True, slots=True)
class Unseen:
    """Changes of a table were not sent, or are no longer sent."""

    table: TableId
    why: str
    kind: str = "seen"  # or "suspected": it may have been without effect

    @property
    def gap(self) -> Hole:
        return Hole(str(self.table), self.kind, self.why)

    def __str__(self) -> str:
        return f"{self.table} {self.why}"


_EMPTIED: Final = "has other storage files: TRUNCATE, or what is done to partitions, is not sent"
Finding: TypeAlias = Described | Dropped | Altered | Unseen
Known: TypeAlias = Mapping[TableId, TableSchema]


def differences(
    known: Known,
    look: Look,
    *,
    wanted: Callable[[TableId], bool],
    publication: str,
    reports_ddl: bool = False,
) -> Iterator[Finding]:
    """Compare known tables with a look; `reports_ddl`: event triggers report each statement."""
    by_name = {seen.id: seen for seen in look.tables.values()}
    for table in known.values():
        if not wanted(table.id):
            continue
        seen = look.tables.get(table.oid) if table.oid else by_name.get(table.id)
        if seen is None:
            other = by_name.get(table.id)
            can_join = look.is_ours and not reports_ddl
            yield _gone(table, other, publication, reports_ddl=reports_ddl, can_join=can_join)
        elif not seen.is_logged:
            why = "is UNLOGGED now: its later rows are not in the log; SET LOGGED, and load again"
            yield Unseen(table.id, why)
        elif seen.is_published and seen.shape is not None:
            yield from _compared(table, seen.shape)
        elif not wanted(seen.id):
            yield Unseen(table.id, f"is not captured any more: it is {seen.id} now")
        elif not seen.is_published and not seen.is_partitioned and not reports_ddl:
            yield Unseen(table.id, _unpublished(seen.id, publication, "is not"))


def _gone(
    table: TableSchema,
    other: Seen | None,
    publication: str,
    *,
    reports_ddl: bool,
    can_join: bool,
) -> Dropped | Described | Unseen:
    """A table is gone; `other` has its name now, and may be a new one that is to be published."""
    if other is None or (can_join and not other.is_published):
        return Dropped(table.id, table)
    if not other.is_published or other.shape is None:
        how = "was dropped and made again, and the new table is not"
        return Unseen(table.id, _unpublished(table.id, publication, how))
    if reports_ddl:
        return Unseen(table.id, "was dropped and made again, and no statement came; load again")
    return Described(table.id, relation_of(other.shape))


def _unpublished(table: TableId, publication: str, how: str) -> str:
    return (
        f"{how} in publication {publication}: its changes are not sent; "
        f"ALTER PUBLICATION {identifier(publication)} ADD TABLE "
        f"{qualified(table)}, and load again"
    )


def _compared(table: TableSchema, now: TableSchema) -> Iterator[Finding]:
    if table.id != now.id or not _is_one_shape(table, now):
        yield Described(table.id, relation_of(now))
        return
    read = {column.name: column for column in now.columns}
    columns = tuple(replace(c, user_type=read[c.name].user_type) for c in table.columns)
    if changed := [
        c.name for c in table.columns if not _reads_as_before(c, read[c.name].user_type)
    ]:
        why = f"labels or attributes of a type changed, in columns {', '.join(changed)}"
        yield Altered(table.id, table, replace(table, columns=columns), why)


def _is_one_shape(table: TableSchema, now: TableSchema) -> bool:
    """Say whether a target has nothing to follow; a column made again has another number."""
    return (
        table.key == now.key
        and len(table.columns) == len(now.columns)
        and all(
            (c.name, c.type_oid, c.type_mod) == (n.name, n.type_oid, n.type_mod)
            and (c.number == n.number or not (c.number and n.number))
            for c, n in zip(table.columns, now.columns, strict=True)
        )
    )


def _reads_as_before(column: Column, now: UserType | None) -> bool:
    """Say whether older values of a column have the same text: labels may only be added."""
    was = column.user_type
    while was is not None and now is not None:
        if (was.kind, was.type_oid) != (now.kind, now.type_oid):
            return True  # made again under an oid of its own: the column's type would be another
        if was.kind != "e" and was.labels != now.labels:
            return False
        left = iter(now.labels)
        if not all(label in left for label in was.labels):
            return False
        was, now = was.of, now.of
    return True


def columns(table: TableSchema) -> list[tuple[str, int, int]]:
    """Return what an ALTER TABLE that writes rows anew changes: name, type and modifier."""
    return [(column.name, column.type_oid, column.type_mod) for column in table.columns]


def relation_of(table: TableSchema) -> Relation:
    """Describe a table as the stream would before its next row."""
    return Relation(
        table.oid,
        table.id.schema,
        table.id.name,
        table.replica_identity,
        tuple(
            RelationColumn(c.name, c.type_oid, c.type_mod, c.name in table.identity_columns)
            for c in table.columns
        ),
    )


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Tables that are to be captured from now on."""

    published: tuple[TableId, ...] = ()
    unpublished: tuple[TableId, ...] = ()


class CatalogWatch:
    """The look that waits for the stream, and the findings of earlier ones."""

    def __init__(self, *, wanted: Callable[[TableId], bool], publication: str) -> None:
        self._wanted, self._publication = wanted, publication
        self._look: Look | None = None
        self._known: Known = {}
        self._said: set[Finding] = set()
        self._missing: set[TableId] | None = None
        self._emptied: set[TableId] = set()
        self._last: Look | None = None  # the newest that was judged
        self._fresh: Look | None = None  # the same, until its newcomers were taken
        self._passed: Collection[int] = ()  # oids of a look behind which the stream is
        self.signature = ""  # of a look whose findings are all reported; "": look again

    @property
    def is_waiting(self) -> bool:
        """Say whether a look waits for the stream to reach it."""
        return self._look is not None

    @property
    def due_at(self) -> int:
        """The place in the log that the stream must reach; 0 where no look waits."""
        return self._look.lsn if self._look is not None else 0

    def take(self, look: Look, known: Known) -> list[TableId]:
        """Take a look, with what was known then; return tables that are new and not captured."""
        self._look, self._known = look, dict(known)
        missing = set(look.missing)
        new = missing - self._missing if self._missing is not None else set()
        self._missing = missing
        return [] if look.is_ours else sorted(new)

    def newcomers(self, known: Known) -> Newcomers:
        """Return the tables of the look just judged that the stream did not bring; once."""
        look, self._fresh = self._fresh, None
        if look is None:
            return Newcomers()
        self._passed = look.tables.keys()
        unpublished = look.missing if look.is_ours else ()
        return Newcomers(
            *(tuple(t for t in s if t not in known) for s in (look.arrived, unpublished))
        )

    def look_again(self) -> None:
        """Judge the next look, though nothing may have changed until then."""
        self.signature = ""

    def read_again(self, table: TableId) -> None:
        """Take note that a table was read since the look: nothing that it suspects is missing."""
        if self._look is not None and table in self._look.emptied:
            rest = tuple(each for each in self._look.emptied if each != table)
            self._look = replace(self._look, emptied=rest)

    def had(self, oid: int) -> bool:
        """Say whether there was a table with this oid at a place that the stream has passed."""
        return oid in self._passed

    def judge(
        self,
        position: int,
        known: Known,
        *,
        reports_ddl: bool,
        emptied: Collection[TableId] = (),
        is_marked: Callable[[TableId], bool] = lambda _: False,
    ) -> list[Finding]:
        """Return what the look shows and the stream, now at `position`, did not report; each once.

        `emptied`: tables that it truncated since the call before.  `is_marked`: a table is noted
        to be read again.
        """
        look = self._look
        if look is None or position < look.lsn:
            return []
        self._look = None
        settled = {name: t for name, t in self._known.items() if known.get(name) is t}
        found: list[Finding] = []
        happened: list[Finding] = []
        explained = {*self._emptied, *emptied}
        if look.is_of_files:
            happened += [
                Unseen(table, _EMPTIED, "suspected")
                for table in look.emptied
                if self._has_columns_of_look(known.get(table))
                and table not in explained
                and not is_marked(table)
            ]
        else:
            found += differences(
                settled,
                look,
                wanted=self._wanted,
                publication=self._publication,
                reports_ddl=reports_ddl,
            )
        if self._last is not None:
            happened += self._since(self._last, look, settled, explained, reports_ddl=reports_ddl)
        self._emptied = set(emptied)  # perhaps behind this look, so before the next one
        # A state is reported once for as long as it holds, and again if it comes back.
        new = [finding for finding in found if finding not in self._said] + happened
        self._said = set(found)
        self._last = self._fresh = look
        is_complete = len(settled) == len(self._known) == len(known)
        self.signature = look.signature if is_complete and not new else ""
        return new

    def _has_columns_of_look(self, table: TableSchema | None) -> bool:
        """Say whether a table was not altered since the look; its first row may have come since."""
        before = self._known.get(table.id) if table is not None else None
        return before is not None and table is not None and columns(before) == columns(table)

    def _since(
        self,
        before: Look,
        now: Look,
        known: Known,
        emptied: Collection[TableId],
        *,
        reports_ddl: bool,
    ) -> Iterator[Finding]:
        """Compare with the previous look: what happened between two, which one cannot show."""
        if reports_ddl:
            for table in known.values():  # a reported table may be known and not published
                was, seen = before.tables.get(table.oid), now.tables.get(table.oid)
                if was and seen and was.is_published and not seen.is_published and seen.is_logged:
                    yield Unseen(table.id, _unpublished(seen.id, self._publication, "is no longer"))
            return
        for table in known.values():
            was, seen = before.tables.get(table.oid), now.tables.get(table.oid)
            if was is None or seen is None or not (was.is_published and seen.is_published):
                continue
            if was.membership and seen.membership and was.membership != seen.membership:
                why = f"left publication {self._publication} and was added again: changes are lost"
                yield Unseen(table.id, why, "suspected")
            if gone := was.parts.keys() - seen.parts.keys():
                yield Unseen(table.id, f"lost {len(gone)} partitions: the target keeps their rows")
            for oid, part in seen.parts.items():
                old = was.parts.get(oid)
                if old is None and not part.is_born:
                    why = "a partition was attached, with the rows that it had"
                    yield Unseen(table.id, why, "suspected")
                elif (
                    old is not None
                    and old.filenode != part.filenode
                    and part.is_empty
                    and table.id not in emptied
                ):
                    why = "a partition was emptied: the target keeps its rows"
                    yield Unseen(table.id, why, "suspected")
