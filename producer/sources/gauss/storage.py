"""What the catalog shows of tables, where the stream does not tell: looked at every few seconds.

TRUNCATE and what is done to partitions are not sent (`gaps`): a table, or a partition, gets
another file instead.  VACUUM FULL, CLUSTER and others give it another one, too, and lose no row:
they keep each row's transaction id.  So a table is cleared of suspicion by a row whose
transaction had ended before the look before: the row was there then, and still is.  EXCHANGE
brings rows of any age from elsewhere, so nothing is cleared where partitions changed.

A statement that computes rows anew (ALTER TYPE … USING) gives the table another file, too.  Where
no DDL is decoded, no row shows that, nor another key, nor a last column that was dropped and made
again.  Nor does one show the length or precision of a column: where these are raised, no file is
written, and targets round values to those that they know.  And what is undone before anybody looks
leaves nothing but ids of transactions, in rows of the catalog: a name that was not captured for a
while, an attribute or label of a type, a partition that was exchanged for a while.  A freeze writes
an id, too, but an old one: a new id counts where it was not there at the look before.

What the newest look showed stands in START and STATE (`Before.versions`), from the slot's snapshot
on: a restart compares, too.
"""
# ruff: noqa: S608  statements of our own, put together of constants and quoted names

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote

from producer.core.catalog.look import Before, CatalogVersion
from producer.errors import SourceError
from producer.sources.gauss import gaps
from producer.sources.gauss.evidence import is_gone, limited
from producer.sources.gauss.gaps import DecodingMode
from producer.sources.gauss.options import Effective
from producer.sources.session import Asks
from schemas.quoting import constant, qualified
from schemas.tables import TableId, TableSchema

_ALTERED: Final = "has another key, or a column made again: its older rows may be others"
_RESIZED: Final = "has a column of another length or precision: targets may have rounded its values"
_RETYPED: Final = "has a type whose labels or attributes were altered: values may be others"
_MADE_AGAIN: Final = "was dropped and made again: its older rows are still at targets"
_RENAMED: Final = "has, or had, another name: not all its rows were sent under this one"
_GONE: Final = "is not captured any more: it has another name"
_CAME: Final = "has rows from before it was seen first: they were not sent"
_ROWS: Final = 1000  # of its beginning, where VACUUM FULL puts the first rows
_FROZEN: Final = 2  # the id of rows that are older than any; COPY writes it, too (FREEZE)
_OF_USERS: Final = 16384  # oids of what users make begin here
_TABLES: Final = f"""
    SELECT c.oid::bigint AS part, c.relfilenode::bigint AS file, n.nspname, c.relname,
           c.xmin::text::bigint + n.xmin::text::bigint AS writer, c.reltype,
           n.xmin::text::bigint AS schema_writer,
           substr(md5(concat(n.nspowner, ' ', n.nspacl::text)), 1, 6) AS rights
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= {_OF_USERS}
      AND coalesce(array_to_string(c.reloptions, ','), '') !~* 'orientation *= *(column|orc)'"""
_PARTITIONS: Final = """
    SELECT oid::bigint AS part, relfilenode::bigint AS file, parentid::bigint AS parent,
           xmin::text::bigint AS writer
    FROM pg_catalog.pg_partition WHERE parttype IN ('p', 's')"""
# PostgreSQL, which the emulator stands on: a partition is a table.
_CHILDREN: Final = """
    SELECT c.oid::bigint AS part, c.relfilenode::bigint AS file, i.inhparent::bigint AS parent,
           i.xmin::text::bigint AS writer
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition"""
_IS_GAUSS: Final = """
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'pg_catalog' AND c.relname = 'pg_partition'"""
_COLUMNS: Final = f"""
    SELECT a.attrelid::bigint AS owner, a.attnum::bigint AS number, NOT a.attisdropped AS is_there,
           concat(a.attnum, ' ', a.attname, ' ', a.atttypid, ' ', a.atttypmod) AS said,
           concat(a.attnum, ' ', a.atttypid) AS kind,
           CASE WHEN a.attisdropped THEN '-' WHEN a.atttypmod = -1 THEN '.'
           ELSE substr(md5(a.atttypmod::text), 1, 4) END AS size, a.xmin::text::bigint AS writer
    FROM pg_catalog.pg_attribute a WHERE a.attnum > 0 AND a.attrelid >= {_OF_USERS}"""
