"""Event triggers at a PostgreSQL source, which write each schema change into the stream.

`ddl_triggers.sql` creates all objects, in schema `gauss_cdc` of the source; `uninstall`
drops it.  Its records are read by `producer/sources/postgres/triggers/records.py`.

A record is trusted because of who may write it: the channel is a published table that
only its owner, a superuser, can write.  The catalog is asked whether that is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import NotPermitted, SourceError, Unsupported
from producer.sources import patterns, requests
from producer.sources.postgres.catalog import QueryingConnection, asking, server_info
from producer.sources.postgres.publications import publication
from producer.sources.postgres.triggers.records import CHANNEL, Trust
from schemas import ownership
from schemas.ownership import LEDGER
from schemas.system_schemas import OWN_SCHEMA, SYSTEM
from schemas.tables import TableId

# Of the script; the installed one is in a comment, which any role may read.
VERSION: Final = 11
_TABLE: Final = 3  # earlier versions wrote messages, which any role can write
TRIGGERS: Final = ("gauss_cdc_ddl_drop", "gauss_cdc_ddl_end", "gauss_cdc_ddl_rewrite")
OLDEST: Final = 130_000  # pg_current_xact_id, and roots of partitions that are published
_SCHEMAS: Final = 150_000  # a publication may contain schemas from this version on


@dataclass(frozen=True, slots=True)
class Triggers:
    """The objects of ours at a source."""

    version: int  # 0: nothing
    enabled: bool  # all triggers exist and are enabled
    channel: int = 0  # oid of the table that records are written to, where they can be trusted
    problem: str = ""  # why `run` does not read them, though there are triggers
    publication: str = ""
    schemas: tuple[str, ...] = ()  # that `install` added to the publication, whole
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def reports_ddl(self) -> bool:
        """Say whether every schema change comes as a record that can be trusted."""
        return bool(self.channel) and not self.problem


def state(connection: Connection, name: str | None = None) -> Triggers:
    """Read the state of the triggers, and whether publication `name` has their records.

    Any role may call it.
    """
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT evtname, evtenabled <> 'D', obj_description(oid, 'pg_event_trigger')"
            " FROM pg_event_trigger WHERE evtname = ANY (%s)",
            [list(TRIGGERS)],
        )
        found = {name: (is_on, said) for name, is_on, said in cursor.fetchall()}
        if not found:
            return Triggers(0, enabled=False)
        enabled = set(found) == set(TRIGGERS) and all(is_on for is_on, _ in found.values())
        version = max(_version(said) for _, said in found.values())
        ours = _look(connection)
        channel, problem = _channel(cursor, version, ours)
        if not enabled:
            problem = "some event triggers of ours are off or gone"
        cursor.execute(_READABLE, [OWN_SCHEMA])
        if ours.foreign or not cursor.fetchone()[0]:
            problem = problem or _unpublished(connection, name)
            return Triggers(version, enabled=enabled, channel=channel, problem=problem)
        cursor.execute("SELECT name, schemas FROM gauss_cdc.ddl_publication")
        if (chosen := cursor.fetchone()) is None:  # a copy without rows, by pg_dump --schema-only
            problem = problem or "the triggers do not know which publication is theirs"
            return Triggers(version, enabled=enabled, channel=channel, problem=problem)
        ours, schemas = chosen
        cursor.execute("SELECT is_exclude, table_schema, table_name FROM gauss_cdc.ddl_tables")
        named = [(out, str(patterns.Pattern(*rest))) for out, *rest in cursor.fetchall()]
        problem = problem or _unpublished(connection, name or ours)
    return Triggers(
        version,
        enabled=enabled,
        channel=channel,
        problem=problem,
        publication=ours,
        schemas=tuple(schemas),
        include=tuple(text for out, text in named if not out),
        exclude=tuple(text for out, text in named if out),
    )


# What `install` chose, where the role may read it.
_READABLE: Final = """
SELECT count(*) = 2 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname IN ('ddl_publication', 'ddl_tables')
AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
"""
# Rights and all else that could let another role write a record, each with its name.
# Superusers may do all of it anyway.
_CHANNEL_STATE: Final = """
SELECT CASE
    WHEN c.relpersistence <> 'p' THEN 'it is not logged'
    WHEN NOT c.relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)
        THEN 'its row security is off or has a policy'
    WHEN EXISTS (SELECT FROM aclexplode(c.relacl) a
                 WHERE a.grantee <> c.relowner AND a.privilege_type <> 'SELECT')
        OR EXISTS (SELECT FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) a
                   WHERE t.attrelid = c.oid AND a.privilege_type <> 'SELECT')
        THEN 'others may write it'
    WHEN EXISTS (SELECT FROM aclexplode(n.nspacl) a
                 WHERE a.grantee <> n.nspowner AND a.privilege_type = 'CREATE')
        THEN 'others may create objects in its schema'
    WHEN EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid
                 AND (NOT (SELECT rolsuper FROM pg_roles WHERE oid = p.proowner)
                      OR EXISTS (SELECT FROM aclexplode(coalesce(p.proacl,
                                     acldefault('f', p.proowner))) a
                                 WHERE a.grantee <> p.proowner)))
        THEN 'others may execute its functions'
    WHEN EXISTS (SELECT FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid
                 WHERE e.evtname = ANY (%s) AND p.pronamespace <> n.oid)
        THEN 'the event triggers are not those of its schema'
    ELSE '' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


