"""What the catalog of a PostgreSQL server says, from version 10 to 17 and on.

Each function takes a psycopg2 connection and reads in the caller's transaction;
nothing is committed here.  Only catalogs are read that every role may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg2
from psycopg2 import extensions, sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_rows import PlainIndex, TableRights, table_schema, user_types
from producer.errors import ConnectionLost, SourceError, Unsupported
from producer.sources import patterns
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres.connection import ReplicationConnection, reach
from producer.sources.postgres.managed import ROLES, Provider, refuse_pooler_of, service_of
from producer.sources.session_settings import POSTGRES, WHERE_KNOWN
from producer.wire.protocol import ServerError
from producer.wire.sqlstate import Asked, refusal
from schemas.encodings import BYTES_OR_UTF8, WITHOUT, is_text
from schemas.positions import Lsn, parse_lsn
from schemas.system_schemas import SYSTEM
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, UserType
from schemas.types import BY_OID, FIRST_OF_USERS

ROOTS: Final = 130_000  # from here on a partitioned table can be published as one
_TREES: Final = 120_000  # pg_partition_tree
MULTIRANGES: Final = 140_000
# Of a pg_class `c`: are all of its rows in the log?  A partitioned table is as its partitions are.
# No function of a partition tree: it waits for locks.
IS_LOGGED: Final = """(c.relpersistence = 'p' AND NOT (c.relkind = 'p' AND EXISTS (
    WITH RECURSIVE below (oid) AS (
        SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid
        UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid)
    SELECT FROM below b JOIN pg_class p ON p.oid = b.oid WHERE p.relpersistence <> 'p')))"""

# Of a pg_attribute `a` with NOT NULL: older rows meet it, too.  From 18 on it may be NOT VALID.
_IS_CHECKED: Final = """(a.attrelid, a.attnum) NOT IN (
    SELECT conrelid, conkey[1] FROM pg_constraint WHERE contype = 'n' AND NOT convalidated)"""


def connect(arguments: ConnectionArguments) -> Connection:
    """Log in by psycopg2, with the session settings of the stream; autocommit is on.

    Where the arguments name several hosts, to the one of their role.

    Raises ConnectionLost, LoginRefused, NotPermitted.
    """
    arguments = reach(arguments)
    options = " ".join(
        f"-c {name}={value.replace(' ', chr(92) + ' ')}"
        for name, value in POSTGRES.items()
        if name != "client_encoding"
    )
    # The last setting wins: values must have one text form, whatever the dsn says.
    options = f"{arguments.options} {options}".strip()
    settings = {**arguments.libpq(), "client_encoding": "UTF8", "options": options}
    try:
        connection: Connection = psycopg2.connect(**settings)
    except psycopg2.OperationalError as error:
        # libpq gives no SQLSTATE for a failed login, only text: our own client
        # repeats the login, and raises the exact error.
        ReplicationConnection.open(arguments, replication=False).close()
        raise ConnectionLost("cannot connect", host=arguments.host) from error
    connection.autocommit = True
    refuse_pooler_of(connection, arguments.host)
    with connection.cursor() as cursor:
        cursor.execute(WHERE_KNOWN)
    if connection.info.parameter_status("server_encoding") == WITHOUT:
        for name in (WITHOUT, "SQLASCII"):  # psycopg2 knows both
            extensions.encodings[name] = BYTES_OR_UTF8
        connection.set_client_encoding(WITHOUT)
    return connection


@contextmanager
def asking(connection: Connection, **where: object) -> Iterator[Any]:
    """Give a cursor; convert psycopg2's errors into ours.

    Raises ConnectionLost; for a refusal the narrowest SourceError, with `where`.
    """
    try:
        with connection.cursor() as cursor:
            yield cursor
    except psycopg2.Error as error:
        if error.pgcode is None:  # a message of the client: it contains no row
            reason = str(error).partition("\n")[0]
            raise ConnectionLost("the connection broke", hint="", reason=reason, **where) from error
        said = ServerError(sqlstate=error.pgcode, message=error.diag.message_primary or "")
        raise refusal(said, Asked.QUERY, **where) from error


class QueryingConnection:
    """`session.Asks` on a connection of psycopg2: rows are texts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def query(self, sql: str) -> list[list[str | None]]:
        """Run one statement; raises SourceError."""
        with asking(self._connection) as cursor:
            cursor.execute(sql)
            if cursor.description is None:
                return []
            return [[None if v is None else str(v) for v in row] for row in cursor.fetchall()]