_KEYS: Final = f"""
    SELECT i.indrelid::bigint AS owner, i.indexrelid::bigint AS number,
           i.xmin::text::bigint AS writer
    FROM pg_catalog.pg_index i WHERE i.indisprimary AND i.indrelid >= {_OF_USERS}"""
# What is below a type: base, element, and attributes.  Of a label or an attribute, who wrote it.
_BELOW: Final = f"""
    SELECT oid AS typ, typbasetype AS made_of FROM pg_catalog.pg_type WHERE typbasetype <> 0
    UNION ALL SELECT oid, typelem FROM pg_catalog.pg_type WHERE typelem >= {_OF_USERS}
    UNION ALL SELECT rngtypid, rngsubtype FROM pg_catalog.pg_range
    UNION ALL SELECT t.oid, a.atttypid FROM pg_catalog.pg_type t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid
    WHERE t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped"""
_PARTS_OF_TYPES: Final = f"""
    SELECT e.enumtypid AS typ, e.oid::bigint AS number, e.xmin::text::bigint AS writer
    FROM pg_catalog.pg_enum e WHERE e.enumtypid >= {_OF_USERS}
    UNION ALL SELECT c.reltype, a.attnum, a.xmin::text::bigint
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind IN ({{kinds}}) AND c.oid >= {_OF_USERS} AND a.attnum > 0"""
_TYPES_USED: Final = f"""
    WITH RECURSIVE below AS ({_BELOW}), used (owner, typ) AS (
        SELECT a.attrelid, a.atttypid FROM pg_catalog.pg_attribute a
        JOIN ({_TABLES}) t ON t.part = a.attrelid
        WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= {_OF_USERS}
        UNION SELECT u.owner, b.made_of FROM used u JOIN below b ON b.typ = u.typ
        WHERE b.made_of >= {_OF_USERS})
    SELECT u.owner::bigint, u.typ::bigint, y.typtype::text, y.xmin::text::bigint,
           string_agg(p.number::text, ',' ORDER BY p.number),
           string_agg(p.writer::text, ',' ORDER BY p.number)
    FROM used u JOIN pg_catalog.pg_type y ON y.oid = u.typ
    JOIN ({_PARTS_OF_TYPES.format(kinds="'c', 'r', 'p'")}) p ON p.typ = u.typ
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2"""
# A statement changes one of these.
_SIGNATURE: Final = f"""
    SELECT
    (SELECT concat(count(*), ' ', sum(part::numeric * file), ' ', sum(writer)) FROM ({_TABLES}) t),
    (SELECT concat(count(*), ' ', sum(part::numeric * file), ' ', sum(part::numeric * parent),
                   ' ', sum(writer)) FROM ({{parts}}) p),
    (SELECT concat(count(*), ' ', sum(c.owner * c.number), ' ', sum(c.writer))
     FROM ({_COLUMNS}) c JOIN ({_TABLES}) t ON t.part = c.owner),
    (SELECT concat(count(*), ' ', sum(number), ' ', sum(writer)) FROM ({_KEYS}) k),
    (SELECT concat(count(*), ' ', sum(number), ' ', sum(writer))
     FROM ({_PARTS_OF_TYPES.format(kinds="'c'")}) y)"""
