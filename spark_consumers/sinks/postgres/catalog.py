"""What a target's tables are: columns, keys, unique indexes, foreign keys.

Read from pg_catalog once per table version; from it follows which statements
are safe for the table (spark_consumers/sinks/postgres/apply.py).
"""
# ruff: noqa: S608  every part of a statement is our own

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.quoting import constant, qualified
from schemas.tables import TableId
from spark_consumers.dialects.postgres import OF_SOURCE
from spark_consumers.sinks.postgres.products import EQUALITY, POSTGRES, TargetProduct


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One column of a target's table."""

    name: str
    type_name: str  # base type of a domain, so that a staged row may hold NULL
    nullable: bool
    is_generated: bool  # computed by the target: never written
    is_always: bool  # GENERATED ALWAYS AS IDENTITY
    equality: str  # its `=`, of btree (method 403): json, xml, points have none, boxes only areas

    @property
    def key_equality(self) -> str:
        """The same of a column with a unique index; of a row type it is the server's."""
        return self.equality or "="


@dataclass(frozen=True, slots=True)
class TargetUnique:
    """A unique index other than the key."""

    name: str
    columns: tuple[str, ...]  # () = over expressions
    is_deferrable: bool
    is_of_source: bool = False  # made after one of the source's, which may be gone there by now


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table as the target has it."""

    id: TableId
    oid: int
    columns: Mapping[str, TargetColumn]
    key: tuple[str, ...]
    key_is_deferrable: bool
    uniques: tuple[TargetUnique, ...]
    parents: frozenset[int]  # oids of tables that our foreign keys point at
    children: frozenset[int]  # oids of tables whose foreign keys point here
    is_counted: bool = False  # the server counts its rows under this oid
    numbers: Mapping[str, int] = field(default_factory=dict)  # of the columns, which a rename keeps
    loose: frozenset[str] = frozenset()  # columns in which different texts may be equal
    persistence: str = "p"  # u: a crash of the server empties it
    has_heirs: bool = False  # UPDATE, DELETE and TRUNCATE mean tables that inherit from it, too
    version: str = ""  # another one after an ALTER TABLE that matters
    home: int = 0  # oid of the ledger, if there is one: another one in a restored database
    shadow: TableId | None = None  # what is described: where its rows go until END of its load

    @property
    def place(self) -> TableId:
        """Where its rows are written."""
        return self.shadow or self.id


MOST_COLUMNS: Final = 1600  # of a table; PostgreSQL manual, appendix "PostgreSQL Limits"

_COLUMNS: Final = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind = 'r' AND NOT c.relhassubclass, a.attname,
       format_type(base.oid, base.modifier),
       NOT a.attnotnull, a.attgenerated <> '', a.attidentity = 'a',
{EQUALITY}
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN unnest(%s::text[], %s::text[]) AS wanted(s, t) ON n.nspname = s AND c.relname = t
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN LATERAL (
    WITH RECURSIVE made_of (oid, modifier, kind, depth) AS (
        SELECT t.oid, a.atttypmod, t.typtype, 0 FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
        UNION ALL
        SELECT b.oid, d.typtypmod, b.typtype, m.depth + 1
        FROM made_of m JOIN pg_catalog.pg_type d ON d.oid = m.oid
        JOIN pg_catalog.pg_type b ON b.oid = d.typbasetype WHERE m.kind = 'd'
    )
    SELECT oid, modifier FROM made_of ORDER BY depth DESC LIMIT 1
) AS base ON true
LEFT JOIN pg_catalog.pg_type ty ON ty.oid = base.oid
LEFT JOIN pg_catalog.pg_type el ON el.oid = CASE WHEN ty.typcategory = 'A' THEN ty.typelem
                                            ELSE ty.oid END
WHERE c.relkind IN ('r', 'p')
ORDER BY c.oid, a.attnum
"""
_INDEXES: Final = """
SELECT i.indrelid, ic.relname, i.indisprimary, NOT i.indimmediate, i.indpred IS NOT NULL,
       ARRAY(SELECT a.attname::text FROM generate_subscripts(i.indkey, 1) AS k(at)
             JOIN pg_catalog.pg_attribute a
               ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.at]
             WHERE k.at < i.indnkeyatts ORDER BY k.at),
       i.indexprs IS NOT NULL,
       pg_catalog.obj_description(ic.oid, 'pg_class') IS NOT DISTINCT FROM %s
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
WHERE i.indisunique AND i.indisvalid AND i.indrelid = ANY(%s::oid[])
ORDER BY i.indrelid, NOT i.indisprimary, ic.relname
"""
_FOREIGN_KEYS: Final = """
SELECT conrelid, confrelid FROM pg_catalog.pg_constraint
WHERE contype = 'f' AND (conrelid = ANY(%s::oid[]) OR confrelid = ANY(%s::oid[]))
"""
# Of `c`. xmin is that of the newest statement about a column: VACUUM FULL and ANALYZE keep it.
# Foreign keys that come or go have triggers, at both ends.
_VERSION: Final = """
c.relpersistence::text
|| ' ' || EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)::text
|| ' ' || (SELECT count(*)::text || ' ' || coalesce(sum(v.xmin::text::bigint), 0)::text
           FROM pg_catalog.pg_attribute v WHERE v.attrelid = c.oid AND v.attnum > 0)
|| ' ' || (SELECT count(*) FROM pg_catalog.pg_trigger r WHERE r.tgrelid = c.oid)::text
"""
# In citext, and by a collation that is not deterministic, which not every version has.
_DETAILS: Final = f"""
SELECT c.oid, c.relpersistence::text,
       c.relkind = 'r'
       AND EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
       {_VERSION}, coalesce((
           SELECT l.oid::bigint FROM pg_catalog.pg_class l
           JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
           WHERE n.nspname = 'gauss_cdc' AND l.relname = 'ledger'), 0),
       a.attname, a.attnum,
       ty.typname = 'citext'
       OR coalesce(row_to_json(co)::text LIKE '%%"collisdeterministic":false%%', false)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
WHERE c.oid = ANY(%s::oid[])
"""


