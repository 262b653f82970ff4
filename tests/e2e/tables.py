"""What two databases hold, as PostgreSQL itself tells it: columns, types, keys, rows."""

from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass

import psycopg2

from schemas.tables import TableId

_TABLES = """
SELECT n.nspname, c.relname, c.relkind::text,
    (SELECT array_agg(attname || ' ' || CASE WHEN atttypid >= 16384 THEN '~'
                                             ELSE format_type(atttypid, atttypmod) END
                      ORDER BY attname COLLATE "C")
     FROM pg_attribute
     WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''),
    (SELECT array_agg(a.attname::text ORDER BY k.place)
     FROM pg_index i
     CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
     WHERE i.indrelid = c.oid AND i.indisprimary),
    (SELECT array_agg(DISTINCT u.relname::text)
     FROM pg_index i JOIN pg_class u ON u.oid = i.indexrelid
     WHERE i.indrelid = c.oid AND i.indisunique AND NOT i.indisprimary AND i.indpred IS NULL
       AND i.indexprs IS NULL),
    (SELECT string_agg(quote_ident(attname) || '::text', ', ' ORDER BY attname COLLATE "C")
     FROM pg_attribute
     WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname !~ '^(pg_|information_schema$|gauss_cdc$)'
"""


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: tuple[str, ...]
    rows: tuple[str, ...]


def tables(url: str, leave_out: AbstractSet[str] = frozenset()) -> dict[str, Table]:
    """Every captured table of a database, by name.

    One connection asks everything: each costs the server as much as ten of these questions.
    """
    out = {}
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(_TABLES)
        for schema, name, kind, columns, key, unique, names in cursor.fetchall():
            rows: list[tuple[str]] = []
            table = str(TableId(schema, name))
            if table not in leave_out:
                only = "ONLY" if kind == "r" else ""
                cursor.execute(
                    f'SELECT ROW({names or ""})::text COLLATE "C" '
                    f'FROM {only} "{schema}"."{name}" ORDER BY 1'
                )
                rows = cursor.fetchall()
            out[table] = Table(
                tuple(columns or ()),
                tuple(key or ()),
                tuple(unique or ()),
                tuple(r for (r,) in rows),
            )
    return out


def differences(source: str, target: str, inexact: AbstractSet[str] = frozenset()) -> list[str]:
    """What differs, told by table; rows of `inexact` tables are not looked at."""
    ours, theirs = tables(source, inexact), tables(target, inexact)
    out = [f"{name}: only at the source" for name in sorted(ours.keys() - theirs.keys())]
    # A table that is not captured any more stays as it was, marked.
    left = theirs.keys() - ours.keys() - inexact
    out += [f"{name}: only at the target" for name in sorted(left)]
    for name in sorted(ours.keys() & theirs.keys()):
        for what in ("columns", "key", "unique", "rows"):
            a, b = getattr(ours[name], what), getattr(theirs[name], what)
            if what == "columns" and len(a) == len(b):
                # A user's type is what the target has for it: tests of dialects say what.
                pairs = [(x, y) for x, y in zip(a, b, strict=True) if not _is_of_users(x, y)]
                a, b = tuple(x for x, _ in pairs), tuple(y for _, y in pairs)
            if a != b:
                only = sorted(set(a) - set(b))[:3], sorted(set(b) - set(a))[:3]
                out.append(f"{name}: {what} differ: source only {only[0]}, target only {only[1]}")
    return out


def _is_of_users(ours: str, theirs: str) -> bool:
    """Say whether two columns of one name have types that only a database of theirs has."""
    same = ours.rpartition(" ")[0].split(" ")[0] == theirs.split(" ", maxsplit=1)[0]
    return same and (ours.endswith(" ~") or theirs.endswith(" ~"))