_STORED: Final = f"""
    SELECT t.part, t.file, t.nspname, t.relname, c.last, k.numbers,
           y.xmin::text::bigint, t.schema_writer, t.rights, m.made
    FROM ({_TABLES}) t
    LEFT JOIN pg_catalog.pg_type y ON y.oid = t.reltype
    -- No statement writes the rows of system columns again.
    LEFT JOIN (
        SELECT attrelid::bigint AS owner, min(xmin::text::bigint) AS made
        FROM pg_catalog.pg_attribute WHERE attnum < 0 GROUP BY attrelid
    ) m ON m.owner = t.part
    LEFT JOIN (
        SELECT owner, concat(max(number), ':', sum(CASE WHEN is_there THEN 1 ELSE 0 END), ':',
               substr(md5(string_agg(CASE WHEN is_there THEN said END, ',' ORDER BY number)), 1, 8),
               ':', string_agg(size, ',' ORDER BY number), ':',
               substr(md5(string_agg(CASE WHEN is_there THEN kind END, ',' ORDER BY number)), 1, 8)
               ) AS last
        FROM ({_COLUMNS}) c GROUP BY owner
    ) c ON c.owner = t.part
    LEFT JOIN (
        SELECT owner, string_agg(number::text, ',' ORDER BY number) AS numbers
        FROM ({_KEYS}) k GROUP BY owner
    ) k ON k.owner = t.part"""


_STILL_THERE: Final = """
    SELECT c.oid::bigint, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid IN ({oids}) OR (n.nspname, c.relname) IN ({names})"""


# A column's modifier, as `_COLUMNS` writes it: `-` is a dropped column, and nothing to compare.
_SIZE: Final = re.compile(r"(\.|[0-9a-f]{4})\Z")
_MANY_SIZES: Final = 600  # characters
_DIGEST: Final = "~"


class StreamTells(NamedTuple):
    """What the stream tells of a table; the rest only the catalog shows."""

    truncate: bool  # of a table, not of a partition
    statements: bool  # what alters a table
    positions: bool = True  # so that a look waits for what the stream tells

    @classmethod
    def by(cls, mode: DecodingMode, decided: Effective) -> Self:
        """Take a mode; CSNs, and calls of functions, are not compared with the log's end."""
        positions = decided.ordered_by == "lsn" and decided.interface == "stream"
        return cls(gaps.sends_truncate(mode), gaps.sends_statements(mode), positions)