def is_as_read(table: TargetTable) -> str:
    """Write the condition that a table is as it was read, for tables that a statement locked."""
    name = constant(qualified(table.id))
    return (
        f"EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = {table.oid:d}"
        f" AND c.oid = {name}::pg_catalog.regclass AND {_VERSION} = '{table.version}')"
    )


def read_tables(
    cursor: Any, tables: Iterable[TableId], product: TargetProduct = POSTGRES
) -> dict[TableId, TargetTable]:
    """Describe those of `tables` that the target has."""
    asked = list(tables)
    names_of = ([t.schema for t in asked], [t.name for t in asked])
    cursor.execute(product.columns or _COLUMNS, names_of)
    names: dict[int, TableId] = {}
    columns: dict[int, dict[str, TargetColumn]] = {}
    counted: dict[int, bool] = {}
    for oid, schema, table, counted[oid], name, *rest in cursor.fetchall():
        names[oid] = TableId(schema, table)
        there = columns.setdefault(oid, {})
        if name is not None:  # a table may have no column at all
            there[name] = TargetColumn(name, *rest)
    if not names:
        return {}
    oids = list(names)
    cursor.execute(_INDEXES, (OF_SOURCE, oids))
    indexes: dict[int, list[tuple[Any, ...]]] = {}
    for oid, *index in cursor.fetchall():
        indexes.setdefault(oid, []).append(tuple(index))
    cursor.execute(_FOREIGN_KEYS, (oids, oids))
    links = cursor.fetchall()
    details = _details(cursor, oids)
    return {
        table: _table(
            table,
            oid,
            columns[oid],
            indexes.get(oid, []),
            parents=frozenset(parent for child, parent in links if child == oid),
            children=frozenset(child for child, parent in links if parent == oid),
            is_counted=counted[oid],
            **details[oid],
        )
        for oid, table in names.items()
    }


def _table(
    table: TableId,
    oid: int,
    columns: dict[str, TargetColumn],
    indexes: list[tuple[Any, ...]],
    *,
    parents: frozenset[int],
    children: frozenset[int],
    is_counted: bool,
    **details: Any,
) -> TargetTable:
    key: tuple[str, ...] = ()
    key_is_deferrable = False
    uniques = []
    for name, primary, deferrable, partial, of, expressions, of_source in indexes:
        whole = not partial and not expressions and not of_source
        if not key and whole and (primary or all(not columns[c].nullable for c in of)):
            # Without a primary key, a unique index over NOT NULL columns names rows as well.
            key, key_is_deferrable = tuple(of), deferrable
        else:
            columns_of = () if expressions else tuple(of)
            uniques.append(TargetUnique(name, columns_of, deferrable, of_source))
    return TargetTable(
        table, oid, columns, key, key_is_deferrable, tuple(uniques), parents, children, is_counted,
        **details,
    )  # fmt: skip


def _details(cursor: Any, oids: list[int]) -> dict[int, dict[str, Any]]:
    """Read what else may change without a statement of ours that fails."""
    cursor.execute(_DETAILS, (oids,))
    found: dict[int, dict[str, Any]] = {}
    for oid, persistence, has_heirs, version, home, name, number, is_loose in cursor.fetchall():
        one = found.setdefault(
            oid,
            {"persistence": persistence, "has_heirs": has_heirs, "version": version, "home": home,
             "numbers": {}, "loose": frozenset()},
        )  # fmt: skip
        if name is not None:
            one["numbers"][name] = number
            one["loose"] |= {name} if is_loose else frozenset()
    return found


def parents_first(tables: Iterable[TargetTable]) -> list[TargetTable]:
    """Order tables by their foreign keys; a cycle is broken at an arbitrary place."""
    left = {table.oid: table for table in sorted(tables, key=lambda t: t.id)}
    out: list[TargetTable] = []
    while left:
        free = [t for t in left.values() if not (t.parents - {t.oid}) & left.keys()]
        for table in free or [next(iter(left.values()))]:
            out.append(table)
            del left[table.oid]
    return out
