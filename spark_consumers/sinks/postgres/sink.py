"""A PostgreSQL or openGauss target: rows, DDL and the ledger move in one transaction.

    start   make schema `gauss_cdc`, take the lease of the source, and the fence in a
            transaction of its own
    step    the rules of ../step.py in one transaction; a small step is one message

The lease keeps a second applier waiting; what makes a step safe is the comparison.

A step is written in one of two ways, and both leave the same rows:

    one message  a small step: all statements, with the ledger's, are one query (`message`).  What
                 a message cannot express goes the second way, and so does what the server refuses:
                 it has changed nothing then.
    staged       the rows of each table go by COPY through a staging table of its own (`apply`)

Tables are known by what `shapes` read of them, compared with the stream at each schema change.  A
load for all writes beside the table, and takes its place at END; one in ranges writes into it.  All
statements name schema and functions in full, since who owns the database may own functions, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import psycopg2
from psycopg2 import sql

from schemas.control import LoadPhase, SchemaChange, TableLoad, is_beside
from schemas.ownership import guard
from schemas.tables import TableId, argument
from spark_consumers.cuts.ledger import NOT_LOADED, unshown
from spark_consumers.dialects import DIALECTS, EXTRAS, INSIDE
from spark_consumers.dialects.fitting import computes
from spark_consumers.errors import (
    ChangeLeftOut,
    Fenced,
    MissingColumn,
    MissingTable,
    NotExpressible,
    RowMissing,
    TableAltered,
    TableLookedAtBefore,
    TargetDown,
    TargetError,
    TargetNotPermitted,
    TargetRefused,
)
from spark_consumers.model import Asked, Change, Ledger, Parts, Rows, Segment
from spark_consumers.sinks.base import Met
from spark_consumers.sinks.lease import Keeper
from spark_consumers.sinks.postgres.apply import (
    Catalog,
    apply_changes,
    clear_tables,
    load_rows,
    refuse_cascade,
    table_altered,
)
from spark_consumers.sinks.postgres.catalog import read_tables
from spark_consumers.sinks.postgres.conflicts import Conflicts, lacking
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, safely
from spark_consumers.sinks.postgres.encoding import take_bytes
from spark_consumers.sinks.postgres.exchange import exchange
from spark_consumers.sinks.postgres.lease import PostgresLease
from spark_consumers.sinks.postgres.ledger import (
    lock_ledger,
    make_tables,
    move_ledger,
    take_fence,
)
from spark_consumers.sinks.postgres.message import NotOneMessage, StepMessage
from spark_consumers.sinks.postgres.owned import refuse_taken
from spark_consumers.sinks.postgres.products import POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.refusals import ours
from spark_consumers.sinks.postgres.rights import (
    database_problems,
    load_problems,
    may_replicate,
    our_tables,
    ownership_problems,
    power_problems,
)
from spark_consumers.sinks.postgres.shadows import Shadows
from spark_consumers.sinks.postgres.shapes import Shapes
from spark_consumers.sinks.postgres.tables import OpenLoads, Tables
from spark_consumers.sinks.postgres.waits import Waits
from spark_consumers.sinks.step import Place, check_fence, divided, present, shapes_of, step

_OF_TABLES: Final = (TargetRefused, MissingTable, MissingColumn, TableLookedAtBefore)
_NOT_UNIQUE: Final = "23505"
# What a COPY into a table meets and a staged row does not: a row of somebody else under its key,
# row-level security.
_OF_COPY: Final = frozenset({_NOT_UNIQUE, "0A000"})
# What two appliers meet that make schema and tables at once.
_MADE_MEANWHILE: Final = frozenset({_NOT_UNIQUE, "42P06", "42P07"})
_MESSAGE_ROWS: Final = 50  # up to which a message costs the server less than staging tables

# Not every server has each of them; settings in the dsn's `options` are kept.
_SET_IF_KNOWN: Final = (
    "SELECT set_config(name, %s, false) FROM pg_catalog.pg_settings"
    " WHERE name = %s AND source NOT IN ('client', 'session')"
)


class PostgresSink:
    """One source's changes in one PostgreSQL database."""

    def __init__(
        self,
        connect: str | Callable[[], Any],
        source: str,
        *,
        replace: bool = False,
        replica_role: bool = True,
        product: TargetProduct = POSTGRES,
        on_wait: Callable[[str], None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
        ddl: str = "tables",
        code: bool = False,
        on_note: Callable[[str], None] = lambda _: None,
        message_rows: int = _MESSAGE_ROWS,
        asked: Asked | None = None,
        label: str = "",
    ) -> None:
        """`connect` is a DSN, or a callable that gives a DB-API connection.

        Steps of up to `message_rows` rows are one message where their rows allow it.

        With `replace`, tables that hold rows before their first load are emptied.
        With `replica_role`, foreign keys and triggers are off where the user may do so.
        `asked` learns what this sink asks of packed rows.  `label` is its name beside others.
        A `product` other than PostgreSQL needs a `connect` of its own (sinks.driver).
        """
        self._connect: Callable[[], Any] = safely(
            partial(psycopg2.connect, connect) if isinstance(connect, str) else connect
        )
        self._source = source
        self._wants_replica, self._product = replica_role, product
        self._shadows = Shadows(source)
        self._shapes = Shapes(source)
        self._loads = OpenLoads(source, replace=replace)
        self._tables = Tables(
            source,
            DIALECTS[product.dialect],
            self._shadows,
            self._loads,
            inside=INSIDE[product.dialect],
            replace=replace,
            apply=ddl,
            extras=EXTRAS.get(product.dialect),
            code=code,
            on_note=on_note,
        )
        self._on_step, self._on_note = on_step, on_note
        self._runs_definitions = ddl == "all"
        self._lease = PostgresLease(self._connect, source, product, on_wait=on_wait)
        self._keeper = Keeper(self._lease, source)
        self._conflicts = Conflicts(source, on_note, label=label)
        self._waits = Waits(self._connect, on_wait, has_blocking_pids=product.has_blocking_pids)
        self._pid = 0  # of the connection's backend
        self._conn: Any = None
        self._fence: int | None = None
        self._guard = ""  # before a statement on the ledger, once our tables are there
        self._message_rows = message_rows if product.has_on_conflict else -1
        self._known: Ledger | None = None  # what the target held after our last transaction
        self._asked: Asked = {} if asked is None else asked
        self._catalog = self._unread(self._shadows)

    def start(self) -> Ledger | None:
        """Take the lease, then the fence; None: another applier of this source runs."""
        if not self._keeper.holds and not self._take_lease():
            return None
        try:
            with self._transaction() as cursor:
                lock_ledger(cursor, self._source, self._guard)
                refuse_taken(cursor, self._source)
                # Behind the lock: it may have been lost while this one waited. Nothing is written:
                # who takes over would wait for this transaction, of one that is frozen for ever.
                self._keeper.heard(self._lease.holder(cursor))
                ledger = take_fence(cursor, self._source, self._guard)
                _drop_left_over(cursor, self._source)
                self._shapes.settle(cursor, self._product, our_tables(cursor)["ledger"])
        except Fenced:
            return None  # it has begun nothing, and waits again
        self._fence, self._known = ledger.fence, ledger
        return ledger

    def _take_lease(self) -> bool:
        try:
            if not self._guard:
                with self._transaction() as cursor:
                    oids = make_tables(cursor)
                self._lease.guard = guard("lease", oids["lease"])
                self._guard = guard("ledger", oids["ledger"])
            with self._transaction() as cursor:
                self._conn.autocommit = True
                is_taken = self._lease.take(cursor)
                self._conn.autocommit = False
        except TargetError as error:
            if error.where.get("sqlstate") in _MADE_MEANWHILE:
                return False
            raise
        if is_taken:
            self._keeper.begin()
        return is_taken

    def check(self) -> None:
        """Raise Fenced where another applier is known to have taken over."""
        self._keeper.check()

    def ledger(self) -> Ledger:
        """What the target holds now; raise Fenced where another applier took over."""
        if self._fence is None and (ledger := self.start()) is not None:
            return ledger
        with self._transaction() as cursor:
            # Waits for a commit of ours that is still running somewhere.
            there = lock_ledger(cursor, self._source, self._guard)
            ledger = check_fence(there, self._source, self._fence)
        self._known = ledger
        return ledger

    def stage(self, segment: Segment, rows: Rows | Parts) -> Rows | Parts:
        """Nothing is to be made of them."""
        del segment
        return rows

    def step(self, segment: Segment, staged: Rows | Parts) -> Ledger:
        """Apply and move the ledger, or raise Superseded and change nothing."""
        if (upto := self._in_one_message(segment, staged)) is not None:
            return upto
        try:
            while True:
                try:
                    return self._in_order(segment, staged)
                except TargetRefused as error:
                    table = TableId.of(str(error.where.get("table", "")))
                    if error.where.get("sqlstate") != _NOT_UNIQUE or not table.name:
                        raise
                    if not (self._drop_refusing(table, error) or self._leave_out_refusing(table)):
                        raise
        finally:
            self._tables.unmet.clear()

    def _in_order(self, segment: Segment, staged: Rows | Parts) -> Ledger:
        """Apply statement by statement; once more with a second look at the tables."""
        is_cached = bool(self._catalog.tables)
        try:
            return self._step(segment, staged)
        except TargetError as error:
            if error.where.get("sqlstate") in _OF_COPY and not self._catalog.guarded:
                self._catalog.guarded = True
            elif not is_cached or not isinstance(error, _OF_TABLES):
                raise
            # Someone may have altered the target's tables; they are read again, once.
            return self._step(segment, staged)

    def _drop_refusing(self, table: TableId, refused: TargetRefused) -> bool:
        """Drop the source's unique indexes that rows of the source do not meet; say whether any.

        Without event triggers no stream says that the source dropped one, and a table that is not
        exact may hold what the source has no more.
        """
        which = refused.where.get("constraint")  # openGauss does not say
        with self._transaction() as cursor:
            there = lock_ledger(cursor, self._source, self._guard)
            check_fence(there, self._source, self._fence)
            found = [
                unique.name
                for described in read_tables(cursor, [table], self._product).values()
                for unique in described.uniques
                if unique.is_of_source and which in {None, unique.name}
            ]
            for index in found:
                cursor.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(table.schema, index)))
            self._catalog.forget(cursor, table)
        for index in found:
            self._on_note(
                f"WARNING: {table}: rows of the source do not meet its unique index {index}, which"
                " is dropped at the target: it is gone at the source by now, or others wrote here"
            )
        return bool(found)

    def _leave_out_refusing(self, table: TableId) -> bool:
        """Let the step make no unique index of the source for a table; say whether that is new.

        A load brings both the index and the rows that do not meet it.
        """
        unmet = self._tables.unmet
        is_new = table not in unmet
        unmet.add(table)
        return is_new

    def _in_one_message(self, segment: Segment, staged: Rows | Parts) -> Ledger | None:
        """Apply a small step by one message; None: nothing changed, it goes the usual way."""
        conn, known = self._conn, self._known
        if conn is None or conn.closed or known is None or segment.rows > self._message_rows:
            return None
        if not isinstance(staged, Rows):
            return None
        message = StepMessage(self._catalog, staged, known, self._guard)
        try:
            upto = step(message, segment, fence=self._fence)
        except NotOneMessage:
            return None
        self._on_step("message made")
        try:
            conn.autocommit = True  # the statements of one message are one transaction
            with self._waits.watched(self._pid), conn.cursor() as cursor:
                cursor.execute(*message.text())
                met = message.answered(cursor)
            conn.autocommit = False
        except ValueError:  # bytes that are no text, or a zero byte: nothing was sent
            conn.autocommit = False
            return None
        except DRIVER_ERRORS as error:
            if isinstance(problem := ours(error), TargetDown):
                self._undo()
                raise problem from error
            conn.autocommit = False
            return None
        except BaseException:
            self._give_up()  # nobody knows whether it was sent
            raise
        self._known = upto
        self._on_step("committed")
        self._tell(met)
        return upto

    def _step(self, segment: Segment, staged: Rows | Parts) -> Ledger:
        waiting = {
            name for name, why in segment.after.inexact.items() if unshown(why) == NOT_LOADED
        }
        try:
            with self._transaction() as cursor:
                one = _Step(
                    cursor, self._source, self._guard, self._catalog, self._tables, self._loads,
                    staged, waiting, self._shadows, segment.loads,
                )  # fmt: skip
                upto = step(one, segment, fence=self._fence, on_step=self._on_step)
                met = dict(self._catalog.met)
        except RowMissing as error:  # of a table that is not exact from the next attempt on
            if not isinstance(error, TableAltered | ChangeLeftOut):
                self._conflicts.add(lacking(error))
            raise
        self._known = upto
        self._on_step("committed")
        self._tell(met)
        return upto

    def _tell(self, met: Mapping[TableId, Met]) -> None:
        """Say what a durable step met; a target that is down is told with the next ones."""
        self._conflicts.add(met)
        if not self._conflicts.waiting:
            return
        with suppress(TargetDown):
            with self._transaction() as cursor:
                self._conflicts.write(cursor)
            self._conflicts.waiting.clear()

    def close(self) -> None:
        """Give the lease back, and end the connections."""
        self._keeper.close()
        self._waits.close()
        self._give_up()

    def _give_up(self) -> None:
        self._known = None
        self._tables.ask_again()
        self._shapes.ask_again()
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    # -- one transaction

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A cursor in a transaction; foreign exceptions become ours here, and only here."""
        try:
            conn = self._connected()
            self._tables.forget_others()
            self._catalog.absent.clear()  # others may have made them since
            self._catalog.schemas.clear()
            self._catalog.met.clear()
            self._catalog.renewed.clear()
            self._catalog.filled.clear()
            with self._waits.watched(self._pid), conn.cursor() as cursor:
                yield cursor
                conn.commit()
        except DRIVER_ERRORS as error:
            tables = list(self._catalog.tables)
            self._undo()
            raise self._with_grant(ours(error), tables) from error
        except TargetNotPermitted as error:
            tables = list(self._catalog.tables)
            self._undo()
            raise self._with_grant(error, tables) from error.__cause__
        except BaseException:
            self._undo()
            raise

    def _with_grant(self, error: TargetError, tables: list[TableId]) -> TargetError:
        """Ask the server which right is missing: its refusal does not name it."""
        if not isinstance(error, TargetNotPermitted) or self._conn is None:
            return error
        has_policies = self._product.has_policies
        try:
            with self._conn.cursor() as cursor:
                lacking = [
                    *database_problems(cursor),
                    *load_problems(cursor, tables, has_policies=has_policies),
                    *ownership_problems(cursor, tables),
                ]
            self._conn.commit()
        except DRIVER_ERRORS:
            self._give_up()
            return error
        for problem in lacking:
            return TargetNotPermitted(
                error.what,
                hint=f"{problem.what}: {problem.hint}",
                **{**problem.where, **error.where},
            )
        return error

    def _undo(self) -> None:
        """Roll back; if that fails, too, close the connection."""
        self._known = None
        self._tables.ask_again()
        self._shapes.ask_again()
        if self._conn is None:
            return
        try:
            self._conn.rollback()
            self._conn.autocommit = False
            with self._conn.cursor() as cursor:
                self._catalog.forget(cursor)
            self._conn.commit()
        except DRIVER_ERRORS:
            self._give_up()
            self._catalog = self._unread(self._shadows)

    def _unread(self, shadows: Shadows) -> Catalog:
        return Catalog(
            product=self._product, shadows=shadows, shapes=self._shapes, asked=self._asked
        )

    def _connected(self) -> Any:
        if self._conn is not None and not self._conn.closed:
            return self._conn
        conn = self._connect()
        try:
            self._prepare(conn)
        except BaseException:  # without the lock it must not be taken for ours
            conn.close()
            raise
        self._conn = conn
        return conn

    def _prepare(self, conn: Any) -> None:
        conn.autocommit = True
        with conn.cursor() as cursor:
            self._set_up(cursor)
            cursor.execute("SELECT pg_backend_pid()")
            (self._pid,) = cursor.fetchone()
            if self._product.may_lose_empty:
                _check_empty(cursor)
            for problem in database_problems(cursor):
                raise problem
            for problem in power_problems(cursor) if self._runs_definitions else ():
                self._on_note(f"WARNING: {problem}")
            is_replica = self._wants_replica and may_replicate(cursor)
            self._tables.ask_again()
            self._shapes.ask_again()
            self._catalog = self._unread(self._shadows)
            self._catalog.is_replica, self._catalog.takes_bytes = is_replica, take_bytes(conn)
            cursor.execute("SELECT current_setting('track_counts') = 'on'")
            (self._catalog.has_counts,) = cursor.fetchone()
            if self._keeper.holds:
                self._keeper.heard(self._lease.record(cursor))
        conn.autocommit = False

    def _set_up(self, cursor: Any) -> None:
        cursor.execute(self._product.settings)
        for setting in self._product.limits:
            cursor.execute(_SET_IF_KNOWN, setting)


@dataclass(slots=True)
class _Step:
    """One transaction of the sink, as `step` asks for it."""

    cursor: Any
    source: str
    guard: str  # before a statement on the ledger
    catalog: Catalog
    made: Tables
    loads: OpenLoads
    staged: Rows | Parts
    waiting: set[str]  # tables that are still to be loaded
    shadows: Shadows
    steps: Sequence[TableLoad]  # of loads, in the segment
    rows: Rows = field(default_factory=partial(Rows, {}))  # of the part under way
    windows: Iterator[Mapping[TableId, Sequence[Change]]] | None = None  # its rows between DDL
    inexact: Mapping[str, str] = field(default_factory=dict)  # up to the place that was written
    altered: Mapping[TableId, str] | None = None  # of tables whose loads end; None: not asked yet

    def __post_init__(self) -> None:
        if isinstance(self.staged, Rows):
            self.rows = self.staged

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        return self.rows.ddl

    def lock_ledger(self) -> Ledger | None:
        return lock_ledger(self.cursor, self.source, self.guard)

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        return read_tables(self.cursor, tables, self.catalog.product).keys()  # by now

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        self.catalog.keep(self.cursor)
        move_ledger(self.cursor, before, upto)

    def check_staged(self, segment: Segment) -> None:
        """Rows were counted when they were read, and have not moved since; parts come later."""

    def parts(self) -> Iterator[None]:
        if not self.catalog.is_replica:
            self.cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        staged = self.staged
        several = (
            [staged]
            if isinstance(staged, Rows)
            else staged.read(are_tables_apart=self.catalog.is_replica)
        )
        for self.rows in several:
            places = [(change.seq, change.ordinal) for change in self.rows.ddl]
            self.windows = iter(divided(self.rows.changes, sorted(places)))
            yield

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        before, after = change.before, change.after
        if change.moved is not None:
            self._is_altered(change.moved.table)
        if not self.made.follows:
            self._leave_out(change, is_exact=is_exact)
        # A column that is made again has values alone.  Under `none` its owner follows the source.
        if (before != after or change.values) and not (
            before and after and self.made.follows and self._is_altered(before.id)
        ):
            self.catalog.renewed |= {table.id for table in (before, after) if table is not None}
        if self.catalog.is_replica:
            return self.made.alter(self.cursor, self.catalog, change, is_exact=is_exact)
        self.made.check_rows(self.cursor)
        is_lost = self.made.alter(self.cursor, self.catalog, change, is_exact=is_exact)
        self.cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        return is_lost

    def _leave_out(self, change: SchemaChange, *, is_exact: bool) -> None:
        """Raise ChangeLeftOut where rows that are exact until here are not what they were."""
        touched: list[TableId] = []
        if change.moved is not None and self.made.has_moved(self.cursor, change.moved):
            touched.append(change.moved.table)
            if change.moved.op == "move" and change.after is not None:
                touched.append(change.after.id)
        if is_exact and change.before is not None and computes(change):
            touched.append(change.before.id)
        for table in touched:
            if str(table) not in self.inexact:
                raise ChangeLeftOut(
                    'a schema change moved or computed rows, and [ddl] apply = "none" leaves the'
                    " target's as they are",
                    table=table,
                    tag=change.tag,
                    hint=f"`gauss-cdc snapshot --table {argument(table)}` reads it again",
                )

    def _is_altered(self, table: TableId) -> bool:
        """Say whether others altered a table; raise TableAltered where it is exact until here."""
        is_there = self.catalog.has(self.cursor, table)
        why = self.catalog.altered(self.cursor, [table]).get(table) if is_there else None
        if why is not None and str(table) not in self.inexact:
            raise table_altered(table, why)
        return why is not None

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        del after, before
        self.inexact = inexact
        assert self.windows is not None
        changes = present(next(self.windows), inexact)
        apply_changes(self.cursor, self.catalog, changes, inexact=inexact)

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        cursor, catalog = self.cursor, self.catalog
        if cut.phase is LoadPhase.BEGIN:
            return self._begin(cut, keeps=keeps)
        place = self.shadows.place(cursor, cut.table)
        match cut.phase:
            case LoadPhase.CHUNK:
                catalog.need(cursor, [cut.table])
                rows = self.rows.changes.get(cut.table, ())
                if is_beside(cut):  # over what the commits between brought
                    apply_changes(cursor, catalog, {cut.table: rows}, inexact={str(cut.table)})
                else:
                    self.loads.add(cursor, cut.table, cut.rows, place=place)
                    load_rows(cursor, catalog, cut.table, rows)
            case LoadPhase.END:
                self.loads.end(cursor, cut.table, place=place)
                if why := self._altered().get(cut.table):
                    self.made.on_note(f"WARNING: {table_altered(cut.table, why)}")
                if place != cut.table:
                    catalog.need(cursor, [cut.table])
                    exchange(cursor, catalog, self.shadows, cut.table)
                return bool(why)
        return False

    def _begin(self, cut: TableLoad, *, keeps: bool) -> bool:
        """Empty the table, or make a shadow of it: then readers have its rows until END."""
        cursor, catalog = self.cursor, self.catalog
        if cut is next(load for load in self.steps if load.phase is LoadPhase.BEGIN):
            self._look_at_all()
        if self.shadows.leave(cursor, cut.table):  # of a load that did not end
            catalog.forget(cursor, cut.table)
        is_new = not catalog.has(cursor, cut.table)
        columns: tuple[str, ...] = ()
        for change in shapes_of(self.ddl, cut.table):
            keeps = self.made.begin(cursor, catalog, change, keeps=keeps) and keeps
            columns = change.after.names() if change.after is not None else ()
        if not (is_new and columns):  # else it is empty
            keeps = self._clear(cut.table, columns, keeps=keeps)
        self.waiting.discard(str(cut.table))  # none may empty it any more
        self.loads.begin(cursor, cut.table, counts=not is_beside(cut))
        catalog.renewed.add(cut.table)
        return keeps and not is_new

    def _altered(self) -> Mapping[TableId, str]:
        """Say which tables whose loads end here were altered since they began; asked once."""
        if self.altered is None:
            begun = self._tables_at(LoadPhase.BEGIN)
            ending = [name for name in self._tables_at(LoadPhase.END) if name not in begun]
            self.altered = self.catalog.altered(self.cursor, ending)
        return self.altered

    def _tables_at(self, phase: LoadPhase) -> list[TableId]:
        return [load.table for load in self.steps if load.phase is phase]

    def _look_at_all(self) -> None:
        """Ask at once for all tables whose loads begin here: each question is a round trip."""
        begun = self._tables_at(LoadPhase.BEGIN)
        policies = self.catalog.product.has_policies
        for problem in load_problems(self.cursor, begun, has_policies=policies):
            raise problem
        self.catalog.look(self.cursor, begun)
        self.catalog.altered(self.cursor, [name for name in begun if name in self.catalog.tables])

    def _clear(self, table: TableId, columns: tuple[str, ...], *, keeps: bool) -> bool:
        """Let a table be empty, or where its rows come; say whether it keeps those that it has."""
        cursor, catalog = self.cursor, self.catalog
        catalog.need(cursor, [table])
        begun = catalog.tables[table]
        # Under foreign keys that act, rows come and go in the order of their tables only.
        is_free = catalog.is_replica or not (begun.children | begun.parents)
        keeps = keeps and bool(columns) and is_free
        if keeps:
            self.shadows.make(cursor, begun, columns)
            catalog.forget(cursor, table)
        else:
            if not catalog.is_replica:
                refuse_cascade(cursor, begun, self.waiting)
            clear_tables(cursor, [begun])
        return keeps


def _drop_left_over(cursor: Any, source: str) -> None:
    """Remove staging tables of a release that had some, which was killed."""
    begin = f"stage_{zlib.crc32(source.encode()):08x}_"
    cursor.execute(
        "SELECT tablename FROM pg_catalog.pg_tables "
        "WHERE schemaname = 'gauss_cdc' AND substr(tablename::text, 1, %s) = %s",
        (len(begin), begin),
    )
    for (name,) in cursor.fetchall():
        cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("gauss_cdc", name)))


def _check_empty(cursor: Any) -> None:
    """Refuse a database that would turn empty strings into NULL."""
    cursor.execute("SELECT '' IS NULL")
    if cursor.fetchone()[0]:
        raise NotExpressible(
            "the target's database takes an empty string for NULL, and would not be a copy",
            hint="CREATE DATABASE … DBCOMPATIBILITY 'PG', and apply there",
        )