def _channel(cursor: Any, version: int, ours: ownership.OwnSchema) -> tuple[int, str]:
    """Return the oid of the table with the records, and why they cannot be trusted."""
    if version < _TABLE:
        return 0, (
            "the triggers are those of an earlier release, whose messages any role can write: "
            "they are not read"
        )
    oid = ours.oids.get(CHANNEL, 0)
    for foreign in ours.foreign:
        return oid, str(foreign)
    if not oid:
        return 0, f"{OWN_SCHEMA}.{CHANNEL} does not exist: the triggers write to it"
    cursor.execute(_CHANNEL_STATE, [list(TRIGGERS), OWN_SCHEMA, CHANNEL])
    (why,) = cursor.fetchone()
    return oid, why and f"{OWN_SCHEMA}.{CHANNEL} cannot be trusted: {why}"


def _look(connection: Connection) -> ownership.OwnSchema:
    """Look at our tables: whose they are decides who writes records, with a superuser's rights."""
    query = QueryingConnection(connection).query
    return ownership.look(query, ownership.TRIGGERS, superusers=True)


def _unpublished(connection: Connection, name: str | None) -> str:
    if name is None:
        return ""
    table = TableId(OWN_SCHEMA, CHANNEL)
    found = publication(connection, name)
    if found is None:
        return ""  # said by those who need it
    if table not in found.tables:
        return f"publication {name} does not have {table}: the records of the triggers are not sent"
    if table in found.filtered:
        return f"publication {name} leaves out rows or columns of {table}"
    if "insert" not in found.actions:
        return f"publication {name} publishes no INSERT"
    return ""


def judge(connection: Connection, oid: int) -> Trust:
    """Say whether only our triggers write to the table with this oid and the name of ours."""
    found = state(connection)
    if found.channel == oid:
        return Trust.OURS if found.reports_ddl else Trust.UNKNOWN
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
            " WHERE c.oid = %s",
            [oid],
        )
        row = cursor.fetchone()
    return Trust.FOREIGN if row is not None and not row[0] else Trust.UNKNOWN


def _version(comment: str | None) -> int:
    """The release's number in the comment; the first one wrote none."""
    found = re.search(r"version (\d+)", comment or "")
    return int(found[1]) if found is not None else 1


