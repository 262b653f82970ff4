"""What a role may read of the captured tables, whatever the product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from producer.core.catalog.catalog_rows import TableRights
from producer.errors import CdcError, NotOurs, NotPermitted
from producer.sources.session import Asks
from schemas.errors import shortened
from schemas.ownership import OwnTables, guard, look
from schemas.quoting import constant, identifier, qualified
from schemas.system_schemas import OWN_SCHEMA


def problems_of_reading(rights: Sequence[TableRights], role: str) -> Iterator[CdcError]:
    """Check what a role of any product may read; hints are the statements that grant it."""
    user = identifier(role)
    for schema in sorted({table.id.schema for table in rights if not table.uses_schema}):
        yield NotPermitted(
            "the role may not use a schema",
            schema=schema,
            hint=f"GRANT USAGE ON SCHEMA {identifier(schema)} TO {user}",
        )
    if unread := [table.id for table in rights if not table.selects]:
        names = [f"{qualified(table)}" for table in unread]
        yield NotPermitted(
            "the role may not read tables",
            tables=shortened([str(table) for table in unread]),
            hint=f"GRANT SELECT ON {', '.join(names)} TO {user}",
        )
    if hidden := [str(table.id) for table in rights if table.selects and not table.sees_all_rows]:
        yield NotPermitted(
            "row security hides rows of tables from the role: the copy would not be equal",
            tables=shortened(hidden),
            hint=f"ALTER ROLE {user} BYPASSRLS",
        )


_HAS_SCHEMA: Final = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = {schema}"
_MAY_WRITE: Final = """
SELECT (CASE
    WHEN c.oid IS NOT NULL THEN has_schema_privilege(n.oid, 'USAGE')
        AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'DELETE')
    WHEN n.oid IS NOT NULL THEN has_schema_privilege(n.oid, 'CREATE')
    ELSE has_database_privilege(current_database(), 'CREATE') END)::int
FROM (SELECT 1) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = {schema}
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = {table}
"""


def foreign_problems(session: Asks, tables: OwnTables) -> Iterator[NotOurs]:
    """Find what stands in our schema at the source and is not ours."""
    for found in look(session.query, tables).foreign:
        yield NotOurs(str(found), hint=found.way_out)


def own_guard(session: Asks, tables: OwnTables) -> str:
    """Write what stands before a statement on our one table of these; "" where it is missing.

    Raises NotOurs.
    """
    found = look(session.query, tables)
    for foreign in found.foreign:
        raise NotOurs(str(foreign), hint=foreign.way_out)
    return "".join(guard(*one) for one in found.oids.items())


def may_write_own(session: Asks, table: str) -> bool:
    """Say whether the role may write a table of our schema at the source, or else make it."""
    question = _MAY_WRITE.format(schema=constant(OWN_SCHEMA), table=constant(table))
    return session.query(question) == [["1"]]


def has_own_schema(session: Asks) -> bool:
    """Say whether our schema is there at the source."""
    return bool(session.query(_HAS_SCHEMA.format(schema=constant(OWN_SCHEMA))))


def make_own_schema(session: Asks) -> None:
    """Make our schema, if it is not there."""
    if not has_own_schema(session):  # openGauss knows IF NOT EXISTS of a schema from 5.0 on
        session.query(f"CREATE SCHEMA {OWN_SCHEMA}")
