"""Reads the rows of tables under the snapshot that a new slot exports.

Cells must be the bytes that the stream sends for the same values.  A stream is
in the database's own encoding, whatever the session's; so the copy says
`ENCODING` with that encoding, and the server converts nothing.  The session
itself stays in UTF-8, for names in our queries.  In a
SQL_ASCII database the server never converts, and bytes pass as they are.

`SET TRANSACTION SNAPSHOT` with a snapshot of CREATE_REPLICATION_SLOT is in
openGauss' grammar and manual, and tested on PostgreSQL; it was not recorded on
openGauss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

from producer.core.catalog.look import CatalogVersion
from producer.core.changes import Cells
from producer.errors import DecodeError, SourceError, TableChanging, Unsupported
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import gaps
from producer.sources.gauss.copy_csv import CsvRows
from producer.sources.gauss.storage import stored
from producer.sources.labels import unrenamed
from producer.sources.meaning import NOT_THERE, MeantRows, meaning
from producer.sources.session import Asks
from schemas.quoting import constant, names, qualified
from schemas.tables import Column, TableId, TableSchema

# Settings that would cut a load short, where the server has them.
QUIET: Final = {"row_security": "off", "idle_in_transaction_session_timeout": "0"}
# A statement is parsed by the catalog as it is now, whatever the snapshot.
_ALTERED: Final = NOT_THERE | {"42703"}  # no such column
LOCKED: Final = frozenset({"57014", "55P03"})  # the statement's time is over, or no lock is had
LOCK_SECONDS: Final = 2  # the stream waits meanwhile


class CopyingSession(Asks, Protocol):
    """An ordinary session, such as GaussConnection; a context manager that closes itself."""

    def copy_out(self, sql: str) -> Iterator[bytes]:
        """Run a COPY … TO STDOUT; its bytes."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@contextmanager
def imported(
    open_session: Callable[[], CopyingSession], snapshot: str | None
) -> Iterator[GaussReading]:
    """A session that sees exactly what the snapshot saw, for the time of a `with` block.

    `snapshot` lives until the next command of the session that created the slot; None: a snapshot
    of its own, which is taken in here.
    Raises SourceError for one that is gone.
    """
    with open_session() as session, open_session() as now:
        session.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            session.query(f"SET TRANSACTION SNAPSHOT {constant(snapshot)}")
        for name in gauss_catalog.settings(session, QUIET):
            session.query(f"SET LOCAL {name} = {QUIET[name]}")
        ((encoding,),) = session.query("SELECT current_setting('server_encoding')")
        if encoding is None:
            raise DecodeError("the server does not report its encoding")
        yield GaussReading(session, encoding, now)


def hold(
    reading: GaussReading, now: Asks, tables: Sequence[TableId]
) -> Mapping[int, CatalogVersion]:
    """Protect tables from DDL, as of the snapshot of `reading`, until its session ends.

    A snapshot does not protect from DDL: a table that was emptied or rewritten since then is read
    as empty, without an error.  Raises TableChanging where one was changed before.  Returns the
    versions that the catalog has, by oid.
    """
    session = reading.session
    if not tables:
        return {}
    session.query(f"SET LOCAL statement_timeout = {LOCK_SECONDS * 1000}")
    lock(session, tables)
    session.query("SET LOCAL statement_timeout = 0")
    # Statements are parsed by the catalog of now; rows of the catalog are those of the snapshot.
    ours, shapes = frozenset(tables), gauss_catalog.table_schemas
    was, is_now = (stored(each, ours.__contains__) for each in (session, now))
    if was != is_now or shapes(session, tables) != shapes(now, tables):
        changed = {table.id for _, table in was.items() ^ is_now.items()}
        raise TableChanging(
            "a table was altered or emptied while its snapshot was made",
            table=min(changed, default=tables[0]),
        )
    return {oid: table.version for oid, table in was.items()}


def lock(session: Asks, tables: Sequence[TableId]) -> None:
    """Protect tables from DDL until the transaction ends; takes no snapshot.

    Raises TableChanging where that lasts longer than the session lets a statement last.
    """
    try:
        listed = ", ".join(map(qualified, tables))
        session.query(f"LOCK TABLE {listed} IN ACCESS SHARE MODE")
    except SourceError as error:
        if error.where.get("sqlstate") not in LOCKED | _ALTERED:
            raise
        raise TableChanging(
            "a table is being altered, renamed or dropped",
            **({"table": tables[0]} if len(tables) == 1 else {}),
            hint="it is read again automatically when that is done",
        ) from error


