"""`gauss-cdc check`, the target's half: what `apply` will need there, by its own rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from producer.preflight import Finding, Level
from schemas.tables import TableId
from spark_consumers.errors import ApplyError
from spark_consumers.sinks import pg_rights

_OF_THEIR_OWN = """
SELECT EXISTS (
    SELECT 1 FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN (SELECT unnest(%s::text[]) AS s, unnest(%s::text[]) AS t) AS w
      ON n.nspname = w.s AND c.relname = w.t
    WHERE t.tgenabled <> 'D')
"""


def refused(subject: str, error: ApplyError, level: Level = Level.ERROR) -> Finding:
    """Show what a rule that `apply` keeps to finds wrong."""
    where = ", ".join(f"{name}={value}" for name, value in error.where.items())
    return Finding(level, subject, f"{error.what} ({where})" if where else error.what, error.hint)


def check_rights(
    cursor: Any,
    tables: Sequence[TableId],
    *,
    follows: bool,
    runs_definitions: bool = False,
    is_postgres: bool,
    has_ledger: bool,
) -> Iterator[Finding]:
    """Rights on tables. `follows`: schema changes; `has_ledger`: the first load is behind us."""
    for problem in pg_rights.load_problems(cursor, tables, has_policies=is_postgres):
        level = Level.WARNING if has_ledger and "schema" in problem.where else Level.ERROR
        yield refused("target rights", problem, level)
    if follows:
        for problem in pg_rights.ownership_problems(cursor, tables):
            yield refused("target rights", problem)
    if runs_definitions:
        for problem in pg_rights.power_problems(cursor):
            yield refused("target rights", problem)
    if not pg_rights.may_replicate(cursor):
        cursor.execute(_OF_THEIR_OWN, ([t.schema for t in tables], [t.name for t in tables]))
        (is_in_the_way,) = cursor.fetchone()
        yield Finding(
            Level.WARNING if is_in_the_way else Level.NOTE,
            "target rights",
            "the role may not switch foreign keys and triggers of the target off",
            pg_rights.replica_hint(cursor),
        )
    else:
        cursor.execute("RESET session_replication_role")
