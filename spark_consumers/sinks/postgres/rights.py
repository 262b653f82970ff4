"""The rights that a PostgreSQL target's role needs: checked before they are used.

One set of rules: `apply` raises the first problem when it connects and when a load
begins, `check` shows them all.  A hint is the statement that gives the right.
"""
# ruff: noqa: S608  every part of a statement is our own

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from schemas.ownership import LEDGER, OwnSchema, is_trusted, look
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId
from spark_consumers.dialects.base import quote
from spark_consumers.errors import TargetDown, TargetError, TargetRefused
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, part, sqlstate

LEDGER_SCHEMA: Final = OWN_SCHEMA
_NO_RIGHT: Final = "42501"
_PARAMETERS: Final = 150_000  # from here on a role may be granted a setting
_ROWS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")

_DATABASE: Final = """
SELECT current_database()::text, current_user::text,
       has_database_privilege(current_database(), 'CREATE'),
       has_database_privilege(current_database(), 'TEMP'),
       current_setting('transaction_read_only') = 'on',
       n.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE'),
       has_schema_privilege(n.oid, 'CREATE'),
       EXISTS (SELECT 1 FROM pg_catalog.pg_class c
               WHERE c.relnamespace = n.oid AND c.relname = 'ddl_log')
FROM (SELECT 1) AS one
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'gauss_cdc'
"""
_LEDGER: Final = """
SELECT c.relname::text FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'gauss_cdc' AND c.relname IN ('ledger', 'tables', 'lease', 'conflicts', 'shapes')
  AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
           AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
"""
_SCHEMAS: Final = """
SELECT w.schema, n.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE'),
       has_schema_privilege(n.oid, 'CREATE')
FROM (SELECT unnest(%s::text[]) AS schema) AS w
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = w.schema ORDER BY 1
"""
_TABLES: Final = """
SELECT n.nspname::text, c.relname::text, pg_has_role(c.relowner, 'USAGE'),
       {rights}, {hidden}
FROM (SELECT unnest(%s::text[]) AS s, unnest(%s::text[]) AS t) AS w
JOIN pg_catalog.pg_namespace n ON n.nspname = w.s
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
ORDER BY 1, 2
"""

_OF_OTHERS: Final = f"""
SELECT n.nspname::text, c.relname::text, pg_get_userbyid(c.relowner)::text, current_user::text
FROM (SELECT unnest(%s::text[]) AS s, unnest(%s::text[]) AS t) AS w
JOIN pg_catalog.pg_namespace n ON n.nspname = w.s
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = w.t
WHERE NOT {part(is_trusted("c.relowner"))} ORDER BY 1, 2
"""
_SCHEMAS_OF_OTHERS: Final = f"""
SELECT n.nspname::text, pg_get_userbyid(n.nspowner)::text, current_user::text
FROM pg_catalog.pg_namespace n
WHERE n.nspname = ANY (%s::text[]) AND NOT {part(is_trusted("n.nspowner"))} ORDER BY 1
"""