@dataclass(frozen=True, slots=True)
class GaussReading:
    """The source under one snapshot: what a first load reads."""

    session: CopyingSession
    encoding: str  # of the cells, as the server names it: "GBK"
    now: Asks  # a session that sees what was committed since

    def shapes(self, tables: Sequence[TableId]) -> list[TableSchema]:
        """Shapes as the stream describes them: with stored generated columns."""
        return [
            without_virtual(table) for table in gauss_catalog.table_schemas(self.session, tables)
        ]

    def estimated_rows(self, table: TableId) -> int:
        """The planner's estimate, for a progress bar; 0 = unknown."""
        return estimated_rows(self.session, table)

    def copy_rows(
        self, table: TableId, columns: Sequence[Column], hand_on: Callable[[Sequence[Cells]], None]
    ) -> None:
        """Send all rows to `hand_on`, some hundred at a time, as cells in the stream's encoding.

        Raises Unsupported for a table whose row policies hide rows from this user, TableChanging
        where a label of an enum was renamed since, or the table's schema.
        """
        meant = MeantRows(table, meaning(self.session, table), self.now, hand_on)
        checked = unrenamed(table, columns, self.session, self.now, meant)
        rows_of = f"{self._only(table)}{qualified(table)}"
        listed = names(column.name for column in columns)
        for some in self.copied(table, f"SELECT {listed} FROM {rows_of}", len(columns)):  # noqa: S608  quoted
            checked(some)
        meant.check()

    def copied(self, table: TableId, select: str, width: int) -> Iterator[list[Cells]]:
        """Yield the rows of a query of so many columns; raises as `copy_rows` does.

        Whoever does not take all of them closes the session.
        """
        self._refuse_hidden_rows(table)
        rows = CsvRows(width)
        sent = self.session.copy_out(
            f"COPY ({select}) TO STDOUT"
            f" WITH (FORMAT csv, FORCE_QUOTE *, ENCODING {constant(self.encoding)})"
        )
        try:
            for chunk in sent:
                if some := rows.feed(chunk):
                    yield [list(row) for row in some]
            if some := rows.finish():
                yield [list(row) for row in some]
        except DecodeError as error:
            error.where["table"] = table
            raise
        except SourceError as error:
            if error.where.get("sqlstate") not in _ALTERED:
                raise
            raise TableChanging(
                "a table was altered after the slot's snapshot; the load begins again", table=table
            ) from error

    def _only(self, table: TableId) -> str:
        """ONLY, for an inheritance parent: its children are tables of their own.

        Not for a partitioned table, which stands for its partitions; openGauss'
        have no rows in pg_inherits, and what ONLY means for them is not documented.
        """
        rows = self.session.query(
            "SELECT 1 FROM pg_catalog.pg_class c WHERE c.relkind = 'r'"  # noqa: S608  quoted
            f" AND c.oid = {oid_of(table)}"
            " AND EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)"
        )
        return "ONLY " if rows else ""

    def _refuse_hidden_rows(self, table: TableId) -> None:
        """Raise where a policy would silently omit rows that the stream sends.

        PostgreSQL raises by itself (row_security = off); openGauss has no such setting.
        Its policies do not bind system administrators.
        """
        if not self.session.query(
            "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            " ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'pg_catalog' AND c.relname = 'pg_rlspolicy'"
        ):
            return
        if self.session.query(
            "SELECT 1 FROM pg_catalog.pg_rlspolicy p"  # noqa: S608  quoted
            f" WHERE p.polrelid = {oid_of(table)} AND NOT EXISTS"
            " (SELECT 1 FROM pg_catalog.pg_roles r"
            " WHERE r.rolname = current_user AND r.rolsystemadmin)"
        ):
            raise Unsupported(
                "row policies of the table would hide rows from the first load",
                table=table,
                hint="load as a system administrator, or drop the policies, or exclude the table",
            )


def estimated_rows(session: Asks, table: TableId) -> int:
    """The planner's estimate, for a progress bar; 0 = unknown."""
    ((rows,),) = session.query(
        f"""
        SELECT greatest(coalesce(sum(c.reltuples), 0), 0)::bigint FROM (
            SELECT {oid_of(table)} UNION ALL
            SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = {oid_of(table)}
        ) t (id) JOIN pg_catalog.pg_class c ON c.oid = t.id
        """  # noqa: S608  quoted
    )
    return int(rows or 0)


def without_virtual(table: TableSchema) -> TableSchema:
    """Return the shape without virtual generated columns, which no stream sends."""
    columns = tuple(c for c in table.columns if c.generated != gaps.VIRTUAL)
    return table if len(columns) == len(table.columns) else replace(table, columns=columns)


def oid_of(table: TableId) -> str:
    """Write SQL of a table's oid; a cast to regclass would fold names and may fail."""
    return (
        "(SELECT x.oid FROM pg_catalog.pg_class x JOIN pg_catalog.pg_namespace y"  # noqa: S608  quoted
        f" ON y.oid = x.relnamespace WHERE y.nspname = {constant(table.schema)}"
        f" AND x.relname = {constant(table.name)})"
    )