class Named(NamedTuple):
    """Who gave a table, and its schema, their names.

    CREATE, RENAME, SET SCHEMA and OWNER TO write the row of a table's row type.  GRANT writes a
    schema's row, as RENAME does.
    """

    writer: int = 0
    schema_writer: int = 0
    rights: str = ""  # a digest of the schema's

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `str(named)`; None: an earlier release noted none."""
        writer, schema_writer, rights = [*text.split("/"), "", ""][:3]
        return cls(int(writer), int(schema_writer), rights) if rights else None

    def __str__(self) -> str:
        return f"{self.writer}/{self.schema_writer}/{self.rights}"

    def is_other(self, before: Named, open_from: int) -> bool:
        """Say whether the table may have had another name since `before`."""
        schema = self.schema_writer if self.rights == before.rights else before.schema_writer
        return (self.writer != before.writer and self.writer >= open_from) or (
            schema != before.schema_writer and schema >= open_from
        )


_UNNAMED: Final = Named()


class Part(NamedTuple):
    """A partition."""

    oid: int
    file: int
    writer: int = 0  # the transaction that wrote its row


@dataclass(frozen=True, slots=True)
class AlterableType:
    """An enum or a composite type."""

    oid: int
    is_enum: bool
    made: int  # the transaction that wrote its row
    parts: tuple[tuple[int, int], ...]  # of its labels or attributes: number, and who wrote it

    def __str__(self) -> str:
        return f"{self.oid}:{len(self.parts)}:{_digest(self.parts)}"

    def is_altered(self, open_from: int, count: int, digest: str) -> bool:
        """Say whether it was, since the look before, which noted `count` and `digest`, or none."""
        if not digest:
            return any(by != self.made and by >= open_from for _, by in self.parts)
        known = self.parts[:count] if self.is_enum else self.parts
        return digest != _digest(known) and any(by >= open_from for _, by in known)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One table of the catalog."""

    id: TableId
    oid: int
    file: int
    # Of its columns: the greatest number, how many there are, a digest, sizes, a digest of types.
    last: str = ""
    key: str = ""  # oid of the primary key's index; "": none
    named: Named = _UNNAMED
    made: int = 0  # the transaction that did it
    parts: tuple[Part, ...] = ()  # its partitions
    types: tuple[AlterableType, ...] = ()  # with labels or attributes, in columns at any depth

    @property
    def version(self) -> CatalogVersion:
        """What of it changes with each statement that may hide changes."""
        files = "" if self.file == self.oid else str(self.file)
        if self.parts:
            files = f"{files}:{max(self.parts)[0]}:{_files(self.parts)}:{_writers(self.parts)}"
        name = f"{_written(self.id)} {self.named}"
        labels = ",".join(map(str, self.types))
        return CatalogVersion(name=name, labels=labels, files=files, key=self.key, last=self.last)

    def has_files_of(self, before: str) -> bool:
        """Say whether no file is gone: one that came has rows of the stream.

        It is that with which its partition was made, or another table's, or emptied, is its file.
        """
        file, greatest, digest = [*before.split(":"), "", ""][:3]
        last = int(greatest or 0)
        return (
            int(file or self.oid) == self.file
            and digest == (_files(self._up_to(last)) if last else "")
            and all(part.file == part.oid for part in self.parts if part.oid > last)
        )

    def has_other_parts(self, before: str, open_from: int) -> bool:
        """Say whether a partition was altered: its file may have been another table's meanwhile."""
        _, greatest, _, digest = [*before.split(":"), "", "", ""][:4]
        known = self._up_to(int(greatest or 0))
        return bool(digest) and digest != _writers(known) and _is_young(known, open_from)

    def has_other_types(self, before: str | None, open_from: int) -> bool:
        """Say whether values of a type may have another text; None: there was no such table.

        A label that is added to an enum is none of the values that are there.
        """
        known: dict[int, tuple[int, str]] = {}
        for text in filter(None, (before or "").split(",")):
            oid, count, digest = text.split(":")
            known[int(oid)] = int(count), digest
        return any(used.is_altered(open_from, *known.get(used.oid, (0, ""))) for used in self.types)

    def is_moved(self, told: StreamTells) -> bool:
        """Say whether it got its name, or its schema did, behind its creation.

        A statement about a schema says nothing of tables, where it is sent at all.
        """
        by_itself = 0 if told.statements else self.named.writer
        return self.made < max(by_itself, self.named.schema_writer)

    def _up_to(self, last: int) -> list[Part]:
        return [part for part in self.parts if part.oid <= last]


@dataclass(frozen=True, slots=True)
class StorageFindings:
    """What a look shows, beside the look before."""

    versions: Mapping[int, CatalogVersion]  # by oid
    parts: str  # a digest of all partitions
    open_from: int  # each transaction with a lower id had ended
    there: frozenset[TableId] = frozenset()
    dropped: tuple[TableId, ...] = ()  # names that no table has
    emptied: tuple[TableId, ...] = ()  # these may have lost rows
    suspected: Mapping[TableId, str] = field(default_factory=dict)  # and these, for a reason