# ---- the server


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Properties of a server that decide whether, and how, it can be captured."""

    version: int  # 150018 for 15.18
    version_text: str
    encoding: str
    wal_level: str
    in_recovery: bool
    max_replication_slots: int
    slots_used: int
    max_wal_senders: int
    wal_senders_used: int
    max_slot_wal_keep_size: str  # "-1" = without bound; "" before 13
    idle_slot_timeout: str  # until an unused slot is given up; "0": never, "" before 18
    wal_sender_timeout: str
    is_superuser: bool
    has_replication: bool
    may_create: bool  # CREATE on the database: required for a publication
    service_roles: list[str]  # roles by which a provider's service is known

    @property
    def service(self) -> Provider | None:
        """Whose service it is; None: a server of one's own."""
        return service_of(self.service_roles)


def server_info(connection: Connection) -> ServerInfo:
    """Read settings, use and rights."""
    with asking(connection) as cursor:
        cursor.execute(
            """
            SELECT current_setting('server_version_num')::int, version(),
                   current_setting('server_encoding'), current_setting('wal_level'),
                   pg_is_in_recovery(), current_setting('max_replication_slots')::int,
                   (SELECT count(*)::int FROM pg_replication_slots),
                   current_setting('max_wal_senders')::int,
                   (SELECT count(*)::int FROM pg_stat_replication),
                   coalesce(current_setting('max_slot_wal_keep_size', true), ''),
                   coalesce(current_setting('idle_replication_slot_timeout', true), ''),
                   current_setting('wal_sender_timeout'), rolsuper, rolreplication,
                   has_database_privilege(current_database(), 'CREATE'),
                   ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname = ANY (%s))
            FROM pg_roles WHERE rolname = current_user
            """,
            [list(ROLES)],
        )
        return ServerInfo(*cursor.fetchone())


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot as the server sees it."""

    name: str
    plugin: str | None  # None: a physical slot
    database: str | None
    temporary: bool
    active_pid: int | None
    confirmed_flush: Lsn | None
    restart: Lsn | None
    wal_status: str  # reserved | extended | unreserved | lost; "" before 13
    invalidation_reason: str  # from 17 on; "conflict" also for 16's `conflicting`; "" = none
    failover: bool = False  # standbys synchronize it; from 17 on
    synced: bool = False  # this server is a standby, which synchronizes it; from 17 on
    safe_bytes: int | None = None  # of log until the slot is lost; from 13 on; None: no limit

    @property
    def is_invalid(self) -> bool:
        """Is WAL or catalog that it needs gone, so that it is unusable?"""
        return self.wal_status == "lost" or bool(self.invalidation_reason)


def slot_state(connection: Connection, name: str) -> SlotState | None:
    """Read a slot; None if there is none of this name."""
    with asking(connection, slot=name) as cursor:
        # Columns differ by version; through JSON one query fits them all.
        cursor.execute(
            "SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s", [name]
        )
        if (row := cursor.fetchone()) is None:
            return None
    said: Mapping[str, Any] = row[0]
    reason = said.get("invalidation_reason") or ("conflict" if said.get("conflicting") else "")
    return SlotState(
        name=name,
        plugin=said["plugin"],
        database=said["database"],
        temporary=said["temporary"],
        active_pid=said["active_pid"],
        confirmed_flush=_lsn(said["confirmed_flush_lsn"]),
        restart=_lsn(said["restart_lsn"]),
        wal_status=said.get("wal_status") or "",
        invalidation_reason=reason,
        failover=bool(said.get("failover")),
        synced=bool(said.get("synced")),
        safe_bytes=said.get("safe_wal_size"),
    )


def log_end(connection: Connection) -> Lsn:
    """Return where the log ends; at a standby: how far it was replayed.

    What is committed and visible was written, or replayed, before.
    """
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
            " ELSE pg_current_wal_insert_lsn() END::text"
        )
        return parse_lsn(cursor.fetchone()[0])


def in_recovery(connection: Connection) -> bool:
    """Say whether the server is a standby."""
    with asking(connection) as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        return bool(cursor.fetchone()[0])


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else parse_lsn(text)


# ---- tables


def expand(
    connection: Connection, include: Sequence[str], exclude: Sequence[str] = ()
) -> list[TableId]:
    """Turn patterns (grammar: `producer.sources.patterns`) into tables, sorted.

    Ordinary and partitioned tables that are written to the WAL.  A partition is
    represented by its root wherever that is captured (from 13 on, where a root
    can be published).
    """
    chosen = _matching(connection, include, exclude)
    return sorted(
        table for oid, (table, root) in chosen.items() if root in (None, oid) or root not in chosen
    )


def matching(
    connection: Connection, include: Sequence[str], exclude: Sequence[str] = ()
) -> list[TableId]:
    """Like `expand`, with partitions and their roots side by side."""
    return sorted(table for table, _ in _matching(connection, include, exclude).values())


def _matching(
    connection: Connection, include: Sequence[str], exclude: Sequence[str]
) -> dict[int, tuple[TableId, int | None]]:
    """Tables by oid, each with its root's."""
    roots_count = connection.server_version >= ROOTS
    root = "pg_partition_root(c.oid)::oid" if roots_count else "NULL::oid"
    with asking(connection) as cursor:
        cursor.execute(
            sql.SQL(
                """
                SELECT n.nspname, c.relname, c.oid, {root}
                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE {is_logged} AND c.relkind = ANY (%s) AND n.nspname !~ %s
                """
            ).format(root=sql.SQL(root), is_logged=sql.SQL(IS_LOGGED)),
            [["r", "p"] if roots_count else ["r"], SYSTEM],
        )
        rows = cursor.fetchall()
    tables = {oid: (TableId(schema, name), of) for schema, name, oid, of in rows}
    matched = set(patterns.choose([table for table, _ in tables.values()], include, exclude))
    for table in matched:
        _check_name(str(table))
    return {oid: (table, of) for oid, (table, of) in tables.items() if table in matched}


