"""What the catalog shows of tables, where the stream does not tell: looked at every few seconds.

TRUNCATE and what is done to partitions are not sent (`gaps`): a table, or a partition, gets
another file instead.  VACUUM FULL, CLUSTER and others give it another one, too, and lose no row:
they keep each row's transaction id.  So a table is cleared of suspicion by a row whose
transaction had ended before the look before: the row was there then, and still is.  EXCHANGE
brings rows of any age from elsewhere, so nothing is cleared where partitions changed.

A statement that computes rows anew (ALTER TYPE … USING) gives the table another file, too.  Where
no DDL is decoded, no row shows that, nor another key, nor a last column that was dropped and made
again.  Nor does one show the length or precision of a column: where these are raised, no file is
written, and targets round values to those that they know.

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
from schemas.tables import TableId

_ALTERED: Final = "has another key, or a column made again: its older rows may be others"
_RESIZED: Final = "has a column of another length or precision: targets may have rounded its values"
_MADE_AGAIN: Final = "was dropped and made again: its older rows are still at targets"
_RENAMED: Final = "has, or had, another name: not all its rows were sent under this one"
_GONE: Final = "is not captured any more: it has another name"
_CAME: Final = "has rows from before it was seen first: they were not sent"
_ROWS: Final = 1000  # of its beginning, where VACUUM FULL puts the first rows
_FROZEN: Final = 2  # the id of rows that are older than any; COPY writes it, too (FREEZE)
_OF_USERS: Final = 16384  # oids of what users make begin here
_TABLES: Final = f"""
    SELECT c.oid::bigint AS part, c.relfilenode::bigint AS file, n.nspname, c.relname,
           c.xmin::text::bigint + n.xmin::text::bigint AS writer, c.reltype
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= {_OF_USERS}
      AND coalesce(array_to_string(c.reloptions, ','), '') !~* 'orientation *= *(column|orc)'"""
_PARTITIONS: Final = """
    SELECT oid::bigint AS part, relfilenode::bigint AS file, parentid::bigint AS parent
    FROM pg_catalog.pg_partition WHERE parttype IN ('p', 's')"""
# PostgreSQL, which the emulator stands on: a partition is a table.
_CHILDREN: Final = """
    SELECT c.oid::bigint AS part, c.relfilenode::bigint AS file, i.inhparent::bigint AS parent
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE c.relispartition"""
_IS_GAUSS: Final = """
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'pg_catalog' AND c.relname = 'pg_partition'"""
_COLUMNS: Final = f"""
    SELECT a.attrelid::bigint AS owner, a.attnum::bigint AS number, NOT a.attisdropped AS is_there,
           concat(a.attnum, ' ', a.attname, ' ', a.atttypid, ' ', a.atttypmod) AS said,
           CASE WHEN a.attisdropped THEN '-' WHEN a.atttypmod = -1 THEN '.'
           ELSE substr(md5(a.atttypmod::text), 1, 4) END AS size, a.xmin::text::bigint AS writer
    FROM pg_catalog.pg_attribute a WHERE a.attnum > 0 AND a.attrelid >= {_OF_USERS}"""
_KEYS: Final = f"""
    SELECT i.indrelid::bigint AS owner, i.indexrelid::bigint AS number,
           i.xmin::text::bigint AS writer
    FROM pg_catalog.pg_index i WHERE i.indisprimary AND i.indrelid >= {_OF_USERS}"""
# A statement changes one of these.
_SIGNATURE: Final = f"""
    SELECT
    (SELECT concat(count(*), ' ', sum(part::numeric * file), ' ', sum(writer)) FROM ({_TABLES}) t),
    (SELECT concat(count(*), ' ', sum(part::numeric * file), ' ', sum(part::numeric * parent))
     FROM ({{parts}}) p),
    (SELECT concat(count(*), ' ', sum(c.owner * c.number), ' ', sum(c.writer))
     FROM ({_COLUMNS}) c JOIN ({_TABLES}) t ON t.part = c.owner),
    (SELECT concat(count(*), ' ', sum(number), ' ', sum(writer)) FROM ({_KEYS}) k)"""
_STORED: Final = f"""
    SELECT t.part, t.file, t.nspname, t.relname, t.writer, c.last, k.numbers,
           CASE WHEN y.xmin::text::bigint > c.made THEN 1 ELSE 0 END
    FROM ({_TABLES}) t
    LEFT JOIN pg_catalog.pg_type y ON y.oid = t.reltype
    LEFT JOIN (
        SELECT owner, min(writer) AS made,
               concat(max(number), ':', sum(CASE WHEN is_there THEN 1 ELSE 0 END), ':',
               substr(md5(string_agg(CASE WHEN is_there THEN said END, ',' ORDER BY number)), 1, 8),
               ':', string_agg(size, ',' ORDER BY number)) AS last
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


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One table of the catalog."""

    id: TableId
    oid: int
    file: int
    writer: int  # the transactions that wrote its row, and that of its schema; their sum
    last: str = ""  # of its columns: the greatest number, how many there are, a digest, and sizes
    key: str = ""  # oid of the primary key's index; "": none
    is_moved: bool = False  # a RENAME or SET SCHEMA came behind its creation
    parts: tuple[tuple[int, int], ...] = ()  # of its partitions: oid, file

    @property
    def version(self) -> CatalogVersion:
        """What of it changes with each statement that may hide changes."""
        files = "" if self.file == self.oid else str(self.file)
        if self.parts:
            files = f"{files}:{max(self.parts)[0]}:{_digest(self.parts)}"
        name = f"{_written(self.id)} {self.writer}"
        return CatalogVersion(name=name, files=files, key=self.key, last=self.last)

    def has_files_of(self, before: str) -> bool:
        """Say whether no file is gone: one that came has rows of the stream.

        It is that with which its partition was made, or another table's, or emptied, is its file.
        """
        file, greatest, digest = [*before.split(":"), "", ""][:3]
        last = int(greatest or 0)
        return (
            int(file or self.oid) == self.file
            and digest == (_digest(item for item in self.parts if item[0] <= last) if last else "")
            and all(file == part for part, file in self.parts if part > last)
        )


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
        self._named: set[int] = set()  # oids whose rows in pg_class changed at the look before

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
        ((text,),) = session.query(  # first: what ended before it ended before the rest
            "SELECT txid_snapshot_xmin(txid_current_snapshot())::text"
        )
        (signature,) = session.query(_SIGNATURE.format(parts=_partitions(session)))
        if signature != self._signature:
            self._tables = stored(session, self._selects)
            self._versions = {oid: table.version for oid, table in self._tables.items()}
            self._signature = signature
        open_from, self._open_from = self._open_from, int(text or 0)
        parts, ended = _digest([signature[1]]), self._open_from
        now = self._versions
        there = frozenset(table.id for table in self._tables.values())
        if before is None or not before.versions:
            return StorageFindings(now, parts, ended, there)
        former = {_read(was.name): oid for oid, was in before.versions.items()}
        gone, unseen = self._names_that_went(session, former, there, known)
        if before.versions == now and not unseen:
            return StorageFindings(now, parts, ended, there)
        # A partition that was exchanged brought rows of any age.
        is_cleared = self._clears and before.parts == parts
        open_from = open_from or before.horizon
        emptied: set[TableId] = set()
        suspected = dict.fromkeys(gone, _GONE)
        for oid, table in self._tables.items():
            was = before.versions.get(oid)
            names = {table.id, *([] if was is None else [_read(was.name)])}
            if self._lacks_files(table, was) and not (
                is_cleared and self._is_cleared(session, table, open_from, note)
            ):
                emptied |= names
            if why := self._why_other(session, table, was, open_from):
                suspected[table.id] = why
        if not self._told.statements:
            suspected |= self._under_other_names(before, former, has_unseen=bool(unseen))
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

    def _under_other_names(
        self, before: Before, former: Mapping[TableId, int], *, has_unseen: bool
    ) -> Mapping[TableId, str]:
        """Name tables that were made again, or may have had another name for a while.

        The stream may bring rows under that name only behind the look that shows the table altered.
        """
        named = {
            oid
            for oid in self._tables
            if oid in before.versions and before.versions[oid].name != self._versions[oid].name
        }
        doubted = named | self._named if has_unseen else set[int]()
        self._named = named
        return {
            table.id: why
            for oid, table in self._tables.items()
            for why, is_so in (
                (_RENAMED, oid in doubted and oid in before.versions),
                (_MADE_AGAIN, former.get(table.id, oid) != oid),
            )
            if is_so
        }

    def _why_other(
        self, session: Asks, table: StoredTable, was: CatalogVersion | None, open_from: int
    ) -> str:
        """Say why a table may have other rows than were sent; "": nothing shows that."""
        if was is None:  # it was made since, or got a captured name
            is_older = self._clears and _has_older_row(session, table.id, open_from) is not False
            return _CAME if is_older or (table.is_moved and not self._told.statements) else ""
        if self._told.statements:
            return ""
        if _read(was.name) != table.id:
            return _RENAMED
        if _is_altered(was, table.version):
            return _ALTERED
        return _RESIZED if _is_resized(was, table.version) else ""

    def _lacks_files(self, table: StoredTable, was: CatalogVersion | None) -> bool:
        truncate, statements, positions = self._told
        if was is None:  # it was made since
            files = {*table.parts, *([] if truncate else [(table.oid, table.file)])}
            return any(file != part for part, file in files)
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
    parts: dict[int, dict[int, int]] = {}
    rows = session.query(_partitions(session))
    for part, _, parent in rows:
        parents[int(part or 0)] = int(parent or 0)
    for part, file, parent in rows:
        root = int(parent or 0)
        while root in parents:
            root = parents[root]
        parts.setdefault(root, {})[int(part or 0)] = int(file or 0)
    found = {}
    for text, file, schema, name, writer, last, key, moved in session.query(_STORED):
        table, oid = TableId(schema or "", name or ""), int(text or 0)
        if selects(table) and oid not in parents:
            found[oid] = StoredTable(
                table,
                oid,
                int(file or 0),
                int(writer or 0),
                _shortened(last or ""),
                key or "",
                moved == "1",
                tuple(sorted(parts.get(oid, {}).items())),
            )
    return found


def _is_altered(was: CatalogVersion, now: CatalogVersion) -> bool:
    """Say whether rows that were equal in a key may be lost, or a column was made again."""
    if was.key != now.key:
        return True
    (number, count), (number_now, count_now) = (
        map(int, text.split(":")[:2]) if text else (0, 0) for text in (was.last, now.last)
    )
    return number_now > number and number_now - number != count_now - count


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
    columns, _, sizes = last.rpartition(":")
    return last if len(sizes) < _MANY_SIZES else f"{columns}:{_DIGEST}{_digest([sizes])}"


def _said(last: str) -> list[str]:
    """Return what each release notes of columns."""
    return last.split(":")[:3]


def _partitions(session: Asks) -> str:
    return _PARTITIONS if session.query(_IS_GAUSS) else _CHILDREN


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