class StorageWatch:
    """Compares tables with those of the look before."""

    def __init__(
        self, told: StreamTells, selects: Callable[[TableId], bool], *, clears: bool = True
    ) -> None:
        """`selects`: the tables that are captured.

        `clears`: ids in rows are those of the server that is asked which transactions are open.
        """
        self._told, self._selects, self._clears = told, selects, clears
        self._signature: Sequence[object] = ()
        self._tables: Mapping[int, StoredTable] = {}
        self._versions: Mapping[int, CatalogVersion] = {}
        self._open_from = 0  # at the look before; 0: that is of an earlier run
        self._said: set[str] = set()  # why a look failed

    def look(
        self,
        session: Asks,
        before: Before | None,
        note: Callable[[str], None],
        *,
        known: Iterable[TableId] = (),
    ) -> StorageFindings:
        """Compare with the look before.

        `known`: the tables of the stream.  `note` is told which tables are cleared.  Raises
        ConnectionLost; after another error, which is noted once, the next look sees what this one
        did not.
        """
        try:
            return self.compare(session, before, note, known)
        except SourceError as error:
            if is_gone(error):
                raise
            if str(error) not in self._said:
                self._said.add(str(error))
                note(f"storage files and keys were not looked for in the catalog: {error}")
            if before is None:
                return StorageFindings({}, "", 0)
            return StorageFindings(before.versions, before.parts, before.horizon)

    def compare(
        self,
        session: Asks,
        before: Before | None,
        note: Callable[[str], None],
        known: Iterable[TableId],
    ) -> StorageFindings:
        """Do so for who must not take an error for "as before"; raise SourceError."""
        found = self._compared(session, before, note, known)
        self._open_from = found.open_from  # not behind an error: the next look goes on from before
        return found

    def _compared(
        self,
        session: Asks,
        before: Before | None,
        note: Callable[[str], None],
        known: Iterable[TableId],
    ) -> StorageFindings:
        ((text,),) = session.query(  # first: what ended before it ended before the rest
            "SELECT txid_snapshot_xmin(txid_current_snapshot())::text"
        )
        (signature,) = session.query(_SIGNATURE.format(parts=_partitions(session)))
        if signature != self._signature:
            self._tables = stored(session, self._selects)
            self._versions = {oid: table.version for oid, table in self._tables.items()}
            self._signature = signature
        parts, ended = _digest([signature[1]]), int(text or 0)
        shapes = known if isinstance(known, Mapping) else {}
        now = self._versions
        if before is not None and not self._told.statements:
            now = {
                oid: _with_columns_of_targets(
                    version, before.versions.get(oid), shapes.get(self._tables[oid].id)
                )
                for oid, version in now.items()
            }
        there = frozenset(table.id for table in self._tables.values())
        if before is None or not before.versions:
            return StorageFindings(now, parts, ended, there)
        former = {_read(was.name): oid for oid, was in before.versions.items()}
        gone, unseen = self._names_that_went(session, former, there, known)
        if before.versions == now and not unseen:
            return StorageFindings(now, parts, ended, there)
        # A partition that was exchanged brought rows of any age.
        is_cleared = self._clears and before.parts == parts
        open_from = self._open_from or before.horizon
        emptied: set[TableId] = set()
        suspected = dict.fromkeys(gone, _GONE)
        for oid, table in self._tables.items():
            was = before.versions.get(oid)
            names = {table.id, *([] if was is None else [_read(was.name)])}
            if self._lacks_files(table, was, open_from) and not (
                is_cleared and self._is_cleared(session, table, open_from, note)
            ):
                emptied |= names
            if why := self._why_other(session, table, now[oid], was, open_from):
                suspected[table.id] = why
            if not self._told.statements and former.get(table.id, oid) != oid:
                suspected[table.id] = _MADE_AGAIN
        return StorageFindings(
            now, parts, ended, there, tuple(sorted(unseen)), tuple(sorted(emptied)), suspected
        )

    def _names_that_went(
        self,
        session: Asks,
        former: Mapping[TableId, int],
        there: Container[TableId],
        known: Iterable[TableId],
    ) -> tuple[set[TableId], set[TableId]]:
        """Return names of tables that are not captured any more, and those that no table has."""
        if self._told.statements:
            return set(), set()
        went = {name for name in (*former, *filter(self._selects, known)) if name not in there}
        if not went:
            return set(), set()
        oids = {former[name] for name in went & former.keys()} - self._tables.keys()
        found = session.query(
            _STILL_THERE.format(
                oids=", ".join(map(str, sorted(oids))) or "0",
                names=", ".join(f"({constant(s)}, {constant(n)})" for s, n in sorted(went)),
            )
        )
        left = {int(oid or 0) for oid, _, _ in found}
        names = {TableId(schema or "", name or "") for _, schema, name in found}
        gone = {name for name in went if name in names or former.get(name) in left & oids}
        return gone, went - gone

    def _why_other(
        self,
        session: Asks,
        table: StoredTable,
        now: CatalogVersion,
        was: CatalogVersion | None,
        open_from: int,
    ) -> str:
        """Say why a table may have other rows than were sent; "": nothing shows that."""
        if was is None:  # it was made since, or got a captured name
            is_older = self._clears and _has_older_row(session, table.id, open_from) is not False
            if is_older or table.is_moved(self._told):
                return _CAME
            return _RETYPED if table.has_other_types(None, open_from) else ""
        if table.has_other_types(was.labels, open_from):
            return _RETYPED
        if self._told.statements:
            return ""
        named = Named.parse(was.name.rpartition(" ")[2])
        if _read(was.name) != table.id or (named and table.named.is_other(named, open_from)):
            return _RENAMED
        if _is_resized(was, now):
            return _RESIZED
        return _ALTERED if _is_altered(was, now) else ""

    def _lacks_files(self, table: StoredTable, was: CatalogVersion | None, open_from: int) -> bool:
        truncate, statements, positions = self._told
        if was is None:  # it was made since
            files = {*table.parts, *([] if truncate else [Part(table.oid, table.file)])}
            return any(part.file != part.oid for part in files)
        if table.has_other_parts(was.files, open_from):
            return True
        if table.has_files_of(was.files) or (truncate and not positions and not table.parts):
            return False
        # A statement that is sent may have written it.
        return not (statements and _said(was.last) != _said(table.last))

    def _is_cleared(
        self, session: Asks, table: StoredTable, open_from: int, note: Callable[[str], None]
    ) -> bool:
        is_cleared = not table.parts and bool(_has_older_row(session, table.id, open_from))
        if is_cleared:
            note(f"{table.id} has another storage file and rows from before: none is missing")
        return is_cleared