def install(
    connection: Connection,
    name: str,
    include: Sequence[str],
    exclude: Sequence[str],
    *,
    role: str = "",
) -> Triggers:
    """Create or recreate the triggers; tables of `include` join publication `name`.

    `role`: that of `run`, which may have made our schema.  Raises NotPermitted, Unsupported
    (before 13), SourceError (no such publication, a schema of others).
    """
    check_rights(connection)
    with _transaction(connection), asking(connection) as cursor:
        _take_schema(connection, cursor, role)
        _remove(connection, keeps_channel=True)
        make(connection, cursor, name, include, exclude, role=role)
        # Every change is recorded from here on; this records the present shapes.
        cursor.execute(_BASELINE, [SYSTEM])
    return state(connection)


def make(
    connection: Connection,
    cursor: Any,
    name: str,
    include: Sequence[str],
    exclude: Sequence[str],
    *,
    role: str = "",
) -> None:
    """Create all objects, in the caller's transaction; raise SourceError without a publication."""
    if publication(connection, name) is None:
        raise SourceError(
            "the publication does not exist",
            publication=name,
            hint="`gauss-cdc check --fix` makes it, or the first `run`",
        )
    _take_schema(connection, cursor, role)
    cursor.execute(script(connection.server_version))
    _publish_channel(connection, cursor, name)
    rows = [(False, patterns.parse(text)) for text in include]
    rows += [(True, patterns.parse(text)) for text in exclude]
    for is_exclude, pattern in rows:
        cursor.execute(
            "INSERT INTO gauss_cdc.ddl_tables VALUES (%s, %s, %s)",
            [is_exclude, pattern.schema, pattern.name],
        )
    had = _tables(connection, name)
    schemas = _publish_schemas(connection, cursor, name, [p for out, p in rows if not out])
    others = [str(table) for table in sorted(_tables(connection, name) - had)]
    cursor.execute(
        "INSERT INTO gauss_cdc.ddl_publication VALUES (%s, %s, %s)", [name, schemas, others]
    )
    cursor.execute(
        "SELECT count(gauss_cdc.ddl_repartition(c.oid)) FROM pg_class c"
        " WHERE c.relkind = 'p' AND NOT c.relispartition AND c.relpersistence = 'p'"
    )
    cursor.execute(
        "INSERT INTO gauss_cdc.ddl_generated SELECT a.attrelid, a.attnum"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " WHERE a.attnum > 0 AND a.attgenerated <> '' AND NOT a.attisdropped"
        " AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND (NOT c.relispartition"
        "  OR NOT (SELECT bool_or(pubviaroot) FROM pg_publication WHERE pubname = %s))",
        [name],
    )
    if problem := _channel(cursor, VERSION, _look(connection))[1]:
        raise SourceError(problem, hint=f"drop what is not ours in {OWN_SCHEMA}, and install again")


def _take_schema(connection: Connection, cursor: Any, role: str) -> None:
    """Let our schema, if it is there, be a superuser's: its functions will have such rights.

    The role of `run`, or the database's owner, keeps its tables, and may ask for re-reads; from
    others it is not taken, since they would have these rights, too.  Raises SourceError there, and
    where a table of the triggers is not ours, or the database is a target, too.
    """
    cursor.execute(_APPLIER, [OWN_SCHEMA, *LEDGER.names[:1]])
    for (applier,) in cursor.fetchall():
        raise SourceError(
            f"this database is a target, too: `apply` makes tables in schema {OWN_SCHEMA}, where"
            " only a superuser may make any, once the triggers are there",
            role=applier,
            hint="let schema changes be inferred here, or capture from another database",
        )
    query = QueryingConnection(connection).query
    for foreign in ownership.look(query, ownership.TRIGGERS, role=role).foreign:
        raise SourceError(str(foreign), hint=foreign.way_out)
    cursor.execute(
        "SELECT rolname FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner"
        " WHERE n.nspname = %s AND NOT r.rolsuper",
        [OWN_SCHEMA],
    )
    for (owner,) in cursor.fetchall():
        space, who = sql.Identifier(OWN_SCHEMA), sql.Identifier(owner)
        cursor.execute(sql.SQL("ALTER SCHEMA {} OWNER TO CURRENT_USER").format(space))
        cursor.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(space, who))
        requests.make_for(QueryingConnection(connection), owner)
    for foreign in _look(connection).foreign:
        raise SourceError(str(foreign), hint=foreign.way_out)


