"""The catalog of openGauss and GaussDB, read by simple queries.

openGauss is derived from PostgreSQL 9.2.4 and always reports that version: the
columns of its catalog are queried, never derived from a version.  The queries
use only the SQL of 9.2 (no LATERAL, no WITH ORDINALITY,
no regnamespace, no to_jsonb), so that a real PostgreSQL answers them too.

Every name and value is quoted (`schemas.quoting`).  The session must have
`search_path = pg_catalog`, so that type names come qualified.

Unlike PostgreSQL: partitions are not tables of their own (pg_partition),
pg_attrdef.adgencol marks a generated column, and the value of an added column in
older rows is stored in a binary form (attinitdefval), so `missing` is unknown:
such a column has `has_default`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from producer.core.catalog.catalog_rows import (
    PlainIndex,
    TableRights,
    TypeRow,
    table_schema,
    user_types,
)
from producer.errors import DecodeError, SourceError
from producer.sources import patterns
from producer.sources.gauss.system_schemas import is_system_schema
from producer.sources.session import Asks
from schemas.quoting import constant, one_of
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, UserType
from schemas.types import BY_OID, FIRST_OF_USERS
from schemas.types.arrays import elements

# A type's text.  openGauss' xid has 64 bits: in PostgreSQL's words that is xid8, and PostgreSQL
# before 16 would cut off the upper half of one in a column of xid without an error.
_SHOWN: Final = (
    "CASE WHEN {oid} = 28 AND t.typlen = 8 THEN 'xid8' ELSE format_type({oid}, {modifier}) END"
)
_OF_RANGE: Final = "(SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = t.oid)"
_TABLES_AT_ONCE: Final = 500  # of one query, which is sent as one text


def settings(session: Asks, names: Iterable[str]) -> dict[str, str]:
    """Read server settings by name, in pg_settings' units; those that it has not are left out."""
    rows = session.query(
        f"SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN {one_of(names)}"  # noqa: S608  quoted
    )
    return {_text(name): value or "" for name, value in rows}


def catalog_columns(session: Asks, catalog: str) -> frozenset[str]:
    """Columns that a table or view of pg_catalog has on this server."""
    rows = session.query(
        "SELECT attname FROM pg_catalog.pg_attribute"  # noqa: S608  quoted
        f" WHERE attrelid = {constant(f'pg_catalog.{catalog}')}::regclass"
        " AND attnum > 0 AND NOT attisdropped"
    )
    return frozenset(_text(name) for (name,) in rows)


def system(session: Asks) -> tuple[str, int]:
    """Read system identifier and timeline, for a session that may not ask IDENTIFY_SYSTEM.

    These two functions were not tested on a real server of the family.
    """
    rows = session.query(
        "SELECT s.system_identifier::text, c.timeline_id"
        " FROM pg_control_system() s, pg_control_checkpoint() c"
    )
    return _text(rows[0][0]), int(rows[0][1] or 0)


# ---- tables


def expand(session: Asks, include: Sequence[str], exclude: Sequence[str] = ()) -> list[TableId]:
    """Turn patterns (grammar: `producer.sources.patterns`) into tables, sorted.

    Ordinary tables in row storage that are written to the WAL; a partition is
    part of its table.
    """
    has = catalog_columns(session, "pg_class")
    partition = "AND NOT c.relispartition" if "relispartition" in has else ""
    rows = session.query(
        f"""
        SELECT n.nspname, c.relname FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' {partition}
          AND coalesce(array_to_string(c.reloptions, ','), '') !~* 'orientation *= *(column|orc)'
        """  # noqa: S608  no value in it
    )
    tables = [TableId(_text(schema), _text(name)) for schema, name in rows]
    return patterns.choose(
        [table for table in tables if not is_system_schema(table.schema)], include, exclude
    )


def table_schemas(session: Asks, tables: Sequence[TableId]) -> list[TableSchema]:
    """Read the shapes of tables, in the order asked for; SourceError if one is not there.

    Dropped columns are left out, generated ones are in.
    """
    found = _known(session, tables)
    if missing := [str(table) for table in tables if table not in found]:
        raise SourceError("no such table", tables=missing)
    return [found[table] for table in tables]


def table_schema_or_none(session: Asks, table: TableId) -> TableSchema | None:
    """Read the shape of one table; None if it is gone."""
    return _known(session, [table]).get(table)


