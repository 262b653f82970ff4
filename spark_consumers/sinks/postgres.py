"""A PostgreSQL target: rows, DDL and the ledger move in one transaction.

    start   wait for the advisory lock of this source, make schema `gauss_cdc`,
            take the fence in a transaction of its own
    step    lock the ledger row, compare (fence, epoch, n, seq) with what the
            segment was built on, apply, move the ledger, commit

The lock keeps a second applier waiting; the fence and the comparison are what
makes it safe, also when a lock was lost with its connection or when a commit's
outcome is unknown: the ledger row is locked again, and tells.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import psycopg2

from schemas.control import Phase, SchemaChange, TableLoad
from schemas.tables import TableId
from spark_consumers.dialects import DIALECTS
from spark_consumers.dialects.base import quote
from spark_consumers.errors import (
    Fenced,
    MissingColumn,
    MissingTable,
    NotExpressible,
    Superseded,
    TargetDown,
    TargetNotEmpty,
    TargetRefused,
)
from spark_consumers.model import Change, Ledger, Rows, Segment
from spark_consumers.sinks.pg_apply import Catalog, apply_changes, clear_tables, load_rows

_LOCK_CLASS: Final = 0x67637364  # one number of ours among the advisory locks of a database
_SETTINGS: Final = """
SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
SET standard_conforming_strings = on; SET xmloption = content; SET client_encoding = 'UTF8';
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET client_min_messages = warning
"""
_SCHEMA: Final = """
CREATE SCHEMA IF NOT EXISTS gauss_cdc;
CREATE TABLE IF NOT EXISTS gauss_cdc.ledger (
    source text PRIMARY KEY, epoch bigint NOT NULL, n bigint NOT NULL, seq bigint NOT NULL,
    writer bigint NOT NULL, instance text NOT NULL, next_offset bigint NOT NULL,
    cluster_id text NOT NULL, fence bigint NOT NULL, state text NOT NULL,
    inexact text NOT NULL, topics text NOT NULL, resume bigint NOT NULL, csn bigint NOT NULL,
    commit_lsn bigint NOT NULL, committed_at bigint NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS gauss_cdc.tables (
    source text, table_schema text, table_name text, PRIMARY KEY (source, table_schema, table_name))
"""
_FIELDS: Final = (
    "source", "epoch", "n", "seq", "writer", "instance", "next_offset", "cluster_id", "fence",
    "state", "inexact", "topics", "resume", "csn", "commit_lsn", "committed_at",
)  # fmt: skip
_SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM gauss_cdc.ledger WHERE source = %s"  # noqa: S608
_MOVED: Final = tuple(f for f in _FIELDS if f not in ("source", "fence", "inexact", "topics"))
_UPDATE: Final = "UPDATE gauss_cdc.ledger SET {}, applied_at = now() WHERE source = %s"
# Classes of SQLSTATE after which the same step may be tried again.
_AGAIN: Final = ("08", "40", "53", "55", "57")


@dataclass(slots=True)
class Staged:
    """What the driver lanes hold of a segment."""

    rows: Rows


class PostgresSink:
    """One source's changes in one PostgreSQL database."""

    def __init__(
        self,
        connect: str | Callable[[], Any],
        source: str,
        *,
        replace: bool = False,
        replica_role: bool = True,
        dialect: str = "postgres",
        on_wait: Callable[[str], None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`connect` is a DSN, or a callable that gives a DB-API connection.

        With `replace`, tables that hold rows before their first load are emptied.
        With `replica_role`, foreign keys and triggers are off where the user may do so.
        """
        self._connect: Callable[[], Any] = (
            partial(psycopg2.connect, connect) if isinstance(connect, str) else connect
        )
        self._source = source
        self._replace, self._wants_replica = replace, replica_role
        self._dialect = DIALECTS[dialect]
        self._on_wait, self._on_step = on_wait, on_step
        self._conn: Any = None
        self._fence: int | None = None
        self._catalog = Catalog()

    def start(self) -> Ledger:
        """Wait until no other applier of this source runs, then take the fence."""
        with self._transaction() as cursor:
            cursor.execute(_SCHEMA)
            cursor.execute(_SELECT + " FOR UPDATE", (self._source,))
            row = cursor.fetchone()
            if row is None:
                ledger = Ledger(self._source)
                marks = ", ".join(["%s"] * len(_FIELDS))
                cursor.execute(
                    f"INSERT INTO gauss_cdc.ledger ({', '.join(_FIELDS)}) VALUES ({marks})",  # noqa: S608
                    [_cell(ledger, f) for f in _FIELDS],
                )
            else:
                ledger = _ledger(row)
            ledger = replace(ledger, fence=ledger.fence + 1)
            cursor.execute(
                "UPDATE gauss_cdc.ledger SET fence = %s WHERE source = %s",
                (ledger.fence, self._source),
            )
        self._fence = ledger.fence
        return ledger

    def ledger(self) -> Ledger:
        """What the target holds now; raise Fenced where another applier took over."""
        if self._fence is None:
            return self.start()
        with self._transaction() as cursor:
            # Waits for a commit of ours that is still running somewhere.
            return self._locked(cursor)

    def stage(self, segment: Segment, rows: Rows) -> Staged:
        """Nothing to bring near: the driver lanes copy inside the step's own transaction."""
        del segment
        return Staged(rows)

    def step(self, segment: Segment, staged: Staged) -> Ledger:
        """Apply and move the ledger, or raise Superseded and change nothing."""
        is_cached = bool(self._catalog.tables)
        try:
            return self._step(segment, staged)
        except TargetRefused:
            if not is_cached:
                raise
            # Someone may have altered the target's tables; they are read again, once.
            return self._step(segment, staged)

    def _step(self, segment: Segment, staged: Staged) -> Ledger:
        with self._transaction() as cursor:
            ledger = self._locked(cursor)
            if _place(ledger) != _place(segment.after):
                raise Superseded(
                    "the ledger moved", built_on=_place(segment.after), is_at=_place(ledger)
                )
            self._on_step("ledger locked")
            upto = replace(segment.upto, fence=ledger.fence)
            if isinstance(segment.cut, TableLoad):
                self._load(cursor, segment.cut, staged.rows)
            else:
                upto = self._apply(cursor, upto, segment, staged.rows)
            self._on_step("rows applied")
            self._move(cursor, ledger, upto)
            self._on_step("ledger moved")
        self._on_step("committed")
        return upto

    def close(self) -> None:
        """End the connection, and with it the lock."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    # -- one transaction

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor in a transaction; foreign exceptions become ours here, and only here."""
        try:
            conn = self._connected()
            with conn.cursor() as cursor:
                yield cursor
            conn.commit()
        except psycopg2.Error as error:
            self._undo()
            raise _ours(error) from error
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        """Roll back; where even that fails the connection is given up."""
        if self._conn is None:
            return
        try:
            self._conn.rollback()
            with self._conn.cursor() as cursor:
                self._catalog.forget(cursor)
            self._conn.commit()
        except psycopg2.Error:
            self.close()
            self._catalog = Catalog()

    def _connected(self) -> Any:
        if self._conn is not None and not self._conn.closed:
            return self._conn
        self._conn = conn = self._connect()
        conn.autocommit = True
        with conn.cursor() as cursor:
            cursor.execute(_SETTINGS)
            self._catalog = Catalog(is_replica=self._wants_replica and _may_replicate(cursor))
            self._lock(cursor)
        conn.autocommit = False
        return conn

    def _lock(self, cursor: Any) -> None:
        """Hold the source's advisory lock for the life of this connection."""
        mine = zlib.crc32(self._source.encode()) - (1 << 31)
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (_LOCK_CLASS, mine))
        if cursor.fetchone()[0]:
            return
        self._on_wait(f"another applier of {self._source} holds the target; waiting for it to end")
        cursor.execute("SET lock_timeout = '1s'")  # so that a signal is noticed
        while True:
            try:
                cursor.execute("SELECT pg_advisory_lock(%s, %s)", (_LOCK_CLASS, mine))
                break
            except psycopg2.errors.LockNotAvailable:
                continue
        cursor.execute("SET lock_timeout = 0")

    def _locked(self, cursor: Any) -> Ledger:
        cursor.execute(_SELECT + " FOR UPDATE", (self._source,))
        row = cursor.fetchone()
        if row is None or _ledger(row).fence != self._fence:
            raise Fenced(
                "another applier took over this target",
                source=self._source,
                fence=None if row is None else _ledger(row).fence,
                ours=self._fence,
            )
        return _ledger(row)

    def _move(self, cursor: Any, before: Ledger, upto: Ledger) -> None:
        fields = [
            *_MOVED,
            *(f for f in ("inexact", "topics") if getattr(before, f) != getattr(upto, f)),
        ]
        cursor.execute(
            _UPDATE.format(", ".join(f"{f} = %s" for f in fields)),
            [*(_cell(upto, f) for f in fields), self._source],
        )

    # -- what a segment says

    def _apply(self, cursor: Any, upto: Ledger, segment: Segment, rows: Rows) -> Ledger:
        if not self._catalog.is_replica and rows.changes:
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        left: Mapping[TableId, Sequence[Change]] = rows.changes
        inexact = {**segment.after.inexact, **upto.inexact}
        for change in sorted(rows.ddl, key=lambda d: (d.seq, d.ordinal)):
            place = (change.seq, change.ordinal)
            now = {t: [c for c in cs if (c.seq, c.ordinal) < place] for t, cs in left.items()}
            left = {t: [c for c in cs if (c.seq, c.ordinal) > place] for t, cs in left.items()}
            apply_changes(cursor, self._catalog, _some(now), inexact=inexact)
            self._alter(cursor, change)
            if change.lossy and (table := change.after or change.before):
                inexact = {**inexact, str(table.id): change.lossy}
                upto = replace(
                    upto, state="LOADING", inexact={**upto.inexact, str(table.id): change.lossy}
                )
        apply_changes(cursor, self._catalog, _some(left), inexact=inexact)
        return upto

    def _alter(self, cursor: Any, change: SchemaChange) -> None:
        """Run a schema change in its place."""
        if change.after is not None and change.before is None:
            self._own(cursor, change.after.id, why="is created by the stream")
        elif change.before is not None and change.before.id != (change.after and change.after.id):
            cursor.execute(
                "DELETE FROM gauss_cdc.tables WHERE source = %s AND table_schema = %s "
                "AND table_name = %s",
                (self._source, *change.before.id),
            )
            if change.after is not None:
                self._own(cursor, change.after.id, why="is renamed by the stream")
        for statement in self._dialect(change):
            cursor.execute(statement)
        self._catalog.forget(cursor)

    def _load(self, cursor: Any, cut: TableLoad, rows: Rows) -> None:
        for change in rows.ddl:
            self._check_shape(cursor, change)
        match cut.phase:
            case Phase.BEGIN:
                self._own(cursor, cut.table, why="is to be loaded first")
                for change in rows.ddl:
                    for statement in self._dialect(change):
                        cursor.execute(statement)
                self._catalog.forget(cursor)
                self._catalog.need(cursor, [cut.table])
                clear_tables(cursor, [self._catalog.tables[cut.table]])
            case Phase.CHUNK:
                for table, changes in rows.changes.items():
                    load_rows(cursor, self._catalog, table, changes)
            case Phase.END:
                pass

    def _own(self, cursor: Any, table: TableId, *, why: str) -> None:
        """A table becomes ours; refuse one that someone else filled."""
        mine = (self._source, table.schema, table.name)
        cursor.execute(
            "SELECT FROM gauss_cdc.tables "
            "WHERE source = %s AND table_schema = %s AND table_name = %s",
            mine,
        )
        if cursor.fetchone() is not None:
            return
        cursor.execute("INSERT INTO gauss_cdc.tables VALUES (%s, %s, %s)", mine)
        if self._replace:
            return
        try:
            self._catalog.need(cursor, [table])
        except MissingTable:
            return
        name = f"{quote(table.schema)}.{quote(table.name)}"
        cursor.execute(f"SELECT EXISTS (SELECT FROM {name})")  # noqa: S608
        if cursor.fetchone()[0]:
            raise TargetNotEmpty(
                f"a table that {why} holds rows already",
                table=table,
                hint="empty it, or apply with --replace",
            )

    def _check_shape(self, cursor: Any, change: SchemaChange) -> None:
        """A table that is there must be able to hold the source's."""
        if change.after is None:
            return
        try:
            self._catalog.need(cursor, [change.after.id])
        except MissingTable:
            return
        there = self._catalog.tables[change.after.id]
        if lost := [name for name in change.after.names() if name not in there.columns]:
            raise MissingColumn(
                "the target's table lacks columns of the source's",
                table=change.after.id,
                columns=", ".join(lost),
                hint="add them, or drop the table and let apply create it",
            )
        if change.after.key and there.key and set(change.after.key) != set(there.key):
            raise NotExpressible(
                "the target's table has another primary key than the source's",
                table=change.after.id,
                source=", ".join(change.after.key),
                target=", ".join(there.key),
            )


def _some(changes: Mapping[TableId, Sequence[Change]]) -> dict[TableId, Sequence[Change]]:
    return {table: rows for table, rows in changes.items() if rows}


def _place(ledger: Ledger) -> tuple[int, int, int]:
    """What a step is compared by; the fence was compared when the row was locked."""
    return ledger.epoch, ledger.n, ledger.seq


def _cell(ledger: Ledger, field: str) -> object:
    value = getattr(ledger, field)
    return json.dumps(dict(value), ensure_ascii=False) if isinstance(value, Mapping) else value


def read_ledger(connection: Any, source: str) -> Ledger | None:
    """Look at a target's ledger without taking part; None where nothing was applied yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('gauss_cdc.ledger') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(_SELECT, (source,))
        row = cursor.fetchone()
    return None if row is None else _ledger(row)


def _ledger(row: Sequence[Any]) -> Ledger:
    raw = dict(zip(_FIELDS, row, strict=True))
    return Ledger(**raw | {f: json.loads(raw[f]) for f in ("inexact", "topics")})


def _may_replicate(cursor: Any) -> bool:
    """Switch foreign keys and triggers off for this session, where the user may."""
    try:
        cursor.execute("SET session_replication_role = replica")
    except psycopg2.errors.InsufficientPrivilege:
        return False
    return True


def _ours(error: psycopg2.Error) -> TargetDown | TargetRefused:
    """Decide by SQLSTATE, never by text; the text may hold values."""
    code = error.pgcode
    if code is None or code[:2] in _AGAIN:
        return TargetDown("the target cannot be reached, or broke off", sqlstate=code)
    diag = error.diag
    where = {
        "table": diag.table_name,
        "column": diag.column_name,
        "constraint": diag.constraint_name,
        "type": diag.datatype_name,
    }
    hint = _HINTS.get(code[:2], "see the target's log for the statement")
    return TargetRefused(
        "the target refused a statement",
        hint=hint,
        sqlstate=code,
        **{name: value for name, value in where.items() if value},
    )


_HINTS: Final = {
    "23": "the target has constraints of its own that the source's rows do not meet, or rows "
    "written by someone else: drop or defer them, or let the user SET session_replication_role",
    "42": "a right, a type or a column is missing at the target",
}
