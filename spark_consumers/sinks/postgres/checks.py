"""What `check` and `status` ask of a PostgreSQL or openGauss target, by the rules of `apply`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from schemas import servers
from schemas.findings import Finding, Level, refused
from schemas.tables import TableId, TableSchema
from spark_consumers.errors import ApplyError, TargetDown, TargetRefused
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Inspector, Met, Setup
from spark_consumers.sinks.postgres import rights as pg_rights
from spark_consumers.sinks.postgres.apply import Catalog
from spark_consumers.sinks.postgres.conflicts import read_conflicts
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, Refused, safely, sqlstate
from spark_consumers.sinks.postgres.ledger import read_ledger
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES, TargetProduct
from spark_consumers.sinks.postgres.refusals import ours
from spark_consumers.sinks.postgres.tables import as_load, shape_problems

# Triggers and rules of the target, in the states in which they act.
_ACTING = """
SELECT n.nspname || '.' || c.relname || ': ' || o.name FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN (SELECT pg_catalog.unnest(%s::text[]) AS s, pg_catalog.unnest(%s::text[]) AS t) AS w
  ON n.nspname = w.s AND c.relname = w.t
JOIN (SELECT tgrelid AS oid, tgname AS name, tgenabled AS state FROM pg_catalog.pg_trigger
      UNION ALL SELECT ev_class, rulename, ev_enabled FROM pg_catalog.pg_rewrite) AS o
  ON o.oid = c.oid