# Whose ledger is in our schema.
_APPLIER: Final = """
SELECT r.rolname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_roles r ON r.oid = c.relowner
WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r' AND NOT r.rolsuper
"""


def _publish_channel(connection: Connection, cursor: Any, name: str) -> None:
    """Publish the records."""
    found = publication(connection, name)
    if found is not None and not found.all_tables:
        table = TableId(OWN_SCHEMA, CHANNEL)
        if table not in found.tables or table in found.filtered:
            if table in found.filtered:
                cursor.execute(
                    sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(
                        sql.Identifier(name), sql.Identifier(*table)
                    )
                )
            cursor.execute(
                sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                    sql.Identifier(name), sql.Identifier(*table)
                )
            )


def uninstall(connection: Connection) -> bool:
    """Drop all objects of ours; return whether there were any."""
    was = state(connection)
    if not was.version:
        return False
    check_rights(connection)
    with _transaction(connection), asking(connection) as cursor:
        if was.channel and not _look(connection).foreign:
            cursor.execute(
                "INSERT INTO gauss_cdc.ddl_log (body) VALUES (%s)",
                ['{"version": 1, "event": "uninstall"}'],
            )
        _remove(connection)
    return True


_BASELINE: Final = """
SELECT gauss_cdc.ddl_emit(json_build_object(
    'version', 1, 'event', 'install', 'via_root', v.via_root, 'tables', (
        SELECT coalesce(json_agg((gauss_cdc.ddl_look(c.oid, true, false)).shape
                                 ORDER BY c.oid), '[]')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE (c.relkind = 'r' OR c.relkind = 'p' AND v.via_root) AND c.relpersistence = 'p'
          AND gauss_cdc.ddl_matches(n.nspname::text, c.relname::text)
          AND n.nspname !~ %s)), NULL::text)
FROM (SELECT coalesce(bool_or(p.pubviaroot), true) AS via_root
      FROM pg_publication p JOIN gauss_cdc.ddl_publication o ON o.name = p.pubname) AS v
"""


def script(version: int) -> str:
    """Return what `install` runs on a server of this version (150018 = 15.18)."""
    text = resources.files(__package__).joinpath("ddl_triggers.sql").read_text("utf-8")
    text += f"COMMENT ON EVENT TRIGGER {TRIGGERS[1]} IS 'gauss-cdc, version {VERSION}';\n"
    for since in ("14", "15"):  # lines that a server has from this version on
        mark, is_known = f"/*{since}*/ ", version >= int(since) * 10_000
        lines = text.splitlines(keepends=True)
        text = "".join(line.replace(mark, "") for line in lines if is_known or mark not in line)
    return text


def check_rights(connection: Connection) -> None:
    """Raise NotPermitted or Unsupported where triggers cannot be made."""
    info = server_info(connection)
    if info.version < OLDEST:
        raise Unsupported(
            "event triggers record schema changes from PostgreSQL 13 on",
            server=info.version_text.split(" on ")[0],
            hint="schema changes are inferred from the stream there",
        )
    if not info.is_superuser:
        raise NotPermitted(
            "only superusers can create event triggers",
            hint="run `gauss-cdc ddl install --dsn postgresql://postgres@…` once as one; "
            "run and apply do not need this right",
        )