def table_rights(session: Asks, tables: Sequence[TableId]) -> list[TableRights]:
    """Read what the role may do with tables; those that are gone are left out."""
    wanted = set(tables)
    found = []
    for start in range(0, len(tables), _TABLES_AT_ONCE):
        some = tables[start : start + _TABLES_AT_ONCE]
        rows = session.query(
            "SELECT n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE'),"  # noqa: S608  quoted
            " has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE')"
            " FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname IN {one_of(table.schema for table in some)}"
            f" AND c.relname IN {one_of(table.name for table in some)} ORDER BY 1, 2"
        )
        for schema, name, *flags in rows:
            table = TableId(_text(schema), _text(name))
            if table in wanted:
                wanted.remove(table)
                found.append(TableRights(table, *(flag == "t" for flag in flags)))
    return found


def user(session: Asks) -> str:
    """Name the role that statements run as."""
    return _text(session.query("SELECT current_user::text")[0][0])


def type_name(session: Asks, oid: int, modifier: int) -> str:
    """The SQL text of a type, as in a column's definition; empty where it is gone."""
    rows = session.query(
        f"SELECT {_SHOWN.format(oid='t.oid', modifier=f'{modifier:d}')}"  # noqa: S608  numbers
        f" FROM pg_catalog.pg_type t WHERE t.oid = {oid:d}"
    )
    return _text(rows[0][0]) if rows else ""


def _known(session: Asks, tables: Sequence[TableId]) -> dict[TableId, TableSchema]:
    features = _features(session)
    found: dict[TableId, TableSchema] = {}
    for start in range(0, len(tables), _TABLES_AT_ONCE):
        found.update(_some_known(session, tables[start : start + _TABLES_AT_ONCE], features))
    return found


@dataclass(frozen=True, slots=True)
class _Features:
    """Columns that this server's catalog has."""

    pg_class: frozenset[str]
    pg_attribute: frozenset[str]
    pg_attrdef: frozenset[str]
    pg_index: frozenset[str]


def _features(session: Asks) -> _Features:
    return _Features(
        *(
            catalog_columns(session, name)
            for name in ("pg_class", "pg_attribute", "pg_attrdef", "pg_index")
        )
    )


def _some_known(
    session: Asks, tables: Sequence[TableId], features: _Features
) -> dict[TableId, TableSchema]:
    identity = "c.relreplident::text" if "relreplident" in features.pg_class else "'d'"
    listed = ", ".join(f"({constant(t.schema)}, {constant(t.name)})" for t in tables)
    rows = session.query(
        f"""
        SELECT c.oid, n.nspname, c.relname, {identity} FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN ({listed})
        """  # noqa: S608  quoted
    )
    oids = [int(_text(row[0])) for row in rows]
    if not oids:
        return {}
    columns = _columns(session, oids, features)
    indexes = _indexes(session, columns, features)
    return {
        (table := TableId(_text(schema), _text(name))): table_schema(
            table,
            ReplicaIdentity(letter or "d"),
            list(columns[int(_text(oid))].values()),
            indexes[int(_text(oid))],
        )
        for oid, schema, name, letter in rows
    }


def _columns(
    session: Asks, oids: Sequence[int], features: _Features
) -> Mapping[int, dict[int, Column]]:
    """Columns of tables by number, in their order."""
    generated = "''"
    if "attgenerated" in features.pg_attribute:
        generated = "a.attgenerated::text"
    elif "adgencol" in features.pg_attrdef:
        generated = "coalesce(d.adgencol::text, '')"  # its zero byte is an empty text
    identity = "a.attidentity::text" if "attidentity" in features.pg_attribute else "''"
    missing = "NULL"
    if "atthasmissing" in features.pg_attribute:
        missing = (
            "CASE WHEN NOT a.atthasmissing THEN NULL"
            " WHEN t.typdelim = ',' THEN (a.attmissingval::text::text[])[1]"
            " ELSE substr(a.attmissingval::text, 2, length(a.attmissingval::text) - 2) END"
        )
    rows = session.query(
        f"""
        SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod,
               {_SHOWN.format(oid="a.atttypid", modifier="a.atttypmod")},
               a.attnotnull OR (t.typtype = 'd' AND t.typnotnull),
               {generated}, {identity}, {missing}, a.atthasdef
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid IN ({_numbers(oids)}) AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attrelid, a.attnum
        """  # noqa: S608  numbers
    )
    made = _user_types(session, {int(_text(row[3])) for row in rows})
    columns: dict[int, dict[int, Column]] = defaultdict(dict)
    for table, number, name, oid, modifier, shown, filled, how, own, lacking, default in rows:
        type_oid = int(_text(oid))
        columns[int(_text(table))][int(_text(number))] = Column(
            name=_text(name),
            type_oid=type_oid,
            type_mod=int(_text(modifier)),
            type_name=_text(shown),
            nullable=not _is_true(filled),
            generated=how or "",
            identity=own or "",
            missing=lacking,
            has_default=_is_true(default) and not how,
            user_type=made.get(type_oid),
        )
    return columns