def partitions(
    connection: Connection, roots: Sequence[TableId]
) -> dict[TableId, tuple[TableId, ...]]:
    """List the partitions with rows of each partitioned table; nothing before 12."""
    if not roots or connection.server_version < _TREES:
        return {}
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT w.schema, w.name, n.nspname, c.relname"
            " FROM unnest(%s::text[], %s::text[]) AS w(schema, name)"
            " JOIN pg_namespace m ON m.nspname = w.schema"
            " JOIN pg_class r ON r.relnamespace = m.oid AND r.relname = w.name"
            " JOIN LATERAL pg_partition_tree(r.oid) AS p ON p.isleaf AND r.relkind = 'p'"
            " JOIN pg_class c ON c.oid = p.relid AND c.relkind = 'r'"
            " JOIN pg_namespace n ON n.oid = c.relnamespace",
            [[table.schema for table in roots], [table.name for table in roots]],
        )
        rows = cursor.fetchall()
    out: dict[TableId, tuple[TableId, ...]] = {}
    for schema, name, *leaf in rows:
        root = TableId(schema, name)
        out[root] = (*out.get(root, ()), TableId(*leaf))
    return out


def table_schemas(connection: Connection, tables: Sequence[TableId]) -> list[TableSchema]:
    """Read the shapes of tables, in the order asked for; SourceError if one is not there.

    Dropped columns are left out.  Generated columns are in, though pgoutput does
    not send them before 18.
    """
    found = found_schemas(connection, tables)
    if missing := [str(table) for table in tables if table not in found]:
        raise SourceError("no such table", tables=missing)
    return [found[table] for table in tables]


def found_schemas(
    connection: Connection, tables: Sequence[TableId]
) -> Mapping[TableId, TableSchema]:
    """Read the shapes of those tables that are there."""
    if not tables:
        return {}
    with asking(connection) as cursor:
        cursor.execute(
            """
            SELECT w.ord::int, c.oid, c.relreplident::text
            FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS w(schema, name, ord)
            JOIN pg_namespace n ON n.nspname = w.schema
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
            WHERE c.relkind IN ('r', 'p')
            """,
            [[table.schema for table in tables], [table.name for table in tables]],
        )
        found = {tables[place - 1]: (oid, letter) for place, oid, letter in cursor.fetchall()}
        oids = [oid for oid, _ in found.values()]
        columns = _columns(cursor, oids, connection.server_version)
        indexes = _indexes(cursor, oids, connection.server_version)
    return {
        table: replace(
            table_schema(
                table, ReplicaIdentity(letter), columns.get(oid, []), indexes.get(oid, [])
            ),
            oid=oid,
        )
        for table, (oid, letter) in found.items()
    }


