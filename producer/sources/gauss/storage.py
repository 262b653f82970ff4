"""Tables that may have been emptied without a word: the catalog names other storage files.

TRUNCATE and what is done to partitions are not sent (`gaps`): a table, or a partition, gets
another file instead.  VACUUM FULL, CLUSTER and others give it another one, too, and lose no row:
they keep each row's transaction id.  So a table is cleared of suspicion by a row whose
transaction had ended before the look before: the row was there then, and still is.  EXCHANGE
brings rows of any age from elsewhere, so nothing is cleared where partitions changed.
"""
# ruff: noqa: S608  statements of our own, put together of constants and quoted names

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from producer.core.catalog.catalog_differences import columns
from producer.errors import SourceError
from producer.sources.gauss.evidence import is_gone, limited
from producer.sources.session import Asks
from schemas.quoting import qualified
from schemas.tables import TableId, TableSchema

Files: TypeAlias = Mapping[int, int]  # of a table and its partitions, by oid

_ROWS: Final = 1000  # of its beginning, where VACUUM FULL puts the first rows
_FROZEN: Final = 2  # the id of rows that are older than any; COPY writes it, too (FREEZE)
_TABLES: Final = """
    SELECT c.oid::bigint AS part, c.relfilenode::bigint AS file, n.nspname, c.relname
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'"""
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


class _Digest(NamedTuple):
    """All files in two sums, and the oldest transaction that was open."""

    tables: str
    partitions: str
    open_from: int  # each transaction with a lower id had ended


class StorageWatch:
    """Compares the files of tables with those of the look before."""

    def __init__(self, *, of_partitions_only: bool, clears: bool = True) -> None:
        """`of_partitions_only`: TRUNCATE of other tables is sent.

        `clears`: ids in rows are those of the server that is asked which transactions are open.
        """
        self._of_partitions_only, self._clears = of_partitions_only, clears
        self._partitions = ""  # the query
        self._digest: _Digest | None = None
        self._files: dict[TableId, Files] = {}
        self._known: Mapping[TableId, TableSchema] = {}

    def emptied(
        self, session: Asks, known: Mapping[TableId, TableSchema], note: Callable[[str], None]
    ) -> tuple[TableId, ...]:
        """Return those of the `known` tables that may have lost rows since the last call.

        `note` is told which ones are cleared.  A table that the stream described with other
        columns since then is left out: it was altered.  Raises ConnectionLost; the first call
        returns nothing.
        """
        try:
            return self._emptied(session, known, note)
        except SourceError as error:
            if is_gone(error):
                raise
            return ()

    def read(self, session: Asks, table: TableId) -> None:
        """Take a table's files as they are: it is read again, and is locked."""
        if self._digest is not None:
            self._files[table] = self._all_files(session).get(table, {})

    def _emptied(
        self, session: Asks, known: Mapping[TableId, TableSchema], note: Callable[[str], None]
    ) -> tuple[TableId, ...]:
        before, now = self._digest, self._read_digest(session)
        if before is not None and (before.tables, before.partitions) == (
            now.tables,
            now.partitions,
        ):
            self._digest, self._known = now, dict(known)
            return ()
        files = self._all_files(session)
        found: tuple[TableId, ...] = ()
        if before is not None:
            is_exchange = before.partitions != now.partitions
            found = tuple(
                table
                for table, shape in known.items()
                if self._is_other(table, files)
                and not self._was_altered(shape)
                and (is_exchange or not self._is_cleared(session, table, before.open_from, note))
            )
        self._digest, self._files, self._known = now, files, dict(known)
        return found

    def _is_other(self, table: TableId, files: Mapping[TableId, Files]) -> bool:
        """Say whether a file that a table had is gone; one that came has rows of the stream."""
        before, now = self._files.get(table), files.get(table)
        if before is None or now is None or (self._of_partitions_only and len(before) == 1):
            return False
        return not before.items() <= now.items()

    def _is_cleared(
        self, session: Asks, table: TableId, open_from: int, note: Callable[[str], None]
    ) -> bool:
        is_plain = self._clears and len(self._files[table]) == 1
        is_cleared = is_plain and _has_older_row(session, table, open_from)
        if is_cleared:
            note(f"{table} has another storage file and rows from before: none is missing")
        return is_cleared

    def _was_altered(self, now: TableSchema) -> bool:
        before = self._known.get(now.id)
        return before is not None and columns(before) != columns(now)

    def _read_digest(self, session: Asks) -> _Digest:
        if not self._partitions:
            self._partitions = _PARTITIONS if session.query(_IS_GAUSS) else _CHILDREN
        ((open_from,),) = session.query(  # first: what ended before it ended before the rest
            "SELECT txid_snapshot_xmin(txid_current_snapshot())::text"
        )
        ((tables, partitions),) = session.query(
            "SELECT (SELECT concat(count(*), ' ', sum(part::numeric * file))"
            f" FROM ({_TABLES}) t), (SELECT concat(count(*), ' ',"
            f" sum(part::numeric * file), ' ', sum(part::numeric * parent))"
            f" FROM ({self._partitions}) p)"
        )
        return _Digest(tables or "", partitions or "", int(open_from or 0))

    def _all_files(self, session: Asks) -> dict[TableId, Files]:
        parents: dict[int, int] = {}
        parts: dict[int, dict[int, int]] = {}
        rows = session.query(self._partitions)
        for part, _, parent in rows:
            parents[int(part or 0)] = int(parent or 0)
        for part, file, parent in rows:
            root = int(parent or 0)
            while root in parents:
                root = parents[root]
            parts.setdefault(root, {})[int(part or 0)] = int(file or 0)
        return {
            TableId(schema or "", name or ""): {
                int(oid or 0): int(file or 0),
                **parts.get(int(oid or 0), {}),
            }
            for oid, file, schema, name in session.query(_TABLES)
        }


def _has_older_row(session: Asks, table: TableId, open_from: int) -> bool:
    """Say whether a row is there whose transaction had ended before; False where it takes long."""
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
        return False
    return bool(found)