WHERE o.state::text = ANY (%s::text[]) ORDER BY 1
"""
_USUAL, _REPLICA = ["O", "A"], ["R", "A"]  # by session_replication_role


class PostgresInspector(Inspector):
    """Asks over one connection, which is made when it is needed."""

    def __init__(self, setup: Setup, product: TargetProduct) -> None:
        self._setup, self._product = setup, product
        self._connection: Any = None

    def ledger(self) -> Ledger | None:
        """Read the source's ledger; None where nothing was applied yet."""
        connection = self._connected()
        try:
            return read_ledger(connection, self._setup.source)
        except DRIVER_ERRORS as exc:
            self.close()  # the next look makes another one
            raise ours(exc) from exc

    def conflicts(self) -> Mapping[str, Met]:
        """What `apply` met of others' changes."""
        with self._asking() as cursor:
            return read_conflicts(cursor, self._setup.source)

    def reach(self) -> Iterator[Finding]:
        """The server, its database, and the role's rights there."""
        with self._asking() as cursor:
            cursor.execute("SELECT version(), '' IS NULL")
            said, loses_empty = cursor.fetchone()
            if (found := servers.product_of(said)) is None:
                raise TargetRefused(
                    "the server is neither openGauss nor GaussDB nor PostgreSQL", version=said[:80]
                )
            yield Finding(Level.OK, "target", " ".join(found))
            if _serves(said).dialect != self._product.dialect:
                yield Finding(
                    Level.ERROR,
                    "target",
                    f"target.kind is {self._product.dialect}, and the server is another product",
                    'write `kind = "opengauss"` for openGauss and GaussDB, "postgres" for '
                    "PostgreSQL",
                )
            if loses_empty:
                yield Finding(
                    Level.ERROR,
                    "target",
                    "the database takes an empty string for NULL, and would not be a copy",
                    "CREATE DATABASE … DBCOMPATIBILITY 'PG', and apply there",
                )
            problems = pg_rights.database_problems(cursor)
            yield from map(partial(refused, "target rights"), problems)

    def rights(self, tables: Sequence[TableId], *, has_ledger: bool) -> Iterator[Finding]:
        """What the role lacks for these tables."""
        with self._asking() as cursor:
            yield from check_rights(
                cursor,
                tables,
                follows=self._setup.ddl != "none",
                runs_definitions=self._setup.ddl == "all",
                has_policies=self._served(cursor).has_policies,
                has_ledger=has_ledger,
            )

    def tables(self, shapes: Sequence[TableSchema], *, are_loaded: bool) -> Iterator[Finding]:
        """Tables that cannot hold the source's, or hold rows before their load."""
        with self._asking() as cursor:
            if are_loaded:
                owned = _owned_tables(cursor, self._setup.source)
                shapes = [shape for shape in shapes if shape.id in owned]
            yield from check_shapes(cursor, shapes, self._served(cursor), are_loaded=are_loaded)
            for shape in () if are_loaded else shapes:
                if _holds_rows(cursor, shape.id):
                    yield Finding(
                        Level.WARNING,
                        f"table {shape.id}",
                        "is at the target and holds rows",
                        "empty it, or start with `gauss-cdc apply --replace`",
                    )

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Give a cursor; an error of the driver is raised as ours, and ends the connection."""
        connection = self._connected()
        try:
            with connection.cursor() as cursor:
                yield cursor
        except DRIVER_ERRORS as exc:
            self.close()  # the next question makes another one
            raise ours(exc) from exc

    def _connected(self) -> Any:
        if self._connection is None:
            try:
                self._connection = safely(self._setup.connect)()
            except DRIVER_ERRORS as exc:
                if sqlstate(exc) is not None:  # the server answered
                    raise ours(exc, host=self._setup.host) from exc
                raise TargetDown(
                    "the target cannot be reached",
                    host=self._setup.host,
                    hint=exc.hint if isinstance(exc, Refused) else "",
                ) from exc
            self._connection.autocommit = True
        return self._connection

    @staticmethod
    def _served(cursor: Any) -> TargetProduct:
        """Ask the server itself: the kind in the file may be wrong."""
        cursor.execute("SELECT version()")
        return _serves(cursor.fetchone()[0])


def _serves(said: str) -> TargetProduct:
    found = servers.product_of(said)
    return POSTGRES if found is not None and found[0] == servers.POSTGRESQL else OPENGAUSS


def check_rights(
    cursor: Any,
    tables: Sequence[TableId],
    *,
    follows: bool,
    runs_definitions: bool = False,
    has_policies: bool,
    has_ledger: bool,
) -> Iterator[Finding]:
    """Rights on tables. `follows`: schema changes; `has_ledger`: the first load is behind us."""
    said = set[str]()
    for problem in pg_rights.load_problems(cursor, tables, has_policies=has_policies):
        level = Level.WARNING if has_ledger and "schema" in problem.where else Level.ERROR
        yield refused("target rights", problem, level)
        said.add(problem.hint)
    for problem in pg_rights.owner_problems(cursor, tables):
        if problem.hint not in said:
            yield refused("target rights", problem, Level.WARNING if has_ledger else Level.ERROR)
    for problem in pg_rights.schema_problems(cursor, tables):
        yield refused("target rights", problem, Level.WARNING)
    if follows:
        for problem in pg_rights.ownership_problems(cursor, tables):
            if problem.hint not in said:
                yield refused("target rights", problem)
    if runs_definitions:
        for problem in pg_rights.power_problems(cursor):
            yield refused("target rights", problem)
    if not pg_rights.may_replicate(cursor):
        yield Finding(
            Level.WARNING if _acting(cursor, tables, _USUAL) else Level.NOTE,
            "target rights",
            "the role may not switch foreign keys and triggers of the target off",
            pg_rights.replica_hint(cursor),
        )
        return
    cursor.execute("RESET session_replication_role")
    if acting := _acting(cursor, tables, _REPLICA):
        yield Finding(
            Level.WARNING,
            "target triggers",
            f"act on rows of the source, and may change or drop them unseen: {', '.join(acting)}",
            "ALTER TABLE … ENABLE TRIGGER, or ENABLE RULE, ends that for `apply` alone; then "
            "`gauss-cdc verify` says what differs",
        )


def _acting(cursor: Any, tables: Sequence[TableId], states: Sequence[str]) -> list[str]:
    """Name triggers and rules of tables that are in one of these states."""
    cursor.execute(_ACTING, ([t.schema for t in tables], [t.name for t in tables], states))
    return [name for (name,) in cursor.fetchall()]


def check_shapes(
    cursor: Any, shapes: Iterable[TableSchema], product: TargetProduct, *, are_loaded: bool
) -> Iterator[Finding]:
    """Tables that cannot hold the source's, of shapes that they are loaded or will be with."""
    catalog = Catalog(product=product)
    for shape in shapes:
        subject = f"table {shape.id}"
        try:
            for problem in shape_problems(cursor, catalog, as_load(shape)):
                yield refused(subject, problem)
            if are_loaded:
                catalog.need(cursor, [shape.id])
        except ApplyError as problem:
            yield refused(subject, problem)


def _owned_tables(cursor: Any, source: str) -> set[TableId]:
    """Tables that were loaded or made by `apply` of a source."""
    cursor.execute(
        "SELECT table_schema, table_name FROM gauss_cdc.tables WHERE source = %s", (source,)
    )
    return {TableId(*row) for row in cursor.fetchall()}


def _holds_rows(cursor: Any, table: TableId) -> bool:
    cursor.execute(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        table,
    )
    if (row := cursor.fetchone()) is None:
        return False
    cursor.execute("SELECT pg_relation_size(%s) > 0", row)
    return bool(cursor.fetchone()[0])