def table_name(connection: Connection, oid: int) -> TableId | None:
    """The name of a table by oid; None if there is none, or it is not in the log."""
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n"  # noqa: S608
            " ON n.oid = c.relnamespace WHERE c.oid = %s AND c.relkind IN ('r', 'p')"
            f" AND {IS_LOGGED}",
            [oid],
        )
        row = cursor.fetchone()
    return TableId(*row) if row is not None else None


def root_of(connection: Connection, oid: int) -> int:
    """The oid of the root of a partition; 0 if it is none."""
    with asking(connection) as cursor:
        cursor.execute("SELECT coalesce(pg_partition_root(%s)::oid::bigint, 0)", [oid])
        return int(cursor.fetchall()[0][0])


def type_name(connection: Connection, oid: int, modifier: int) -> str:
    """The SQL text of a built-in type, as in a column's definition; empty for any other.

    A target does not have the types of users: their name is useless without their definition,
    which only the reading of the column contains.
    """
    with asking(connection) as cursor:
        cursor.execute(
            "SELECT format_type(oid, %s) FROM pg_type WHERE oid = %s AND oid < %s",
            [modifier, oid, FIRST_OF_USERS],
        )
        row = cursor.fetchone()
    return str(row[0]) if row is not None else ""


# Tables, and what is below those that are partitioned.
TREE: Final = """
WITH RECURSIVE tree (root, oid) AS (
    SELECT o, o FROM unnest(%(oids)s::oid[]) AS o
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = t.oid
)"""
# What rows have that are older than a column. A partitioned table has none of its own; its leaves
# may have different ones, by a function that only claims to be stable.
#
# attmissingval is an array of one value: its text, parsed again. A type whose arrays are not
# separated by commas (box) never needs quotes there.
_KEPT: Final = f"""{TREE}, kept (root, name, value, is_one) AS (
    SELECT t.root, a.attname, min(a.attmissingval::text),
           min(a.attmissingval::text) = max(a.attmissingval::text)
    FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atthasmissing
    GROUP BY 1, 2)
"""  # noqa: S608  a constant
_NOT_KEPT: Final = """
WITH kept (root, name, value, is_one) AS (SELECT 0::oid, ''::name, ''::text, true WHERE false)
"""


def _columns(cursor: Any, oids: list[int], version: int) -> dict[int, list[Column]]:
    generated = "a.attgenerated::text" if version >= 120000 else "''"
    keeps = version >= 110000
    cursor.execute(
        sql.SQL(
            """
            {kept}
            SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod,
                   format_type(a.atttypid, a.atttypmod),
                   NOT (a.attnotnull AND {is_checked} OR (t.typtype = 'd' AND t.typnotnull)),
                   {generated}, a.attidentity::text,
                   CASE WHEN k.is_one THEN
                       CASE WHEN t.typdelim = ',' THEN (k.value::text[])[1]
                       ELSE substr(k.value, 2, length(k.value) - 2) END END,
                   a.atthasdef AND {generated} = '' OR coalesce(NOT k.is_one, false), a.attnum
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN kept k ON k.root = a.attrelid AND k.name = a.attname
            WHERE a.attrelid = ANY (%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attrelid, a.attnum
            """
        ).format(
            generated=sql.SQL(generated),
            kept=sql.SQL(_KEPT if keeps else _NOT_KEPT),
            is_checked=sql.SQL(_IS_CHECKED),
        ),
        {"oids": oids},
    )
    rows = cursor.fetchall()
    made = _user_types(cursor, {type_oid for _, _, type_oid, *_ in rows}, version)
    columns = dict[int, list[Column]]()
    for oid, *shape, number in rows:
        _check_name(shape[0])
        column = replace(Column(*shape), user_type=made.get(shape[1]), number=number)
        if column.user_type is None and column.type_oid >= FIRST_OF_USERS:
            column = replace(column, type_name="")  # it was dropped between the two queries
        if column.missing is not None and not is_text(column.missing):
            column = replace(column, missing=None, has_default=True)  # of older rows: not known
        columns.setdefault(oid, []).append(column)
    return columns


def _check_name(name: str) -> None:
    """Refuse a name that no topic, schema or target could have."""
    if not is_text(name):
        raise Unsupported(
            "a name is not text: the database has no encoding, and its bytes are not UTF-8",
            name=name.encode(BYTES_OR_UTF8).decode("ascii", "backslashreplace"),
            hint="rename it, or exclude the table",
        )