# A system administrator of openGauss has no rolsuper; PostgreSQL does not have this column.
_POWERS: Final = """
SELECT current_user::text,
       rolsuper OR row_to_json(r)::text LIKE '%"rolsystemadmin":true%', rolcreaterole,
       ARRAY(SELECT g.rolname::text FROM pg_catalog.pg_roles g
             WHERE g.rolname IN ('pg_execute_server_program', 'pg_read_server_files',
                                 'pg_write_server_files')
               AND pg_has_role(r.oid, g.oid, 'MEMBER') ORDER BY 1)
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""


def database_problems(cursor: Any) -> Iterator[TargetError]:
    """What the ledger and staging need: a schema of ours, and temporary tables.

    A standby may be promoted at any time: what it lacks passes.
    """
    cursor.execute(_DATABASE)
    database, user, creates, makes_temporary, is_read_only, *ours = cursor.fetchone()
    is_there, uses, creates_in_ours, has_triggers = ours
    to = quote(user)
    if is_read_only:
        yield TargetDown(
            "the target takes no writes: it is a standby, or default_transaction_read_only is on",
            database=database,
            hint="name the primary in target.dsn",
        )
        return
    if not makes_temporary:
        yield TargetRefused(
            "the role may not make temporary tables",
            database=database,
            hint=f"GRANT TEMPORARY ON DATABASE {quote(database)} TO {to}",
        )
    if not is_there and not creates:
        yield TargetRefused(
            "the role may not make the schema of the ledger",
            database=database,
            schema=LEDGER_SCHEMA,
            hint=f"CREATE SCHEMA {LEDGER_SCHEMA} AUTHORIZATION {to}",
        )
    if foreign := list(foreign_problems(look_at_ours(cursor))):
        yield from foreign
        return  # no right is to be given on what is not ours
    if has_triggers and not creates_in_ours:  # with that right, records could not be trusted
        yield TargetRefused(
            "this database is a source with event triggers: their schema cannot have a ledger, too",
            database=database,
            schema=LEDGER_SCHEMA,
            hint="apply into another database; or `gauss-cdc ddl uninstall` here, and schema"
            " changes are inferred",
        )
    elif is_there and not (uses and creates_in_ours):
        yield TargetRefused(
            "the role may not use the schema of the ledger",
            schema=LEDGER_SCHEMA,
            hint=f"GRANT USAGE, CREATE ON SCHEMA {LEDGER_SCHEMA} TO {to}",
        )
    if is_there:
        cursor.execute(_LEDGER)
        for (name,) in cursor.fetchall():
            yield TargetRefused(
                "the role may not write the ledger",
                table=f"{LEDGER_SCHEMA}.{name}",
                hint=f"ALTER TABLE {LEDGER_SCHEMA}.{name} OWNER TO {to}",
            )


def foreign_problems(ours: OwnSchema) -> Iterator[TargetRefused]:
    """What stands in the ledger's schema and is not ours."""
    for found in ours.foreign:
        yield TargetRefused(str(found), hint=found.way_out)


def our_tables(cursor: Any) -> Mapping[str, int]:
    """Return the oids of the tables of ours that are there; raise where one is not ours."""
    ours = look_at_ours(cursor)
    for problem in foreign_problems(ours):
        raise problem
    return ours.oids


def look_at_ours(cursor: Any) -> OwnSchema:
    """Look at the ledger's schema, and at what `apply` uses there."""

    def ask(question: str) -> list[tuple[str | None, ...]]:
        cursor.execute(question)
        rows: list[tuple[str | None, ...]] = cursor.fetchall()
        return rows

    return look(ask, LEDGER)


def power_problems(cursor: Any) -> Iterator[TargetRefused]:
    """Attributes that a role must not have to run the source's SQL (`[ddl] apply = "all"`)."""
    cursor.execute(_POWERS)
    user, is_superuser, makes_roles, member_of = cursor.fetchone()
    why = "definitions of the source's users run with its rights ([ddl] apply = all)"
    if is_superuser:
        yield TargetRefused(
            f"the role is a superuser, and {why}",
            role=user,
            hint=f"ALTER ROLE {quote(user)} NOSUPERUSER, or apply with another role",
        )
        return
    if makes_roles:
        yield TargetRefused(
            f"the role may make roles and join them, and {why}",
            role=user,
            hint=f"ALTER ROLE {quote(user)} NOCREATEROLE",
        )
    for name in member_of:
        yield TargetRefused(
            f"the role is a member of {name}, and {why}",
            role=user,
            hint=f"REVOKE {name} FROM {quote(user)}",
        )


def load_problems(
    cursor: Any, tables: Iterable[TableId], *, has_policies: bool = True
) -> Iterator[TargetRefused]:
    """What a load of these tables needs; `has_policies`: the product has row security."""
    asked = sorted(tables)
    cursor.execute("SELECT current_user::text, current_database()::text,"
                   " has_database_privilege(current_database(), 'CREATE')")  # fmt: skip
    user, database, may_create = cursor.fetchone()
    to = quote(user)
    cursor.execute(_SCHEMAS, (sorted({table.schema for table in asked}),))
    for schema, is_there, uses, creates in cursor.fetchall():
        if not is_there and not may_create:
            yield TargetRefused(
                "the role may not make a schema",
                schema=schema,
                hint=f"GRANT CREATE ON DATABASE {quote(database)} TO {to}",
            )
        elif is_there and not (uses and creates):
            yield TargetRefused(
                "the role may not make tables in a schema",
                schema=schema,
                hint=f"GRANT USAGE, CREATE ON SCHEMA {quote(schema)} TO {to}",
            )
    for table, _, lacks, is_hidden in _tables(cursor, asked, has_policies=has_policies):
        name = f"{quote(table.schema)}.{quote(table.name)}"
        if lacks:
            yield TargetRefused(
                "the role may not write a table that is at the target",
                table=table,
                lacks=", ".join(lacks),
                hint=f"ALTER TABLE {name} OWNER TO {to}",
            )
        elif is_hidden:
            yield TargetRefused(
                "row security hides rows of a target's table: changes would miss them",
                table=table,
                hint=f"ALTER ROLE {to} BYPASSRLS, or ALTER TABLE {name} DISABLE ROW LEVEL SECURITY",
            )