def _user_types(session: Asks, oids: Iterable[int]) -> dict[int, UserType]:
    """Definitions of those types that are not in our table of types."""
    if not (unknown := sorted(oid for oid in oids if oid not in BY_OID)):
        return {}
    rows = session.query(
        f"""
        WITH RECURSIVE of_use (oid) AS (
            SELECT oid FROM pg_catalog.pg_type WHERE oid IN ({_numbers(unknown)})
            UNION
            SELECT coalesce(a.atttypid, CASE t.typtype WHEN 'd' THEN t.typbasetype
                            WHEN 'r' THEN {_OF_RANGE} ELSE t.typelem END)
            FROM of_use u JOIN pg_catalog.pg_type t ON t.oid = u.oid
            LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid AND t.typtype = 'c'
                AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= {FIRST_OF_USERS}
            WHERE t.typtype IN ('d', 'r') OR a.atttypid IS NOT NULL
               OR EXISTS (SELECT 1 FROM pg_catalog.pg_type e WHERE e.typarray = t.oid)
        )
        SELECT t.oid, CASE WHEN e.oid IS NULL THEN t.typtype::text ELSE 'a' END, t.typname,
               CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod)
                    WHEN e.oid IS NOT NULL THEN format_type(e.oid, NULL) ELSE '' END,
               CASE t.typtype WHEN 'd' THEN t.typbasetype
                    WHEN 'r' THEN {_OF_RANGE} ELSE coalesce(e.oid, 0::oid) END,
               CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE -1 END, t.typdelim::text,
               CASE WHEN t.typtype = 'c' THEN
                   ARRAY(SELECT concat_ws(':', a.attnum, a.atttypid, a.atttypmod)
                         FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.typrelid
                         AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
               ELSE ARRAY(SELECT l.enumlabel::text FROM pg_catalog.pg_enum l
                          WHERE l.enumtypid = t.oid ORDER BY l.enumsortorder) END
        FROM of_use u JOIN pg_catalog.pg_type t ON t.oid = u.oid
        LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
        """  # noqa: S608  numbers
    )
    said: dict[int, TypeRow] = {
        int(_text(oid)): (
            _text(kind), _text(name), made_of or "", int(_text(inner)), int(_text(modifier)),
            _text(delimiter), [label or "" for label in elements(_text(labels))],
        )
        for oid, kind, name, made_of, inner, modifier, delimiter, labels in rows
    }  # fmt: skip
    return user_types(said, unknown)


def _indexes(
    session: Asks, columns: Mapping[int, dict[int, Column]], features: _Features
) -> Mapping[int, list[PlainIndex]]:
    """Indexes over plain columns, by table and name."""
    has = features.pg_index
    width = "i.indnkeyatts" if "indnkeyatts" in has else "i.indnatts"  # without INCLUDE
    usable = "i.indisvalid AND i.indisready"
    if "indisusable" in has:
        usable += " AND i.indisusable"
    identity = "i.indisreplident" if "indisreplident" in has else "false"
    rows = session.query(
        f"""
        SELECT i.indrelid, c.relname, i.indkey::text, {width}, i.indisprimary,
               i.indisunique AND i.indpred IS NULL AND {usable}, {identity}
        FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid IN ({_numbers(columns)}) AND i.indexprs IS NULL
        ORDER BY i.indrelid, c.relname
        """  # noqa: S608  numbers
    )
    indexes: dict[int, list[PlainIndex]] = defaultdict(list)
    for table, name, key, count, primary, unique, replica in rows:
        of_table = columns[int(_text(table))]
        numbers = [int(number) for number in _text(key).split()][: int(_text(count))]
        if all(number in of_table for number in numbers):  # else over a system column
            indexes[int(_text(table))].append(
                PlainIndex(
                    name=_text(name),
                    columns=tuple(of_table[number].name for number in numbers),
                    is_primary=_is_true(primary),
                    is_unique=_is_true(unique),
                    is_identity=_is_true(replica),
                )
            )
    return indexes


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(f"{value:d}" for value in values) or "0"


def _text(value: str | None) -> str:
    if value is None:
        raise DecodeError("the catalog lacks a value")
    return value


def _is_true(value: str | None) -> bool:
    return value == "t"