def _user_types(cursor: Any, oids: Iterable[int], version: int) -> dict[int, UserType]:
    """Definitions of those types that are not in our table of types."""
    if not (unknown := [oid for oid in oids if oid not in BY_OID]):
        return {}
    multirange = "WHEN 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = t.oid)"
    statement = sql.SQL(
        """
        WITH RECURSIVE of_use (oid) AS (
            SELECT unnest(%s::oid[])
            UNION
            SELECT coalesce(a.atttypid, CASE t.typtype WHEN 'd' THEN t.typbasetype
                            WHEN 'r' THEN (SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid)
                            {multirange} ELSE t.typelem END)
            FROM of_use u JOIN pg_type t ON t.oid = u.oid
            LEFT JOIN pg_attribute a ON a.attrelid = t.typrelid AND t.typtype = 'c'
                AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
            WHERE t.typtype IN ('d', 'r', 'm') OR a.atttypid IS NOT NULL
               OR EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid)
        )
        SELECT t.oid, CASE WHEN e.oid IS NULL THEN t.typtype::text ELSE 'a' END, t.typname,
               CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
                    WHEN e.oid IS NOT NULL THEN format_type(e.oid, NULL) ELSE '' END,
               CASE t.typtype WHEN 'd' THEN t.typbasetype
                    WHEN 'r' THEN (SELECT rngsubtype FROM pg_range WHERE rngtypid = t.oid)
                    {multirange} ELSE coalesce(e.oid, 0::oid) END,
               CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE -1 END, t.typdelim::text,
               CASE WHEN t.typtype = 'c' THEN
                   ARRAY(SELECT concat_ws(':', a.attnum, a.atttypid, a.atttypmod)
                         FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0
                         AND NOT a.attisdropped ORDER BY a.attnum)
               ELSE ARRAY(SELECT l.enumlabel::text FROM pg_enum l WHERE l.enumtypid = t.oid
                          ORDER BY l.enumsortorder) END
        FROM of_use u JOIN pg_type t ON t.oid = u.oid LEFT JOIN pg_type e ON e.typarray = t.oid
        """
    )
    has_them = version >= MULTIRANGES
    cursor.execute(statement.format(multirange=sql.SQL(multirange if has_them else "")), [unknown])
    said = {oid: shape for oid, *shape in cursor.fetchall()}
    return user_types(said, unknown)


def _indexes(cursor: Any, oids: list[int], version: int) -> dict[int, list[PlainIndex]]:
    # Columns after INCLUDE (from 11 on) are not part of the key.
    width = "i.indnkeyatts" if version >= 110000 else "i.indnatts"
    cursor.execute(
        sql.SQL(
            """
            SELECT i.indrelid, c.relname,
                   array_agg(a.attname::text ORDER BY k.place),
                   i.indisprimary AND i.indimmediate AND i.indisvalid,
                   i.indisunique AND i.indisvalid AND i.indisready AND i.indpred IS NULL,
                   i.indisreplident
            FROM pg_index i
            JOIN pg_class c ON c.oid = i.indexrelid
            CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            WHERE i.indrelid = ANY (%s::oid[]) AND i.indexprs IS NULL AND k.place <= {width}
            GROUP BY i.indexrelid, i.indrelid, c.relname, i.indisprimary, i.indimmediate,
                     i.indisunique, i.indisvalid, i.indisready, (i.indpred IS NULL),
                     i.indisreplident
            ORDER BY c.relname
            """
        ).format(width=sql.SQL(width)),
        [oids],
    )
    indexes = dict[int, list[PlainIndex]]()
    for oid, *shape in cursor.fetchall():
        name, names, *flags = shape
        indexes.setdefault(oid, []).append(PlainIndex(name, tuple(names), *flags))
    return indexes


def table_rights(connection: Connection, tables: Sequence[TableId]) -> list[TableRights]:
    """Read what the role may do, in the order asked for; tables that are gone are left out."""
    with asking(connection) as cursor:
        cursor.execute(
            """
            SELECT w.schema, w.name, has_schema_privilege(n.oid, 'USAGE'),
                   has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),
                   NOT row_security_active(c.oid)
            FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS w(schema, name, ord)
            JOIN pg_namespace n ON n.nspname = w.schema
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
            ORDER BY w.ord
            """,
            [[table.schema for table in tables], [table.name for table in tables]],
        )
        return [TableRights(TableId(*row[:2]), *row[2:]) for row in cursor.fetchall()]


def user(connection: Connection) -> str:
    """Name the role that statements run as."""
    with asking(connection) as cursor:
        cursor.execute("SELECT current_user::text")
        return str(cursor.fetchone()[0])