def ownership_problems(cursor: Any, tables: Iterable[TableId]) -> Iterator[TargetRefused]:
    """Tables whose schema changes the role cannot follow: only an owner alters a table."""
    cursor.execute("SELECT current_user::text")
    (user,) = cursor.fetchone()
    for table, owns, _, _ in _tables(cursor, sorted(tables), has_policies=False):
        if not owns:
            yield TargetRefused(
                "the role does not own a table that is at the target: schema changes would stop",
                table=table,
                hint=f"ALTER TABLE {quote(table.schema)}.{quote(table.name)} OWNER TO"
                f" {quote(user)}",
            )


def owner_problems(cursor: Any, tables: Iterable[TableId]) -> Iterator[TargetRefused]:
    """Tables that another role made before us, in which its code would run with our rights."""
    asked = sorted(tables)
    cursor.execute(_OF_OTHERS, ([t.schema for t in asked], [t.name for t in asked]))
    for schema, name, owner, user in cursor.fetchall():
        yield TargetRefused(
            "a table that is at the target belongs to another role, whose code in it would run with"
            " our rights",
            table=TableId(schema, name),
            owner=owner,
            hint=f"ALTER TABLE {quote(schema)}.{quote(name)} OWNER TO {quote(user)} if what is in"
            " it can be trusted, else drop it",
        )


def schema_problems(cursor: Any, tables: Iterable[TableId]) -> Iterator[TargetRefused]:
    """Schemas whose owner can put a table of its own in a table's place."""
    cursor.execute(_SCHEMAS_OF_OTHERS, (sorted({table.schema for table in tables}),))
    for schema, owner, user in cursor.fetchall():
        yield TargetRefused(
            "a schema at the target belongs to another role, which can replace tables there by its"
            " own, whose code would run with our rights",
            schema=schema,
            owner=owner,
            hint=f"ALTER SCHEMA {quote(schema)} OWNER TO {quote(user)}",
        )


def _tables(
    cursor: Any, asked: list[TableId], *, has_policies: bool
) -> list[tuple[TableId, bool, list[str], bool]]:
    """Existing tables: does the role own it, missing rights, are rows hidden?"""
    rights = ", ".join(f"has_table_privilege(c.oid, '{right}')" for right in _ROWS)
    hidden = "row_security_active(c.oid)" if has_policies else "false"
    names = ([t.schema for t in asked], [t.name for t in asked])
    cursor.execute(_TABLES.format(rights=rights, hidden=hidden), names)
    return [
        (
            TableId(schema, name),
            owns,
            [right for right, has in zip(_ROWS, granted, strict=True) if not has],
            is_hidden,
        )
        for schema, name, owns, *granted, is_hidden in cursor.fetchall()
    ]


def may_replicate(cursor: Any) -> bool:
    """Switch foreign keys and triggers off for this session, where the user may."""
    try:
        cursor.execute("SET session_replication_role = replica")
    except DRIVER_ERRORS as error:
        if sqlstate(error) != _NO_RIGHT:
            raise
        return False
    return True


def replica_hint(cursor: Any) -> str:
    """Say how the role may switch foreign keys and triggers off."""
    cursor.execute("SELECT current_setting('server_version_num')::int, current_user::text")
    version, user = cursor.fetchone()
    if version >= _PARAMETERS:
        return f"GRANT SET ON PARAMETER session_replication_role TO {quote(user)}"
    return "before 15 only a superuser may switch them off: drop them at the target"