def stored(session: Asks, selects: Callable[[TableId], bool]) -> dict[int, StoredTable]:
    """Read tables, by oid; `session` may see a snapshot."""
    parents: dict[int, int] = {}
    parts: dict[int, list[Part]] = {}
    rows = session.query(_partitions(session))
    for part, _, parent, _ in rows:
        parents[int(part or 0)] = int(parent or 0)
    for part, file, parent, writer in rows:
        root = int(parent or 0)
        while root in parents:
            root = parents[root]
        parts.setdefault(root, []).append(Part(int(part or 0), int(file or 0), int(writer or 0)))
    types: dict[int, list[AlterableType]] = {}
    for owner, used, kind, by, numbers, writers in session.query(_TYPES_USED):
        pairs = zip(_numbers(numbers), _numbers(writers), strict=True)
        said = AlterableType(int(used or 0), kind == "e", int(by or 0), tuple(pairs))
        types.setdefault(int(owner or 0), []).append(said)
    found = {}
    for text, file, schema, name, last, key, *named, made in session.query(_STORED):
        table, oid = TableId(schema or "", name or ""), int(text or 0)
        if selects(table) and oid not in parents:
            found[oid] = StoredTable(
                table,
                oid,
                int(file or 0),
                _shortened(last or ""),
                key or "",
                Named(int(named[0] or 0), int(named[1] or 0), named[2] or ""),
                int(made or 0),
                tuple(sorted(parts.get(oid, []))),
                tuple(types.get(oid, [])),
            )
    return found


def _is_altered(was: CatalogVersion, now: CatalogVersion) -> bool:
    """Say whether rows that were equal in a key may be lost, or a column was made again."""
    if was.key != now.key:
        return True
    (number, count, types), (number_now, count_now, types_now) = map(_columns, (was.last, now.last))
    if number_now == number and count_now == count and types and types_now:
        return types != types_now  # values that are stored alike: no file is written
    return number_now > number and number_now - number != count_now - count