def _publish_schemas(
    connection: Connection, cursor: Any, name: str, include: Sequence[patterns.Pattern]
) -> list[str]:
    """Publish whole schemas, so that the rows of CREATE TABLE AS are in the stream, too.

    Only schemas whose tables are all captured: a published table without a replica identity
    rejects UPDATE, which must not happen to a table that is not captured.
    """
    found = publication(connection, name)
    if connection.server_version < _SCHEMAS or found is None or found.all_tables:
        return []
    cursor.execute(
        "SELECT nspname::text FROM pg_namespace n"
        " WHERE nspname !~ %s"
        " AND NOT EXISTS (SELECT FROM gauss_cdc.ddl_tables t WHERE t.is_exclude"
        "                 AND coalesce(t.table_schema, n.nspname) = n.nspname)"
        " AND NOT EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_publication p"
        "                   ON p.oid = s.pnpubid WHERE s.pnnspid = n.oid AND p.pubname = %s)"
        " ORDER BY nspname",
        [SYSTEM, name],
    )
    schemas = [
        schema
        for (schema,) in cursor.fetchall()
        if any(p.name is None and p.schema in (None, schema) for p in include)
    ]
    for schema in schemas:
        cursor.execute(
            sql.SQL("ALTER PUBLICATION {} ADD TABLES IN SCHEMA {}").format(
                sql.Identifier(name), sql.Identifier(schema)
            )
        )
    return schemas


def _tables(connection: Connection, name: str) -> set[TableId]:
    found = publication(connection, name)
    return set(found.tables) if found is not None else set()


def _remove(connection: Connection, *, keeps_channel: bool = False) -> None:
    """Drop all of ours; tables created since in a published schema stay published by name.

    `keeps_channel`: keep the table of the records, since `run` has not read all of them.
    """
    was = state(connection)
    with asking(connection) as cursor:
        for trigger in TRIGGERS:
            cursor.execute(
                sql.SQL("DROP EVENT TRIGGER IF EXISTS {}").format(sql.Identifier(trigger))
            )
        cursor.execute("SELECT nspname FROM pg_namespace")
        there = {schema for (schema,) in cursor.fetchall()}
        schemas = [schema for schema in was.schemas if schema in there]
        if schemas and publication(connection, was.publication) is not None:
            cursor.execute("SELECT others FROM gauss_cdc.ddl_publication")
            others = set(cursor.fetchone()[0])
            before = _tables(connection, was.publication)
            for schema in schemas:
                cursor.execute(
                    sql.SQL("ALTER PUBLICATION {} DROP TABLES IN SCHEMA {}").format(
                        sql.Identifier(was.publication), sql.Identifier(schema)
                    )
                )
            for table in sorted(before - _tables(connection, was.publication)):
                if str(table) not in others:
                    cursor.execute(
                        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                            sql.Identifier(was.publication), sql.Identifier(*table)
                        )
                    )
        is_kept = keeps_channel and not _channel(cursor, VERSION, _look(connection))[1]
        cursor.execute(_OF_TRIGGERS, [OWN_SCHEMA, OWN_SCHEMA, CHANNEL if is_kept else ""])
        for (thing,) in cursor.fetchall():
            cursor.execute(f"DROP {thing} CASCADE")
        cursor.execute(_DROP_EMPTY_SCHEMA)


# Functions first: event triggers, and triggers on partitions, go with them.  Others may have put
# procedures and aggregates there, and tables that go with the one that they inherit from.
_OF_TRIGGERS: Final = """
SELECT 'ROUTINE IF EXISTS ' || p.oid::regprocedure FROM pg_proc p
WHERE p.pronamespace = to_regnamespace(%s) AND p.proname ~ '^ddl_'
UNION ALL
SELECT 'TABLE IF EXISTS ' || c.oid::regclass FROM pg_class c
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r' AND c.relname ~ '^ddl_'
AND c.relname <> %s
"""
# Requests for re-reads may be in it.
_DROP_EMPTY_SCHEMA: Final = """
DO 'BEGIN DROP SCHEMA IF EXISTS gauss_cdc; EXCEPTION WHEN dependent_objects_still_exist THEN END'
"""


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """One transaction of a connection in autocommit."""
    connection.autocommit = False
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.autocommit = True