def _with_columns_of_targets(
    now: CatalogVersion, was: CatalogVersion | None, known: TableSchema | None
) -> CatalogVersion:
    """Keep how many columns there were until a row shows that one was dropped.

    The same one may be made again before: then no row shows it.
    """
    if was is None:
        return now
    (number, count, types), (number_now, count_now, _) = map(_columns, (was.last, now.last))
    if number_now != number or count_now >= count:
        return now
    if known is not None and len(known.columns) <= count_now:
        return now
    _, _, said, sizes, _ = now.last.split(":")
    return now._replace(last=f"{number}:{count}:{said}:{sizes}:{types}")


def _columns(last: str) -> tuple[int, int, str]:
    """Return the greatest number, how many there are, and a digest of their types.

    >>> _columns("3:2:0a1b2c3d:.,-,.:12345678")
    (3, 2, '12345678')
    >>> _columns("3:2")
    (3, 2, '')
    """
    number, count, _, _, types = [*last.split(":"), "", "", "", ""][:5]
    return int(number or 0), int(count or 0), types


def _is_resized(was: CatalogVersion, now: CatalogVersion) -> bool:
    """Say whether a column has another modifier; an earlier release noted none, or a digest."""
    (*columns, _, sizes), (*columns_now, _, sizes_now) = (
        [*text.split(":"), "", "", "", ""][:4] for text in (was.last, now.last)
    )
    if sizes.startswith(_DIGEST) and sizes_now.startswith(_DIGEST):
        return columns == columns_now and sizes != sizes_now
    pairs = zip(sizes.split(","), sizes_now.split(","), strict=False)
    return any(one != other and _SIZE.match(one) and _SIZE.match(other) for one, other in pairs)


def _shortened(last: str) -> str:
    """Have a digest instead of the sizes of very many columns: START and STATE hold all tables."""
    *columns, sizes, types = last.split(":")
    if len(sizes) >= _MANY_SIZES:
        sizes = f"{_DIGEST}{_digest([sizes])}"
    return ":".join((*columns, sizes, types))


def _said(last: str) -> list[str]:
    """Return what each release notes of columns."""
    return last.split(":")[:3]


def _partitions(session: Asks) -> str:
    return _PARTITIONS if session.query(_IS_GAUSS) else _CHILDREN


def _files(parts: Iterable[Part]) -> str:
    return _digest((part.oid, part.file) for part in parts)


def _writers(parts: Iterable[Part]) -> str:
    return _digest((part.oid, part.writer) for part in parts)


def _is_young(parts: Iterable[Part], open_from: int) -> bool:
    return any(part.writer >= open_from for part in parts)


def _numbers(text: str | None) -> Iterable[int]:
    return map(int, (text or "").split(","))


def _digest(items: Iterable[object]) -> str:
    """Digest what a record of cuts has no room for.

    >>> _digest([(16385, 16390)]) == _digest([(16385, 16391)])
    False
    """
    return blake2b(repr(sorted(items, key=repr)).encode(), digest_size=4).hexdigest()


def _written(table: TableId) -> str:
    """Write a name without what separates the parts of a version.

    >>> _written(TableId("app", "a;b"))
    'app/a%3Bb'
    >>> _read("app/a%3Bb").name
    'a;b'
    """
    return "/".join(quote(part, safe="") for part in table)


def _read(text: str) -> TableId:
    schema, _, name = text.partition(" ")[0].partition("/")
    return TableId(unquote(schema), unquote(name))


def _has_older_row(session: Asks, table: TableId, open_from: int) -> bool | None:
    """Say whether a row is there whose transaction had ended before; None where it takes long."""
    try:
        with limited(session):
            found = session.query(
                "SELECT 1 FROM (SELECT xmin::text::bigint AS writer"
                f" FROM ONLY {qualified(table)} LIMIT {_ROWS}) r"
                f" WHERE r.writer > {_FROZEN} AND r.writer < {open_from:d} LIMIT 1"
            )
    except SourceError as error:
        if is_gone(error):
            raise
        return None
    return bool(found)
